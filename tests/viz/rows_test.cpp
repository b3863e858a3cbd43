// Order and position inside a stack of rows.
#include "viz/layout/rows.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradloom {
namespace {

TEST(Rows, ChainIsStraight) {
  const std::vector<RowSlot> slots{{100, 0, 0}, {60, 1, 1}, {140, 2, 2}};
  const std::vector<float> x = place_rows(slots, {{0, 1}, {1, 2}}, 3, 20);
  EXPECT_NEAR(x[0], x[1], 0.5f);
  EXPECT_NEAR(x[1], x[2], 0.5f);
  EXPECT_NEAR(x[2], 70, 0.5f);  // the widest slot starts at 0
}

// Blocks of three rows whose shortcut runs at one side, as residual networks have: each end of a shortcut
// pulls what follows to that side.
TEST(Rows, ALopsidedPatternThatRepeatsDoesNotDrift) {
  constexpr int kBlocks = 2000;
  std::vector<RowSlot> slots{{100, 0, 0}};
  std::vector<RowLink> links;
  std::vector<int> boxes{0};
  int last = 0;
  for (int block = 0; block < kBlocks; ++block) {
    const int row = 3 * block, first = static_cast<int>(slots.size());
    for (int i = 1; i <= 2; ++i) {
      slots.push_back({100, row + i, 10 * block + i});
      slots.push_back({2, row + i, 10 * block + i + 5, true});
    }
    slots.push_back({100, row + 3, 10 * block + 9});
    boxes.insert(boxes.end(), {first, first + 2, first + 4});
    links.insert(links.end(), {{last, first},
                               {last, first + 1},
                               {first, first + 2},
                               {first + 1, first + 3},
                               {first + 2, first + 4},
                               {first + 3, first + 4}});
    last = first + 4;
  }
  const std::vector<float> x = place_rows(slots, links, 3 * kBlocks + 1, 24);
  float low = x[0], high = x[0];
  for (const int box : boxes) low = std::min(low, x[box]), high = std::max(high, x[box]);
  EXPECT_LT(high - low, 300);
  for (std::size_t i = 0; i < boxes.size(); i += 3)
    EXPECT_NEAR(x[boxes[i]], x[0], 1) << "what everything passes through stands on one line";
}

TEST(Rows, CrossingIsRemoved) {
  // 0 -> 3 and 1 -> 2: with the order keys alone the lines would cross.
  const std::vector<RowSlot> slots{{50, 0, 0}, {50, 0, 1}, {50, 1, 0}, {50, 1, 1}};
  const std::vector<float> x = place_rows(slots, {{0, 3}, {1, 2}}, 2, 20);
  EXPECT_EQ(x[0] < x[1], x[3] < x[2]);
}

TEST(Rows, GapsAreKept) {
  std::vector<RowSlot> slots{{80, 0, 0}};
  std::vector<RowLink> links;
  for (int i = 0; i < 9; ++i) {
    slots.push_back({40, 1, i});
    links.push_back({0, i + 1});
  }
  const std::vector<float> x = place_rows(slots, links, 2, 16);
  for (int i = 1; i < 9; ++i) EXPECT_GE(x[i + 1] - x[i], 56 - 0.01f);
  EXPECT_NEAR(x[0], x[5], 0.5f);  // the parent sits over the middle child
}

TEST(Rows, AttachmentShiftIsHonoured) {
  const std::vector<RowSlot> slots{{200, 0, 0}, {20, 1, 0}};
  const std::vector<float> x = place_rows(slots, {{0, 1, 60, 0}}, 2, 10);
  EXPECT_NEAR(x[1], x[0] + 60, 0.5f);
}

}  // namespace
}  // namespace gradloom
