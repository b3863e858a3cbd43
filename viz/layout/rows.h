// Ordering and horizontal placement of one stack of rows: the inner step of the layered layout.
//
// Input is a set of slots, each in one row, and links between slots of adjacent rows. The result is a centre
// x for every slot such that slots of a row keep a minimum gap and linked slots sit as straight above each
// other as that allows. Order: barycentre sweeps, ties by the slot's order key (so that a small change in the
// graph moves little). Position: per row the least-squares shift towards the linked slots under the gap
// constraints, which is isotonic regression and solved exactly by pooling adjacent violators.
#pragma once

#include <cstdint>
#include <vector>

namespace gradloom {

struct RowSlot {
  float width = 0;    // px
  int32_t row = 0;    // 0 = topmost
  int64_t order = 0;  // tie break and initial order
  bool bend = false;  // a bend of a long edge or a group port: keeps a smaller gap and is straightened harder
};

struct RowLink {
  int32_t upper = 0, lower = 0;      // slot indices; lower.row == upper.row + 1
  float upper_dx = 0, lower_dx = 0;  // where the edge attaches, relative to the slot's centre
};

// Returns the centre x of every slot; the smallest left border is 0.
// `steps`, when asked for, is raised by the slots that were looked at: what the work grows with.
std::vector<float> place_rows(const std::vector<RowSlot>& slots, const std::vector<RowLink>& links,
                              int32_t row_count, float gap, uint64_t* steps = nullptr);

}  // namespace gradloom
