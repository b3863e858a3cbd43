// How pass zero shares the optimizer's states out.
#pragma once

#include <cstdint>
#include <vector>

namespace gradloom {

// The rank of each parameter whose states take so many bytes: the largest first, to the rank that has least.
std::vector<std::int64_t> zero_owners(const std::vector<std::int64_t>& bytes, std::int64_t ranks);

}  // namespace gradloom
