// How busy the machine was with others: the time in which work was ready and had no processor.
#pragma once

#include <cstdint>

namespace gradloom {

// Since the start of its threads: nanoseconds that those of this process stood in a run queue, added up
// (/proc/self/task/*/schedstat, second number; Linux, Documentation/scheduler/sched-stats), and what the host
// of a virtual machine took from it (steal of /proc/stat). The difference of two readings belongs to the time
// between them. 0 where the system does not tell.
std::int64_t processor_wait_ns();

}  // namespace gradloom
