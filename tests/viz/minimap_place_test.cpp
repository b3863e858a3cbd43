#include "viz/model/minimap_place.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

const MinimapCorners kCorners = minimap_corners(0, 0, 1000, 800, 30, 10, 150, 200);

TEST(MinimapPlace, CornersLieInsideTheCanvas) {
  EXPECT_EQ(kCorners[0].x, 840);
  EXPECT_EQ(kCorners[0].y, 590);
  EXPECT_EQ(kCorners[1].x, 10);
  EXPECT_EQ(kCorners[2].y, 40) << "below the titles of the columns";
  for (const LayoutBox& corner : kCorners) {
    EXPECT_GE(corner.x, 0);
    EXPECT_LE(corner.right(), 1000);
    EXPECT_LE(corner.bottom(), 800);
  }
}

TEST(MinimapPlace, ItGoesWhereItCoversFewestNodes) {
  std::vector<LayoutBox> shapes;
  EXPECT_EQ(minimap_place(kCorners, shapes, {}, 0), 0);
  for (int i = 0; i < 5; ++i) shapes.push_back({850, 600.f + 20 * static_cast<float>(i), 100, 15});
  EXPECT_EQ(minimap_place(kCorners, shapes, {}, 0), 1) << "the first of those that are free";
  shapes.push_back({20, 600, 100, 15});
  EXPECT_EQ(minimap_place(kCorners, shapes, {}, 0), 2);
  shapes.push_back({850, 50, 100, 15});
  shapes.push_back({20, 50, 100, 15});
  EXPECT_EQ(minimap_place(kCorners, shapes, {}, 0), 1) << "none is free: one node against five";
  EXPECT_EQ(covered_by(kCorners[0], shapes), 5);
}

TEST(MinimapPlace, ItStaysWhileNoOtherCoversFewer) {
  const std::vector<LayoutBox> shapes{
      {850, 600, 100, 15}, {20, 600, 100, 15}, {850, 50, 100, 15}, {20, 50, 100, 15}};
  for (int now = 0; now < 4; ++now) EXPECT_EQ(minimap_place(kCorners, shapes, {}, now), now);
  EXPECT_EQ(minimap_place(kCorners, {}, {}, 3), 3);
}

TEST(MinimapPlace, TheSelectionIsNeverUnderItWhereOthersMayBe) {
  std::vector<LayoutBox> shapes;
  for (int i = 0; i < 9; ++i) shapes.push_back({20, 600.f + 20 * static_cast<float>(i), 100, 15});
  const std::vector<LayoutBox> selected{{850, 600, 100, 15}, {850, 50, 100, 15}, {20, 50, 100, 15}};
  EXPECT_EQ(minimap_place(kCorners, shapes, selected, 0), 1);
}

}  // namespace
}  // namespace gradloom
