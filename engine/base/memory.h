// How much memory this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {

// The least of what the machine has, what the control groups of the process allow, and its limit of address
// space. 8 GiB where the system says nothing.
std::int64_t usable_memory_bytes();

// The most memory that this process ever had resident (VmHWM). 0: the system does not tell.
std::int64_t process_peak_bytes();
// What it has resident now (VmRSS). 0: the system does not tell.
std::int64_t process_bytes();

// The least memory limit of the control groups that `membership` (/proc/self/cgroup) names, and of those
// around them; both versions of control groups, mounted below `mounts` (/sys/fs/cgroup). INT64_MAX: none.
std::int64_t cgroup_memory_limit(const std::string& membership, const std::string& mounts);

}  // namespace gradloom
