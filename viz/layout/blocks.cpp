// First half of the layout: the block tree, bundled routes, and the row of every block (longest path).
#include <queue>

#include "viz/layout/layouter.h"

namespace gradloom::layout_internal {
namespace {

// Longest-path layers of `order.size()` items; cycles are cut at the item with the lowest
// order. Edges are local indices.
std::vector<int32_t> longest_path(const std::vector<int64_t>& order,
                                  std::vector<std::pair<int32_t, int32_t>>& edges) {
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
  std::sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
    return std::tie(layer[a], order[a], a) < std::tie(layer[b], order[b], b);
  });
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

}  // namespace

int32_t Layouter::add_block(BlockKind kind, int32_t parent, int32_t scope, int32_t node) {
  Block block;
  block.kind = kind;
  block.parent = parent;
  block.depth = parent < 0 ? 0 : blocks_[parent].depth + 1;
  block.scope = scope;
  block.node = node;
  blocks_.push_back(std::move(block));
  return static_cast<int32_t>(blocks_.size()) - 1;
}

bool Layouter::has_partner(const LayoutNode& node) const {
  return node.column != LayoutColumn::kForward && node.partner >= 0 &&
         node.partner < static_cast<int32_t>(in_.nodes.size()) &&
         in_.nodes[node.partner].column == LayoutColumn::kForward;
}

int32_t Layouter::scope_of(const LayoutNode& node) const {
  const int32_t scope = has_partner(node) ? in_.nodes[node.partner].scope : node.scope;
  return scope >= 0 && scope < static_cast<int32_t>(in_.scopes.size()) ? scope : -1;
}

void Layouter::build_tree() {
  const size_t n = in_.nodes.size(), s = in_.scopes.size();
  std::vector<std::array<uint32_t, kLayoutColumns>> scope_count(s);
  for (const LayoutNode& node : in_.nodes) {
    for (int32_t i = scope_of(node); i >= 0; i = in_.scopes[i].parent)
      ++scope_count[i][static_cast<int>(node.column)];
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

void Layouter::add_nodes() {
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

void Layouter::index_children() {
  first_child_.assign(blocks_.size() + 1, 0);
  for (size_t i = 1; i < blocks_.size(); ++i) ++first_child_[blocks_[i].parent + 1];
  for (size_t i = 0; i < blocks_.size(); ++i) first_child_[i + 1] += first_child_[i];
  children_.resize(blocks_.size());
  std::vector<int32_t> cursor(first_child_.begin(), first_child_.end() - 1);
  for (size_t i = 1; i < blocks_.size(); ++i)
    children_[cursor[blocks_[i].parent]++] = static_cast<int32_t>(i);
}

void Layouter::collect_routes() {
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
    keyed.push_back(
        {static_cast<uint64_t>(a) << 32 | static_cast<uint32_t>(b), static_cast<uint8_t>(ca * 3 + cb), e});
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

LayoutEnd Layouter::end_of(uint32_t node) const {
  LayoutEnd end;
  end.column = in_.nodes[node].column;
  if (out_.hidden_in[node] >= 0) {
    end.scope = out_.hidden_in[node];
  } else {
    end.node = static_cast<int32_t>(node);
  }
  return end;
}

int32_t Layouter::leaf_of(const LayoutEnd& end) const {
  if (end.node < 0) return scope_block_[end.scope];
  const int32_t block = node_block_[end.node], cell = blocks_[block].parent;
  return blocks_[cell].count[static_cast<int>(end.column)] == 1 ? cell : block;
}

bool Layouter::is_leaf(int32_t block, int column) const {
  const Block& b = blocks_[block];
  return b.kind == BlockKind::kNode || b.kind == BlockKind::kCollapsed ||
         (b.kind == BlockKind::kCell && b.count[column] == 1);
}

std::pair<int32_t, int32_t> Layouter::lift(int32_t a, int32_t b) const {
  while (blocks_[a].parent != blocks_[b].parent) {
    if (blocks_[a].depth >= blocks_[b].depth) {
      a = blocks_[a].parent;
    } else {
      b = blocks_[b].parent;
    }
  }
  return {a, b};
}

void Layouter::assign_rows() {
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

int32_t Layouter::layer_children(int32_t b, int column, const std::vector<Lift>& lifts, size_t begin,
                                 size_t end, bool upwards, int32_t first_row) {
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

void Layouter::set_row_count(int32_t b, int column, int32_t rows) {
  blocks_[b].row_top[column].assign(rows, 0.f);
  blocks_[b].row_bottom[column].assign(rows, 0.f);
}

void Layouter::layer_orphans(int32_t b, int32_t rows) {
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
  for (size_t i = 0; i < orphans.size(); ++i)
    blocks_[orphans[i]].row = rows + static_cast<int32_t>(i) / per_row;
  const int32_t extra = (static_cast<int32_t>(orphans.size()) + per_row - 1) / per_row;
  set_row_count(b, 0, rows + extra);
}

}  // namespace gradloom::layout_internal
