// The layout's promises: no overlaps, flow down (forward) and up (backward),
// partners on one row, determinism, folding.
#include "viz/layout/layout.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace gradloom {
namespace {

// A transformer-like training step: `layers` scopes with `attention` and `mlp` inside, a backward node per
// forward node with edges against the flow, an optimizer node on every fourth one.
LayoutInput training_graph(int layers, int per_half) {
  LayoutInput in;
  std::vector<uint32_t> backward_of;
  auto node = [&](LayoutColumn column, int32_t scope, int32_t partner) {
    LayoutNode n;
    n.width = 90.f + static_cast<float>(in.nodes.size() * 37 % 60);
    n.height = 40;
    n.scope = scope;
    n.column = column;
    n.partner = partner;
    n.order = static_cast<int64_t>(in.nodes.size());
    in.nodes.push_back(n);
    return static_cast<uint32_t>(in.nodes.size() - 1);
  };
  std::vector<uint32_t> forward{node(LayoutColumn::kForward, -1, -1)};
  std::vector<LayoutEdge> forward_edges;
  auto connect = [&](uint32_t a, uint32_t b) { forward_edges.push_back({a, b}); };
  for (int layer = 0; layer < layers; ++layer) {
    const auto scope = static_cast<int32_t>(in.scopes.size());
    in.scopes.push_back({-1, false});
    uint32_t residual = forward.back();
    for (int half = 0; half < 2; ++half) {
      in.scopes.push_back({scope, false});
      const auto inner = static_cast<int32_t>(in.scopes.size() - 1);
      const uint32_t split = residual;
      for (int i = 0; i < per_half; ++i) {
        forward.push_back(node(LayoutColumn::kForward, inner, -1));
        const uint32_t current = forward.back();
        if (i < 3) {
          connect(split, current);
        } else {
          connect(current - 1, current);
          if (i % 3 == 0) connect(current - 3, current);
        }
      }
      connect(forward.back() - 1, forward.back());
      forward.push_back(node(LayoutColumn::kForward, scope, -1));
      connect(forward.back() - 1, forward.back());
      connect(split, forward.back());  // residual add
      residual = forward.back();
    }
  }
  in.edges = forward_edges;
  backward_of.resize(in.nodes.size());
  for (size_t i = forward.size(); i-- > 0;) {
    backward_of[forward[i]] = node(LayoutColumn::kBackward, -1, static_cast<int32_t>(forward[i]));
    in.edges.push_back({forward[i], backward_of[forward[i]]});
  }
  for (const LayoutEdge& e : forward_edges) in.edges.push_back({backward_of[e.dst], backward_of[e.src]});
  for (size_t i = 0; i < forward.size(); i += 4) {
    const uint32_t update = node(LayoutColumn::kOptimizer, -1, static_cast<int32_t>(forward[i]));
    in.edges.push_back({backward_of[forward[i]], update});
  }
  return in;
}

void expect_no_overlap(const LayoutInput& in, const LayoutResult& out) {
  std::vector<LayoutBox> boxes;
  for (size_t i = 0; i < in.nodes.size(); ++i) {
    if (out.hidden_in[i] < 0) boxes.push_back(out.node_boxes[i]);
  }
  for (const LayoutGroup& g : out.groups) {
    if (g.collapsed) boxes.push_back(g.box);
  }
  for (size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_GT(boxes[i].width, 0);
    EXPECT_GE(boxes[i].x, 0);
    EXPECT_LE(boxes[i].right(), out.width + 0.01f);
    EXPECT_LE(boxes[i].bottom(), out.height + 0.01f);
    for (size_t j = i + 1; j < boxes.size(); ++j)
      ASSERT_FALSE(boxes[i].overlaps(boxes[j])) << i << " and " << j;
  }
}

TEST(Layout, BoxesDoNotOverlap) {
  LayoutInput in = training_graph(3, 8);
  expect_no_overlap(in, *layout_graph(in));
  in.scopes[0].collapsed = true;
  in.scopes[4].collapsed = true;
  expect_no_overlap(in, *layout_graph(in));
}

TEST(Layout, ForwardGoesDownAndBackwardGoesUp) {
  const LayoutInput in = training_graph(3, 8);
  const LayoutResult out = *layout_graph(in);
  int checked = 0;
  for (const LayoutEdge& e : in.edges) {
    const LayoutNode &a = in.nodes[e.src], &b = in.nodes[e.dst];
    if (a.column != b.column) continue;
    const LayoutBox &from = out.node_boxes[e.src], &to = out.node_boxes[e.dst];
    ++checked;
    if (a.column == LayoutColumn::kForward) {
      EXPECT_LE(from.bottom(), to.y) << e.src << " -> " << e.dst;
    } else {
      EXPECT_GE(from.y, to.bottom()) << e.src << " -> " << e.dst;
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(Layout, PartnersShareARowAndColumnsAreApart) {
  const LayoutInput in = training_graph(2, 8);
  const LayoutResult out = *layout_graph(in);
  for (size_t i = 0; i < in.nodes.size(); ++i) {
    const LayoutBox& column = out.columns[static_cast<int>(in.nodes[i].column)];
    EXPECT_GE(out.node_boxes[i].x, column.x);
    EXPECT_LE(out.node_boxes[i].right(), column.right() + 0.01f);
    if (in.nodes[i].partner < 0) continue;
    EXPECT_NEAR(out.node_boxes[i].centre_y(), out.node_boxes[in.nodes[i].partner].centre_y(), 0.01f);
  }
  EXPECT_LT(out.columns[0].right(), out.columns[1].x);
  EXPECT_LT(out.columns[1].right(), out.columns[2].x);
}

TEST(Layout, SeveralBackwardNodesOfOnePartnerFlowUpInsideItsRow) {
  LayoutInput in;
  auto node = [](LayoutColumn column, int32_t partner, int64_t order) {
    LayoutNode n;
    n.width = 100, n.height = 40, n.column = column, n.partner = partner, n.order = order;
    return n;
  };
  in.nodes = {node(LayoutColumn::kForward, -1, 0), node(LayoutColumn::kForward, -1, 1),
              node(LayoutColumn::kBackward, 1, 2), node(LayoutColumn::kBackward, 1, 3),
              node(LayoutColumn::kBackward, 0, 4)};
  in.edges = {{0, 1}, {2, 3}, {3, 4}};
  const LayoutResult out = *layout_graph(in);
  EXPECT_GE(out.node_boxes[2].y, out.node_boxes[3].bottom());
  EXPECT_GE(out.node_boxes[3].y, out.node_boxes[4].bottom());
  EXPECT_NEAR((out.node_boxes[2].bottom() + out.node_boxes[3].y) / 2, out.node_boxes[1].centre_y(), 0.01f);
}

TEST(Layout, SameInputSameOutput) {
  const LayoutInput in = training_graph(4, 10);
  const LayoutResult a = *layout_graph(in), b = *layout_graph(in);
  ASSERT_EQ(a.points.size(), b.points.size());
  for (size_t i = 0; i < a.points.size(); ++i) {
    ASSERT_EQ(a.points[i].x, b.points[i].x);
    ASSERT_EQ(a.points[i].y, b.points[i].y);
  }
}

TEST(Layout, CollapsingFoldsAllColumnsAndBundlesEdges) {
  LayoutInput in = training_graph(3, 8);
  const LayoutResult open = *layout_graph(in);
  in.scopes[0].collapsed = true;
  const LayoutResult folded = *layout_graph(in);
  EXPECT_LT(folded.height, open.height);
  EXPECT_LT(folded.routes.size(), open.routes.size());
  uint32_t bundled = 0;
  for (const LayoutRoute& r : folded.routes) bundled = std::max(bundled, r.edge_count);
  EXPECT_GT(bundled, 3u);
  std::array<bool, kLayoutColumns> seen{};
  float centre_y = -1;
  for (const LayoutGroup& g : folded.groups) {
    if (g.scope != 0) {
      EXPECT_NE(in.scopes[g.scope].parent, 0) << "a scope inside a collapsed one is drawn";
      continue;
    }
    EXPECT_TRUE(g.collapsed);
    seen[static_cast<int>(g.column)] = true;
    if (centre_y >= 0) {
      EXPECT_FLOAT_EQ(g.box.centre_y(), centre_y);
    }
    centre_y = g.box.centre_y();
  }
  EXPECT_TRUE(seen[0] && seen[1] && seen[2]);
  for (size_t i = 0; i < in.nodes.size(); ++i) {
    const int32_t scope = in.nodes[i].partner >= 0 ? in.nodes[in.nodes[i].partner].scope : in.nodes[i].scope;
    EXPECT_EQ(folded.hidden_in[i] == 0, scope >= 0 && scope <= 2) << i;
  }
}

TEST(Layout, RoutesStartAndEndAtTheirBoxesAndAvoidOtherBoxes) {
  const LayoutInput in = training_graph(2, 6);
  const LayoutResult out = *layout_graph(in);
  for (const LayoutRoute& r : out.routes) {
    if (r.kind != LayoutRouteKind::kFlow) continue;
    ASSERT_GE(r.point_count, 2u);
    const LayoutPoint* p = &out.points[r.first_point];
    const LayoutPoint* q = p + r.point_count - 1;
    const LayoutBox &a = out.node_boxes[r.src.node], &b = out.node_boxes[r.dst.node];
    EXPECT_TRUE(p->y == a.y || p->y == a.bottom());
    EXPECT_NEAR(p->x, a.centre_x(), 0.01f);
    EXPECT_TRUE(q->y == b.y || q->y == b.bottom());
    EXPECT_NEAR(q->x, b.centre_x(), 0.01f);
    for (uint32_t i = 0; i < r.point_count; ++i) {
      for (size_t n = 0; n < in.nodes.size(); ++n) {
        const LayoutBox& box = out.node_boxes[n];
        const bool inside = p[i].x > box.x + 0.5f && p[i].x < box.right() - 0.5f && p[i].y > box.y + 0.5f &&
                            p[i].y < box.bottom() - 0.5f;
        EXPECT_FALSE(inside) << "route point inside node " << n;
      }
    }
  }
}

TEST(Layout, CyclesBetweenGroupsAndEmptyGraphsAreFine) {
  EXPECT_EQ(layout_graph({})->routes.size(), 0u);
  LayoutInput in;  // a0 -> b -> a1 with a0, a1 in one scope: lifted edges form a cycle
  LayoutNode n;
  n.width = 100, n.height = 40;
  in.scopes = {{-1, false}, {-1, false}};
  for (int i = 0; i < 3; ++i) {
    n.order = i;
    n.scope = i == 1 ? 1 : 0;
    in.nodes.push_back(n);
  }
  in.edges = {{0, 1}, {1, 2}};
  expect_no_overlap(in, *layout_graph(in));
  in.scopes[0].collapsed = in.scopes[1].collapsed = true;
  const LayoutResult out = *layout_graph(in);
  expect_no_overlap(in, out);
  EXPECT_EQ(out.routes.size(), 2u);
}

TEST(Layout, RandomGraphsKeepTheirPromises) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 rng(seed);
    LayoutInput in;
    for (int i = 0; i < 12; ++i) {
      in.scopes.push_back({i == 0 ? -1 : static_cast<int32_t>(rng() % (i + 1)) - 1, rng() % 4 == 0});
    }
    for (int i = 0; i < 150; ++i) {
      LayoutNode n;
      n.width = 60.f + static_cast<float>(rng() % 80), n.height = 30.f + static_cast<float>(rng() % 20);
      n.scope = static_cast<int32_t>(rng() % 13) - 1;
      n.column = i < 80    ? LayoutColumn::kForward
                 : i < 130 ? LayoutColumn::kBackward
                           : LayoutColumn::kOptimizer;
      n.partner = i < 80 || rng() % 5 == 0 ? -1 : static_cast<int32_t>(rng() % 80);
      n.order = i;
      in.nodes.push_back(n);
      for (int k = 0; i > 0 && k < 2; ++k)
        in.edges.push_back({static_cast<uint32_t>(rng() % i), static_cast<uint32_t>(i)});
    }
    const LayoutResult out = *layout_graph(in);
    expect_no_overlap(in, out);
    for (const LayoutGroup& g : out.groups) {
      EXPECT_FALSE(g.box.width <= 0 || g.box.height <= 0);
    }
  }
}

// The work, in boxes looked at, follows the size of the graph; columns are no wider for a longer graph.
TEST(Layout, LongerGraphsTakeAsManyMoreStepsAndNoMoreWidth) {
  const LayoutInput small = training_graph(40, 20), large = training_graph(160, 20);
  const LayoutResult a = *layout_graph(small), b = *layout_graph(large);
  EXPECT_GT(a.steps, small.nodes.size());
  EXPECT_LT(static_cast<double>(b.steps), 4.4 * static_cast<double>(a.steps));
  EXPECT_LT(b.width, 1.3f * a.width);
  LayoutInput flat = large;  // the same without scopes
  for (LayoutNode& node : flat.nodes) node.scope = -1;
  flat.scopes.clear();
  const LayoutResult c = *layout_graph(flat);
  EXPECT_LT(c.width, 3.f * a.width);
  EXPECT_LT(static_cast<double>(c.steps), 100.0 * static_cast<double>(flat.nodes.size()));
}

TEST(Layout, StopIsObeyed) {
  std::stop_source source;
  source.request_stop();
  EXPECT_FALSE(layout_graph(training_graph(2, 8), source.get_token()).has_value());
}

TEST(Layout, LargeGraphs) {
  const LayoutInput in = training_graph(600, 20);
  EXPECT_GT(in.nodes.size(), 50000u);
  const auto start = std::chrono::steady_clock::now();
  const LayoutResult out = *layout_graph(in);
  RecordProperty(
      "layout_ms",
      static_cast<int>(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count()));
  EXPECT_EQ(out.node_boxes.size(), in.nodes.size());
}

}  // namespace
}  // namespace gradloom
