// The layout from end to end, and its results: absolute positions and traced routes.
#include "viz/layout/layout.h"

#include <cmath>

#include "viz/layout/layouter.h"

namespace gradloom {
namespace layout_internal {

std::optional<LayoutResult> Layouter::run() {
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

const std::vector<float>& Layouter::row_tops(int32_t b, int column) const {
  return blocks_[b].row_top[blocks_[b].kind == BlockKind::kGroup ? 0 : column];
}

const std::vector<float>& Layouter::row_bottoms(int32_t b, int column) const {
  return blocks_[b].row_bottom[blocks_[b].kind == BlockKind::kGroup ? 0 : column];
}

void Layouter::place_absolute() {
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
      out_.groups.push_back({block.scope, static_cast<LayoutColumn>(c), box,
                             block.kind == BlockKind::kCollapsed, block.depth - 1,
                             static_cast<uint32_t>(block.count[c])});
    }
  }
}

LayoutBox Layouter::box_of(const LayoutEnd& end) const {
  if (end.node >= 0) return out_.node_boxes[end.node];
  const Block& block = blocks_[scope_block_[end.scope]];
  const int c = static_cast<int>(end.column);
  return {block.abs_left[c], block.abs_top, block.width[c], block.height};
}

void Layouter::trace_routes() {
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

void Layouter::trace_flow(size_t r, const LayoutBox& src, const LayoutBox& dst) {
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

void Layouter::add_port(const LayoutRoute& route, const Segment& segment, const SegmentEnd& end,
                        bool incoming) {
  const Block& block = blocks_[segment.block];
  const auto port = port_x_.find(port_key(segment.block, segment.column, end, incoming));
  if (port == port_x_.end()) return;
  add_point(route, block.abs_left[segment.column] + port->second,
            end.side == kTop ? block.abs_top : block.abs_top + block.height);
}

void Layouter::add_point(const LayoutRoute& route, float x, float y) {
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

}  // namespace layout_internal

std::optional<LayoutResult> layout_graph(const LayoutInput& input, std::stop_token stop) {
  return layout_internal::Layouter(input, std::move(stop)).run();
}

}  // namespace gradloom
