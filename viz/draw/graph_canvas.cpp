// Drawing of the graph canvas: scene upkeep, groups, edges, nodes, minimap, legend, context menu.
#include "viz/draw/graph_canvas.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "viz/draw/graph_view.h"
#include "viz/draw/items.h"
#include "viz/draw/keys.h"
#include "viz/draw/widgets.h"
#include "viz/model/axis.h"

namespace gradloom {
namespace {

constexpr size_t kMostRegistered = 400;  // visible boxes reported to the item registry
constexpr float kFullHeight = 34, kLabelHeight = 13;

struct Painter {
  GraphCanvasState& state;
  const GraphScene& scene;
  const GraphModel& model;
  ImDrawList* list;
  Projection p;
  LayoutBox visible;              // world
  std::vector<bool> lit;          // shapes related to the hovered or selected one
  std::vector<uint32_t> lit_routes;
  bool search = false;
  std::vector<bool> hit, chosen;  // boxes: search hits, selection
  size_t registered = 0;
  double group_max = 0;           // largest time or bytes of a collapsed scope: scopes have their own scale

  Painter(GraphCanvasState& s, ImDrawList* l)
      : state(s), scene(*s.scene), model(*s.scene->model), list(l), p(s), lit(scene.shape_count(), false), chosen(model.boxes.size(), false) {
    for (int32_t box : s.selection) {
      if (box < static_cast<int32_t>(chosen.size())) chosen[box] = true;
    }
    const ImVec2 a = p.world(s.canvas_min), b = p.world(s.canvas_max);
    visible = {a.x, a.y, b.x - a.x, b.y - a.y};
    search = !s.query_text.empty() && s.query_error.empty() && s.scene->model == s.model;
    if (search) {
      hit.assign(model.boxes.size(), false);
      for (int32_t box : s.hits) hit[box] = true;
    }
    for (const LayoutGroup& g : scene.layout.groups) {
      if (g.collapsed && s.color_by != ColorBy::kPhase) group_max = std::max(group_max, group_value(g));
    }
    light();
  }

  // What belongs to the pointed-at or selected shape: its routes, their other ends, its partners.
  void light() {
    std::vector<int32_t> centre;
    if (state.hovered >= 0) centre.push_back(state.hovered);
    for (int32_t box : state.selection) {
      if (box < static_cast<int32_t>(model.boxes.size())) centre.push_back(scene.shape_of_box(box));
    }
    if (!state.outline.empty()) {
      const int32_t box = model.find(state.outline);
      if (box >= 0) centre.push_back(scene.shape_of_box(box));
    }
    if (centre.size() > 64) return;
    for (int32_t shape : centre) {
      for (uint32_t i = scene.route_first[shape]; i < scene.route_first[shape + 1]; ++i) lit_routes.push_back(scene.routes_of[i]);
      if (shape >= static_cast<int32_t>(model.boxes.size())) continue;
      for (int32_t related : model.boxes[shape].related) lit[scene.shape_of_box(related)] = true;
    }
  }

  float zoom_points() const { return state.view.zoom; }

  // ---- groups ------------------------------------------------------------------------------------------------------------

  void columns() {
    static constexpr const char* kNames[] = {"Forward", "Backward", "Optimizer"};
    const ImU32 colors[] = {palette().forward, palette().backward, palette().optimizer};
    float free_from = state.canvas_min.x + px(12);  // far out the columns are closer than their titles
    for (int c = 0; c < kLayoutColumns; ++c) {
      const LayoutBox& column = scene.layout.columns[c];
      if (column.width <= 0) continue;
      const float middle = p.screen(column.centre_x(), 0).x;
      ImFont* font = theme().bold;
      const ImVec2 size = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, kNames[c]);
      const float x = std::max(free_from, std::min(middle - size.x / 2, state.canvas_max.x - px(12) - size.x));
      const float y = state.canvas_min.y + px(10);
      if (middle + column.width / 2 * p.k < state.canvas_min.x || middle - column.width / 2 * p.k > state.canvas_max.x) continue;
      list->AddRectFilled({x - px(10), y - px(4)}, {x + size.x + px(10), y + size.y + px(5)}, with_alpha(palette().panel, 0.92f), px(11));
      list->AddRect({x - px(10), y - px(4)}, {x + size.x + px(10), y + size.y + px(5)}, with_alpha(colors[c], 0.5f), px(11));
      list->AddText(font, font->FontSize, {std::round(x), std::round(y)}, colors[c], kNames[c]);
      free_from = x + size.x + px(28);
    }
  }

  ImU32 column_color(LayoutColumn column) const {
    const ImU32 colors[] = {palette().forward, palette().backward, palette().optimizer};
    return colors[static_cast<int>(column)];
  }

  void groups() {
    for (size_t g = 0; g < scene.layout.groups.size(); ++g) {
      const LayoutGroup& group = scene.layout.groups[g];
      if (!group.box.overlaps(visible)) continue;
      const auto shape = static_cast<int32_t>(model.boxes.size() + g);
      const ImVec2 min = p.screen(group.box.x, group.box.y), max = p.screen(group.box.right(), group.box.bottom());
      if (max.y - min.y < px(2)) {
        list->AddRectFilled(min, {max.x, min.y + px(1)}, palette().border);
      } else if (group.collapsed) {
        collapsed_group(group, shape, min, max);
      } else {
        open_group(group, shape, min, max);
      }
    }
  }

  void open_group(const LayoutGroup& group, int32_t shape, ImVec2 min, ImVec2 max) {
    const Palette& c = palette();
    const bool hovered = state.hovered == shape || state.selected_scope == group.scope;
    const ImU32 fill = mix(c.window, c.panel, theme().dark ? 0.55f + 0.3f * static_cast<float>(group.depth % 3) : 0.45f + 0.25f * static_cast<float>(group.depth % 3));
    const float rounding = std::min(10 * p.k, px(10));
    list->AddRectFilled(min, max, fill, rounding);
    list->AddRect(min, max, hovered ? with_alpha(c.accent, 0.8f) : c.border, rounding, 0, px(1));
    const float strip = 26 * p.k;
    if (strip >= px(11)) {
      const float size = std::clamp(strip * 0.54f, px(10), px(14));
      ImFont* font = canvas_font(size);
      const std::string name = fit_text(font, size, model.scopes[group.scope].name, max.x - min.x - 20 * p.k);
      const float y = std::max(min.y + px(2), min.y + (strip - size) / 2 + 2 * p.k);
      list->AddText(font, size, {min.x + 14 * p.k, y}, c.text_dim, name.c_str());
      const std::string cost = group_cost(group);
      const float width = font->CalcTextSizeA(size * 0.92f, FLT_MAX, 0, cost.c_str()).x;
      const float used = font->CalcTextSizeA(size, FLT_MAX, 0, name.c_str()).x;
      if (!cost.empty() && used + width + 44 * p.k < max.x - min.x) {
        list->AddText(font, size * 0.92f, {max.x - width - 12 * p.k, y}, c.text_faint, cost.c_str());
      }
    }
    register_group(group, min, {max.x, min.y + std::max(strip, 1.f)}, "expanded");
  }

  std::string group_cost(const LayoutGroup& group) const {
    const ScopeInfo& scope = model.scopes[group.scope];
    const int c = static_cast<int>(group.column);
    if (scope.timed) return format_value(scope.time_ns[c], Unit::kNs);
    return {};
  }

  void collapsed_group(const LayoutGroup& group, int32_t shape, ImVec2 min, ImVec2 max) {
    const Palette& c = palette();
    const ScopeInfo& scope = model.scopes[group.scope];
    const int column = static_cast<int>(group.column);
    const double heat_value = group_max > 0 ? std::sqrt(group_value(group) / group_max) : std::nan("");
    const bool dim = search && !group_hit(group.scope, group.column);
    ImU32 fill = std::isnan(heat_value) ? c.raised : heat(static_cast<float>(heat_value));
    const ImU32 ink = std::isnan(heat_value) ? c.text : ink_on(fill);
    if (dim) fill = mix(fill, c.window, 0.65f);
    const float rounding = std::min(8 * p.k, px(8)), shift = std::min(4 * p.k, px(4));
    const bool full = max.y - min.y > px(18);
    if (full) list->AddRectFilled({min.x + shift, min.y + shift}, {max.x + shift, max.y + shift}, mix(c.window, c.border, 0.8f), rounding);
    list->AddRectFilled(min, max, fill, full ? rounding : 0);
    const ImU32 edge = mix(c.border, column_color(group.column), dim ? 0.1f : 0.45f);
    const bool pointed = state.hovered == shape || state.selected_scope == group.scope;
    list->AddRect(min, max, pointed ? c.accent : lit[shape] ? column_color(group.column) : edge, full ? rounding : 0, 0,
                  px(pointed || lit[shape] ? 2.f : 1.f));
    if (max.y - min.y >= px(kLabelHeight)) {
      const float size = std::min(15 * p.k, px(15));
      ImFont* font = canvas_font(size);
      const float pad = 12 * p.k, width = max.x - min.x - 2 * pad - 14 * p.k;
      const bool two = max.y - min.y > px(30);
      const std::string name = fit_text(font, size, scope.name, width);
      const float y = two ? min.y + 9 * p.k : (min.y + max.y - size) / 2;
      list->AddText(font, size, {min.x + pad, y}, dim ? c.text_faint : ink, name.c_str());
      const float mid = (min.y + max.y) / 2, s = 4 * p.k, cx = max.x - pad;
      list->AddLine({cx - s, mid}, {cx + s, mid}, with_alpha(ink, 0.55f), px(1.2f));
      list->AddLine({cx, mid - s}, {cx, mid + s}, with_alpha(ink, 0.55f), px(1.2f));
      if (two) {
        std::string detail = fmt::format("{} {}", scope.boxes[column], scope.boxes[column] == 1 ? "node" : "nodes");
        if (scope.timed) {
          detail += " \u00b7 " + format_value(scope.time_ns[column], Unit::kNs);
        } else if (scope.flops[column] > 0) {
          detail += " \u00b7 " + format_value(scope.flops[column], Unit::kFlop);
        }
        ImFont* small = canvas_font(size * 0.8f);
        detail = fit_text(small, size * 0.8f, detail, width);
        list->AddText(small, size * 0.8f, {min.x + pad, min.y + 31 * p.k}, std::isnan(heat_value) ? c.text_dim : with_alpha(ink, 0.8f), detail.c_str());
      }
    }
    register_group(group, min, max, "collapsed");
  }

  double group_value(const LayoutGroup& group) const {
    const ScopeInfo& scope = model.scopes[group.scope];
    const int c = static_cast<int>(group.column);
    return state.color_by == ColorBy::kTime ? scope.time_ns[c] : scope.bytes[c];
  }

  bool group_hit(int32_t scope, LayoutColumn column) const {
    for (int32_t box : state.hits) {
      if (scene.layout.hidden_in[box] == scope && model.boxes[box].column == column) return true;
    }
    return false;
  }

  void register_group(const LayoutGroup& group, ImVec2 min, ImVec2 max, std::string_view value) {
    static constexpr const char* kColumn[] = {"forward", "backward", "optimizer"};
    if (++registered > kMostRegistered) return;
    register_rect(fmt::format("scope.{}.{}", model.scopes[group.scope].path, kColumn[static_cast<int>(group.column)]), min, max,
                  model.scopes[group.scope].name, value);
  }

  // ---- edges -------------------------------------------------------------------------------------------------------------

  void stroke(const LayoutRoute& route, ImU32 color, float thickness, bool far) {
    const LayoutPoint* points = &scene.layout.points[route.first_point];
    ImVec2 from = p.screen(points[0].x, points[0].y);
    list->PathLineTo(from);
    for (uint32_t i = 1; i < route.point_count; ++i) {
      const ImVec2 to = p.screen(points[i].x, points[i].y);
      if (far || std::abs(to.x - from.x) < 1.5f) {
        list->PathLineTo(to);
      } else if (route.kind == LayoutRouteKind::kFlow) {
        const float bend = (to.y - from.y) * 0.5f;
        const int segments = std::clamp(static_cast<int>((std::abs(to.x - from.x) + std::abs(bend)) / px(9)), 5, 20);
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

  void arrow(const LayoutRoute& route, ImU32 color) {
    const LayoutPoint* points = &scene.layout.points[route.first_point];
    const ImVec2 tip = p.screen(points[route.point_count - 1].x, points[route.point_count - 1].y);
    const ImVec2 before = p.screen(points[route.point_count - 2].x, points[route.point_count - 2].y);
    const float s = 4.5f * std::min(p.k, px(1));
    if (route.kind == LayoutRouteKind::kOverlay) {
      const float d = tip.x > before.x ? -s : s;
      list->AddTriangleFilled(tip, {tip.x + 1.6f * d, tip.y - s * 0.8f}, {tip.x + 1.6f * d, tip.y + s * 0.8f}, color);
    } else {
      const float d = tip.y > before.y ? -s : s;
      list->AddTriangleFilled(tip, {tip.x - s * 0.8f, tip.y + 1.6f * d}, {tip.x + s * 0.8f, tip.y + 1.6f * d}, color);
    }
  }

  float thickness(uint32_t r) const {
    const double kib = static_cast<double>(scene.route_bytes[r]) / 1024;
    const float wide = kib > 16 ? std::min(1.6f, 0.22f * static_cast<float>(std::log2(kib / 16))) : 0.f;
    return (1.1f + wide) * std::clamp(p.k, 0.6f, px(1.2f));
  }

  void edges() {
    const Palette& c = palette();
    const bool far = zoom_points() < 0.3f;
    const ImU32 base = mix(c.window, c.text_faint, search ? 0.35f : theme().dark ? 0.75f : 0.65f);
    for (uint32_t r = 0; r < scene.layout.routes.size(); ++r) {
      const LayoutRoute& route = scene.layout.routes[r];
      if (route.kind != LayoutRouteKind::kFlow || !scene.route_bounds[r].overlaps(grown())) continue;
      stroke(route, base, far ? 1.f : thickness(r), far);
      if (!far && zoom_points() > 0.45f) arrow(route, base);
    }
    if (zoom_points() >= 0.62f) edge_labels();
  }

  // A line has no area, so the visible part is compared with some room.
  LayoutBox grown() const { return {visible.x - 2, visible.y - 2, visible.width + 4, visible.height + 4}; }

  void edge_labels() {
    const Palette& c = palette();
    const float size = std::min(10.5f * p.k, px(11));
    ImFont* font = canvas_font(size);
    for (uint32_t r = 0; r < scene.layout.routes.size(); ++r) {
      if (!scene.route_labelled[r] || scene.route_value[r] == kNone || !scene.route_bounds[r].overlaps(grown())) continue;
      const LayoutRoute& route = scene.layout.routes[r];
      const std::string& shape = model.value_labels[scene.route_value[r]];
      const std::string label = route.edge_count > 1 ? fmt::format("{}  +{}", shape, route.edge_count - 1) : shape;
      const LayoutPoint* points = &scene.layout.points[route.first_point];
      const bool down = points[1].y >= points[0].y;
      const ImVec2 at = p.screen(points[0].x, points[0].y);
      const ImVec2 text_at{at.x + 6 * p.k, down ? at.y + 2.5f * p.k : at.y - size - 2.5f * p.k};
      list->AddText(font, size, text_at, with_alpha(c.text_faint, search ? 0.5f : 1.f), label.c_str());
    }
  }

  // Saved activations and far readers appear with the shape they belong to.
  void lit_edges() {
    const Palette& c = palette();
    for (uint32_t r : lit_routes) {
      const LayoutRoute& route = scene.layout.routes[r];
      const bool saved = route.kind == LayoutRouteKind::kOverlay && route.src.column == LayoutColumn::kForward;
      const ImU32 color = saved ? c.backward : route.kind == LayoutRouteKind::kOverlay ? c.optimizer : c.accent;
      stroke(route, with_alpha(color, 0.9f), std::max(thickness(r), px(1.6f)), false);
      arrow(route, color);
    }
  }

  // ---- nodes -------------------------------------------------------------------------------------------------------------

  ImU32 node_fill(int32_t b, bool* heated) const {
    const double t = model.heat_of(b, state.color_by);
    *heated = !std::isnan(t);
    if (*heated) return heat(static_cast<float>(t));
    return state.color_by == ColorBy::kPhase ? palette().raised : mix(palette().window, palette().raised, 0.6f);
  }

  void nodes() {
    const float height = 44 * p.k;
    for (int32_t b = 0; b < static_cast<int32_t>(model.boxes.size()); ++b) {
      const LayoutBox& box = scene.layout.node_boxes[b];
      if (scene.layout.hidden_in[b] >= 0 || !box.overlaps(visible)) continue;
      const ImVec2 min = p.screen(box.x, box.y), max = p.screen(box.right(), box.bottom());
      bool heated = false;
      ImU32 fill = node_fill(b, &heated);
      const bool dim = search && !hit[b];
      const ImU32 accent = phase_color(model.boxes[b].phase);
      if (height < px(kLabelHeight)) {
        ImU32 plain = heated ? fill : mix(palette().window, accent, 0.55f);
        if (dim) plain = mix(plain, palette().window, 0.75f);
        list->AddRectFilled(min, {std::max(max.x, min.x + 1), std::max(max.y, min.y + 1)}, plain);
        outline(b, min, max, 0);
      } else {
        full_node(b, min, max, fill, accent, heated, dim, height >= px(kFullHeight));
      }
      if (++registered <= kMostRegistered) {
        register_rect("node." + model.boxes[b].name, min, max, model.boxes[b].op, chosen[b] ? "selected" : "");
      }
    }
  }

  void full_node(int32_t b, ImVec2 min, ImVec2 max, ImU32 fill, ImU32 accent, bool heated, bool dim, bool full) {
    const Palette& c = palette();
    const GraphBox& box = model.boxes[b];
    const float rounding = full ? std::min(6 * p.k, px(7)) : px(3);
    ImU32 ink = heated ? ink_on(fill) : c.text;
    ImU32 faint = heated ? with_alpha(ink, 0.75f) : c.text_dim;
    if (dim) {
      fill = mix(fill, c.window, 0.7f);
      ink = mix(c.window, c.text, 0.35f);
      faint = mix(c.window, c.text, 0.22f);
      accent = mix(c.window, accent, 0.35f);
    }
    const bool input = box.node == kNone;
    if (!input) {  // the phase shows as a stripe at the left: the box in its colour, covered by the fill
      list->AddRectFilled(min, max, accent, rounding);
      list->AddRectFilled({min.x + 4 * p.k, min.y}, max, fill, rounding, ImDrawFlags_RoundCornersRight);
    } else {
      list->AddRectFilled(min, max, mix(c.window, c.accent, 0.12f), (max.y - min.y) / 2);
      list->AddRect(min, max, mix(c.border, c.accent, 0.5f), (max.y - min.y) / 2);
    }
    outline(b, min, max, input ? (max.y - min.y) / 2 : rounding);
    const float pad = (input ? 18 : 13) * p.k, width = max.x - min.x - pad - 8 * p.k;
    if (!full) {
      const float size = std::min((max.y - min.y) * 0.6f, px(13));
      ImFont* font = canvas_font(size);
      list->AddText(font, size, {min.x + pad, (min.y + max.y - size) / 2 - size * 0.05f}, ink, fit_text(font, size, box.title, width).c_str());
      return;
    }
    const float size = 14 * p.k, small_size = 11 * p.k;
    ImFont *font = canvas_font(size), *small = canvas_font(small_size);
    std::string time;
    if (!std::isnan(box.time_ns)) {
      time = format_value(box.time_ns, Unit::kNs);
    } else if (box.node != kNone && box.flops > 1e5) {
      time = format_value(box.flops, Unit::kFlop);
    }
    const float time_width = time.empty() ? 0 : small->CalcTextSizeA(small_size, FLT_MAX, 0, time.c_str()).x;
    list->AddText(font, size, {min.x + pad, min.y + 5 * p.k}, ink, fit_text(font, size, box.title, width).c_str());
    const float y = min.y + 25 * p.k;
    list->AddText(small, small_size, {min.x + pad, y}, faint, fit_text(small, small_size, box.subtitle, width - time_width - 6 * p.k).c_str());
    if (!time.empty()) list->AddText(small, small_size, {max.x - 8 * p.k - time_width, y}, faint, time.c_str());
    badges(b, min, max, dim);
  }

  void badges(int32_t b, ImVec2 min, ImVec2 max, bool dim) {
    const Palette& c = palette();
    const GraphBox& box = model.boxes[b];
    if (!box.pass.empty()) {  // made by a pass
      const ImVec2 at{max.x - 9 * p.k, min.y + 9 * p.k};
      list->AddCircleFilled(at, 3.5f * p.k, dim ? c.text_faint : c.accent, 12);
    }
    if (scene.saved[b] > 0) {  // values that backward reads
      const float size = 9.5f * p.k;
      ImFont* font = canvas_font(size);
      const std::string label = std::to_string(scene.saved[b]);
      const float width = font->CalcTextSizeA(size, FLT_MAX, 0, label.c_str()).x + 9 * p.k;
      const ImVec2 a{max.x - width * 0.35f, (min.y + max.y) / 2 - 7 * p.k}, e{max.x + width * 0.65f, (min.y + max.y) / 2 + 7 * p.k};
      list->AddRectFilled(a, e, mix(c.window, c.backward, dim ? 0.12f : 0.3f), 7 * p.k);
      list->AddText(font, size, {a.x + 4.5f * p.k, a.y + 1.5f * p.k}, dim ? c.text_faint : c.backward, label.c_str());
    }
  }

  void outline(int32_t b, ImVec2 min, ImVec2 max, float rounding) {
    const Palette& c = palette();
    ImU32 color = 0;
    float grow = 0, width = 2;
    if (chosen[b]) {
      color = c.accent, grow = 2, width = 2.2f;
    } else if (state.hovered == b || (!state.outline.empty() && model.boxes[b].name == state.outline)) {
      color = c.text, width = 1.6f;
    } else if (lit[b]) {
      color = phase_color(model.boxes[b].phase);
    } else if (search && hit[b]) {
      color = c.warn, width = state.hit >= 0 && state.hits[state.hit] == b ? 3.f : 1.6f;
    }
    if (color == 0) return;
    list->AddRect({min.x - px(grow), min.y - px(grow)}, {max.x + px(grow), max.y + px(grow)}, color, rounding, 0, px(width));
  }

  // ---- furniture -----------------------------------------------------------------------------------------------------------

  void minimap() {
    const LayoutBox map = minimap_rect(state);
    if (map.width <= 0) return;
    const Palette& c = palette();
    const ImVec2 min{map.x - px(6), map.y - px(6)}, max{map.right() + px(6), map.bottom() + px(6)};
    list->AddRectFilled(min, max, with_alpha(c.panel, 0.94f), px(6));
    list->AddRect(min, max, c.border, px(6));
    const float kx = map.width / std::max(1.f, scene.layout.width), ky = map.height / std::max(1.f, scene.layout.height);
    auto draw = [&](const LayoutBox& b, ImU32 color) {
      const float x = map.x + b.x * kx, y = map.y + b.y * ky;
      list->AddRectFilled({x, y}, {std::max(x + 1, x + b.width * kx), std::max(y + 1, y + b.height * ky)}, color);
    };
    const bool detailed = model.boxes.size() <= 3000;
    for (const LayoutGroup& group : scene.layout.groups) {
      if (group.collapsed || (!detailed && group.depth == 0)) draw(group.box, with_alpha(column_color(group.column), 0.5f));
    }
    for (size_t b = 0; detailed && b < model.boxes.size(); ++b) {
      if (scene.layout.hidden_in[b] < 0) draw(scene.layout.node_boxes[b], with_alpha(phase_color(model.boxes[b].phase), search ? (hit[b] ? 1.f : 0.2f) : 0.6f));
    }
    const float x0 = std::clamp(map.x + visible.x * kx, map.x - px(3), map.right()), y0 = std::clamp(map.y + visible.y * ky, map.y - px(3), map.bottom());
    const float x1 = std::clamp(map.x + visible.right() * kx, map.x, map.right() + px(3)), y1 = std::clamp(map.y + visible.bottom() * ky, map.y, map.bottom() + px(3));
    list->AddRectFilled({x0, y0}, {x1, y1}, with_alpha(c.accent, 0.12f), px(2));
    list->AddRect({x0, y0}, {x1, y1}, c.accent, px(2), 0, px(1.2f));
    register_rect("graph.minimap", min, max, "minimap");
  }

  void legend() {
    const Palette& c = palette();
    ImFont* font = theme().small;
    const float y = state.canvas_max.y - px(30), x = state.canvas_min.x + px(12);
    if (state.color_by == ColorBy::kPhase) {
      const std::pair<const char*, ImU32> entries[] = {{"forward", c.forward}, {"loss", c.loss}, {"backward", c.backward},
                                                       {"optimizer", c.optimizer}, {"made by a pass", c.accent}};
      float at = x + px(10);
      float total = px(12);
      for (const auto& [name, color] : entries) total += font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, name).x + px(30);
      list->AddRectFilled({x, y - px(5)}, {x + total, y + px(20)}, with_alpha(c.panel, 0.92f), px(12));
      for (const auto& [name, color] : entries) {
        if (color == c.accent && std::string_view(name) != "forward") {
          list->AddCircleFilled({at + px(5), y + px(7)}, px(3.5f), color, 12);
        } else {
          list->AddRectFilled({at + px(2), y + px(2)}, {at + px(7), y + px(13)}, color, px(2));
        }
        list->AddText(font, font->FontSize, {at + px(14), y}, c.text_dim, name);
        at += font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, name).x + px(30);
      }
      return;
    }
    const bool time = state.color_by == ColorBy::kTime;
    const std::string low = "0", most = time ? format_value(model.max_time_ns, Unit::kNs) : format_value(model.max_bytes, Unit::kBytes);
    const std::string high = group_max > 0 ? most + "  (scopes: " + format_value(group_max, time ? Unit::kNs : Unit::kBytes) + ")" : most;
    const std::string title = time ? "time per step" : "bytes moved";
    const bool known = time ? model.timed : model.max_bytes > 0;
    const float bar = px(120), title_width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, title.c_str()).x;
    list->AddRectFilled({x, y - px(5)}, {x + title_width + bar + px(62) + font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, high.c_str()).x, y + px(20)}, with_alpha(c.panel, 0.92f), px(12));
    list->AddText(font, font->FontSize, {x + px(10), y}, c.text_dim, known ? title.c_str() : (title + ": not measured yet").c_str());
    if (!known) return;
    const float x0 = x + px(34) + title_width;
    list->AddText(font, font->FontSize, {x0 - px(14), y}, c.text_faint, low.c_str());
    for (int i = 0; i < 40; ++i) {
      list->AddRectFilled({x0 + bar * static_cast<float>(i) / 40, y + px(2)}, {x0 + bar * static_cast<float>(i + 1) / 40 + 0.5f, y + px(13)},
                          heat(std::sqrt(static_cast<float>(i) / 39)));
    }
    list->AddText(font, font->FontSize, {x0 + bar + px(8), y}, c.text_faint, high.c_str());
  }

  void drag_rectangle() {
    using Drag = GraphCanvasState::Drag;
    if (state.drag != Drag::kSelect && state.drag != Drag::kZoom) return;
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    list->AddRectFilled(state.drag_start, mouse, with_alpha(palette().accent, 0.1f));
    list->AddRect(state.drag_start, mouse, palette().accent);
  }
};

void keep_anchor(GraphCanvasState& state, const GraphCanvasState::Anchor& anchor) {
  const GraphScene& scene = *state.scene;
  LayoutBox box;
  if (!anchor.scope.empty()) {
    const auto& scopes = scene.model->scopes;
    const auto found = std::find_if(scopes.begin(), scopes.end(), [&](const ScopeInfo& s) { return s.path == anchor.scope; });
    const int32_t group = found == scopes.end() ? -1 : scene.group_of(static_cast<int32_t>(found - scopes.begin()), anchor.column);
    if (group < 0) return;
    box = scene.layout.groups[group].box;
    box.height = 0;
  } else {
    const int32_t found = scene.model->find(anchor.node);
    if (found < 0) return;
    box = scene.bounds(scene.shape_of_box(found));
  }
  state.view.x = box.centre_x() - anchor.dx / state.view.zoom;
  state.view.y = box.centre_y() - anchor.dy / state.view.zoom;
}

// The node nearest to the middle of the canvas: it stays in place when a pass changes the graph.
std::optional<GraphCanvasState::Anchor> nearest_anchor(const GraphCanvasState& state) {
  const GraphScene& scene = *state.scene;
  float best = 1e30f;
  int32_t nearest = -1;
  for (int32_t b = 0; b < static_cast<int32_t>(scene.model->boxes.size()); ++b) {
    const LayoutBox box = scene.bounds(scene.shape_of_box(b));
    const float distance = std::hypot(box.centre_x() - state.view.x, box.centre_y() - state.view.y);
    const bool survives = !state.model || state.model->find(scene.model->boxes[b].name) >= 0;
    if (survives && distance < best) best = distance, nearest = b;
  }
  if (nearest < 0) return std::nullopt;
  const LayoutBox box = scene.bounds(scene.shape_of_box(nearest));
  GraphCanvasState::Anchor anchor;
  anchor.node = scene.model->boxes[nearest].name;
  anchor.dx = (box.centre_x() - state.view.x) * state.view.zoom;
  anchor.dy = (box.centre_y() - state.view.y) * state.view.zoom;
  return anchor;
}

void update_scene(const std::shared_ptr<const GraphModel>& model, GraphCanvasState& state) {
  if (model != state.model) {
    const std::shared_ptr<const GraphModel> old = state.model;
    state.model = model;
    if (!state.expanded_known && model) {
      const std::vector<bool> collapsed = model->default_collapsed();
      for (size_t s = 0; s < collapsed.size(); ++s) {
        if (!collapsed[s]) state.expanded.insert(model->scopes[s].path);
      }
      state.expanded_known = true;
    }
    std::vector<int32_t> kept;  // the selection survives by name
    for (int32_t box : state.selection) {
      const int32_t now = old && model ? model->find(old->boxes[box].name) : -1;
      if (now >= 0) kept.push_back(now);
    }
    state.selection = std::move(kept);
    state.selected_scope = -1;
    if (model) {
      graph_set_query(state, std::string(state.query_text));
      graph_request_scene(state);
    }
  }
  std::shared_ptr<const GraphScene> fresh = state.builder.take();
  if (!fresh || fresh->model != state.model) return;
  const bool first = !state.scene;
  std::optional<GraphCanvasState::Anchor> anchor = state.anchor;
  if (!anchor && !first && !state.fit_wanted) anchor = nearest_anchor(state);
  state.anchor.reset();
  state.scene = std::move(fresh);
  state.hovered = -1;
  if (state.fit_wanted) {
    graph_first_view(state);
    state.fit_wanted = false;
  } else if (anchor) {
    keep_anchor(state, *anchor);
  }
}

void tooltip(const GraphCanvasState& state) {
  const GraphModel& model = *state.scene->model;
  const auto boxes = static_cast<int32_t>(model.boxes.size());
  if (state.hovered < 0 || state.hovered >= boxes || GImGui->HoveredIdTimer < 0.4f) return;
  const GraphBox& box = model.boxes[state.hovered];
  ImGui::BeginTooltip();
  text(box.op, palette().text, theme().bold);
  text(escaped(box.name), palette().text_dim, theme().small);
  text(box.type, palette().text_dim, theme().small);
  if (box.node != kNone) {
    text(fmt::format("{}   {}   {}", format_value(box.time_ns, Unit::kNs), format_value(box.bytes(), Unit::kBytes), format_value(box.flops, Unit::kFlop)),
         palette().text, theme().small);
  }
  ImGui::EndTooltip();
}

void context_menu(GraphCanvasState& state, Actions& actions, bool hovered) {
  const auto boxes = static_cast<int32_t>(state.scene->model->boxes.size());
  if (hovered && ImGui::IsMouseReleased(1) && !ImGui::IsMouseDragPastThreshold(1, px(4)) && state.hovered >= 0) {
    state.menu_node = state.hovered < boxes ? state.scene->model->boxes[state.hovered].name : std::string();
    state.menu_scope = state.hovered < boxes ? -1 : state.scene->layout.groups[state.hovered - boxes].scope;
    ImGui::OpenPopup("graph-menu");
  }
  if (!ImGui::BeginPopup("graph-menu")) return;
  const int32_t box = state.model ? state.model->find(state.menu_node) : -1;
  if (box >= 0) {
    const GraphBox& b = state.model->boxes[box];
    const int32_t partner = b.partner >= 0 ? b.partner : b.related.empty() ? -1 : b.related.front();
    if (partner >= 0 && selectable_row("graph.menu.partner", "Go to partner", false)) graph_go_to(state, state.model->boxes[partner].name);
    if (selectable_row("graph.menu.kernel", "Show in kernel table", false)) actions.go_to_kernel = b.name;
    if (selectable_row("graph.menu.filter", "Filter kernels by " + b.op, false)) actions.filter_kernels = "op:" + b.op;
    if (selectable_row("graph.menu.copy", "Copy name", false)) {
      ImGui::SetClipboardText(b.name.c_str());
      actions.copied = b.name;
    }
    if (b.scope >= 0 && selectable_row("graph.menu.collapse", "Collapse " + state.model->scopes[b.scope].name, false)) {
      graph_toggle_scope(state, b.scope, false);
    }
  } else if (state.menu_scope >= 0 && state.model == state.scene->model) {
    const ScopeInfo& scope = state.model->scopes[state.menu_scope];
    const bool open = state.expanded.count(scope.path) != 0;
    if (selectable_row("graph.menu.toggle", open ? "Collapse" : "Expand", false)) graph_toggle_scope(state, state.menu_scope, false);
    if (selectable_row("graph.menu.subtree", open ? "Collapse with all inside" : "Expand with all inside", false)) graph_toggle_scope(state, state.menu_scope, true);
    if (selectable_row("graph.menu.filter", "Filter kernels by this scope", false)) actions.filter_kernels = "scope:" + scope.path;
    if (selectable_row("graph.menu.copy", "Copy path", false)) {
      ImGui::SetClipboardText(scope.path.c_str());
      actions.copied = scope.path;
    }
  }
  ImGui::EndPopup();
}

}  // namespace

ImU32 phase_color(Phase phase) {
  switch (phase) {
    case Phase::forward: return palette().forward;
    case Phase::loss: return palette().loss;
    case Phase::backward: return palette().backward;
    case Phase::optimizer: return palette().optimizer;
  }
  return palette().text_dim;
}

LayoutBox minimap_rect(const GraphCanvasState& state) {
  if (!state.minimap || !state.scene || state.scene->layout.height <= 0) return {};
  const Projection p(state);
  const ImVec2 first = p.screen(0, 0), last = p.screen(state.scene->layout.width, state.scene->layout.height);
  const bool all_visible = first.x >= state.canvas_min.x && first.y >= state.canvas_min.y && last.x <= state.canvas_max.x && last.y <= state.canvas_max.y;
  if (all_visible) return {};
  const float width = state.canvas_max.x - state.canvas_min.x, height = state.canvas_max.y - state.canvas_min.y;
  if (width < px(360) || height < px(240)) return {};
  const float most_w = std::min(px(150), width * 0.2f), most_h = std::min(px(230), height * 0.45f);
  const float k = std::min(most_w / std::max(1.f, state.scene->layout.width), most_h / std::max(1.f, state.scene->layout.height));
  const float w = std::max(state.scene->layout.width * k, px(46)), h = std::max(state.scene->layout.height * k, px(30));
  return {state.canvas_max.x - w - px(16), state.canvas_max.y - h - px(16), w, h};
}

void draw_graph_canvas(const std::shared_ptr<const GraphModel>& model, GraphCanvasState& state, Actions& actions) {
  state.canvas_min = ImGui::GetCursorScreenPos();
  const ImVec2 size = ImGui::GetContentRegionAvail();
  if (size.x < px(40) || size.y < px(40)) return;
  state.canvas_max = {state.canvas_min.x + size.x, state.canvas_min.y + size.y};
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(state.canvas_min, state.canvas_max, palette().window, px(6));
  update_scene(model, state);
  ImGui::InvisibleButton("graph-canvas", size, ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight | ImGuiButtonFlags_MouseButtonMiddle);
  register_item("graph", "graph canvas", state.scene ? std::to_string(state.scene->model->boxes.size()) : "");
  const bool hovered = ImGui::IsItemHovered(), active = ImGui::IsItemActive();
  if (!state.scene) return;
  if (hovered) ImGui::SetItemUsingMouseWheel();
  graph_handle_mouse(state, actions, hovered, active);
  list->PushClipRect(state.canvas_min, state.canvas_max, true);
  Painter painter(state, list);
  painter.groups();
  painter.edges();
  painter.lit_edges();
  painter.nodes();
  painter.columns();
  painter.legend();
  painter.minimap();
  painter.drag_rectangle();
  list->PopClipRect();
  if (hovered) tooltip(state);
  context_menu(state, actions, hovered);
}

}  // namespace gradloom
