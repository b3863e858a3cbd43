// The layout's working state, shared by its three files. Private to viz/layout;
// layout.h describes the method.
//
// Everything is a block in one tree whose parents precede their children: the root group, expanded scopes
// (groups), collapsed scopes (leaves), cells (one forward node with the backward and optimizer nodes on its
// row) and nodes. A block has one part per column; the parts share its height.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "viz/layout/layout.h"
#include "viz/layout/rows.h"

namespace gradloom::layout_internal {

inline constexpr int32_t kMaxPerRow = 16;     // a layer with more boxes is wrapped into several rows
inline constexpr int32_t kMaxRouteRows = 48;  // an edge spanning more rows becomes a stub
// A producer with more readers gets stubs for all but its close readers.
inline constexpr int32_t kPopularRoutes = 30;

enum class BlockKind : uint8_t { kGroup, kCollapsed, kCell, kNode };

struct Block {
  BlockKind kind = BlockKind::kGroup;
  int32_t parent = -1, depth = 0, scope = -1, node = -1;
  int32_t row = 0;  // in the parent (for a node: in its column of the cell)
  int64_t order = std::numeric_limits<int64_t>::max();
  std::array<int32_t, kLayoutColumns> count{};                 // nodes of each column in the subtree
  std::array<float, kLayoutColumns> width{}, x{}, abs_left{};  // x = centre, in the parent's coordinates
  float height = 0, y = 0, abs_top = 0;
  std::array<std::vector<float>, kLayoutColumns> row_top, row_bottom;  // a group uses index 0 for all columns
};

enum Side : uint8_t { kTop = 0, kBottom = 1 };

// One end of a segment inside a block: a child, or a port on the block's own border for the edge's producer.
struct SegmentEnd {
  int32_t child = -1;     // -1 = the block's own port
  int32_t producer = -1;  // block of the edge's source: names the port (on this block or on the child group)
  Side side = kBottom;
  auto operator<=>(const SegmentEnd&) const =
      default;  // NOLINT(modernize-use-nullptr): as in command_page.cpp
};

struct Segment {
  int32_t block = 0;
  uint8_t column = 0;
  SegmentEnd from, to;
  bool operator==(const Segment& o) const {
    return block == o.block && column == o.column && from == o.from && to == o.to;
  }
  bool operator<(const Segment& o) const {
    return std::tie(block, column, from, to) < std::tie(o.block, o.column, o.from, o.to);
  }
};

struct Bends {
  uint32_t first = 0;
  int32_t count = 0, first_row = 0, step = 1;
};

class Layouter {
 public:
  Layouter(const LayoutInput& input, std::stop_token stop) : in_(input), stop_(std::move(stop)) {}

  std::optional<LayoutResult> run();

 private:
  // ---- the tree -------------------------------------------------------------------------------------------

  int32_t add_block(BlockKind kind, int32_t parent, int32_t scope, int32_t node);
  bool has_partner(const LayoutNode& node) const;
  int32_t scope_of(const LayoutNode& node) const;
  void build_tree();
  void add_nodes();
  void index_children();

  // ---- routes: edges between visible boxes, bundled -------------------------------------------------------

  void collect_routes();
  LayoutEnd end_of(uint32_t node) const;

  // The block an edge starts from: a cell with a single node in the column stands for the node.
  int32_t leaf_of(const LayoutEnd& end) const;
  bool is_leaf(int32_t block, int column) const;

  // Children of the lowest common ancestor of a and b that hold them; {a, a} when one holds the other.
  std::pair<int32_t, int32_t> lift(int32_t a, int32_t b) const;

  // ---- rows -----------------------------------------------------------------------------------------------

  struct Lift {
    int32_t block;
    uint8_t column;
    int32_t from, to;
  };

  void assign_rows();

  // Layers the children of `b` that have nodes in `column`; returns the number of rows.
  int32_t layer_children(int32_t b, int column, const std::vector<Lift>& lifts, size_t begin, size_t end,
                         bool upwards, int32_t first_row);

  void set_row_count(int32_t b, int column, int32_t rows);

  // Children of a group without any forward node go below the others: backward flows up,
  // so the latest comes first.
  void layer_orphans(int32_t b, int32_t rows);
  const std::vector<float>& row_tops(int32_t b, int column) const;
  const std::vector<float>& row_bottoms(int32_t b, int column) const;

  // ---- segments: the part of a route inside one block -----------------------------------------------------

  void make_segments();
  void add_route_segments(std::vector<Segment>& raw, int c, int32_t u, int32_t v, int32_t a, int32_t b);

  // ---- solving blocks bottom-up ---------------------------------------------------------------------------

  bool solve_blocks();
  static uint64_t port_key(int32_t block, int column, const SegmentEnd& end, bool incoming);
  void solve_column(int32_t b, int c, size_t begin, size_t end);

  // Relative to the centre of the child a segment ends at: the port of a group, the middle of a leaf.
  float attach(const SegmentEnd& end, int c, bool incoming) const;

  // Adds the bends of one segment and the links along it; returns the first bend's slot.
  static int32_t link_rows(std::vector<RowSlot>& slots, std::vector<RowLink>& links, int32_t from, int32_t to,
                           float from_dx, float to_dx, int64_t order, Bends& bends);

  void finish_column(int32_t b, int c, const std::vector<RowSlot>& slots, const std::vector<float>& x,
                     const std::vector<int32_t>& members, const std::unordered_map<uint64_t, int32_t>& ports,
                     const std::vector<std::pair<size_t, int32_t>>& first_bend);

  // Row positions and the children's y, once the children's heights are known.
  void stack_rows(int32_t b);

  // ---- results --------------------------------------------------------------------------------------------

  void place_absolute();
  LayoutBox box_of(const LayoutEnd& end) const;
  void trace_routes();
  void trace_flow(size_t r, const LayoutBox& src, const LayoutBox& dst);
  void add_port(const LayoutRoute& route, const Segment& segment, const SegmentEnd& end, bool incoming);

  // Leaves out repeated points and middle points of vertical lines.
  void add_point(const LayoutRoute& route, float x, float y);

  const LayoutInput& in_;
  std::stop_token stop_;
  LayoutResult out_;
  std::vector<Block> blocks_;
  std::vector<int32_t> scope_block_, node_block_, first_child_, children_, local_;
  std::vector<Segment> segments_;
  std::vector<Bends> bends_;
  std::vector<float> bend_x_;
  std::vector<uint32_t> route_first_, route_segment_;
  std::unordered_map<uint64_t, float> port_x_;
};

}  // namespace gradloom::layout_internal
