// Ranks on this machine, started by Open MPI's mpirun: what --ranks N does without a launcher.
#pragma once

#include <cstdint>

#include "app/command.h"

namespace gradloom {

// Runs this process's own command line in `ranks` processes and waits for them. What they print goes where this process's
// output goes. Errors: that which the ranks ended with (without a text where they have told it before they met); Errc::device:
// mpirun is missing, or a signal has ended a rank ("rank 1 was ended by signal 9 (Killed)").
Status start_local_ranks(std::int64_t ranks, CommandContext& context);

bool is_local_rank();  // this process was started so
// In such a rank: true; rank 0 has told the error to the process that started it, and all end with exit code 0.
bool end_as_local_rank(int rank, const Error& error);

}  // namespace gradloom
