// The graph view: pan, zoom at the cursor, culling, level of detail, minimap, selection, partner highlight,
// marks of the application (notes, changes, a time range), places to come back to, saved-activation edges on
// demand, colour by phase, time or bytes, search hits, scopes that open and close by double click.
//
// Level of detail by a box's height on the screen: above 29 points everything, above 13 a box with its
// operator, below a plain rectangle. Culling is a linear scan over boxes and routes: 0.1 ms for 60 000, far
// below the cost of drawing what is visible.
#pragma once

#include <imgui.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "viz/draw/actions.h"
#include "viz/draw/saved_filters.h"
#include "viz/model/graph_marks.h"
#include "viz/model/scene.h"
#include "viz/model/stage_model.h"

namespace gradloom {

struct GraphCanvasState {
  explicit GraphCanvasState(std::function<void()> ready = {}) : builder(std::move(ready)) {}

  SceneBuilder builder;
  std::shared_ptr<const GraphModel> model;   // what is wanted
  std::shared_ptr<const GraphScene> scene;   // what is shown; may lag behind
  std::unordered_set<std::string> expanded;  // scope paths
  bool expanded_known = false;
  // By path of a fold's box: the layer that is shown, or kUnfolded; else folded
  std::map<std::string, int32_t> layers;
  struct FoldArrow {
    ImVec2 min, max;
    int32_t fold = -1, by = 0;
  };
  std::vector<FoldArrow> fold_arrows;  // of the last frame

  struct View {
    float x = 0, y = 0, zoom = 1;  // world point in the middle of the canvas; screen points per world unit
    bool operator==(const View&) const = default;
  } view;
  std::vector<View> back, forward;  // history
  bool fit_wanted = true;
  std::optional<View> first_view;  // as the program chose it; the same still: nobody has moved it

  std::vector<int32_t> selection;  // boxes
  int32_t selected_scope = -1;
  int32_t hovered = -1;                 // shape
  std::string outline;                  // node another view points at
  std::vector<std::string> pending_go;  // nodes to bring into view once their scene is there
  std::string menu_node;                // of the open context menu
  int32_t menu_scope = -1;
  bool menu_wanted = false;  // by the key, of what is selected

  ColorBy color_by = ColorBy::kPhase;
  // Runs that times can be compared with, and the one they are (0: none); the application's, for this frame.
  struct OtherRuns {
    std::vector<std::int64_t> runs;
    std::int64_t chosen = 0;
  } other_runs;
  // Whose times are shown, where they are of something else than what stands, and what can be done about it; the application's,
  // for this frame.
  std::string times_note, times_action, times_tip;
  bool may_take = false;
  std::string query_text, query_error;
  SavedFiltersState filters;
  std::string example;  // a query for the empty field, of `example_of`
  std::shared_ptr<const GraphModel> example_of;
  std::vector<int32_t> hits;
  int hit = -1;
  bool minimap = true, focus_search = false;
  int minimap_corner = 0;  // as minimap_place has it

  // The shape that stays where it is on the screen while the scene changes.
  struct Anchor {
    std::string node, scope;
    LayoutColumn column = LayoutColumn::kForward;
    float dx = 0, dy = 0;  // from the view's centre, in points
  };
  std::optional<Anchor> anchor;

  enum class Drag : uint8_t { kIdle, kPan, kSelect, kZoom, kMinimap } drag = Drag::kIdle;
  bool drag_adds = false;  // the rubber band adds to the selection
  bool space_tap = false;  // Space is down and has not been used to pan
  ImVec2 drag_start{};
  ImVec2 canvas_min{}, canvas_max{};

  std::shared_ptr<const GraphMarks> marks;  // set by the application; may be null
  // The same by box of `marked_model`, made when either changes.
  std::vector<uint8_t> box_marks;
  std::shared_ptr<const GraphMarks> marked;
  std::shared_ptr<const GraphModel> marked_model;

  // Pass time travel: which step of the graph of all stages is shown.
  struct Travel {
    std::shared_ptr<const StageModel> stages;  // null: the graph is shown as it is
    int32_t step = 0;
    bool at_end = true;  // the last step is shown, also of the stages of another plan
    // What is drawn, made when step or scene change; fades from what was before.
    StageShapes shapes, before;
    int32_t shapes_of = -1;
    std::shared_ptr<const GraphScene> scene;
    float faded = 1;  // 0..1
  } travel;
  StageShown shown(int32_t shape) const {
    return travel.shapes.shapes.empty() ? StageShown::kShown
                                        : travel.shapes.shapes[static_cast<size_t>(shape)];
  }

  bool busy() const { return builder.busy() || !pending_go.empty() || travel.faded < 1; }
  int32_t selected() const { return selection.empty() ? -1 : selection.back(); }
};

// `model` may be a new one every time the plan changes; the same pointer means no change.
void draw_graph_canvas(const std::shared_ptr<const GraphModel>& model, GraphCanvasState& state,
                       Actions& actions);
// Colour, search with hits, fit, open and close all. `low`: all but the colour is in a menu, so that the canvas keeps its room.
void draw_graph_toolbar(GraphCanvasState& state, Actions& actions, bool low);
// Details of the selected box: costs, times, provenance, attributes, inputs and outputs, partners.
// `more` adds what only the application knows, between costs and provenance.
void draw_node_panel(GraphCanvasState& state, Actions& actions,
                     const std::function<void(const GraphBox&)>& more = {});

// The graph to show from now on; selection and open scopes survive by name. Drawing calls it; it can come
// first to select nodes of a graph that is not drawn yet.
void graph_set_model(GraphCanvasState& state, const std::shared_ptr<const GraphModel>& model);
// The next graph is another sight than the one that is shown: where nobody has moved or selected anything it is shown as
// if it were the first. REQUIRES that it comes before graph_set_model.
void graph_start_again(GraphCanvasState& state);
// Selects a node, opens the scopes that hide it and brings it into view. False when there is no such node.
bool graph_go_to(GraphCanvasState& state, const std::string& node);
// The same with several nodes, which fill the view. The scopes of very many stay closed; false: none exists.
bool graph_go_to(GraphCanvasState& state, const std::vector<std::string>& nodes);
// The same by the model's boxes.
bool graph_select(GraphCanvasState& state, const std::vector<int32_t>& boxes);
void graph_select_neighbours(GraphCanvasState& state);  // beside what is selected
void graph_set_all_expanded(GraphCanvasState& state, bool expanded);
void graph_toggle_scope(GraphCanvasState& state, int32_t scope, bool subtree);
// Shows a layer of a fold beside the others, open as the one that was shown before; kFolded: none; kUnfolded: all.
void graph_show_layer(GraphCanvasState& state, int32_t fold, int32_t layer);
void graph_step_layer(GraphCanvasState& state, int32_t fold, int by);  // the next one; after the last none
int32_t graph_shown_layer(const GraphCanvasState& state, int32_t fold);
void graph_set_query(GraphCanvasState& state, const std::string& text);
// The keys of the key map that concern the graph; call after drawing it.
// `listen`: plain keys are meant for it.
void graph_keys(GraphCanvasState& state, Actions& actions, bool listen = true);

// Where the view is; nothing while there is no scene. Going back to a place of another graph finds what is
// left of it.
std::optional<GraphPlace> graph_place(const GraphCanvasState& state);
void graph_show_place(GraphCanvasState& state, const GraphPlace& place);

ImU32 phase_color(Phase phase);
ImU32 phase_color(const std::string& phase);  // by its name, as sessions have it

}  // namespace gradloom
