// Packing: searches for offsets in an arena of a given size, from which the planner closes in on the smallest.
// Requests are rectangles whose time is fixed and whose offset is free. Both searches are deterministic (the same
// numbers are drawn each time) and bounded by a count of work, not by a clock.
//
// Ejection: what does not fit is put where the fewest stand in its way, those that were hard to place counting
// more; they have to find other places then, in several starts (the ejection pools of Nagata and Braeysy, A powerful route minimization heuristic for
// the vehicle routing problem with time windows, 2009). Finds near-perfect packings of large sets.
//
// Exact: an arena fills from its floor upwards. A valley is a run of steps whose floor is equal and lower than
// that of its neighbours: only requests that live within it can rest on its floor. The search decides which, from left to right, or that
// nothing does and the floor rises to the lower wall; it fails where a step's floor and what must still stand
// on it are more than the arena, and what is cut off in time from the rest is packed on its own. That every request lies on another one or on the
// ground loses no packing (Moffitt, MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning, ASPLOS
// 2023, whose canonical solutions these are). Valleys with few choices and many failures behind them come first
// (Boussemart et al., Boosting systematic search by weighting constraints, 2004), in several starts with other orders of choices.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"

namespace gradloom {

enum class Packed : std::uint8_t { found, impossible, gave_up };

// `offsets` are those of an arena of `most` bytes when the answer is `found`, else of no use. `work` is what may be
// done, in requests and steps that are looked at (about two nanoseconds each), and then what is left of it.
// Bytes are multiples of the alignment; so are the offsets.
Packed pack_by_ejection(const std::vector<Request>& requests, std::int64_t most, std::int64_t& work,
                        std::vector<std::int64_t>& offsets);
// `impossible` is proven: no offsets fit.
Packed pack_exactly(const std::vector<Request>& requests, std::int64_t most, std::int64_t& work,
                    std::vector<std::int64_t>& offsets);

}  // namespace gradloom
