// Ways through the graph: what is next to boxes, and how one box leads to another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "viz/model/graph_model.h"

namespace gradloom {

// The boxes at the other end of a link of one of `boxes`, forward or back, that are none of them; by number.
std::vector<int32_t> graph_neighbours(const GraphModel& model, std::span<const int32_t> boxes);
// The fewest links from one box to the other, along their direction, whichever comes first; both ends are in it, and of ways as
// short the one with the lowest numbers at its end. Empty: neither leads to the other.
std::vector<int32_t> graph_path(const GraphModel& model, int32_t a, int32_t b);

}  // namespace gradloom
