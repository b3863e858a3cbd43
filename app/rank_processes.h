// Local ranks as this process's own children, which meet over TCP: no launcher is needed.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "app/local_ranks.h"

namespace gradloom {

// Runs `command` in `ranks` processes, each told its rank as torchrun would (engine/ranks/place.h), and waits for them; a stop is passed on. Once
// one has failed, by its exit code or as failed() says, those that do not find that out by themselves are ended.
// Errc::device: a process cannot be started.
Result<LocalEnd> run_by_themselves(std::int64_t ranks, const std::vector<std::string>& command,
                                   const std::stop_token& stop, const std::function<bool()>& failed);

}  // namespace gradloom
