// Local ranks as children of Open MPI's mpirun.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "app/local_ranks.h"

namespace gradloom {

// Runs `command` in `ranks` processes and waits for them; mpirun's own files lie in `folder`. Errc::device: mpirun is missing.
Result<LocalEnd> run_by_mpirun(std::int64_t ranks, const std::vector<std::string>& command,
                               const std::string& folder, const std::stop_token& stop);

}  // namespace gradloom
