// Groups and nodes of the graph canvas, by level of detail.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "viz/draw/graph_painter.h"
#include "viz/draw/items.h"
#include "viz/draw/widgets.h"
#include "viz/model/axis.h"
#include "viz/model/graph_heat.h"

namespace gradloom {
namespace {

constexpr size_t kMostRegistered = 400;  // visible boxes reported to the item registry
constexpr float kFullHeight = 29, kLabelHeight = 13;

// Text on whole pixels, in the font's own size.
void put(ImDrawList* list, ImFont* font, float x, float y, ImU32 color, const std::string& s) {
  list->AddText(font, font->FontSize, {std::round(x), std::round(y)}, color, s.c_str());
}

float width_of(const ImFont* font, const std::string& s) {
  return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, s.c_str()).x;
}

}  // namespace

GraphPainter::GraphPainter(GraphCanvasState& s, ImDrawList* l)
    : state(s),
      scene(*s.scene),
      model(*s.scene->model),
      list(l),
      p(s),
      lit(scene.shape_count(), false),
      chosen(model.boxes.size(), false) {
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
    if (const double value = g.collapsed ? group_value(g) : std::nan(""); std::isfinite(value))
      group_max = std::max(group_max, value);
  }
  light();
  count_group_marks();
}

uint8_t GraphPainter::marks(int32_t b) const {
  uint8_t bits = state.box_marks.empty() ? 0 : state.box_marks[static_cast<size_t>(b)];
  switch (state.shown(b)) {
    case StageShown::kAdded: bits |= kMarkAdded; break;
    case StageShown::kGhost: bits |= kMarkRemoved; break;
    case StageShown::kChanged: bits |= kMarkChanged; break;
    case StageShown::kHidden:
    case StageShown::kShown: break;
  }
  return bits;
}

uint32_t GraphPainter::nodes_of(const LayoutGroup& group, int32_t shape) const {
  const std::vector<uint32_t>& there = state.travel.shapes.group_nodes;
  return there.empty() ? model.scopes[group.scope].boxes[static_cast<size_t>(group.column)]
                       : there[static_cast<size_t>(shape) - model.boxes.size()];
}

void GraphPainter::veil(int32_t shape, ImVec2 min, ImVec2 max, float rounding) {
  constexpr float kGhost = 0.45f;  // what is left to see of a shape that is gone
  const auto seen = [&](const StageShapes& at) {
    if (at.shapes.size() <= static_cast<size_t>(shape)) return 1.f;
    const StageShown shown = at.shapes[static_cast<size_t>(shape)];
    return shown == StageShown::kHidden ? 0.f : shown == StageShown::kGhost ? kGhost : 1.f;
  };
  const GraphCanvasState::Travel& t = state.travel;
  if (t.shapes.shapes.empty()) return;
  const float before = t.before.shapes.empty() ? seen(t.shapes) : seen(t.before), now = seen(t.shapes);
  const float gone = 1 - (before + (now - before) * t.faded);
  if (gone > 0.01f) list->AddRectFilled(min, max, with_alpha(palette().window, gone), rounding);
}

void GraphPainter::count_group_marks() {
  if (state.box_marks.empty() && state.travel.shapes.shapes.empty()) return;
  group_marks.assign(scene.layout.groups.size(), {});
  for (int32_t b = 0; b < static_cast<int32_t>(model.boxes.size()); ++b) {
    if (scene.layout.hidden_in[b] < 0) continue;
    const int32_t group = scene.group_of(scene.layout.hidden_in[b], model.boxes[b].column);
    if (group < 0) continue;
    const uint8_t bits[] = {kMarkNoted, kMarkAdded, kMarkRemoved};
    for (size_t i = 0; i < 3; ++i) group_marks[group][i] += (marks(b) & bits[i]) != 0;
    group_marks[group][3] += (marks(b) & kMarkOutside) == 0;
    group_marks[group][4] += (marks(b) & kMarkChanged) != 0;
  }
}

void GraphPainter::light() {
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
    for (uint32_t i = scene.route_first[shape]; i < scene.route_first[shape + 1]; ++i)
      lit_routes.push_back(scene.routes_of[i]);
    if (shape >= static_cast<int32_t>(model.boxes.size())) continue;
    for (int32_t related : model.boxes[shape].related) lit[scene.shape_of_box(related)] = true;
  }
}

ImU32 GraphPainter::column_color(LayoutColumn column) const {
  const ImU32 colors[] = {palette().forward, palette().backward, palette().optimizer};
  return colors[static_cast<int>(column)];
}

void GraphPainter::groups() {
  for (size_t g = 0; g < scene.layout.groups.size(); ++g) {
    const LayoutGroup& group = scene.layout.groups[g];
    const auto shape = static_cast<int32_t>(model.boxes.size() + g);
    if (!group.box.overlaps(visible) || hidden(shape)) continue;
    const ImVec2 min = p.screen(group.box.x, group.box.y),
                 max = p.screen(group.box.right(), group.box.bottom());
    if (max.y - min.y < px(2)) {
      list->AddRectFilled(min, {max.x, min.y + px(1)}, palette().border);
    } else if (group.collapsed) {
      collapsed_group(group, shape, min, max);
    } else {
      open_group(group, shape, min, max);
    }
  }
}

void GraphPainter::open_group(const LayoutGroup& group, int32_t shape, ImVec2 min, ImVec2 max) {
  const Palette& c = palette();
  const bool hovered = state.hovered == shape || state.selected_scope == group.scope;
  const ImU32 fill = mix(c.window, c.panel,
                         theme().dark ? 0.55f + 0.3f * static_cast<float>(group.depth % 3)
                                      : 0.45f + 0.25f * static_cast<float>(group.depth % 3));
  const float rounding = std::min(10 * p.k, px(10));
  list->AddRectFilled(min, max, fill, rounding);
  list->AddRect(min, max, hovered ? with_alpha(c.accent, 0.8f) : c.border, rounding, 0, px(1));
  const float strip = 26 * p.k;
  if (strip >= px(11)) {
    ImFont* font = canvas_font(std::clamp(strip * 0.56f, px(10), px(14)));
    const std::string name =
        fit_text(font, font->FontSize, model.scopes[group.scope].name, max.x - min.x - 20 * p.k);
    const float y = std::max(min.y + px(2), min.y + (strip - font->FontSize) / 2 + 2 * p.k);
    put(list, font, min.x + 14 * p.k, y, c.text_dim, name);
    const std::string cost = group_cost(group);
    const float width = width_of(font, cost);
    if (!cost.empty() && width_of(font, name) + width + 44 * p.k < max.x - min.x) {
      put(list, font, max.x - width - 12 * p.k, y, c.text_faint, cost);
    }
  }
  register_group(group, min, {max.x, min.y + std::max(strip, 1.f)}, "expanded");
}

std::string GraphPainter::group_cost(const LayoutGroup& group) const {
  const ScopeInfo& scope = model.scopes[group.scope];
  const int c = static_cast<int>(group.column);
  const double value = group_value(group);
  if (state.color_by != ColorBy::kPhase)
    return std::isnan(value) ? std::string() : model.value_text(value, state.color_by);
  // Nothing of the scope has a kernel there: no time is told.
  if (scope.time_ns[c] > 0) return model.time_text(scope.time_ns[c]);
  return !scope.timed && scope.flops[c] > 0 ? format_value(scope.flops[c], Unit::kFlop) : std::string();
}

ImU32 GraphPainter::heat_color(double value) const {
  const auto t = static_cast<float>(value);
  return state.color_by == ColorBy::kChange ? change_heat(t) : heat(t);
}

void GraphPainter::collapsed_group(const LayoutGroup& group, int32_t shape, ImVec2 min, ImVec2 max) {
  const Palette& c = palette();
  const ScopeInfo& scope = model.scopes[group.scope];
  const double heat_value = GraphModel::heat(group_value(group), group_max, state.color_by);
  const size_t index = static_cast<size_t>(shape) - model.boxes.size();
  const bool outside = !group_marks.empty() && group_marks[index][3] == 0;
  const bool dim = outside || (search && !group_hit(group.scope, group.column));
  ImU32 fill = std::isnan(heat_value) ? c.raised : heat_color(heat_value);
  const ImU32 ink = std::isnan(heat_value) ? c.text : ink_on(fill);
  if (dim) fill = mix(fill, c.window, 0.65f);
  const float rounding = std::min(8 * p.k, px(8)), shift = std::min(4 * p.k, px(4));
  const bool full = max.y - min.y > px(18);
  if (full)
    list->AddRectFilled({min.x + shift, min.y + shift}, {max.x + shift, max.y + shift},
                        mix(c.window, c.border, 0.8f), rounding);
  list->AddRectFilled(min, max, fill, full ? rounding : 0);
  const ImU32 edge = mix(c.border, column_color(group.column), dim ? 0.1f : 0.45f);
  const bool pointed = state.hovered == shape || state.selected_scope == group.scope;
  list->AddRect(min, max,
                pointed      ? c.accent
                : lit[shape] ? column_color(group.column)
                             : edge,
                full ? rounding : 0, 0, px(pointed || lit[shape] ? 2.f : 1.f));
  if (max.y - min.y >= px(kLabelHeight)) {
    const float height = max.y - min.y;
    const bool two = height >= px(31);
    ImFont* font = canvas_font(two ? std::max(14 * p.k, px(12)) : std::min(height * 0.6f, px(14)));
    ImFont* small = canvas_font(std::max(12 * p.k, px(10)));
    const bool fold = scope.box_of >= 0;
    const float arrows = fold ? fold_arrows(group, min, max, ink) : max.x;
    const float pad = 12 * p.k, width = fold && arrows < max.x ? arrows - min.x - pad - 4 * p.k
                                                               : max.x - min.x - 2 * pad - 14 * p.k;
    const float gap = (height - font->FontSize - small->FontSize) / 3;
    const float y = two ? min.y + gap : (min.y + max.y - font->FontSize) / 2;
    put(list, font, min.x + pad, y, dim ? c.text_faint : ink,
        fit_text(font, font->FontSize, scope.name, width));
    const float mid = std::round((min.y + max.y) / 2) + 0.5f, s = std::round(std::max(4 * p.k, px(3))),
                cx = std::round(max.x - pad) + 0.5f;
    if (arrows >= max.x) {
      list->AddLine({cx - s, mid}, {cx + s, mid}, with_alpha(ink, 0.55f), px(1.2f));
      list->AddLine({cx, mid - s}, {cx, mid + s}, with_alpha(ink, 0.55f), px(1.2f));
    }
    if (two) {
      std::string detail = plural_text(nodes_of(group, shape), "node");
      if (fold) detail = fold_detail(group);
      if (const std::string cost = group_cost(group); !fold && !cost.empty()) detail += " \u00b7 " + cost;
      put(list, small, min.x + pad, min.y + 2 * gap + font->FontSize,
          std::isnan(heat_value) ? c.text_dim : with_alpha(ink, 0.8f),
          fit_text(small, small->FontSize, detail, width));
    }
  }
  veil(shape, min, max, full ? rounding : 0);
  group_badges(index, min);
  register_group(group, min, max, "collapsed");
}

// "2.0 ms each, most 2.4 ms in h.7"
std::string GraphPainter::fold_detail(const LayoutGroup& group) const {
  const GraphFold& fold = model.folds[static_cast<size_t>(model.scopes[group.scope].box_of)];
  const ColorBy by = state.color_by != ColorBy::kPhase ? state.color_by : ColorBy::kTime;
  const LayerSpread spread = spread_of(model, fold, group.column, by);
  if (spread.longest < 0)
    return plural_text(model.scopes[fold.layers.front()].boxes[static_cast<size_t>(group.column)], "node") +
           " each";
  return model.value_text(spread.median, by) + " each, most " + model.value_text(spread.most, by) + " in " +
         model.scopes[spread.longest].name;
}

float GraphPainter::fold_arrows(const LayoutGroup& group, ImVec2 min, ImVec2 max, ImU32 ink) {
  const int32_t fold = model.scopes[group.scope].box_of;
  const auto count = static_cast<int>(model.folds[static_cast<size_t>(fold)].layers.size());
  const int32_t shown =
      static_cast<size_t>(fold) < scene.layers.size() ? scene.layers[static_cast<size_t>(fold)] : kFolded;
  ImFont* font = canvas_font(std::max(11 * p.k, px(10)));
  const std::string place =
      shown >= 0 ? fmt::format("{}/{}", shown + 1, count) : fmt::format("\u2013/{}", count);
  const float arrow = std::max(16 * p.k, px(13)), y = std::round((min.y + max.y) / 2);
  const float right = max.x - 6 * p.k,
              left = right - 2 * arrow - width_of(font, fmt::format("{}/{}", count, count));
  if (left < min.x + (max.x - min.x) * 0.4f) return max.x;
  put(list, font, (left + right - width_of(font, place)) / 2, y - font->FontSize / 2, with_alpha(ink, 0.8f),
      place);
  const float s = std::max(3.5f * p.k, px(3));
  for (const int by : {-1, 1}) {
    const float x = by < 0 ? left + arrow / 2 : right - arrow / 2, d = static_cast<float>(by) * s;
    // Clockwise, or its edges are not smooth.
    const ImVec2 back{x - d * 0.6f, y - d}, tip{x + d, y}, other{x - d * 0.6f, y + d};
    list->AddTriangleFilled(back, tip, other, with_alpha(ink, 0.7f));
    const ImVec2 a{x - arrow / 2, min.y}, b{x + arrow / 2, max.y};
    state.fold_arrows.push_back({a, b, fold, by});
    static constexpr const char* kColumn[] = {"forward", "backward", "optimizer"};
    register_rect(fmt::format("scope.{}.{}.{}", model.scopes[group.scope].path,
                              kColumn[static_cast<int>(group.column)], by < 0 ? "previous" : "next"),
                  a, b, by < 0 ? "previous layer" : "next layer", place);
  }
  return left;
}

double GraphPainter::group_value(const LayoutGroup& group) const {
  return model.value_of_scope(group.scope, group.column, state.color_by);
}

bool GraphPainter::group_hit(int32_t scope, LayoutColumn column) const {
  for (int32_t box : state.hits) {
    if (scene.layout.hidden_in[box] == scope && model.boxes[box].column == column) return true;
  }
  return false;
}

void GraphPainter::register_group(const LayoutGroup& group, ImVec2 min, ImVec2 max, std::string_view value) {
  static constexpr const char* kColumn[] = {"forward", "backward", "optimizer"};
  if (++registered > kMostRegistered) return;
  register_rect(
      fmt::format("scope.{}.{}", model.scopes[group.scope].path, kColumn[static_cast<int>(group.column)]),
      min, max, model.scopes[group.scope].name, value);
}

ImU32 GraphPainter::node_fill(int32_t b, bool* heated) const {
  const double t = model.heat_of(b, state.color_by);
  *heated = !std::isnan(t);
  if (*heated) return heat_color(t);
  return state.color_by == ColorBy::kPhase ? palette().raised : mix(palette().window, palette().raised, 0.6f);
}

void GraphPainter::nodes() {
  const float height = 44 * p.k;
  for (int32_t b = 0; b < static_cast<int32_t>(model.boxes.size()); ++b) {
    const LayoutBox& box = scene.layout.node_boxes[b];
    if (scene.layout.hidden_in[b] >= 0 || !box.overlaps(visible) || hidden(b)) continue;
    const ImVec2 min = p.screen(box.x, box.y), max = p.screen(box.right(), box.bottom());
    bool heated = false;
    ImU32 fill = node_fill(b, &heated);
    const bool dim = (search && !hit[b]) || (marks(b) & kMarkOutside) != 0;
    const bool unsupported = model.boxes[b].unsupported;
    const ImU32 accent = unsupported ? palette().bad : phase_color(model.boxes[b].phase);
    if (unsupported) fill = mix(fill, palette().bad, 0.22f);
    if (height < px(kLabelHeight)) {
      ImU32 plain = heated ? fill : mix(palette().window, accent, 0.55f);
      if (dim) plain = mix(plain, palette().window, 0.75f);
      if (marks(b) & kMarkChanged) plain = palette().warn;
      if (marks(b) & kMarkAdded) plain = palette().good;
      if (marks(b) & kMarkRemoved) plain = palette().bad;
      list->AddRectFilled(min, {std::max(max.x, min.x + 1), std::max(max.y, min.y + 1)}, plain);
      outline(b, min, max, 0);
    } else {
      full_node(b, min, max, fill, accent, heated, dim, height >= px(kFullHeight));
      veil(b, min, max, std::min(6 * p.k, px(7)));
      box_marks(b, min, max);
    }
    if (++registered <= kMostRegistered) {
      std::string what = chosen[b] ? "selected" : "";
      for (const auto& [bit, name] : {std::pair(kMarkNoted, "noted"),
                                      {kMarkAdded, "added"},
                                      {kMarkRemoved, "removed"},
                                      {kMarkChanged, "changed"},
                                      {kMarkOutside, "outside"}})
        if (marks(b) & bit) what += (what.empty() ? "" : " ") + std::string(name);
      register_rect("node." + model.boxes[b].name, min, max, model.boxes[b].op, what);
    }
  }
}

void GraphPainter::full_node(int32_t b, ImVec2 min, ImVec2 max, ImU32 fill, ImU32 accent, bool heated,
                             bool dim, bool full) {
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
  const float height = max.y - min.y;
  if (!full) {
    ImFont* font = canvas_font(std::min(height * 0.52f, px(14)));
    put(list, font, min.x + pad, (min.y + max.y - font->FontSize) / 2 - 0.5f, ink,
        fit_text(font, font->FontSize, box.title, width));
    return;
  }
  ImFont *font = canvas_font(std::max(14 * p.k, px(12))), *small = canvas_font(std::max(11 * p.k, px(10)));
  std::string time;
  if (const double value = model.value_of(b, state.color_by); !std::isnan(value)) {
    time = model.value_text(value, state.color_by);
  } else if (!std::isnan(box.time_ns)) {
    time = model.time_text(box.time_ns);
  } else if (box.node != kNone && box.flops > 1e5) {
    time = format_value(box.flops, Unit::kFlop);
  }
  const float gap = (height - font->FontSize - small->FontSize) / 3;
  const float time_width = time.empty() ? 0 : width_of(small, time);
  put(list, font, min.x + pad, min.y + gap, ink, fit_text(font, font->FontSize, box.title, width));
  const float y = min.y + 2 * gap + font->FontSize;
  put(list, small, min.x + pad, y, faint,
      fit_text(small, small->FontSize, box.subtitle, width - time_width - 6 * p.k));
  if (!time.empty()) put(list, small, max.x - 8 * p.k - time_width, y, faint, time);
  badges(b, min, max, dim);
}

void GraphPainter::badges(int32_t b, ImVec2 min, ImVec2 max, bool dim) {
  const Palette& c = palette();
  const GraphBox& box = model.boxes[b];
  if (!box.passes.empty()) {  // rewritten by a pass
    const ImVec2 at{max.x - 9 * p.k, min.y + 9 * p.k};
    list->AddCircleFilled(at, 3.5f * p.k, dim ? c.text_faint : c.accent, 12);
  }
  if (scene.saved[b] > 0) {  // values that backward reads
    ImFont* font = canvas_font(9.5f * p.k);
    const std::string label = std::to_string(scene.saved[b]);
    const float tall = std::round(font->FontSize * 1.3f),
                pill = std::max(width_of(font, label) + px(8), tall);
    const ImVec2 a{std::round(max.x - pill * 0.35f), std::round((min.y + max.y - tall) / 2)};
    list->AddRectFilled(a, {a.x + pill, a.y + tall}, mix(c.window, c.backward, dim ? 0.12f : 0.3f), tall / 2);
    put(list, font, a.x + (pill - width_of(font, label)) / 2, a.y + (tall - font->FontSize) / 2,
        dim ? c.text_faint : c.backward, label);
  }
}

float GraphPainter::sign_pill(ImVec2 left_middle, const std::string& label, ImU32 color) const {
  ImFont* font = canvas_font(std::max(11 * p.k, px(10)));
  const float tall = std::round(font->FontSize * 1.25f), wide = std::max(tall, width_of(font, label) + px(8));
  const ImVec2 min{std::round(left_middle.x), std::round(left_middle.y - tall / 2)};
  list->AddRectFilled(min, {min.x + wide, min.y + tall}, color, tall / 2);
  put(list, font, min.x + (wide - width_of(font, label)) / 2, min.y + (tall - font->FontSize) / 2,
      ink_on(color), label);
  return wide;
}

// A sheet with a folded corner.
void GraphPainter::note_sign(ImVec2 lower_left) {
  const float s = std::round(std::max(13 * p.k, px(11))), fold = std::round(s * 0.4f);
  const ImVec2 a{std::round(lower_left.x), std::round(lower_left.y - s)}, b{a.x + s, a.y + s};
  const ImVec2 sheet[] = {a, {b.x - fold, a.y}, {b.x, a.y + fold}, b, {a.x, b.y}};
  list->AddConvexPolyFilled(sheet, 5, palette().warn);
  list->AddTriangleFilled({b.x - fold, a.y}, {b.x, a.y + fold}, {b.x - fold, a.y + fold},
                          mix(palette().warn, palette().window, 0.55f));
}

// The sign says what the colour repeats: + new, - gone, ~ otherwise.
void GraphPainter::box_marks(int32_t b, ImVec2 min, ImVec2 max) {
  const uint8_t bits = marks(b);
  if ((bits & (kMarkAdded | kMarkRemoved | kMarkChanged)) != 0) {
    const bool added = (bits & kMarkAdded) != 0, removed = (bits & kMarkRemoved) != 0;
    const ImU32 color = added ? palette().good : removed ? palette().bad : palette().warn;
    if (!chosen[b]) list->AddRect(min, max, color, std::min(6 * p.k, px(7)), 0, px(2));
    sign_pill({min.x - px(5), min.y}, added ? "+" : removed ? "\u2212" : "~", color);
  }
  if (bits & kMarkNoted) note_sign({max.x - 30 * p.k, min.y + px(5)});
}

void GraphPainter::group_badges(size_t group, ImVec2 min) {
  if (group_marks.empty()) return;
  const auto& [noted, added, removed, inside, changed] = group_marks[group];
  float x = min.x - px(5);
  if (added > 0) x += sign_pill({x, min.y}, "+" + std::to_string(added), palette().good) + px(3);
  if (removed > 0) x += sign_pill({x, min.y}, "\u2212" + std::to_string(removed), palette().bad) + px(3);
  if (changed > 0) x += sign_pill({x, min.y}, "~" + std::to_string(changed), palette().warn) + px(3);
  if (noted > 0) note_sign({x + px(2), min.y + px(5)});
}

void GraphPainter::outline(int32_t b, ImVec2 min, ImVec2 max, float rounding) {
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
  list->AddRect({min.x - px(grow), min.y - px(grow)}, {max.x + px(grow), max.y + px(grow)}, color, rounding,
                0, px(width));
}

}  // namespace gradloom
