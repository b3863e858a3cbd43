// What is next to boxes of a graph, and how one leads to another.
#include "viz/model/graph_paths.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

using Boxes = std::vector<int32_t>;

GraphModel linked(std::size_t boxes, const std::vector<std::pair<uint32_t, uint32_t>>& links) {
  GraphModel model;
  model.boxes.resize(boxes);
  for (const auto& [src, dst] : links) model.links.push_back({src, dst, kNone, false});
  return model;
}

// 0 -> 1 -> 3 -> 4, 0 -> 2 -> 3, and 5 apart with a link to 4.
const GraphModel kDiamond = linked(7, {{2, 3}, {0, 2}, {0, 1}, {1, 3}, {3, 4}, {5, 4}});

TEST(GraphPaths, NeighboursAreAtBothEndsOfLinks) {
  EXPECT_EQ(graph_neighbours(kDiamond, Boxes{3}), (Boxes{1, 2, 4}));
  EXPECT_EQ(graph_neighbours(kDiamond, Boxes{3, 4}), (Boxes{1, 2, 5}));
  EXPECT_EQ(graph_neighbours(kDiamond, Boxes{6}), Boxes{});
  EXPECT_EQ(graph_neighbours(kDiamond, Boxes{}), Boxes{});
}

TEST(GraphPaths, TheShortestWayGoesAlongTheLinks) {
  EXPECT_EQ(graph_path(kDiamond, 0, 4), (Boxes{0, 1, 3, 4}));
  EXPECT_EQ(graph_path(kDiamond, 4, 0), (Boxes{0, 1, 3, 4})) << "from the one that comes first";
  EXPECT_EQ(graph_path(kDiamond, 2, 2), Boxes{2});
  EXPECT_EQ(graph_path(kDiamond, 1, 2), Boxes{}) << "neither leads to the other";
  EXPECT_EQ(graph_path(kDiamond, 5, 0), Boxes{});
  const GraphModel shortcut = linked(4, {{0, 1}, {1, 2}, {2, 3}, {0, 3}});
  EXPECT_EQ(graph_path(shortcut, 0, 3), (Boxes{0, 3}));
}

}  // namespace
}  // namespace gradloom
