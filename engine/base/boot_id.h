// Which machine this is, from one start of it to the next.
#pragma once

#include <string>

namespace gradloom {

// Linux's random number of this boot; "?" where it tells none. Processes with the same one share a monotonic clock.
std::string boot_id();

}  // namespace gradloom
