// Ranks on this machine: what --ranks N does without a launcher. Open MPI's mpirun starts them, where there is one; else this
// process does itself, and they meet over TCP. GRADLOOM_TRANSPORT, "mpi" or "tcp", decides otherwise.
#pragma once

#include <cstdint>
#include <string>

#include "app/command.h"

namespace gradloom {

// How processes that were started together have ended.
struct LocalEnd {
  int code = 0;  // the exit code of the first that was not 0
  // Of the first that a signal ended, not one of ours: "rank 1 was ended by signal 9 (Killed)"
  std::string cause;
  std::string told;  // what their launcher says of it
  bool said = true;  // a rank that failed may have said why; false: none has said anything
};

// Runs this process's own command line in `ranks` processes and waits for them. What they print goes where this process's
// output goes. Errors: that which the ranks ended with (without a text where they have told it before they met); Errc::device:
// they cannot be started, or a signal has ended one.
Status start_local_ranks(std::int64_t ranks, CommandContext& context);

bool is_local_rank();  // this process was started so
// In such a rank: true; rank 0 has told the error to the process that started it, and all end with exit code 0.
bool end_as_local_rank(int rank, const Error& error);

}  // namespace gradloom
