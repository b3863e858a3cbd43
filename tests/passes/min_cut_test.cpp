#include "passes/min_cut.h"

#include <gtest/gtest.h>

#include <random>

namespace gradloom {
namespace {

struct Arc {
  std::size_t from, to;
  double capacity;
};

double cut_by(const std::vector<Arc>& arcs, std::size_t source_side) {
  double cut = 0;
  for (const Arc& a : arcs)
    if ((source_side >> a.from & 1) && !(source_side >> a.to & 1)) cut += a.capacity;
  return cut;
}

TEST(MinCut, EqualsTheBestOfAllCuts) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t nodes = 2 + random() % 7;
    std::vector<Arc> arcs;
    for (std::size_t i = 0; i < nodes * 3; ++i) {
      const std::size_t from = random() % nodes, to = random() % nodes;
      if (from != to) arcs.push_back({from, to, static_cast<double>(random() % 10)});
    }
    MinCut network(nodes);
    for (const Arc& a : arcs) network.add_edge(a.from, a.to, a.capacity);
    double best = 1e9;
    for (std::size_t side = 0; side < std::size_t{1} << nodes; ++side)
      if ((side & 1) && !(side >> (nodes - 1) & 1)) best = std::min(best, cut_by(arcs, side));
    EXPECT_DOUBLE_EQ(network.solve(0, nodes - 1), best) << round;
    std::size_t found = 0;
    for (std::size_t n = 0; n < nodes; ++n)
      if (network.on_source_side(n)) found |= std::size_t{1} << n;
    EXPECT_DOUBLE_EQ(cut_by(arcs, found), best) << round;
  }
}

TEST(MinCut, ALongChainNeedsNoStack) {
  constexpr std::size_t kNodes = 200'000;
  MinCut network(kNodes);
  for (std::size_t i = 0; i + 1 < kNodes; ++i)
    network.add_edge(i, i + 1, i == kNodes / 2 ? 3 : MinCut::kUnlimited);
  EXPECT_DOUBLE_EQ(network.solve(0, kNodes - 1), 3);
  EXPECT_TRUE(network.on_source_side(kNodes / 2));
  EXPECT_FALSE(network.on_source_side(kNodes / 2 + 1));
}

}  // namespace
}  // namespace gradloom
