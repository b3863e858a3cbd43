// Edges of the graph canvas, and what lies over the drawing: column titles, minimap, drag rectangle;
// and the strip below it with legend and notes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "viz/draw/graph_painter.h"
#include "viz/draw/items.h"
#include "viz/draw/widgets.h"
#include "viz/model/axis.h"

namespace gradloom {
namespace {

constexpr float kNoteRoom = 120, kShortestScale = 30, kLongestScale = 120;  // points

}  // namespace

// Far out a long graph is thinner than a pixel: bars of a width that can be seen show where it lies.
void GraphPainter::thin_columns() {
  constexpr float kSeen = 5;
  const LayoutResult& l = scene.layout;
  int columns = 0;
  for (const LayoutBox& column : l.columns) columns += column.width > 0;
  if (columns == 0 || l.width * p.k >= px(kSeen) * 3) return;
  float x = p.screen(l.width / 2, 0).x - px(kSeen + 2) * static_cast<float>(columns) / 2;
  for (int c = 0; c < kLayoutColumns; ++c) {
    const LayoutBox& column = l.columns[c];
    if (column.width <= 0) continue;
    for (const LayoutBox& part : scene.overview[static_cast<size_t>(c)]) {
      const float top = p.screen(0, part.y).y, bottom = p.screen(0, part.bottom()).y;
      list->AddRectFilled({x, top}, {x + px(kSeen), std::max(bottom, top + px(2))},
                          with_alpha(column_color(static_cast<LayoutColumn>(c)), 0.75f), px(2));
    }
    x += px(kSeen + 2);
  }
}

void GraphPainter::columns() {
  static constexpr const char* kNames[] = {"Forward", "Backward", "Optimizer"};
  const ImU32 colors[] = {palette().forward, palette().backward, palette().optimizer};
  // What scrolls under the titles fades.
  const ImU32 solid = palette().window, clear = with_alpha(palette().window, 0);
  const float solid_bottom = state.canvas_min.y + px(30);
  list->AddRectFilled(state.canvas_min, {state.canvas_max.x, solid_bottom}, with_alpha(solid, 0.92f));
  list->AddRectFilledMultiColor({state.canvas_min.x, solid_bottom},
                                {state.canvas_max.x, solid_bottom + px(14)}, with_alpha(solid, 0.92f),
                                with_alpha(solid, 0.92f), clear, clear);
  float free_from = state.canvas_min.x + px(12);  // far out the columns are closer than their titles
  for (int c = 0; c < kLayoutColumns; ++c) {
    const LayoutBox& column = scene.layout.columns[c];
    if (column.width <= 0) continue;
    const float middle = p.screen(column.centre_x(), 0).x;
    ImFont* font = theme().bold;
    const ImVec2 size = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, kNames[c]);
    const float x = std::max(free_from, std::min(middle - size.x / 2, state.canvas_max.x - px(12) - size.x));
    const float y = state.canvas_min.y + px(10);
    if (middle + column.width / 2 * p.k < state.canvas_min.x ||
        middle - column.width / 2 * p.k > state.canvas_max.x)
      continue;
    list->AddRectFilled({x - px(10), y - px(4)}, {x + size.x + px(10), y + size.y + px(5)},
                        with_alpha(palette().panel, 0.92f), px(11));
    list->AddRect({x - px(10), y - px(4)}, {x + size.x + px(10), y + size.y + px(5)},
                  with_alpha(colors[c], 0.5f), px(11));
    list->AddText(font, font->FontSize, {std::round(x), std::round(y)}, colors[c], kNames[c]);
    free_from = x + size.x + px(28);
  }
}

void GraphPainter::stroke(const LayoutRoute& route, ImU32 color, float thickness, bool far) {
  const LayoutPoint* points = &scene.layout.points[route.first_point];
  ImVec2 from = p.screen(points[0].x, points[0].y);
  list->PathLineTo(from);
  for (uint32_t i = 1; i < route.point_count; ++i) {
    const ImVec2 to = p.screen(points[i].x, points[i].y);
    if (far || std::abs(to.x - from.x) < 1.5f) {
      list->PathLineTo(to);
    } else if (route.kind == LayoutRouteKind::kFlow) {
      const float bend = (to.y - from.y) * 0.5f;
      const int segments =
          std::clamp(static_cast<int>((std::abs(to.x - from.x) + std::abs(bend)) / px(9)), 5, 20);
      list->PathBezierCubicCurveTo({from.x, from.y + bend}, {to.x, to.y - bend}, to, segments);
    } else {
      const float reach = std::max(std::abs(to.x - from.x) * 0.45f, px(30));
      const float side = to.x > from.x ? reach : -reach;
      list->PathBezierCubicCurveTo({from.x + side, from.y}, {to.x - side, to.y}, to, 24);
    }
    from = to;
  }
  list->PathStroke(color, 0, thickness);
}

void GraphPainter::arrow(const LayoutRoute& route, ImU32 color) {
  const LayoutPoint* points = &scene.layout.points[route.first_point];
  const ImVec2 tip = p.screen(points[route.point_count - 1].x, points[route.point_count - 1].y);
  const ImVec2 before = p.screen(points[route.point_count - 2].x, points[route.point_count - 2].y);
  const float s = 4.5f * std::min(p.k, px(1));
  if (route.kind == LayoutRouteKind::kOverlay) {
    const float d = tip.x > before.x ? -s : s;
    list->AddTriangleFilled(tip, {tip.x + 1.6f * d, tip.y - s * 0.8f}, {tip.x + 1.6f * d, tip.y + s * 0.8f},
                            color);
  } else {
    const float d = tip.y > before.y ? -s : s;
    list->AddTriangleFilled(tip, {tip.x - s * 0.8f, tip.y + 1.6f * d}, {tip.x + s * 0.8f, tip.y + 1.6f * d},
                            color);
  }
}

float GraphPainter::thickness(uint32_t r) const {
  const double kib = static_cast<double>(scene.route_bytes[r]) / 1024;
  const float wide = kib > 16 ? std::min(1.6f, 0.22f * static_cast<float>(std::log2(kib / 16))) : 0.f;
  return (1.1f + wide) * std::clamp(p.k, 0.6f, px(1.2f));
}

void GraphPainter::edges() {
  const Palette& c = palette();
  const bool far = zoom_points() < 0.3f;
  const ImU32 base = mix(c.window, c.text_faint, search ? 0.35f : theme().dark ? 0.75f : 0.65f);
  for (uint32_t r = 0; r < scene.layout.routes.size(); ++r) {
    const LayoutRoute& route = scene.layout.routes[r];
    if (route.kind != LayoutRouteKind::kFlow || !scene.route_bounds[r].overlaps(grown()) || route_hidden(r))
      continue;
    stroke(route, base, far ? 1.f : thickness(r), far);
    if (!far && zoom_points() > 0.45f) arrow(route, base);
  }
  if (zoom_points() >= 0.6f) edge_labels();
}

void GraphPainter::edge_labels() {
  const Palette& c = palette();
  ImFont* font = canvas_font(std::min(11 * p.k, px(12)));
  for (uint32_t r = 0; r < scene.layout.routes.size(); ++r) {
    if (!scene.route_labelled[r] || scene.route_value[r] == kNone || route_hidden(r) ||
        !scene.route_bounds[r].overlaps(grown()))
      continue;
    const LayoutRoute& route = scene.layout.routes[r];
    const std::string& shape = model.value_labels[scene.route_value[r]];
    const std::string label =
        route.edge_count > 1 ? fmt::format("{}  +{}", shape, route.edge_count - 1) : shape;
    const LayoutPoint* points = &scene.layout.points[route.first_point];
    const bool down = points[1].y >= points[0].y;
    const ImVec2 at = p.screen(points[0].x, points[0].y);
    const ImVec2 text_at{std::round(at.x + 6 * p.k),
                         std::round(down ? at.y + 2 * p.k : at.y - font->FontSize - 2 * p.k)};
    list->AddText(font, font->FontSize, text_at, with_alpha(c.text_faint, search ? 0.5f : 1.f),
                  label.c_str());
  }
}

void GraphPainter::lit_edges() {
  const Palette& c = palette();
  for (uint32_t r : lit_routes) {
    if (route_hidden(r)) continue;
    const LayoutRoute& route = scene.layout.routes[r];
    const bool saved = route.kind == LayoutRouteKind::kOverlay && route.src.column == LayoutColumn::kForward;
    const ImU32 color = saved ? c.backward : route.kind == LayoutRouteKind::kOverlay ? c.optimizer : c.accent;
    stroke(route, with_alpha(color, 0.9f), std::max(thickness(r), px(1.6f)), false);
    arrow(route, color);
  }
}

void GraphPainter::minimap() {
  const LayoutBox map = minimap_rect(state);
  if (map.width <= 0) return;
  const Palette& c = palette();
  const ImVec2 min{map.x - px(6), map.y - px(6)}, max{map.right() + px(6), map.bottom() + px(6)};
  list->AddRectFilled(min, max, with_alpha(c.panel, 0.94f), px(6));
  list->AddRect(min, max, c.border, px(6));
  const float kx = map.width / std::max(1.f, scene.layout.width),
              ky = map.height / std::max(1.f, scene.layout.height);
  auto draw = [&](const LayoutBox& b, ImU32 color) {
    const float x = map.x + b.x * kx, y = map.y + b.y * ky;
    list->AddRectFilled({x, y}, {std::max(x + 1, x + b.width * kx), std::max(y + 1, y + b.height * ky)},
                        color);
  };
  const bool detailed = model.boxes.size() <= 3000;
  for (int column = 0; !detailed && column < kLayoutColumns; ++column)
    for (const LayoutBox& part : scene.overview[static_cast<size_t>(column)])
      draw(part, with_alpha(column_color(static_cast<LayoutColumn>(column)), 0.5f));
  const auto boxes = static_cast<int32_t>(model.boxes.size());
  for (size_t g = 0; detailed && g < scene.layout.groups.size(); ++g) {
    const LayoutGroup& group = scene.layout.groups[g];
    if (group.collapsed && !hidden(boxes + static_cast<int32_t>(g)))
      draw(group.box, with_alpha(column_color(group.column), 0.5f));
  }
  for (int32_t b = 0; detailed && b < boxes; ++b) {
    if (scene.layout.hidden_in[b] < 0 && !hidden(b))
      draw(scene.layout.node_boxes[b],
           with_alpha(phase_color(model.boxes[b].phase), search ? (hit[b] ? 1.f : 0.2f) : 0.6f));
  }
  const float x0 = std::clamp(map.x + visible.x * kx, map.x - px(3), map.right()),
              y0 = std::clamp(map.y + visible.y * ky, map.y - px(3), map.bottom());
  const float x1 = std::clamp(map.x + visible.right() * kx, map.x, map.right() + px(3)),
              y1 = std::clamp(map.y + visible.bottom() * ky, map.y, map.bottom() + px(3));
  list->AddRectFilled({x0, y0}, {x1, y1}, with_alpha(c.accent, 0.12f), px(2));
  list->AddRect({x0, y0}, {x1, y1}, c.accent, px(2), 0, px(1.2f));
  static constexpr const char* kCorners[] = {"bottom right", "bottom left", "top right", "top left"};
  register_rect("graph.minimap", min, max, "minimap", kCorners[state.minimap_corner]);
}

bool GraphPainter::strip(ImVec2 min, ImVec2 max) {
  const float left = min.x + px(2), y = std::round((min.y + max.y - theme().small->FontSize) / 2);
  list->PushClipRect(min, max, true);
  const float right = max.x - (has_times_note() ? px(kNoteRoom + 14) : 0);
  const float end =
      state.color_by == ColorBy::kPhase ? phase_legend({left, y}, right) : heat_legend({left, y}, right);
  register_rect("graph.legend", min, {end, max.y}, "legend");
  const bool asked = times_note({end + px(14), y}, max.x - px(2));
  list->PopClipRect();
  return asked;
}

// That the times are of something else than what stands.
bool GraphPainter::times_note(ImVec2 at, float right) {
  if (!has_times_note()) return false;
  const float wide = small_width(state.times_note) + small_width(state.times_action) + px(36);
  const float x =
      std::max(state.canvas_min.x, std::min(right - std::min(wide, right - at.x), right - px(kNoteRoom)));
  const ImVec2 before = ImGui::GetCursorScreenPos();
  ImGui::SetCursorScreenPos(
      {x, std::round(at.y + theme().small->FontSize / 2 - ImGui::GetFrameHeight() / 2)});
  const bool asked = offer_chip("graph.times", state.times_note, state.times_action, state.may_take,
                                palette().warn, state.times_tip, right - x);
  ImGui::SetCursorScreenPos(before);
  return asked;
}

float GraphPainter::phase_legend(ImVec2 at, float right) {
  const Palette& c = palette();
  struct Entry {
    const char* name;
    ImU32 color;
    bool dot;
  };
  for (const Entry& e : {Entry{"forward", c.forward, false}, Entry{"loss", c.loss, false},
                         Entry{"backward", c.backward, false}, Entry{"optimizer", c.optimizer, false},
                         Entry{"rewritten by a pass", c.accent, true}}) {
    const float width = px(12) + small_width(e.name);
    if (at.x + width > right) break;
    if (e.dot) {
      list->AddCircleFilled({at.x + px(4), at.y + px(7)}, px(3.5f), e.color, 12);
    } else {
      list->AddRectFilled({at.x + px(1), at.y + px(2)}, {at.x + px(6), at.y + px(13)}, e.color, px(2));
    }
    small_text({at.x + px(12), at.y}, c.text_dim, e.name);
    at.x += width + px(14);
  }
  return at.x - px(14);
}

float GraphPainter::heat_legend(ImVec2 at, float right) {
  const Palette& c = palette();
  const ColorBy by = state.color_by;
  const bool change = by == ColorBy::kChange;
  const double most = model.most[static_cast<size_t>(by)];
  const bool known = change ? !model.against.empty() : most > 0;
  const std::string low = change ? "\u221250 %" : "0";
  std::string high = change ? "+100 %" : model.value_text(most, by);
  std::string title = kColorKinds[static_cast<size_t>(by)].title;
  if (change && known) title += " " + model.against;
  if (!known) title += change ? " another run: choose one" : ": not measured yet";
  title = fit_text(theme().small, theme().small->FontSize, title, right - at.x);
  small_text(at, c.text_dim, title);
  at.x += small_width(title);
  // The scale with what has room of it: of scopes too, shorter, or none.
  const float room = right - at.x - px(22) - small_width(low);
  if (!known || room < px(kShortestScale) + small_width(high)) return at.x;
  if (!change && group_max > 0) {
    const std::string whole = high + "  (scopes: " + model.value_text(group_max, by) + ")";
    if (room >= px(kLongestScale) + small_width(whole)) high = whole;
  }
  small_text({at.x + px(10), at.y}, c.text_faint, low);
  at.x += px(16) + small_width(low);
  const float bar = std::min(px(kLongestScale), room - small_width(high));
  for (int i = 0; i < 40; ++i) {
    list->AddRectFilled({at.x + bar * static_cast<float>(i) / 40, at.y + px(2)},
                        {at.x + bar * static_cast<float>(i + 1) / 40 + 0.5f, at.y + px(13)},
                        change ? change_heat(static_cast<float>(i) / 19.5f - 1)
                               : heat(std::sqrt(static_cast<float>(i) / 39)));
  }
  small_text({at.x + bar + px(6), at.y}, c.text_faint, high);
  return at.x + bar + px(6) + small_width(high);
}

float GraphPainter::small_width(const std::string& s) const {
  return theme().small->CalcTextSizeA(theme().small->FontSize, FLT_MAX, 0, s.c_str()).x;
}

void GraphPainter::small_text(ImVec2 at, ImU32 color, const std::string& s) {
  list->AddText(theme().small, theme().small->FontSize, at, color, s.c_str());
}

void GraphPainter::drag_rectangle() {
  using Drag = GraphCanvasState::Drag;
  if (state.drag != Drag::kSelect && state.drag != Drag::kZoom) return;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  list->AddRectFilled(state.drag_start, mouse, with_alpha(palette().accent, 0.1f));
  list->AddRect(state.drag_start, mouse, palette().accent);
}

}  // namespace gradloom
