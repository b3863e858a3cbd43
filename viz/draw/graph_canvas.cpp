// The graph canvas: scene upkeep, tooltip, context menu, and one frame from input to drawing.
#include "viz/draw/graph_canvas.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/base/text.h"
#include "viz/draw/graph_painter.h"
#include "viz/draw/graph_view.h"
#include "viz/draw/items.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "viz/draw/widgets.h"
#include "viz/model/axis.h"
#include "viz/model/graph_paths.h"
#include "viz/model/minimap_place.h"

namespace gradloom {
namespace {

void keep_anchor(GraphCanvasState& state, const GraphCanvasState::Anchor& anchor) {
  const GraphScene& scene = *state.scene;
  LayoutBox box;
  if (!anchor.scope.empty()) {
    const auto& scopes = scene.model->scopes;
    const auto found = std::find_if(scopes.begin(), scopes.end(),
                                    [&](const ScopeInfo& s) { return s.path == anchor.scope; });
    const int32_t group = found == scopes.end()
                              ? -1
                              : scene.group_of(static_cast<int32_t>(found - scopes.begin()), anchor.column);
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
  graph_set_model(state, model);
  std::shared_ptr<const GraphScene> fresh = state.builder.take();
  if (!fresh || fresh->model != state.model) return;
  const bool first = !state.scene;
  std::optional<GraphCanvasState::Anchor> anchor = state.anchor;
  if (!anchor && !first && !state.fit_wanted) {
    anchor = nearest_anchor(state);
    state.fit_wanted = !anchor;  // nothing of what is shown is left
  }
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

void update_marks(GraphCanvasState& state) {
  const std::shared_ptr<const GraphModel>& model = state.scene->model;
  if (state.marks == state.marked && model == state.marked_model) return;
  state.marked = state.marks;
  state.marked_model = model;
  state.box_marks = state.marks ? marks_of_boxes(*model, *state.marks) : std::vector<uint8_t>();
}

// What of the scene is there at the step of pass time travel; nothing while the scene is still that of another graph.
void update_travel(GraphCanvasState& state) {
  constexpr float kFadeSeconds = 0.25f;
  GraphCanvasState::Travel& t = state.travel;
  if (!t.stages || state.scene->model != state.model) {
    t.shapes = t.before = {};
    t.scene.reset();
    t.faded = 1;
    return;
  }
  if (t.scene != state.scene || t.shapes_of != t.step) {
    StageShapes now = shapes_at(*state.scene, *t.stages, t.step);
    t.before = t.scene == state.scene ? std::move(t.shapes) : StageShapes();
    t.faded = t.before.shapes.empty() ? 1.f : 0.f;
    t.shapes = std::move(now);
    t.shapes_of = t.step;
    t.scene = state.scene;
  }
  t.faded = theme().motion ? std::min(1.f, t.faded + ImGui::GetIO().DeltaTime / kFadeSeconds) : 1.f;
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
    text(fmt::format("{}   {}   {}", model.time_text(box.time_ns), format_value(box.bytes(), Unit::kBytes),
                     format_value(box.flops, Unit::kFlop)),
         palette().text, theme().small);
  }
  ImGui::EndTooltip();
}

// The first shape that stands for a scope; -1: there is none in sight.
int32_t shape_of_scope(const GraphCanvasState& state, int32_t scope) {
  const std::vector<LayoutGroup>& groups = state.scene->layout.groups;
  for (size_t g = 0; g < groups.size(); ++g)
    if (groups[g].scope == scope) return static_cast<int32_t>(state.scene->model->boxes.size() + g);
  return -1;
}

// What can be done with layers that are alike.
void fold_menu(GraphCanvasState& state, const ScopeInfo& scope) {
  const int32_t fold = std::max(scope.box_of, scope.layer_of);
  if (fold < 0) return;
  const int32_t shown = graph_shown_layer(state, fold);
  if (scope.box_of >= 0 &&
      selectable_row("graph.menu.layer", shown >= 0 ? "Next layer" : "Show the first layer", false))
    graph_step_layer(state, fold, 1);
  if (shown != kUnfolded && selectable_row("graph.menu.unfold", "Show all layers", false))
    graph_show_layer(state, fold, kUnfolded);
  if (shown != kFolded && selectable_row("graph.menu.fold", "Fold the layers that are alike", false))
    graph_show_layer(state, fold, kFolded);
}

// Of what is selected, below it.
void menu_by_key(GraphCanvasState& state) {
  if (!std::exchange(state.menu_wanted, false) || state.model != state.scene->model) return;
  const auto boxes = static_cast<int32_t>(state.scene->model->boxes.size());
  const int32_t selected = state.selected() >= 0 || state.selected_scope < 0
                               ? state.selected()
                               : shape_of_scope(state, state.selected_scope);
  if (selected < 0) return;
  const LayoutBox& shape = selected < boxes ? state.scene->layout.node_boxes[selected]
                                            : state.scene->layout.groups[selected - boxes].box;
  const ImVec2 at = Projection(state).screen(shape.x, shape.bottom());
  state.menu_node = selected < boxes ? state.scene->model->boxes[selected].name : std::string();
  state.menu_scope = selected < boxes ? -1 : state.selected_scope;
  ImGui::OpenPopup("graph-menu");
  menu_by_keys({std::clamp(at.x, state.canvas_min.x, state.canvas_max.x),
                std::clamp(at.y, state.canvas_min.y, state.canvas_max.y)});
}

void context_menu(GraphCanvasState& state, Actions& actions, bool hovered) {
  const auto boxes = static_cast<int32_t>(state.scene->model->boxes.size());
  if (hovered && ImGui::IsMouseReleased(1) && !ImGui::IsMouseDragPastThreshold(1, px(4)) &&
      state.hovered >= 0) {
    state.menu_node = state.hovered < boxes ? state.scene->model->boxes[state.hovered].name : std::string();
    state.menu_scope = state.hovered < boxes ? -1 : state.scene->layout.groups[state.hovered - boxes].scope;
    ImGui::OpenPopup("graph-menu");
  }
  menu_by_key(state);
  if (!ImGui::BeginPopup("graph-menu")) return;
  const int32_t box = state.model ? state.model->find(state.menu_node) : -1;
  if (box >= 0) {
    const GraphBox& b = state.model->boxes[box];
    const int32_t partner = b.partner >= 0 ? b.partner : b.related.empty() ? -1 : b.related.front();
    if (partner >= 0 && selectable_row("graph.menu.partner", "Go to partner", false))
      graph_go_to(state, state.model->boxes[partner].name);
    if (selectable_row("graph.menu.neighbours", "Select with its neighbours", false)) {
      graph_select(state, {box});
      graph_select_neighbours(state);
    }
    const int32_t from = state.selected();
    if (from >= 0 && from != box &&
        selectable_row("graph.menu.path", "Select the path to the selected node", false))
      actions.no_path = !graph_select(state, graph_path(*state.model, from, box));
    if (selectable_row("graph.menu.kernel", "Show in kernel table", false)) actions.go_to_kernel = b.name;
    if (selectable_row("graph.menu.filter", "Filter kernels by " + b.op, false))
      actions.filter_kernels = "op:" + b.op;
    if (selectable_row("graph.menu.copy", "Copy name", false)) {
      ImGui::SetClipboardText(b.name.c_str());
      actions.copied = b.name;
    }
    if (selectable_row("graph.menu.faster", kTwiceAsFast, false)) actions.twice_as_fast = {"node:" + b.name};
    if (selectable_row("graph.menu.note", "Note\u2026", false)) actions.note_node = b.name;
    if (b.scope >= 0 &&
        selectable_row("graph.menu.collapse", "Collapse " + state.model->scopes[b.scope].name, false)) {
      graph_toggle_scope(state, b.scope, false);
    }
  } else if (state.menu_scope >= 0 && state.model == state.scene->model) {
    const ScopeInfo& scope = state.model->scopes[state.menu_scope];
    fold_menu(state, scope);
    const bool open = state.expanded.count(scope.path) != 0;
    if (scope.box_of < 0 && selectable_row("graph.menu.toggle", open ? "Collapse" : "Expand", false))
      graph_toggle_scope(state, state.menu_scope, false);
    if (scope.box_of < 0 &&
        selectable_row("graph.menu.subtree", open ? "Collapse with all inside" : "Expand with all inside",
                       false))
      graph_toggle_scope(state, state.menu_scope, true);
    if (selectable_row("graph.menu.filter", "Filter kernels by this scope", false))
      actions.filter_kernels = "scope:" + scope.path;
    if (selectable_row("graph.menu.faster", kTwiceAsFast, false))
      actions.twice_as_fast = {"scope:" + scope.path};
    if (selectable_row("graph.menu.copy", "Copy path", false)) {
      ImGui::SetClipboardText(scope.path.c_str());
      actions.copied = scope.path;
    }
  }
  ImGui::EndPopup();
}

}  // namespace

void graph_set_model(GraphCanvasState& state, const std::shared_ptr<const GraphModel>& model) {
  if (model == state.model) return;
  const std::shared_ptr<const GraphModel> old = std::exchange(state.model, model);
  if (!state.expanded_known && model) {
    state.expanded = default_expanded(*model);
    state.expanded_known = true;
  }
  std::vector<int32_t> kept;  // the selection survives by name
  for (int32_t box : state.selection) {
    const int32_t now = old && model ? model->find(old->boxes[box].name) : -1;
    if (now >= 0) kept.push_back(now);
  }
  state.selection = std::move(kept);
  state.selected_scope = -1;
  if (!model) return;
  graph_set_query(state, std::string(state.query_text));
  graph_request_scene(state);
}

ImU32 phase_color(Phase phase) {
  switch (phase) {
    case Phase::forward: return palette().forward;
    case Phase::loss: return palette().loss;
    case Phase::backward: return palette().backward;
    case Phase::optimizer: return palette().optimizer;
  }
  return palette().text_dim;
}

ImU32 phase_color(const std::string& phase) {
  for (Phase p : {Phase::forward, Phase::loss, Phase::backward, Phase::optimizer})
    if (phase == phase_name(p)) return phase_color(p);
  return palette().text_dim;
}

std::optional<GraphPlace> graph_place(const GraphCanvasState& state) {
  if (!state.scene || state.scene->model != state.model) return std::nullopt;
  const auto anchor = nearest_anchor(state);
  if (!anchor) return std::nullopt;
  GraphPlace place;
  place.node = anchor->node;
  place.dx = anchor->dx;
  place.dy = anchor->dy;
  place.zoom = state.view.zoom;
  place.expanded.assign(state.expanded.begin(), state.expanded.end());
  std::sort(place.expanded.begin(), place.expanded.end());
  for (int32_t box : state.selection) place.selection.push_back(state.model->boxes[box].name);
  return place;
}

void graph_show_place(GraphCanvasState& state, const GraphPlace& place) {
  if (!state.model) return;
  graph_remember(state);
  state.expanded.clear();
  state.expanded.insert(place.expanded.begin(), place.expanded.end());
  state.selection.clear();
  for (const std::string& name : place.selection)
    if (const int32_t box = state.model->find(name); box >= 0) state.selection.push_back(box);
  state.selected_scope = -1;
  state.pending_go.clear();
  state.fit_wanted = false;
  state.view.zoom = std::clamp(place.zoom, smallest_zoom(state), kMaxZoom);
  state.anchor = GraphCanvasState::Anchor{place.node, {}, LayoutColumn::kForward, place.dx, place.dy};
  graph_request_scene(state);
}

namespace {

constexpr float kColumnTitles = 24;  // points, at the top of the canvas

// Of the map, in pixels; nothing: the graph is whole in sight, or the canvas too small.
std::optional<ImVec2> minimap_size(const GraphCanvasState& state) {
  if (!state.minimap || !state.scene || state.scene->layout.height <= 0) return std::nullopt;
  const Projection p(state);
  const ImVec2 first = p.screen(0, 0), last = p.screen(state.scene->layout.width, state.scene->layout.height);
  const bool all_visible = first.x >= state.canvas_min.x && first.y >= state.canvas_min.y &&
                           last.x <= state.canvas_max.x && last.y <= state.canvas_max.y;
  if (all_visible) return std::nullopt;
  const float width = state.canvas_max.x - state.canvas_min.x,
              height = state.canvas_max.y - state.canvas_min.y;
  if (width < px(360) || height < px(240)) return std::nullopt;
  const float most_w = std::min(px(150), width * 0.2f), most_h = std::min(px(230), height * 0.45f);
  const float k = std::min(most_w / std::max(1.f, state.scene->layout.width),
                           most_h / std::max(1.f, state.scene->layout.height));
  return ImVec2{std::max(state.scene->layout.width * k, px(46)),
                std::max(state.scene->layout.height * k, px(30))};
}

MinimapCorners corners_of(const GraphCanvasState& state, ImVec2 size) {
  return minimap_corners(state.canvas_min.x, state.canvas_min.y, state.canvas_max.x, state.canvas_max.y,
                         px(kColumnTitles), px(16), size.x, size.y);
}

// What is in sight of nodes and closed scopes, on the screen.
void shapes_in_sight(const GraphCanvasState& state, std::vector<LayoutBox>& shapes,
                     std::vector<LayoutBox>& selected) {
  const Projection p(state);
  const LayoutResult& layout = state.scene->layout;
  const auto boxes = static_cast<int32_t>(state.scene->model->boxes.size());
  const LayoutBox canvas{state.canvas_min.x, state.canvas_min.y, state.canvas_max.x - state.canvas_min.x,
                         state.canvas_max.y - state.canvas_min.y};
  const auto add = [&](int32_t shape, const LayoutBox& world, bool chosen) {
    if (state.shown(shape) == StageShown::kHidden) return;
    const ImVec2 min = p.screen(world.x, world.y), max = p.screen(world.right(), world.bottom());
    const LayoutBox at{min.x, min.y, max.x - min.x, max.y - min.y};
    if (at.overlaps(canvas)) (chosen ? selected : shapes).push_back(at);
  };
  std::vector<bool> chosen(static_cast<size_t>(boxes));
  for (const int32_t b : state.selection)
    if (b >= 0 && b < boxes) chosen[static_cast<size_t>(b)] = true;
  for (int32_t b = 0; b < boxes; ++b)
    if (const auto at = static_cast<size_t>(b); layout.hidden_in[at] < 0)
      add(b, layout.node_boxes[at], chosen[at]);
  for (size_t g = 0; g < layout.groups.size(); ++g)
    if (layout.groups[g].collapsed)
      add(boxes + static_cast<int32_t>(g), layout.groups[g].box,
          layout.groups[g].scope == state.selected_scope);
}

}  // namespace

LayoutBox minimap_rect(const GraphCanvasState& state) {
  const auto size = minimap_size(state);
  return size ? corners_of(state, *size)[static_cast<size_t>(state.minimap_corner)] : LayoutBox();
}

void place_minimap(GraphCanvasState& state) {
  const auto size = minimap_size(state);
  if (!size) return;
  std::vector<LayoutBox> shapes, selected;
  shapes_in_sight(state, shapes, selected);
  state.minimap_corner = minimap_place(corners_of(state, *size), shapes, selected, state.minimap_corner);
}

void draw_graph_canvas(const std::shared_ptr<const GraphModel>& model, GraphCanvasState& state,
                       Actions& actions) {
  state.canvas_min = ImGui::GetCursorScreenPos();
  ImVec2 size = ImGui::GetContentRegionAvail();
  if (size.x < px(40) || size.y < px(40)) return;
  const float strip = size.y >= px(160) ? px(28) : 0;
  size.y -= strip;
  state.canvas_max = {state.canvas_min.x + size.x, state.canvas_min.y + size.y};
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(state.canvas_min, state.canvas_max, palette().window, px(6));
  update_scene(model, state);
  ImGui::InvisibleButton("graph-canvas", size,
                         ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight |
                             ImGuiButtonFlags_MouseButtonMiddle);
  register_item("graph", "graph canvas", state.scene ? std::to_string(state.scene->model->boxes.size()) : "");
  reached_by("graph.next");
  const bool hovered = ImGui::IsItemHovered(), active = ImGui::IsItemActive();
  if (!state.scene) return;
  if (hovered) ImGui::SetItemUsingMouseWheel();
  update_marks(state);
  update_travel(state);
  graph_handle_mouse(state, actions, hovered, active);
  if (!ImGui::IsAnyMouseDown()) place_minimap(state);  // not while the view is dragged
  list->PushClipRect(state.canvas_min, state.canvas_max, true);
  state.fold_arrows.clear();
  GraphPainter painter(state, list);
  painter.groups();
  painter.edges();
  painter.lit_edges();
  painter.nodes();
  painter.thin_columns();
  painter.columns();
  painter.minimap();
  painter.drag_rectangle();
  list->PopClipRect();
  if (strip > 0 && painter.strip({state.canvas_min.x, state.canvas_max.y + px(4)},
                                 {state.canvas_max.x, state.canvas_max.y + strip}))
    actions.times_offer = true;
  if (hovered) tooltip(state);
  context_menu(state, actions, hovered);
}

}  // namespace gradloom
