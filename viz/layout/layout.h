// The graph layout: a pure, deterministic function from boxes, edges and scopes to positions. Knows no graph
// and no GUI.
//
// Hairpin view. Forward nodes flow down the left column. A backward or optimizer node names a partner, the
// forward node it belongs to, and sits on that node's row in the middle or right column, so backward edges
// flow up and the drawing is half as tall. A node without a partner goes to the end of its scope. Edges
// between columns are overlays: they do not take part in layering (a saved activation would otherwise span
// the whole drawing).
//
// Hierarchy. Scopes form a tree; a backward or optimizer node lives in its partner's scope. An expanded scope
// is one group box per column, all on the same rows; a collapsed scope is one plain box per column in which
// it has nodes. Children of one group are laid out at a time, bottom-up; an edge that crosses group borders
// passes through ports on them.
//
// Method per group: layers by longest path over lifted forward edges (cycles made by grouping are cut at the
// lowest order key), bends for long edges, then rows.h for order and x.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

namespace gradloom {

enum class LayoutColumn : uint8_t { kForward = 0, kBackward = 1, kOptimizer = 2 };
inline constexpr int kLayoutColumns = 3;

struct LayoutNode {
  float width = 0, height = 0;  // px at zoom 1
  int32_t scope = -1;           // -1 = top level; ignored when the node has a partner
  LayoutColumn column = LayoutColumn::kForward;
  int32_t partner = -1;  // index of the forward node whose row this node sits on
  int64_t order = 0;     // schedule order: breaks every tie
};

struct LayoutEdge {
  uint32_t src = 0, dst = 0;  // node indices
};

struct LayoutScope {
  int32_t parent = -1;  // -1 = top level; smaller than the scope's own index
  bool collapsed = false;
  float width = 180, height = 44;  // box size per column when collapsed
};

struct LayoutInput {
  std::vector<LayoutNode> nodes;
  std::vector<LayoutEdge> edges;
  std::vector<LayoutScope> scopes;
  float gap = 24;            // px between boxes of a row
  float row_gap = 34;        // px between rows
  float column_gap = 90;     // px between the three columns
  float group_padding = 16;  // px inside a group box
  float group_header = 26;   // px for a group's title
};

struct LayoutPoint {
  float x = 0, y = 0;
};

struct LayoutBox {
  float x = 0, y = 0, width = 0, height = 0;  // top left corner and size
  float right() const { return x + width; }
  float bottom() const { return y + height; }
  float centre_x() const { return x + width / 2; }
  float centre_y() const { return y + height / 2; }
  bool overlaps(const LayoutBox& o) const {
    return x < o.right() && o.x < right() && y < o.bottom() && o.y < bottom();
  }
  bool contains(float px, float py) const { return px >= x && px < right() && py >= y && py < bottom(); }
};

struct LayoutGroup {
  int32_t scope = -1;
  LayoutColumn column = LayoutColumn::kForward;
  LayoutBox box;
  bool collapsed = false;
  int32_t depth = 0;        // 0 = top level
  uint32_t node_count = 0;  // nodes of this column in the whole subtree
};

enum class LayoutRouteKind : uint8_t {
  kFlow,     // routed within a column
  kOverlay,  // between columns: a straight hint, drawn on demand
  kStub,     // too long or from too popular a producer to be worth a route: drawn on demand
};

// One end of a route: a node, or a collapsed scope's box in some column.
struct LayoutEnd {
  int32_t node = -1, scope = -1;
  LayoutColumn column = LayoutColumn::kForward;
  bool operator==(const LayoutEnd&) const = default;
};

struct LayoutRoute {
  LayoutEnd src, dst;
  LayoutRouteKind kind = LayoutRouteKind::kFlow;
  uint32_t edge_count = 0;                    // input edges bundled into this route
  uint32_t first_point = 0, point_count = 0;  // in LayoutResult::points
};

struct LayoutResult {
  std::vector<LayoutBox> node_boxes;  // per input node; zero size when hidden in a collapsed scope
  std::vector<int32_t> hidden_in;     // per input node: the collapsed scope that hides it, or -1
  std::vector<LayoutGroup> groups;    // outer before inner
  std::vector<LayoutRoute> routes;
  std::vector<LayoutPoint> points;
  std::vector<int32_t> edge_route;  // per input edge: index in routes, or -1 (inside one collapsed box)
  std::array<LayoutBox, kLayoutColumns> columns;
  float width = 0, height = 0;
  uint64_t steps =
      0;  // boxes and bends looked at while rows were ordered and placed: what the time grows with
};

// Empty when `stop` was requested before the end.
std::optional<LayoutResult> layout_graph(const LayoutInput& input, std::stop_token stop = {});

}  // namespace gradloom
