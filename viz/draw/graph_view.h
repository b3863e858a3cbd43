// View arithmetic of the graph canvas, shared by its files. Private to viz/draw.
#pragma once

#include "viz/draw/graph_canvas.h"
#include "viz/draw/theme.h"

namespace gradloom {

inline constexpr float kMaxZoom = 3.f;
// So far out that the whole graph is in sight, however long it is.
float smallest_zoom(const GraphCanvasState& state);

// World <-> screen for one frame.
struct Projection {
  ImVec2 centre;  // of the canvas, on the screen
  float x, y, k;  // world point at the centre; pixels per world unit
  explicit Projection(const GraphCanvasState& s)
      : centre((s.canvas_min.x + s.canvas_max.x) / 2, (s.canvas_min.y + s.canvas_max.y) / 2),
        x(s.view.x),
        y(s.view.y),
        k(s.view.zoom * theme().scale) {}
  ImVec2 screen(float wx, float wy) const { return {centre.x + (wx - x) * k, centre.y + (wy - y) * k}; }
  ImVec2 world(ImVec2 p) const { return {x + (p.x - centre.x) / k, y + (p.y - centre.y) / k}; }
};

void graph_fit(GraphCanvasState& state, const LayoutBox& box, float max_zoom = 1.2f);
void graph_first_view(GraphCanvasState& state);
std::unordered_set<std::string> default_expanded(const GraphModel& model);  // scope paths
void graph_remember(GraphCanvasState& state);  // pushes the current view on the history
void graph_request_scene(GraphCanvasState& state);
void graph_handle_mouse(GraphCanvasState& state, Actions& actions, bool hovered, bool active);
LayoutBox minimap_rect(const GraphCanvasState& state);  // on the screen; zero size when hidden
// Where it covers fewest shapes, and none that is selected, as the view is now.
void place_minimap(GraphCanvasState& state);

}  // namespace gradloom
