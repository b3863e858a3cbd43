// Second half of the layout: routes cut into segments per block, and every block solved bottom-up.
#include <cmath>

#include "viz/layout/layouter.h"

namespace gradloom::layout_internal {

void Layouter::make_segments() {
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

void Layouter::add_route_segments(std::vector<Segment>& raw, int c, int32_t u, int32_t v, int32_t a,
                                  int32_t b) {
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

bool Layouter::solve_blocks() {
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

uint64_t Layouter::port_key(int32_t block, int column, const SegmentEnd& end, bool incoming) {
  return static_cast<uint64_t>(block) << 34 | static_cast<uint64_t>(end.producer) << 4 |
         static_cast<uint64_t>(column) << 2 | static_cast<uint64_t>(end.side) << 1 |
         static_cast<uint64_t>(incoming);
}

void Layouter::solve_column(int32_t b, int c, size_t begin, size_t end) {
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
  const std::vector<float> x = place_rows(
      slots, links, rows + 2, block.kind == BlockKind::kCell ? in_.gap * 0.6f : in_.gap, &out_.steps);
  finish_column(b, c, slots, x, members, ports, first_bend);
}

float Layouter::attach(const SegmentEnd& end, int c, bool incoming) const {
  if (end.child < 0 || is_leaf(end.child, c)) return 0;
  const auto port = port_x_.find(port_key(end.child, c, end, incoming));
  return port == port_x_.end() ? 0.f : port->second - blocks_[end.child].width[c] / 2;
}

int32_t Layouter::link_rows(std::vector<RowSlot>& slots, std::vector<RowLink>& links, int32_t from,
                            int32_t to, float from_dx, float to_dx, int64_t order, Bends& bends) {
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

void Layouter::finish_column(int32_t b, int c, const std::vector<RowSlot>& slots, const std::vector<float>& x,
                             const std::vector<int32_t>& members,
                             const std::unordered_map<uint64_t, int32_t>& ports,
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

void Layouter::stack_rows(int32_t b) {
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

}  // namespace gradloom::layout_internal
