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
// one has failed, by its exit code or as failed() says, the others are asked to end after a second. They give up what they wait for, and
// rank 0 saves what there is to save. One that neither computes nor writes for six seconds is killed, and any after a minute, rank 0 after
// ten.
// Errc::device: a process cannot be started.
Result<LocalEnd> run_by_themselves(std::int64_t ranks, const std::vector<std::string>& command,
                                   const std::stop_token& stop, const std::function<bool()>& failed);

}  // namespace gradloom
