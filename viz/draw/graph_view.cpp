// Navigation of the graph canvas: views, history, mouse and keys, opening and closing scopes.
#include "viz/draw/graph_view.h"

#include <GLFW/glfw3.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "viz/draw/keys.h"
#include "viz/draw/table.h"
#include "viz/draw/widgets.h"
#include "viz/model/graph_paths.h"

namespace gradloom {
namespace {

constexpr size_t kHistory = 64;
constexpr size_t kMostOpened = 24;  // nodes whose scopes are opened when they are selected together

std::vector<bool> collapsed_flags(const GraphCanvasState& state) {
  std::vector<bool> collapsed(state.model->scopes.size());
  for (size_t s = 0; s < collapsed.size(); ++s)
    collapsed[s] = state.expanded.count(state.model->scopes[s].path) == 0;
  return collapsed;
}

std::vector<int32_t> layers_of_folds(const GraphCanvasState& state) {
  std::vector<int32_t> layers;
  for (size_t f = 0; f < state.model->folds.size(); ++f)
    layers.push_back(graph_shown_layer(state, static_cast<int32_t>(f)));
  return layers;
}

ImVec2 canvas_points(const GraphCanvasState& state) {
  return {(state.canvas_max.x - state.canvas_min.x) / theme().scale,
          (state.canvas_max.y - state.canvas_min.y) / theme().scale};
}

void zoom_at(GraphCanvasState& state, ImVec2 mouse, float factor) {
  const ImVec2 before = Projection(state).world(mouse);
  state.view.zoom = std::clamp(state.view.zoom * factor, smallest_zoom(state), kMaxZoom);
  const ImVec2 after = Projection(state).world(mouse);
  state.view.x += before.x - after.x;
  state.view.y += before.y - after.y;
}

bool is_box(const GraphCanvasState& state, int32_t shape) {
  return shape >= 0 && shape < static_cast<int32_t>(state.scene->model->boxes.size());
}

const LayoutGroup& group_at(const GraphCanvasState& state, int32_t shape) {
  return state.scene->layout.groups[shape - state.scene->model->boxes.size()];
}

void select(GraphCanvasState& state, int32_t box, bool add) {
  if (!add) state.selection.clear();
  const auto known = std::find(state.selection.begin(), state.selection.end(), box);
  if (known != state.selection.end()) {
    state.selection.erase(known);
  } else {
    state.selection.push_back(box);
  }
  state.selected_scope = -1;
}

// The place of a group on the screen stays when the scene changes.
void anchor_group(GraphCanvasState& state, const LayoutGroup& group) {
  const Projection p(state);
  const ImVec2 top = p.screen(group.box.centre_x(), group.box.y);
  state.anchor = GraphCanvasState::Anchor{{},
                                          state.scene->model->scopes[group.scope].path,
                                          group.column,
                                          (top.x - p.centre.x) / theme().scale,
                                          (top.y - p.centre.y) / theme().scale};
}

// Whether an arrow of a fold was meant, which is followed then.
bool click_arrow(GraphCanvasState& state) {
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  if (state.model != state.scene->model) return false;
  for (const GraphCanvasState::FoldArrow& arrow : state.fold_arrows) {
    if (mouse.x < arrow.min.x || mouse.x > arrow.max.x || mouse.y < arrow.min.y || mouse.y > arrow.max.y)
      continue;
    anchor_group(state, group_at(state, state.hovered));
    graph_step_layer(state, arrow.fold, arrow.by);
    return true;
  }
  return false;
}

void click(GraphCanvasState& state, Actions& actions) {
  const ImGuiIO& io = ImGui::GetIO();
  if (state.hovered < 0) {
    if (!io.KeyCtrl) state.selection.clear(), state.selected_scope = -1;
    return;
  }
  if (is_box(state, state.hovered)) {
    select(state, state.hovered, io.KeyCtrl);
    actions.show_node_panel = true;
    return;
  }
  if (click_arrow(state)) return;
  state.selection.clear();
  state.selected_scope = group_at(state, state.hovered).scope;
  actions.show_node_panel = true;
}

void finish_drag(GraphCanvasState& state, Actions& actions) {
  const ImGuiIO& io = ImGui::GetIO();
  const Projection p(state);
  const ImVec2 a =
      p.world({std::min(state.drag_start.x, io.MousePos.x), std::min(state.drag_start.y, io.MousePos.y)});
  const ImVec2 b =
      p.world({std::max(state.drag_start.x, io.MousePos.x), std::max(state.drag_start.y, io.MousePos.y)});
  const bool moved =
      std::hypot(io.MousePos.x - state.drag_start.x, io.MousePos.y - state.drag_start.y) > px(4);
  if (state.drag == GraphCanvasState::Drag::kZoom && moved) {
    graph_remember(state);
    graph_fit(state, {a.x, a.y, b.x - a.x, b.y - a.y}, kMaxZoom);
  } else if (state.drag == GraphCanvasState::Drag::kSelect && moved) {
    if (!state.drag_adds) state.selection.clear();
    state.selected_scope = -1;
    const std::unordered_set<int32_t> known(state.selection.begin(), state.selection.end());
    const LayoutBox area{a.x, a.y, b.x - a.x, b.y - a.y};
    for (int32_t i = 0; i < static_cast<int32_t>(state.scene->model->boxes.size()); ++i) {
      if (state.scene->layout.hidden_in[i] < 0 && state.shown(i) != StageShown::kHidden &&
          state.scene->layout.node_boxes[i].overlaps(area) && known.count(i) == 0)
        state.selection.push_back(i);
    }
  } else if (!moved && state.drag != GraphCanvasState::Drag::kMinimap) {
    click(state, actions);
  }
  state.drag = GraphCanvasState::Drag::kIdle;
}

void move_by_minimap(GraphCanvasState& state) {
  const LayoutBox map = minimap_rect(state);
  if (map.width <= 0) {  // another graph is here meanwhile, which needs none
    state.drag = GraphCanvasState::Drag::kIdle;
    return;
  }
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  state.view.x = (mouse.x - map.x) / map.width * state.scene->layout.width;
  state.view.y = (mouse.y - map.y) / map.height * state.scene->layout.height;
}

void start_drag(GraphCanvasState& state) {
  using Drag = GraphCanvasState::Drag;
  const ImGuiIO& io = ImGui::GetIO();
  state.drag_start = io.MousePos;
  if (minimap_rect(state).contains(io.MousePos.x, io.MousePos.y)) {
    graph_remember(state);
    state.drag = Drag::kMinimap;
  } else if (io.KeysDown[GLFW_KEY_SPACE]) {
    state.drag = Drag::kPan;
  } else if (io.KeyCtrl) {
    state.drag = Drag::kZoom;
  } else {
    state.drag = Drag::kSelect;
  }
  state.drag_adds = io.KeyShift;
}

void center_on(GraphCanvasState& state, int32_t shape, float min_zoom) {
  const LayoutBox box = state.scene->bounds(shape);
  state.view.x = box.centre_x();
  state.view.y = box.centre_y();
  state.view.zoom = std::max(state.view.zoom, min_zoom);
}

// The shape at a point that is there: pass time travel hides some.
int32_t shape_under(const GraphCanvasState& state, ImVec2 world) {
  const int32_t shape = state.scene->shape_at(world.x, world.y, 26);
  return shape >= 0 && state.shown(shape) == StageShown::kHidden ? -1 : shape;
}

// Space alone, down and up again: held it pans with the mouse.
bool space_tapped(GraphCanvasState& state) {
  const ImGuiIO& io = ImGui::GetIO();
  if (ImGui::IsKeyPressed(GLFW_KEY_SPACE, false))
    state.space_tap = !io.WantTextInput && !io.KeyCtrl && !io.KeyShift && !io.KeyAlt;
  if (ImGui::IsAnyMouseDown()) state.space_tap = false;
  return ImGui::IsKeyReleased(GLFW_KEY_SPACE) && std::exchange(state.space_tap, false);
}

// The smallest rectangle around the shapes that show the boxes.
LayoutBox bounds_of(const GraphScene& scene, const std::vector<int32_t>& boxes) {
  LayoutBox all = scene.bounds(scene.shape_of_box(boxes.front()));
  for (int32_t box : boxes) {
    const LayoutBox b = scene.bounds(scene.shape_of_box(box));
    const float right = std::max(all.right(), b.right()), bottom = std::max(all.bottom(), b.bottom());
    all.x = std::min(all.x, b.x), all.y = std::min(all.y, b.y);
    all.width = right - all.x, all.height = bottom - all.y;
  }
  return all;
}

// A forward node's backward ones with it, and a backward one's forward: what optimizer nodes belong to is far from them.
std::vector<int32_t> with_partners(const GraphModel& model, const std::vector<int32_t>& selection) {
  std::vector<int32_t> boxes = selection;
  for (const int32_t b : selection) {
    const GraphBox& box = model.boxes[static_cast<size_t>(b)];
    if (box.column == LayoutColumn::kOptimizer) continue;
    for (const int32_t other : box.related) {
      const GraphBox& related = model.boxes[static_cast<size_t>(other)];
      const bool partner = box.column == LayoutColumn::kForward ? related.partner == b : box.partner == other;
      if (partner && related.column != LayoutColumn::kOptimizer) boxes.push_back(other);
    }
  }
  return boxes;
}

// Of the selected scope or node, the innermost; else the graph's first.
int32_t fold_of_selection(const GraphCanvasState& state) {
  const int32_t box = state.selected();
  int32_t scope = state.selected_scope >= 0 ? state.selected_scope
                  : box >= 0                ? state.model->boxes[box].scope
                                            : -1;
  for (; scope >= 0; scope = state.model->scopes[scope].parent) {
    const ScopeInfo& info = state.model->scopes[scope];
    if (info.box_of >= 0 || info.layer_of >= 0) return std::max(info.box_of, info.layer_of);
  }
  return state.model->folds.empty() ? -1 : 0;
}

// What is drawn at the very top, leftmost of these.
LayoutBox topmost_shape(const GraphScene& scene) {
  LayoutBox top{0, 1e30f, 0, 0};
  for (int32_t b = 0; b < static_cast<int32_t>(scene.model->boxes.size()); ++b) {
    const LayoutBox box = scene.bounds(scene.shape_of_box(b));
    if (box.y < top.y || (box.y == top.y && box.x < top.x)) top = box;
  }
  return top;
}

// Brings the nodes that graph_go_to asked for into view, once the scene that shows them is there.
void follow_pending(GraphCanvasState& state) {
  if (state.pending_go.empty()) return;
  std::vector<int32_t> boxes;
  for (const std::string& name : state.pending_go)
    if (const int32_t box = state.model->find(name); box >= 0) boxes.push_back(box);
  if (!boxes.empty() && !state.builder.is_taken()) return;
  if (boxes.size() == 1)
    center_on(state, state.scene->shape_of_box(boxes.front()), 0.8f);
  else if (!boxes.empty())
    graph_fit(state, bounds_of(*state.scene, boxes), 1.f);
  state.pending_go.clear();
}

}  // namespace

float smallest_zoom(const GraphCanvasState& state) {
  constexpr float kUsual = 0.01f;
  if (!state.scene) return kUsual;
  const LayoutResult& layout = state.scene->layout;
  const ImVec2 size = canvas_points(state);
  const float fit = std::min(size.x / std::max(layout.width, 1.f), size.y / std::max(layout.height, 1.f));
  return std::clamp(fit * 0.7f, 1e-6f, kUsual);
}

void graph_remember(GraphCanvasState& state) {
  state.back.push_back(state.view);
  if (state.back.size() > kHistory) state.back.erase(state.back.begin());
  state.forward.clear();
}

void graph_fit(GraphCanvasState& state, const LayoutBox& box, float max_zoom) {
  const ImVec2 size = canvas_points(state);
  const float margin = 40;
  const auto fit = [&](float map) {  // beside so many points of minimap
    const float zoom = std::min((size.x - 2 * margin - map) / std::max(box.width, 1.f),
                                (size.y - 2 * margin) / std::max(box.height, 1.f));
    state.view = {box.centre_x(), box.centre_y(), std::clamp(zoom, smallest_zoom(state), max_zoom)};
    state.view.x += map / 2 / state.view.zoom;
  };
  fit(0);
  place_minimap(state);
  const LayoutBox map = minimap_rect(state);
  const Projection p(state);
  const ImVec2 min = p.screen(box.x, box.y), max = p.screen(box.right(), box.bottom());
  if (map.width <= 0 || !map.overlaps({min.x, min.y, max.x - min.x, max.y - min.y})) return;
  state.minimap_corner = 0;
  fit((state.canvas_max.x - minimap_rect(state).x) / theme().scale - margin / 2);
}

namespace {

// The whole graph when its text stays readable, else its first nodes at the widest that can be read.
void place_first_view(GraphCanvasState& state) {
  const LayoutResult& l = state.scene->layout;
  graph_fit(state, {0, 0, l.width, l.height}, 1.f);
  if (state.view.zoom >= 0.55f) return;
  const ImVec2 size = canvas_points(state);
  state.view.zoom = std::clamp((size.x - 80) / std::max(l.width, 1.f), 0.55f, 1.f);
  const float half_width = size.x / state.view.zoom / 2, margin = 40 / state.view.zoom;
  state.view.y = size.y / state.view.zoom / 2 - 50 / state.view.zoom;
  if (l.width + 2 * margin <= 2 * half_width + 1) return;  // all columns are in sight
  const LayoutBox first = topmost_shape(*state.scene);
  state.view.x =
      std::clamp(first.centre_x(), half_width - margin, std::max(half_width, l.width - half_width) + margin);
  // Where what is first stands right of the canvas' edge, it moves there: less of the rest is under the minimap.
  state.minimap_corner = 0;
  const float map = (state.canvas_max.x - minimap_rect(state).x) / theme().scale;
  if (minimap_rect(state).width > 0)
    state.view.x =
        std::max(state.view.x, std::min(state.view.x + map / state.view.zoom, first.x - margin + half_width));
}

}  // namespace

void graph_first_view(GraphCanvasState& state) {
  place_first_view(state);
  state.first_view = state.view;
}

std::unordered_set<std::string> default_expanded(const GraphModel& model) {
  const std::vector<bool> collapsed = model.default_collapsed();
  std::unordered_set<std::string> expanded;
  for (size_t s = 0; s < collapsed.size(); ++s)
    if (!collapsed[s]) expanded.insert(model.scopes[s].path);
  return expanded;
}

void graph_start_again(GraphCanvasState& state) {
  const bool opened = state.expanded_known && state.model && state.expanded != default_expanded(*state.model);
  if (opened || !state.selection.empty() || state.selected_scope >= 0 || !state.pending_go.empty()) return;
  if (state.scene && state.view != state.first_view) return;
  state.expanded_known = false;
  state.fit_wanted = true;
}

void graph_request_scene(GraphCanvasState& state) {
  state.builder.request(state.model, collapsed_flags(state), layers_of_folds(state));
}

void graph_set_query(GraphCanvasState& state, const std::string& text) {
  state.query_text = text;
  state.query_error.clear();
  state.hits.clear();
  state.hit = -1;
  if (!state.model) return;
  auto query = Query::parse(text);
  if (!query.ok()) {
    state.query_error = query.error().message;
    return;
  }
  state.hits = state.model->search(*query);
}

void graph_set_all_expanded(GraphCanvasState& state, bool expanded) {
  if (!state.model) return;
  state.expanded.clear();
  state.layers.clear();
  for (const ScopeInfo& scope : state.model->scopes) {
    if (expanded && scope.box_of < 0) state.expanded.insert(scope.path);
    if (expanded && scope.box_of >= 0) state.layers[scope.path] = kUnfolded;
  }
  state.fit_wanted = true;
  graph_request_scene(state);
}

int32_t graph_shown_layer(const GraphCanvasState& state, int32_t fold) {
  const GraphFold& f = state.model->folds[static_cast<size_t>(fold)];
  const auto at = state.layers.find(state.model->scopes[f.box].path);
  if (at == state.layers.end() || at->second >= static_cast<int32_t>(f.layers.size())) return kFolded;
  return at->second;
}

void graph_show_layer(GraphCanvasState& state, int32_t fold, int32_t layer) {
  const GraphFold& f = state.model->folds[static_cast<size_t>(fold)];
  const auto path_of = [&](int32_t of) {
    return state.model->scopes[static_cast<size_t>(f.layers[static_cast<size_t>(of)])].path;
  };
  const int32_t before = graph_shown_layer(state, fold);
  if (layer >= 0 && before >= 0) {  // what is open in the one is open in the other
    const std::string from = path_of(before), to = path_of(layer);
    std::vector<std::string> moved;
    for (const std::string& path : state.expanded)
      if (path == from || path.starts_with(from + "/")) moved.push_back(path);
    for (const std::string& path : moved) {
      state.expanded.erase(path);
      state.expanded.insert(to + path.substr(from.size()));
    }
  } else if (layer >= 0) {
    state.expanded.insert(path_of(layer));
  }
  const std::string box = state.model->scopes[f.box].path;
  if (layer == kFolded)
    state.layers.erase(box);
  else
    state.layers[box] = layer;
  graph_request_scene(state);
}

void graph_step_layer(GraphCanvasState& state, int32_t fold, int by) {
  const auto places = static_cast<int32_t>(state.model->folds[static_cast<size_t>(fold)].layers.size()) + 1;
  const int32_t shown = std::max(kFolded, graph_shown_layer(state, fold));
  graph_show_layer(state, fold, (shown + 1 + by + places) % places - 1);
}

void graph_toggle_scope(GraphCanvasState& state, int32_t scope, bool subtree) {
  if (const int32_t fold = state.model->scopes[scope].box_of; fold >= 0)
    return graph_show_layer(state, fold, graph_shown_layer(state, fold) >= 0 ? kFolded : 0);
  const std::string path = state.model->scopes[scope].path;
  const bool open = state.expanded.count(path) == 0;
  for (const ScopeInfo& s : state.model->scopes) {
    const bool inside = s.path.compare(0, path.size() + 1, path + "/") == 0;
    if (s.path != path && !(subtree && inside)) continue;
    if (open) {
      state.expanded.insert(s.path);
    } else {
      state.expanded.erase(s.path);
    }
  }
  graph_request_scene(state);
}

// A layer that is to be seen: of the first one its fold shows it, of another one beside it all.
static bool unfold_for(GraphCanvasState& state, int32_t scope) {
  const int32_t fold = state.model->scopes[scope].layer_of;
  if (fold < 0) return false;
  const std::vector<int32_t>& layers = state.model->folds[static_cast<size_t>(fold)].layers;
  const auto place = static_cast<int32_t>(std::find(layers.begin(), layers.end(), scope) - layers.begin());
  const int32_t shown = graph_shown_layer(state, fold);
  if (shown == kUnfolded || shown == place) return false;
  state.layers[state.model->scopes[state.model->folds[static_cast<size_t>(fold)].box].path] = place;
  return true;
}

bool graph_go_to(GraphCanvasState& state, const std::string& node) {
  return graph_go_to(state, std::vector<std::string>{node});
}

bool graph_go_to(GraphCanvasState& state, const std::vector<std::string>& nodes) {
  if (!state.model) return false;
  std::vector<int32_t> boxes;
  for (const std::string& name : nodes)
    if (const int32_t box = state.model->find(name); box >= 0) boxes.push_back(box);
  if (boxes.empty()) return false;
  bool opened = false;
  for (const int32_t box : boxes) {
    if (boxes.size() > kMostOpened) break;
    for (int32_t s = state.model->boxes[box].scope; s >= 0; s = state.model->scopes[s].parent) {
      opened |= state.expanded.insert(state.model->scopes[s].path).second;
      opened |= unfold_for(state, s);
    }
  }
  state.pending_go = nodes;
  state.selection = std::move(boxes);
  state.selected_scope = -1;
  graph_remember(state);
  if (opened) graph_request_scene(state);
  return true;
}

bool graph_select(GraphCanvasState& state, const std::vector<int32_t>& boxes) {
  std::vector<std::string> names;
  for (const int32_t box : boxes) names.push_back(state.model->boxes[box].name);
  return graph_go_to(state, names);
}

void graph_select_neighbours(GraphCanvasState& state) {
  if (!state.model || state.selection.empty()) return;
  std::vector<int32_t> boxes = graph_neighbours(*state.model, state.selection);
  boxes.insert(boxes.end(), state.selection.begin(),
               state.selection.end());  // the one that was shown stays shown
  graph_select(state, boxes);
}

void graph_handle_mouse(GraphCanvasState& state, Actions& actions, bool hovered, bool active) {
  using Drag = GraphCanvasState::Drag;
  const ImGuiIO& io = ImGui::GetIO();
  const ImVec2 world = Projection(state).world(io.MousePos);
  const bool on_map = minimap_rect(state).contains(io.MousePos.x, io.MousePos.y);
  state.hovered = hovered && !on_map && state.drag == Drag::kIdle ? shape_under(state, world) : -1;
  if (is_box(state, state.hovered)) actions.hover_node = state.scene->model->boxes[state.hovered].name;
  if (hovered && io.MouseWheel != 0) {
    zoom_at(state, io.MousePos, std::pow(io.KeyCtrl ? 1.04f : io.KeyShift ? 1.6f : 1.18f, io.MouseWheel));
  }
  if (hovered && ImGui::IsMouseDoubleClicked(0) && state.hovered >= 0 && !is_box(state, state.hovered)) {
    const LayoutGroup& group = group_at(state, state.hovered);
    anchor_group(state, group);
    if (state.model == state.scene->model) graph_toggle_scope(state, group.scope, io.KeyAlt);
    state.drag = Drag::kIdle;
    return;
  }
  if (hovered && ImGui::IsMouseClicked(0)) {
    const int32_t under = state.hovered;
    start_drag(state);
    state.hovered = under;
  }
  if (state.drag != Drag::kIdle && ImGui::IsMouseReleased(0)) {
    if (state.hovered < 0) state.hovered = hovered && !on_map ? shape_under(state, world) : -1;
    finish_drag(state, actions);
  }
  if (state.drag == Drag::kMinimap) move_by_minimap(state);
  const bool pan = (state.drag == Drag::kPan && ImGui::IsMouseDragging(0, px(4))) ||
                   (active && (ImGui::IsMouseDragging(1, px(4)) || ImGui::IsMouseDragging(2, 0)));
  if (pan) {
    const float k = Projection(state).k;
    state.view.x -= io.MouseDelta.x / k;
    state.view.y -= io.MouseDelta.y / k;
    ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeAll);
  }
}

void graph_keys(GraphCanvasState& state, Actions& actions, bool listen) {
  if (!state.scene || state.scene->model != state.model) return;
  const GraphScene& scene = *state.scene;
  follow_pending(state);
  if (!listen || ImGui::IsPopupOpen(nullptr, ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel)) {
    state.space_tap = false;
    return;
  }
  if (key_pressed("app.menu") && !table_has_arrows()) state.menu_wanted = true;
  if (key_pressed("graph.fit") || space_tapped(state)) {
    graph_remember(state);
    graph_fit(state, {0, 0, scene.layout.width, scene.layout.height}, 1.f);
  }
  if (key_pressed("graph.focus") && !state.selection.empty()) {
    graph_remember(state);
    graph_fit(state, bounds_of(scene, with_partners(*state.model, state.selection)));
  }
  if (key_pressed("graph.back") && !state.back.empty()) {
    state.forward.push_back(state.view);
    state.view = state.back.back();
    state.back.pop_back();
  }
  if (key_pressed("graph.forward") && !state.forward.empty()) {
    state.back.push_back(state.view);
    state.view = state.forward.back();
    state.forward.pop_back();
  }
  if (const int by =
          (key_pressed("graph.layer.next") ? 1 : 0) - (key_pressed("graph.layer.previous") ? 1 : 0);
      by != 0)
    if (const int32_t fold = fold_of_selection(state); fold >= 0) graph_step_layer(state, fold, by);
  if (key_pressed("graph.neighbours")) graph_select_neighbours(state);
  if (key_pressed("graph.clear")) {
    state.selection.clear();
    state.selected_scope = -1;
  }
  const int32_t current = state.selected();
  const int step = key_pressed("graph.next") ? 1 : key_pressed("graph.previous") ? -1 : 0;
  if (step != 0) {
    const auto n = static_cast<int32_t>(state.model->boxes.size());
    int32_t next = current < 0 ? 0 : std::clamp(current + step, 0, n - 1);
    while (next > 0 && next < n - 1 && state.shown(next) == StageShown::kHidden) next += step;
    if (n > 0) graph_go_to(state, state.model->boxes[next].name);
    actions.show_node_panel = true;
  }
  if (key_pressed("graph.partner") && current >= 0) {
    const GraphBox& box = state.model->boxes[current];
    const int32_t partner = box.partner >= 0 ? box.partner : box.related.empty() ? -1 : box.related.front();
    if (partner >= 0) graph_go_to(state, state.model->boxes[partner].name);
  }
  if (const int by = (key_pressed("graph.zoom_in") ? 1 : 0) - (key_pressed("graph.zoom_out") ? 1 : 0);
      by != 0)
    zoom_at(state,
            {(state.canvas_min.x + state.canvas_max.x) / 2, (state.canvas_min.y + state.canvas_max.y) / 2},
            std::pow(1.25f, static_cast<float>(by)));
  const float pan = 60 / state.view.zoom;
  const ImGuiIO& io = ImGui::GetIO();
  if (!io.KeyAlt && !io.KeyCtrl && !io.WantTextInput && !table_has_arrows()) {
    if (ImGui::IsKeyPressed(GLFW_KEY_LEFT)) state.view.x -= pan;
    if (ImGui::IsKeyPressed(GLFW_KEY_RIGHT)) state.view.x += pan;
    if (ImGui::IsKeyPressed(GLFW_KEY_UP)) state.view.y -= pan;
    if (ImGui::IsKeyPressed(GLFW_KEY_DOWN)) state.view.y += pan;
  }
}

}  // namespace gradloom
