// Layered hierarchical layout; layout.h describes the method. Everything is a block in one tree whose parents precede their
// children: the root group, expanded scopes (groups), collapsed scopes (leaves), cells (one forward node with the backward
// and optimizer nodes on its row) and nodes. A block has one part per column; the parts share its height.
#include "viz/layout/layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

#include "viz/layout/rows.h"

namespace gradloom {
namespace {

constexpr int32_t kMaxPerRow = 16;      // a layer with more boxes is wrapped into several rows
constexpr int32_t kMaxRouteRows = 48;   // an edge spanning more rows becomes a stub
constexpr int32_t kPopularRoutes = 30;  // a producer with more readers gets stubs for all but its close readers

enum class BlockKind : uint8_t { kGroup, kCollapsed, kCell, kNode };

struct Block {
  BlockKind kind = BlockKind::kGroup;
  int32_t parent = -1, depth = 0, scope = -1, node = -1;
  int32_t row = 0;  // in the parent (for a node: in its column of the cell)
  int64_t order = std::numeric_limits<int64_t>::max();
  std::array<int32_t, kLayoutColumns> count{};  // nodes of each column in the subtree
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
  auto operator<=>(const SegmentEnd&) const = default;
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

// Longest-path layers of `order.size()` items; cycles are cut at the item with the lowest order. Edges are local indices.
std::vector<int32_t> longest_path(const std::vector<int64_t>& order, std::vector<std::pair<int32_t, int32_t>>& edges) {
  const auto n = static_cast<int32_t>(order.size());
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<int32_t> first(n + 1, 0), waiting(n, 0), layer(n, 0);
  for (const auto& [a, b] : edges) {
    ++first[a + 1];
    ++waiting[b];
  }
  for (int32_t i = 0; i < n; ++i) first[i + 1] += first[i];
  std::vector<bool> done(n, false), source(n);
  for (int32_t i = 0; i < n; ++i) source[i] = waiting[i] == 0;
  using Entry = std::pair<int64_t, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready, rest;
  for (int32_t i = 0; i < n; ++i) (source[i] ? ready : rest).emplace(order[i], i);
  for (int32_t processed = 0; processed < n;) {
    auto& queue = ready.empty() ? rest : ready;
    const int32_t item = queue.top().second;
    queue.pop();
    if (done[item]) continue;
    done[item] = true;
    ++processed;
    for (int32_t e = first[item]; e < first[item + 1]; ++e) {
      const int32_t next = edges[e].second;
      if (done[next]) continue;
      layer[next] = std::max(layer[next], layer[item] + 1);
      if (--waiting[next] == 0) ready.emplace(order[next], next);
    }
  }
  // A source sits right above its first reader, not at the very top.
  for (int32_t i = 0; i < n; ++i) {
    if (!source[i] || first[i] == first[i + 1]) continue;
    int32_t lowest = std::numeric_limits<int32_t>::max();
    for (int32_t e = first[i]; e < first[i + 1]; ++e) lowest = std::min(lowest, layer[edges[e].second]);
    layer[i] = std::max(layer[i], lowest - 1);
  }
  return layer;
}

// Splits layers with too many items into several rows; returns the row count. Layers become rows in place.
int32_t wrap_layers(std::vector<int32_t>& layer, const std::vector<int64_t>& order, bool upwards) {
  const auto n = static_cast<int32_t>(layer.size());
  std::vector<int32_t> sorted(n);
  for (int32_t i = 0; i < n; ++i) sorted[i] = i;
  std::sort(sorted.begin(), sorted.end(),
            [&](int32_t a, int32_t b) { return std::tie(layer[a], order[a], a) < std::tie(layer[b], order[b], b); });
  int32_t row = -1, in_row = 0, last = -1;
  std::vector<int32_t> rows(n);
  for (int32_t i : sorted) {
    if (layer[i] != last || in_row == kMaxPerRow) {
      ++row;
      in_row = 0;
      last = layer[i];
    }
    rows[i] = row;
    ++in_row;
  }
  layer = std::move(rows);
  if (upwards) {
    for (int32_t& r : layer) r = row - r;
  }
  return row + 1;
}

class Layouter {
 public:
  Layouter(const LayoutInput& input, std::stop_token stop) : in_(input), stop_(std::move(stop)) {}

  std::optional<LayoutResult> run() {
    build_tree();
    collect_routes();
    if (stop_.stop_requested()) return std::nullopt;
    assign_rows();
    if (stop_.stop_requested()) return std::nullopt;
    make_segments();
    if (!solve_blocks()) return std::nullopt;
    place_absolute();
    trace_routes();
    return std::move(out_);
  }

 private:
  // ---- the tree ----------------------------------------------------------------------------------------------------

  int32_t add_block(BlockKind kind, int32_t parent, int32_t scope, int32_t node) {
    Block block;
    block.kind = kind;
    block.parent = parent;
    block.depth = parent < 0 ? 0 : blocks_[parent].depth + 1;
    block.scope = scope;
    block.node = node;
    blocks_.push_back(std::move(block));
    return static_cast<int32_t>(blocks_.size()) - 1;
  }

  bool has_partner(const LayoutNode& node) const {
    return node.column != LayoutColumn::kForward && node.partner >= 0 &&
           node.partner < static_cast<int32_t>(in_.nodes.size()) &&
           in_.nodes[node.partner].column == LayoutColumn::kForward;
  }

  int32_t scope_of(const LayoutNode& node) const {
    const int32_t scope = has_partner(node) ? in_.nodes[node.partner].scope : node.scope;
    return scope >= 0 && scope < static_cast<int32_t>(in_.scopes.size()) ? scope : -1;
  }

  void build_tree() {
    const size_t n = in_.nodes.size(), s = in_.scopes.size();
    std::vector<std::array<uint32_t, kLayoutColumns>> scope_count(s);
    for (const LayoutNode& node : in_.nodes) {
      for (int32_t i = scope_of(node); i >= 0; i = in_.scopes[i].parent) ++scope_count[i][static_cast<int>(node.column)];
    }
    out_.node_boxes.resize(n);
    out_.hidden_in.assign(n, -1);
    add_block(BlockKind::kGroup, -1, -1, -1);
    // Scope -> its group, or the collapsed leaf that hides it.
    scope_block_.assign(s, -1);
    for (size_t i = 0; i < s; ++i) {
      const LayoutScope& scope = in_.scopes[i];
      const auto& counts = scope_count[i];
      if (counts[0] + counts[1] + counts[2] == 0) continue;
      const int32_t parent = scope.parent < 0 ? 0 : scope_block_[scope.parent];
      if (blocks_[parent].kind == BlockKind::kCollapsed) {
        scope_block_[i] = parent;
        continue;
      }
      const auto kind = scope.collapsed ? BlockKind::kCollapsed : BlockKind::kGroup;
      scope_block_[i] = add_block(kind, parent, static_cast<int32_t>(i), -1);
    }
    add_nodes();
    for (size_t i = blocks_.size(); i-- > 1;) {
      Block& parent = blocks_[blocks_[i].parent];
      for (int c = 0; c < kLayoutColumns; ++c) parent.count[c] += blocks_[i].count[c];
      parent.order = std::min(parent.order, blocks_[i].order);
    }
    index_children();
  }

  void add_nodes() {
    const auto n = static_cast<int32_t>(in_.nodes.size());
    std::vector<int32_t> cell(n, -1), orphan_cell(blocks_.size(), -1), home(n, -1);
    node_block_.assign(n, -1);
    auto block_of_scope = [&](int32_t scope) { return scope < 0 ? 0 : scope_block_[scope]; };
    for (int32_t i = 0; i < n; ++i) {
      const LayoutNode& node = in_.nodes[i];
      const int32_t block = block_of_scope(scope_of(node));
      if (blocks_[block].kind == BlockKind::kCollapsed) {
        Block& leaf = blocks_[block];
        ++leaf.count[static_cast<int>(node.column)];
        leaf.order = std::min(leaf.order, node.order);
        node_block_[i] = block;
        out_.hidden_in[i] = leaf.scope;
      } else if (node.column == LayoutColumn::kForward) {
        cell[i] = add_block(BlockKind::kCell, block, -1, -1);
      }
    }
    for (int32_t i = 0; i < n; ++i) {
      if (node_block_[i] >= 0) continue;
      const LayoutNode& node = in_.nodes[i];
      if (node.column == LayoutColumn::kForward) {
        home[i] = cell[i];
      } else if (has_partner(node)) {
        home[i] = cell[node.partner];
      } else {
        int32_t& orphans = orphan_cell[block_of_scope(scope_of(node))];
        if (orphans < 0) orphans = add_block(BlockKind::kCell, block_of_scope(scope_of(node)), -1, -1);
        home[i] = orphans;
      }
    }
    for (int32_t i = 0; i < n; ++i) {
      if (home[i] < 0) continue;
      const int c = static_cast<int>(in_.nodes[i].column);
      node_block_[i] = add_block(BlockKind::kNode, home[i], -1, i);
      Block& leaf = blocks_.back();
      leaf.order = in_.nodes[i].order;
      leaf.count[c] = 1;
      leaf.width[c] = in_.nodes[i].width;
      leaf.height = in_.nodes[i].height;
    }
  }

  void index_children() {
    first_child_.assign(blocks_.size() + 1, 0);
    for (size_t i = 1; i < blocks_.size(); ++i) ++first_child_[blocks_[i].parent + 1];
    for (size_t i = 0; i < blocks_.size(); ++i) first_child_[i + 1] += first_child_[i];
    children_.resize(blocks_.size());
    std::vector<int32_t> cursor(first_child_.begin(), first_child_.end() - 1);
    for (size_t i = 1; i < blocks_.size(); ++i) children_[cursor[blocks_[i].parent]++] = static_cast<int32_t>(i);
  }

  // ---- routes: edges between visible boxes, bundled ------------------------------------------------------------------

  void collect_routes() {
    struct Keyed {
      uint64_t ends;
      uint8_t columns;
      uint32_t edge;
    };
    std::vector<Keyed> keyed;
    out_.edge_route.assign(in_.edges.size(), -1);
    for (uint32_t e = 0; e < in_.edges.size(); ++e) {
      const auto [u, v] = in_.edges[e];
      const int32_t a = node_block_[u], b = node_block_[v];
      const auto ca = static_cast<uint8_t>(in_.nodes[u].column), cb = static_cast<uint8_t>(in_.nodes[v].column);
      if (a == b && (ca == cb || blocks_[a].kind == BlockKind::kNode)) continue;
      keyed.push_back({static_cast<uint64_t>(a) << 32 | static_cast<uint32_t>(b), static_cast<uint8_t>(ca * 3 + cb), e});
    }
    std::sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) {
      return std::tie(a.ends, a.columns, a.edge) < std::tie(b.ends, b.columns, b.edge);
    });
    for (size_t i = 0; i < keyed.size(); ++i) {
      if (i == 0 || keyed[i].ends != keyed[i - 1].ends || keyed[i].columns != keyed[i - 1].columns) {
        const LayoutEdge& edge = in_.edges[keyed[i].edge];
        LayoutRoute route;
        route.src = end_of(edge.src);
        route.dst = end_of(edge.dst);
        if (route.src.column != route.dst.column) route.kind = LayoutRouteKind::kOverlay;
        out_.routes.push_back(route);
      }
      ++out_.routes.back().edge_count;
      out_.edge_route[keyed[i].edge] = static_cast<int32_t>(out_.routes.size()) - 1;
    }
  }

  LayoutEnd end_of(uint32_t node) const {
    LayoutEnd end;
    end.column = in_.nodes[node].column;
    if (out_.hidden_in[node] >= 0) {
      end.scope = out_.hidden_in[node];
    } else {
      end.node = static_cast<int32_t>(node);
    }
    return end;
  }

  // The block an edge starts from: a cell with a single node in the column stands for the node.
  int32_t leaf_of(const LayoutEnd& end) const {
    if (end.node < 0) return scope_block_[end.scope];
    const int32_t block = node_block_[end.node], cell = blocks_[block].parent;
    return blocks_[cell].count[static_cast<int>(end.column)] == 1 ? cell : block;
  }

  bool is_leaf(int32_t block, int column) const {
    const Block& b = blocks_[block];
    return b.kind == BlockKind::kNode || b.kind == BlockKind::kCollapsed ||
           (b.kind == BlockKind::kCell && b.count[column] == 1);
  }

  // Children of the lowest common ancestor of a and b that hold them; {a, a} when one holds the other.
  std::pair<int32_t, int32_t> lift(int32_t a, int32_t b) const {
    while (blocks_[a].parent != blocks_[b].parent) {
      if (blocks_[a].depth >= blocks_[b].depth) {
        a = blocks_[a].parent;
      } else {
        b = blocks_[b].parent;
      }
    }
    return {a, b};
  }

  // ---- rows ------------------------------------------------------------------------------------------------------------

  struct Lift {
    int32_t block;
    uint8_t column;
    int32_t from, to;
  };

  void assign_rows() {
    std::vector<Lift> lifts;
    lifts.reserve(out_.routes.size());
    for (const LayoutRoute& route : out_.routes) {
      if (route.kind != LayoutRouteKind::kFlow) continue;
      const auto [a, b] = lift(leaf_of(route.src), leaf_of(route.dst));
      if (a != b) lifts.push_back({blocks_[a].parent, static_cast<uint8_t>(route.src.column), a, b});
    }
    std::sort(lifts.begin(), lifts.end(), [](const Lift& a, const Lift& b) {
      return std::tie(a.block, a.column, a.from, a.to) < std::tie(b.block, b.column, b.from, b.to);
    });
    local_.assign(blocks_.size(), -1);
    size_t at = 0;
    for (int32_t b = 0; b < static_cast<int32_t>(blocks_.size()); ++b) {
      for (int c = 0; c < kLayoutColumns; ++c) {
        const size_t begin = at;
        while (at < lifts.size() && lifts[at].block == b && lifts[at].column == c) ++at;
        if (blocks_[b].kind == BlockKind::kCell) {
          layer_children(b, c, lifts, begin, at, c == static_cast<int>(LayoutColumn::kBackward), 0);
        } else if (blocks_[b].kind == BlockKind::kGroup && c == 0) {
          const int32_t rows = layer_children(b, c, lifts, begin, at, false, 0);
          layer_orphans(b, rows);
        }
      }
    }
  }

  // Layers the children of `b` that have nodes in `column`; returns the number of rows.
  int32_t layer_children(int32_t b, int column, const std::vector<Lift>& lifts, size_t begin, size_t end, bool upwards,
                         int32_t first_row) {
    std::vector<int32_t> items;
    std::vector<int64_t> order;
    for (int32_t i = first_child_[b]; i < first_child_[b + 1]; ++i) {
      const int32_t child = children_[i];
      if (blocks_[child].count[column] == 0) continue;
      local_[child] = static_cast<int32_t>(items.size());
      items.push_back(child);
      order.push_back(blocks_[child].order);
    }
    std::vector<std::pair<int32_t, int32_t>> edges;
    for (size_t i = begin; i < end; ++i) edges.emplace_back(local_[lifts[i].from], local_[lifts[i].to]);
    std::vector<int32_t> layer = longest_path(order, edges);
    const int32_t rows = wrap_layers(layer, order, upwards);
    for (size_t i = 0; i < items.size(); ++i) blocks_[items[i]].row = first_row + layer[i];
    set_row_count(b, column, rows);
    return rows;
  }

  void set_row_count(int32_t b, int column, int32_t rows) {
    blocks_[b].row_top[column].assign(rows, 0.f);
    blocks_[b].row_bottom[column].assign(rows, 0.f);
  }

  // Children of a group without any forward node go below the others: backward flows up, so the latest comes first.
  void layer_orphans(int32_t b, int32_t rows) {
    std::vector<int32_t> orphans;
    for (int32_t i = first_child_[b]; i < first_child_[b + 1]; ++i) {
      if (blocks_[children_[i]].count[0] == 0) orphans.push_back(children_[i]);
    }
    std::sort(orphans.begin(), orphans.end(), [&](int32_t x, int32_t y) {
      const bool bx = blocks_[x].count[1] > 0, by = blocks_[y].count[1] > 0;
      if (bx != by) return bx;
      return bx ? std::make_pair(-blocks_[x].order, x) < std::make_pair(-blocks_[y].order, y)
                : std::make_pair(blocks_[x].order, x) < std::make_pair(blocks_[y].order, y);
    });
    const int32_t per_row = orphans.size() > kMaxPerRow ? 6 : 1;
    for (size_t i = 0; i < orphans.size(); ++i) blocks_[orphans[i]].row = rows + static_cast<int32_t>(i) / per_row;
    const int32_t extra = (static_cast<int32_t>(orphans.size()) + per_row - 1) / per_row;
    set_row_count(b, 0, rows + extra);
  }

  const std::vector<float>& row_tops(int32_t b, int column) const {
    return blocks_[b].row_top[blocks_[b].kind == BlockKind::kGroup ? 0 : column];
  }
  const std::vector<float>& row_bottoms(int32_t b, int column) const {
    return blocks_[b].row_bottom[blocks_[b].kind == BlockKind::kGroup ? 0 : column];
  }

  // ---- segments: the part of a route inside one block ---------------------------------------------------------------------

  void make_segments() {
    std::vector<int32_t> degree(blocks_.size(), 0);
    for (const LayoutRoute& route : out_.routes) {
      if (route.kind == LayoutRouteKind::kFlow) ++degree[leaf_of(route.src)];
    }
    route_first_.assign(out_.routes.size() + 1, 0);
    std::vector<Segment> raw;
    for (size_t r = 0; r < out_.routes.size(); ++r) {
      route_first_[r] = static_cast<uint32_t>(raw.size());
      LayoutRoute& route = out_.routes[r];
      if (route.kind != LayoutRouteKind::kFlow) continue;
      const int c = static_cast<int>(route.src.column);
      const int32_t u = leaf_of(route.src), v = leaf_of(route.dst);
      const auto [a, b] = lift(u, v);
      const int32_t span = std::abs(blocks_[a].row - blocks_[b].row);
      if (span > kMaxRouteRows || (degree[u] > kPopularRoutes && span > 2)) {
        route.kind = LayoutRouteKind::kStub;
        continue;
      }
      add_route_segments(raw, c, u, v, a, b);
    }
    route_first_.back() = static_cast<uint32_t>(raw.size());
    std::vector<uint32_t> index(raw.size());
    for (uint32_t i = 0; i < raw.size(); ++i) index[i] = i;
    std::sort(index.begin(), index.end(), [&](uint32_t x, uint32_t y) { return raw[x] < raw[y]; });
    route_segment_.resize(raw.size());
    for (uint32_t i : index) {
      if (segments_.empty() || !(segments_.back() == raw[i])) segments_.push_back(raw[i]);
      route_segment_[i] = static_cast<uint32_t>(segments_.size()) - 1;
    }
    bends_.resize(segments_.size());
  }

  void add_route_segments(std::vector<Segment>& raw, int c, int32_t u, int32_t v, int32_t a, int32_t b) {
    const int32_t row_a = blocks_[a].row, row_b = blocks_[b].row;
    const bool down = row_a != row_b ? row_a < row_b : c != static_cast<int>(LayoutColumn::kBackward);
    const Side out = down ? kBottom : kTop, in = down ? kTop : kBottom;
    const auto column = static_cast<uint8_t>(c);
    for (int32_t x = u; x != a; x = blocks_[x].parent) {
      raw.push_back({blocks_[x].parent, column, {x, u, out}, {-1, u, out}});
    }
    raw.push_back({blocks_[a].parent, column, {a, u, out}, {b, u, in}});
    const size_t middle = raw.size();
    for (int32_t x = v; x != b; x = blocks_[x].parent) {
      raw.push_back({blocks_[x].parent, column, {-1, u, in}, {x, u, in}});
    }
    std::reverse(raw.begin() + static_cast<std::ptrdiff_t>(middle), raw.end());
  }

  // ---- solving blocks bottom-up -----------------------------------------------------------------------------------------

  bool solve_blocks() {
    size_t end = segments_.size();
    for (size_t i = blocks_.size(); i-- > 0;) {
      const auto b = static_cast<int32_t>(i);
      if ((i & 255) == 0 && stop_.stop_requested()) return false;
      size_t begin = end;
      while (begin > 0 && segments_[begin - 1].block == b) --begin;
      Block& block = blocks_[i];
      if (block.kind == BlockKind::kCollapsed) {
        const LayoutScope& scope = in_.scopes[block.scope];
        for (int c = 0; c < kLayoutColumns; ++c) block.width[c] = block.count[c] > 0 ? scope.width : 0.f;
        block.height = scope.height;
      } else if (block.kind != BlockKind::kNode) {
        size_t at = begin;
        for (int c = 0; c < kLayoutColumns; ++c) {
          const size_t from = at;
          while (at < end && segments_[at].column == c) ++at;
          solve_column(b, c, from, at);
        }
        stack_rows(b);
      }
      end = begin;
    }
    return true;
  }

  static uint64_t port_key(int32_t block, int column, const SegmentEnd& end, bool incoming) {
    return static_cast<uint64_t>(block) << 34 | static_cast<uint64_t>(end.producer) << 4 |
           static_cast<uint64_t>(column) << 2 | static_cast<uint64_t>(end.side) << 1 | static_cast<uint64_t>(incoming);
  }

  void solve_column(int32_t b, int c, size_t begin, size_t end) {
    Block& block = blocks_[b];
    if (block.count[c] == 0) return;
    const auto rows = static_cast<int32_t>(row_tops(b, c).size());
    std::vector<RowSlot> slots;
    std::vector<RowLink> links;
    std::vector<int32_t> members;
    for (int32_t i = first_child_[b]; i < first_child_[b + 1]; ++i) {
      const Block& child = blocks_[children_[i]];
      if (child.count[c] == 0) continue;
      local_[children_[i]] = static_cast<int32_t>(slots.size());
      members.push_back(children_[i]);
      slots.push_back({child.width[c], child.row + 1, child.order, false});
    }
    std::unordered_map<uint64_t, int32_t> ports;  // key -> slot
    auto slot_of = [&](const SegmentEnd& e, bool incoming, int64_t order) {
      if (e.child >= 0) return local_[e.child];
      const auto [port, added] = ports.emplace(port_key(b, c, e, incoming), static_cast<int32_t>(slots.size()));
      if (added) slots.push_back({2.f, e.side == kTop ? 0 : rows + 1, order, true});
      return port->second;
    };
    std::vector<std::pair<size_t, int32_t>> first_bend;  // segment -> first bend slot
    for (size_t s = begin; s < end; ++s) {
      const Segment& segment = segments_[s];
      const int64_t order = blocks_[segment.from.producer].order;
      const int32_t from = slot_of(segment.from, true, order), to = slot_of(segment.to, false, order);
      first_bend.emplace_back(s, link_rows(slots, links, from, to, attach(segment.from, c, false),
                                           attach(segment.to, c, true), order, bends_[s]));
    }
    const std::vector<float> x = place_rows(slots, links, rows + 2, block.kind == BlockKind::kCell ? in_.gap * 0.6f : in_.gap);
    finish_column(b, c, slots, x, members, ports, first_bend);
  }

  // Relative to the centre of the child a segment ends at: the port of a group, the middle of a leaf.
  float attach(const SegmentEnd& end, int c, bool incoming) const {
    if (end.child < 0 || is_leaf(end.child, c)) return 0;
    const auto port = port_x_.find(port_key(end.child, c, end, incoming));
    return port == port_x_.end() ? 0.f : port->second - blocks_[end.child].width[c] / 2;
  }

  // Adds the bends of one segment and the links along it; returns the first bend's slot.
  static int32_t link_rows(std::vector<RowSlot>& slots, std::vector<RowLink>& links, int32_t from, int32_t to,
                           float from_dx, float to_dx, int64_t order, Bends& bends) {
    const int32_t row_from = slots[from].row, row_to = slots[to].row;
    const auto first = static_cast<int32_t>(slots.size());
    if (row_from == row_to) return first;
    const int32_t step = row_from < row_to ? 1 : -1;
    bends.count = std::abs(row_to - row_from) - 1;
    bends.first_row = row_from + step;
    bends.step = step;
    int32_t previous = from;
    float previous_dx = from_dx;
    for (int32_t row = row_from + step;; row += step) {
      const bool last = row == row_to;
      const int32_t next = last ? to : static_cast<int32_t>(slots.size());
      if (!last) slots.push_back({2.f, row, order, true});
      const float next_dx = last ? to_dx : 0.f;
      if (step > 0) {
        links.push_back({previous, next, previous_dx, next_dx});
      } else {
        links.push_back({next, previous, next_dx, previous_dx});
      }
      if (last) return first;
      previous = next;
      previous_dx = 0;
    }
  }

  void finish_column(int32_t b, int c, const std::vector<RowSlot>& slots, const std::vector<float>& x,
                     const std::vector<int32_t>& members, const std::unordered_map<uint64_t, int32_t>& ports,
                     const std::vector<std::pair<size_t, int32_t>>& first_bend) {
    Block& block = blocks_[b];
    float extent = 0;
    for (size_t i = 0; i < slots.size(); ++i) extent = std::max(extent, x[i] + slots[i].width / 2);
    float shift = 0;
    block.width[c] = extent;
    if (block.kind == BlockKind::kGroup && block.scope >= 0) {
      block.width[c] = std::max(extent + 2 * in_.group_padding, in_.scopes[block.scope].width);
      shift = (block.width[c] - extent) / 2;
    }
    for (int32_t child : members) blocks_[child].x[c] = x[local_[child]] + shift;
    for (const auto& [key, slot] : ports) port_x_.emplace(key, x[slot] + shift);
    for (const auto& [segment, first] : first_bend) {
      bends_[segment].first = static_cast<uint32_t>(bend_x_.size());
      for (int32_t i = 0; i < bends_[segment].count; ++i) bend_x_.push_back(x[first + i] + shift);
    }
  }

  // Row positions and the children's y, once the children's heights are known.
  void stack_rows(int32_t b) {
    Block& block = blocks_[b];
    const bool cell = block.kind == BlockKind::kCell;
    const float gap = cell ? in_.row_gap * 0.7f : in_.row_gap;
    const bool framed = !cell && block.scope >= 0;
    // Room inside a cell for edges between its border and its boxes; a single box is the cell.
    const bool single = *std::max_element(block.count.begin(), block.count.end()) <= 1;
    const float margin = cell && !single ? in_.row_gap * 0.45f : 0.f;
    std::array<float, kLayoutColumns> total{};
    for (int c = 0; c < (cell ? kLayoutColumns : 1); ++c) {
      auto &top = block.row_top[c], &bottom = block.row_bottom[c];
      for (int32_t i = first_child_[b]; i < first_child_[b + 1]; ++i) {
        const Block& child = blocks_[children_[i]];
        if (cell && child.count[c] == 0) continue;
        bottom[child.row] = std::max(bottom[child.row], child.height);
      }
      float y = framed ? in_.group_header + in_.group_padding * 0.75f : margin;
      for (size_t r = 0; r < top.size(); ++r) {
        top[r] = y;
        bottom[r] += y;
        y = bottom[r] + gap;
      }
      total[c] = top.empty() ? 0.f : bottom.back() + (framed ? in_.group_padding * 1.25f : margin);
    }
    block.height = *std::max_element(total.begin(), total.end());
    for (int c = 0; cell && c < kLayoutColumns; ++c) {  // the columns of a cell are centred on each other
      const float shift = (block.height - total[c]) / 2;
      for (float& y : block.row_top[c]) y += shift;
      for (float& y : block.row_bottom[c]) y += shift;
    }
    for (int32_t i = first_child_[b]; i < first_child_[b + 1]; ++i) {
      Block& child = blocks_[children_[i]];
      int c = 0;
      while (cell && child.count[c] == 0) ++c;
      child.y = (block.row_top[c][child.row] + block.row_bottom[c][child.row] - child.height) / 2;
    }
  }

  // ---- results -----------------------------------------------------------------------------------------------------------

  void place_absolute() {
    float left = 0;
    for (int c = 0; c < kLayoutColumns; ++c) {
      blocks_[0].abs_left[c] = left;
      out_.columns[c] = {left, 0, blocks_[0].width[c], blocks_[0].height};
      if (blocks_[0].count[c] > 0) {
        out_.width = left + blocks_[0].width[c];
        left += blocks_[0].width[c] + in_.column_gap;
      }
    }
    out_.height = blocks_[0].height;
    for (size_t i = 1; i < blocks_.size(); ++i) {
      Block& block = blocks_[i];
      const Block& parent = blocks_[block.parent];
      block.abs_top = parent.abs_top + block.y;
      for (int c = 0; c < kLayoutColumns; ++c) {
        if (block.count[c] == 0) continue;
        block.abs_left[c] = parent.abs_left[c] + block.x[c] - block.width[c] / 2;
        const LayoutBox box{block.abs_left[c], block.abs_top, block.width[c], block.height};
        if (block.kind == BlockKind::kNode) out_.node_boxes[block.node] = box;
        if (block.scope < 0) continue;
        out_.groups.push_back({block.scope, static_cast<LayoutColumn>(c), box, block.kind == BlockKind::kCollapsed,
                               block.depth - 1, static_cast<uint32_t>(block.count[c])});
      }
    }
  }

  LayoutBox box_of(const LayoutEnd& end) const {
    if (end.node >= 0) return out_.node_boxes[end.node];
    const Block& block = blocks_[scope_block_[end.scope]];
    const int c = static_cast<int>(end.column);
    return {block.abs_left[c], block.abs_top, block.width[c], block.height};
  }

  void trace_routes() {
    for (size_t r = 0; r < out_.routes.size(); ++r) {
      LayoutRoute& route = out_.routes[r];
      route.first_point = static_cast<uint32_t>(out_.points.size());
      const LayoutBox src = box_of(route.src), dst = box_of(route.dst);
      if (route.kind == LayoutRouteKind::kOverlay) {
        const bool right = src.centre_x() < dst.centre_x();
        out_.points.push_back({right ? src.right() : src.x, src.centre_y()});
        out_.points.push_back({right ? dst.x : dst.right(), dst.centre_y()});
      } else if (route.kind == LayoutRouteKind::kStub) {
        const bool down = src.centre_y() < dst.centre_y();
        out_.points.push_back({src.centre_x(), down ? src.bottom() : src.y});
        out_.points.push_back({dst.centre_x(), down ? dst.y : dst.bottom()});
      } else {
        trace_flow(r, src, dst);
      }
      route.point_count = static_cast<uint32_t>(out_.points.size()) - route.first_point;
    }
  }

  void trace_flow(size_t r, const LayoutBox& src, const LayoutBox& dst) {
    const LayoutRoute& route = out_.routes[r];
    const int c = static_cast<int>(route.src.column);
    const uint32_t first = route_first_[r], last = route_first_[r + 1];
    const Side out = segments_[route_segment_[first]].from.side;
    const Side in = segments_[route_segment_[last - 1]].to.side;
    add_point(route, src.centre_x(), out == kBottom ? src.bottom() : src.y);
    for (uint32_t i = first; i < last; ++i) {
      const uint32_t s = route_segment_[i];
      const Segment& segment = segments_[s];
      const Block& block = blocks_[segment.block];
      if (segment.from.child < 0) add_port(route, segment, segment.from, true);
      const auto &tops = row_tops(segment.block, c), &bottoms = row_bottoms(segment.block, c);
      const Bends& bends = bends_[s];
      for (int32_t k = 0; k < bends.count; ++k) {
        const float x = block.abs_left[c] + bend_x_[bends.first + k];
        const int32_t row = bends.first_row + k * bends.step - 1;  // slots count from the port row
        const float top = block.abs_top + tops[row], bottom = block.abs_top + bottoms[row];
        add_point(route, x, bends.step > 0 ? top : bottom);
        add_point(route, x, bends.step > 0 ? bottom : top);
      }
      if (segment.to.child < 0) add_port(route, segment, segment.to, false);
    }
    add_point(route, dst.centre_x(), in == kBottom ? dst.bottom() : dst.y);
  }

  void add_port(const LayoutRoute& route, const Segment& segment, const SegmentEnd& end, bool incoming) {
    const Block& block = blocks_[segment.block];
    const auto port = port_x_.find(port_key(segment.block, segment.column, end, incoming));
    if (port == port_x_.end()) return;
    add_point(route, block.abs_left[segment.column] + port->second,
              end.side == kTop ? block.abs_top : block.abs_top + block.height);
  }

  // Leaves out repeated points and middle points of vertical lines.
  void add_point(const LayoutRoute& route, float x, float y) {
    auto& points = out_.points;
    const size_t count = points.size() - route.first_point;
    auto near = [](float a, float b) { return std::abs(a - b) < 0.25f; };
    if (count > 0 && near(points.back().x, x) && near(points.back().y, y)) return;
    if (count > 1 && near(points.back().x, x) && near(points[points.size() - 2].x, x)) {
      points.back().y = y;
      return;
    }
    points.push_back({x, y});
  }

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

}  // namespace

std::optional<LayoutResult> layout_graph(const LayoutInput& input, std::stop_token stop) {
  return Layouter(input, std::move(stop)).run();
}

}  // namespace gradloom
