// One frame of the graph canvas: what is visible, lit or found, and the drawing of groups, edges, nodes and
// furniture. Private to viz/draw.
#pragma once

#include <imgui.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "viz/draw/graph_canvas.h"
#include "viz/draw/graph_view.h"
#include "viz/model/scene.h"

namespace gradloom {

struct GraphPainter {
  GraphCanvasState& state;
  const GraphScene& scene;
  const GraphModel& model;
  ImDrawList* list;
  Projection p;
  LayoutBox visible;      // world
  std::vector<bool> lit;  // shapes related to the hovered or selected one
  std::vector<uint32_t> lit_routes;
  bool search = false;
  std::vector<bool> hit, chosen;  // boxes: search hits, selection
  size_t registered = 0;
  // Boxes that a group hides, by group: noted, added, removed, inside the time range, changed.
  std::vector<std::array<uint32_t, 5>> group_marks;
  double group_max = 0;  // largest value of a collapsed scope: scopes have their own scale

  GraphPainter(GraphCanvasState& state, ImDrawList* list);

  // What belongs to the pointed-at or selected shape: its routes, their other ends, its partners.
  void light();

  float zoom_points() const { return state.view.zoom; }

  // ---- groups ---------------------------------------------------------------------------------------------

  void columns();
  void thin_columns();
  ImU32 column_color(LayoutColumn column) const;
  void groups();
  void open_group(const LayoutGroup& group, int32_t shape, ImVec2 min, ImVec2 max);
  std::string group_cost(const LayoutGroup& group) const;  // what it is coloured by, else its time
  ImU32 heat_color(double heat) const;
  void collapsed_group(const LayoutGroup& group, int32_t shape, ImVec2 min, ImVec2 max);
  // Of a fold's box: the spread of its layers, and arrows that step through them. Returns where the arrows begin.
  std::string fold_detail(const LayoutGroup& group) const;
  float fold_arrows(const LayoutGroup& group, ImVec2 min, ImVec2 max, ImU32 ink);
  double group_value(const LayoutGroup& group) const;
  bool group_hit(int32_t scope, LayoutColumn column) const;
  void register_group(const LayoutGroup& group, ImVec2 min, ImVec2 max, std::string_view value);

  // ---- edges ----------------------------------------------------------------------------------------------

  void stroke(const LayoutRoute& route, ImU32 color, float thickness, bool far);
  void arrow(const LayoutRoute& route, ImU32 color);
  float thickness(uint32_t r) const;
  void edges();

  // A line has no area, so the visible part is compared with some room.
  LayoutBox grown() const { return {visible.x - 2, visible.y - 2, visible.width + 4, visible.height + 4}; }

  void edge_labels();

  // Saved activations and far readers appear with the shape they belong to.
  void lit_edges();

  // ---- nodes ----------------------------------------------------------------------------------------------

  ImU32 node_fill(int32_t b, bool* heated) const;
  void nodes();

  void full_node(int32_t b, ImVec2 min, ImVec2 max, ImU32 fill, ImU32 accent, bool heated, bool dim,
                 bool full);

  void badges(int32_t b, ImVec2 min, ImVec2 max, bool dim);
  uint8_t marks(int32_t b) const;  // those of the application, and what the step of pass time travel did
  bool hidden(int32_t shape) const { return state.shown(shape) == StageShown::kHidden; }
  bool route_hidden(uint32_t r) const {
    return !state.travel.shapes.routes.empty() && !state.travel.shapes.routes[r];
  }
  uint32_t nodes_of(const LayoutGroup& group, int32_t shape) const;  // of the column, that are there
  // What comes and goes fades: a veil over the shape.
  void veil(int32_t shape, ImVec2 min, ImVec2 max, float rounding);
  void count_group_marks();
  void box_marks(int32_t b, ImVec2 min, ImVec2 max);
  void group_badges(size_t group, ImVec2 min);
  void note_sign(ImVec2 lower_left);
  float sign_pill(ImVec2 left_middle, const std::string& label, ImU32 color) const;  // returns its width
  void outline(int32_t b, ImVec2 min, ImVec2 max, float rounding);

  // ---- furniture ------------------------------------------------------------------------------------------

  void minimap();
  bool strip(ImVec2 min, ImVec2 max);  // below the canvas: what colours mean, and notes; hides no node
  float phase_legend(ImVec2 at, float right);
  float heat_legend(ImVec2 at, float right);
  bool has_times_note() const { return !state.times_note.empty(); }
  bool times_note(ImVec2 at, float right);  // true: what it offers was asked for
  float small_width(const std::string& s) const;
  void small_text(ImVec2 at, ImU32 color, const std::string& s);
  void drag_rectangle();
};

}  // namespace gradloom
