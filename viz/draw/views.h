// The other views of the window: kernel table, memory, passes, roofline, tune, comparison. Each draws one pane
// from a model and its own state, and tells the application through Actions what was asked for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sessions/compare.h"
#include "sessions/store.h"
#include "viz/draw/actions.h"
#include "viz/draw/noise_view.h"
#include "viz/draw/plots.h"
#include "viz/draw/saved_filters.h"
#include "viz/draw/small_graph.h"
#include "viz/draw/table.h"
#include "viz/model/kernel_table.h"
#include "viz/model/memory_model.h"
#include "viz/model/operator_page.h"
#include "viz/model/pass_model.h"
#include "viz/model/roofline_model.h"
#include "viz/model/tune_table.h"
#include "viz/model/worth_table.h"

namespace gradloom {

struct KernelTableState {
  TableState table;
  std::string query_text, query_error;
  SavedFiltersState filters;
  std::string selected;  // node
  std::string wanted;    // node to bring into view
  bool started = false;
  std::string menu_name, menu_selector;  // of the open context menu; as --speed of what-if names the row
};
void draw_kernel_table(KernelTableModel& model, KernelTableState& state, Actions& actions);
void kernel_table_set_query(KernelTableModel& model, KernelTableState& state, const std::string& text);

struct MemoryViewState {
  PlotView view;
  int selected = -1;                    // block
  int step = -1;                        // clicked step; -1 = the peak
  int first_step = -1, last_step = -1;  // of the marked time range: the rest is dimmed; -1: none
  TableState table, findings;
  int part = 0;                     // below the arena: MemoryPart
  int64_t measured_peak_bytes = 0;  // of a run of it; 0: the model's own
  // Asked for: this node's result is made again in the backward pass instead of being kept
  std::string again;
};
enum MemoryPart : int { kMemoryLive, kMemoryFindings, kMemoryBudget };
// `budget` draws what is below the arena where the budget is chosen, in this height; none: it cannot be chosen.
void draw_memory_view(const MemoryModel& model, MemoryViewState& state, Actions& actions,
                      const std::function<void(float height)>& budget = {});

struct PassPreview {  // the example of a pass, drawn
  SmallGraph before, after;
};

struct PassPanelState {
  std::string open;                                            // pass whose details are shown
  std::string scroll_to;                                       // pass to bring into view, then reset
  std::string error;                                           // of the last option edit
  std::vector<std::pair<std::string, std::string>> edits;      // "pass.option" -> text being typed
  std::map<std::string, std::optional<PassPreview>> previews;  // by pass, once its details were open
  std::map<std::string, PassProof> proofs;                     // by pass; the application's
};
// Changes arrive in Actions::pipeline and Actions::rules. `planning`: a new plan is being made; the counts are of the
// old one. `rules_file`: where the rules were read; empty: they came with the recipe.
void draw_pass_panel(const PassModel& model, const Pipeline& pipeline, const std::string& rules_file,
                     bool planning, PassPanelState& state, Actions& actions);

// Versions, formula, cost, gradient, kernels and precision of an operator.
void draw_operator_page(const OperatorPage& page);

struct RooflineViewState {
  PlotView view;
  int group = 0;  // node, operator, scope, roof
  TableState table;
  std::string selected;  // node
  // Of the table, made when the model or the group is another one.
  const RooflineModel* of = nullptr;
  std::vector<RooflineRow> rows;
  // The kernels that a drag over the plot chose, which filter the other views; null: all.
  std::shared_ptr<const RooflineSelection> selection;
  std::optional<ImVec2> drag;  // where it began on the screen, while it goes on
  // The dots of the last frame in the order of the model, for the keys: places, 0..1 across and up, and names.
  std::vector<std::pair<double, double>> dots;
  std::vector<std::string> dot_names;
  double zoom_wanted = 1;  // by a key, around the selected dot: as plot_move takes it
  double pan_wanted = 0;   // by a key, to a dot outside the part that is shown: as plot_move takes it
};
// Kernels as dots under the roofs of a processor, and by how far they are above what they take at least. A drag chooses those
// in a rectangle, with Shift besides the chosen ones. `command`: what the line of the chosen offers to copy. True: other ones
// were chosen.
bool draw_roofline_view(const RooflineModel& model, const std::string& command, RooflineViewState& state,
                        Actions& actions);
// The keys of the key map that concern it; call after drawing it. True: other kernels were chosen, or none any more.
bool roofline_keys(RooflineViewState& state, Actions& actions);
void roofline_clear(RooflineViewState& state);  // all kernels are shown again
// Chooses the kernels in areas of the plot; in none: all.
void roofline_select(const RooflineModel& model, std::vector<RooflineArea> areas, RooflineViewState& state);

struct TuneViewState {
  TableState table;
  std::optional<std::string> selected, hovered;  // changes of a row; the job's are empty
  std::set<std::string> pinned;                  // the application's, for this frame
  std::optional<std::string> pin;                // asked for: the pin of this row the other way
};
// The configurations of a search as dots, time by memory, with the front as a line; below, the same as a table. The dot and
// the row of one configuration are marked together.
void draw_tune_front(const TuneTable& table, TuneViewState& state, ImVec2 size);
void draw_tune_rows(const TuneTable& table, TuneViewState& state, float height);

struct WaterfallViewState {
  bool alone = false, memory = false;
  std::string open_pass;  // asked for: show this pass
};
void draw_waterfall(const WorthTable& table, WaterfallViewState& state);

struct CompareViewState {
  int table = 0;  // kernels, phases, scopes, streams where there are some, and last how sure it is
  TableState rows;
  NoiseViewState noise;
};
// `a`, `b`: the runs compared, or null when they were not stored.
// Progress: a line while a comparison runs, else empty.
void draw_compare_view(const Comparison& comparison, const RunSummary* a, const RunSummary* b,
                       CompareViewState& state, Actions& actions);

}  // namespace gradloom
