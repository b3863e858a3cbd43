// What the panels share: the controller, the host, and the window's own state (what is typed, sorted,
// scrolled, selected) that is neither recorded nor undone. One draw function per panel.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "app/desktop/controller.h"
#include "app/desktop/preferences.h"
#include "app/desktop/timeline.h"
#include "app/desktop/timeline_rows.h"
#include "viz/draw/budget_view.h"
#include "viz/draw/curve_view.h"
#include "viz/draw/file_dialog.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/icicle_view.h"
#include "viz/draw/palette.h"
#include "viz/draw/panes.h"
#include "viz/draw/platform.h"
#include "viz/draw/plots.h"
#include "viz/draw/table.h"
#include "viz/draw/trend_view.h"
#include "viz/draw/views.h"
#include "viz/draw/widgets.h"
#include "viz/model/critical_path.h"
#include "viz/model/kernel_table.h"
#include "viz/model/run_steps.h"
#include "viz/model/step_idle.h"
#include "viz/model/step_sums.h"

namespace gradloom {

struct RecipeSetting;

// Something the user can do: menus, palette, keys and buttons all come from one list.
struct Command {
  const char* id;                 // as in key_map() where it has a key
  const char* label;              // null: by its key only, as what has a name of the user's
  const char* menu;               // "File", "View", "Run", "Export", "Help"; null: palette and keys only
  bool separator;                 // before it in the menu
  std::function<bool()> enabled;  // null: always
  std::function<void()> run;
  std::function<bool()> checked = nullptr;  // a switch that is on; null: no switch
};

enum class DialogPurpose : std::uint8_t {
  none,
  open,
  export_run,
  report_run,
  save_recipe,
  session,
  locate,
  field
};

struct NoteEditor {
  bool open = false, just_opened = false;
  Note note;
};

// What is being said of a run.
struct RunEditor {
  enum class What : std::uint8_t { nothing, name, tags, note, end };
  What what = What::nothing;
  bool just_opened = false;
  std::int64_t run = 0;
  std::string text;
};

// What is wrong, by the key of the field.
using FieldProblems = std::map<std::string, std::string>;

// The roofline tab: which roofs over which kernels.
struct RooflineState {
  int on = 0;                    // the run's own processor, or one of known_hardware() from 1 on
  const void* source = nullptr;  // snapshot the model was made of, with:
  int made_on = -1;
  std::size_t made_of = 0;  // devices that were known
  std::shared_ptr<const RooflineModel> model;
  std::string error;      // why there is none
  std::int64_t run = -1;  // whose kernels are chosen in `view`; 0: the plan's
  RooflineViewState view;
};

// The strip of all steps above the timeline.
struct StepStripState {
  std::shared_ptr<const RunSnapshot> source;  // that it was made of
  RunSteps steps;
  double top_ns = 1;     // at the upper edge
  std::string outliers;  // outliers_text
  std::vector<StepColumn> columns;
};

// What the lanes of the shown steps wait for, and their critical paths.
struct TimelineIdle {
  std::shared_ptr<const RunSnapshot> source;  // that the reader reads
  std::unique_ptr<IdleReader> reader;
  std::int64_t made = -1;  // number of the timeline's model that the others are of
  std::vector<StepIdle> steps;
  std::vector<CriticalPath> paths;                    // by step; made when they are shown, with:
  std::vector<std::vector<std::int32_t>> path_lanes;  // by step and its lane, the timeline's; -1: it has none
  std::vector<std::pair<std::string, double>> ops;    // of all paths, the longest first
  // Of each lane, in all shown steps or in the time that is marked: of the model with the number, and of this time.
  std::vector<IdleSums> sums;
  std::int64_t sums_made = -1;
  std::shared_ptr<const RangeFilter> sums_of;
};

// The run below the shown one, as its lanes are drawn.
struct BesideState {
  std::shared_ptr<const RunBeside> source;  // that the model was made of, with:
  std::int64_t made = -1;                   // the number of the timeline's model
  int align = 0, aligned = -1;              // index in `alignments`
  std::vector<std::string> alignments;
  TimelineModel model;
  std::int64_t models = 0;  // counts those that were made
  TimelineIdle idle;
  std::int32_t lit = -1, kept = -1;  // pair that is outlined: under the mouse, else the one last gone to
};

// The rows of the timeline as they were drawn last, and where its keys are.
struct TimelineRows {
  LaneFolds folds;
  std::vector<LaneRow> rows;
  struct Cursor {
    std::string lane;        // lane_key; empty: the keys are at no bar
    std::size_t bar = 0;     // of the lane
    std::int64_t made = -1;  // number of the model that the bar is of
    TimeRange anchor;        // where measuring with Shift began
    bool moved = false;      // just now: it comes into sight
    bool told = false;       // by the keys: what it is, is shown
    ImVec2 min, max;         // as it was drawn
  } cursor;
};

// What the what-if tab asks, as it is typed.
struct WhatIfForm {
  struct Faster {
    int of = 0;  // of speed_up_kinds()
    std::string pattern;
    std::string factor = "2";
  };
  int precision = 0;                        // 0: the same; those of the setting from 1 on
  std::map<std::string, std::string> dims;  // by symbol; empty: the same
  std::string ranks;                        // empty: the same
  ScalingQuestion cluster;                  // of several ranks
  std::string changes;                      // further settings
  std::vector<Faster> faster;
  int on = 0;           // 0: the same processor; known_hardware() from 1 on; then `on_file`
  std::string on_file;  // that devices --measure --json wrote
  TableState table;     // of the answer
  int tab = 0;          // a question, scores
  bool keep = true;     // the prediction, for a run to measure it
  TableState scores;
  // What measures each of the scores, in their order.
  std::vector<std::string> measure;
  std::shared_ptr<const std::vector<PredictionScore>> measure_of;
  std::string measure_session;
};

// The trends tab: which series is shown.
struct TrendsState {
  std::shared_ptr<const std::vector<Trend>> of;  // what was read
  int series = 0;
  TrendViewState view;
};

// The steps of the tour and where it is.
constexpr int kTourSteps = 5;
struct TourState {
  int step = -1;         // -1: it is not shown
  bool waiting = false;  // for the sample to be open
  int shown = -1;        // step whose tab was brought to the front
};

// The scaling tab: the cluster, and which curve is shown.
struct ScalingForm {
  ScalingQuestion question;  // as it is typed
  int on = 0;                // 0: the job's processor; known_hardware() from 1 on
  int curve = 0;             // efficiency, step, peak
  int stage = 0;             // of zero, whose memory is shown with the peaks
  TableState table, memory_table;
};

// The tune tab: what the next search is given, and what is shown.
struct TuneForm {
  std::string seconds = "60";
  std::set<std::string> over{"passes", "instances", "threads"};
  int view = 0;  // front, waterfall
  TuneViewState front;
  WaterfallViewState waterfall;
};

// The curves of the curve tab, and that of the run that goes on as its lines made it.
struct CurvesShown {
  KeptCurves kept;
  std::shared_ptr<const RunCurves> live;
  struct LiveOf {
    std::shared_ptr<const RunSnapshot> recorded;
    std::int64_t started_ns = 0, run = 0;
    std::size_t lines = 0, evaluations = 0;
    bool operator==(const LiveOf&) const = default;
  } live_of;  // what `live` was made of
};

// Whose times are shown, made of the shown run and the plan.
struct TimesNote {
  const void *run = nullptr, *plan = nullptr;
  std::string said;          // "measured in run 3, other passes"; empty: nothing is measured
  bool again = false;        // a run of the plan as it stands would have other ones
  bool other_model = false;  // they are of no node of the open one
};
// What can be done where the times are not the plan's.
struct TimesOffer {
  const char *action = "", *tip = "";
  bool can = false;
};

// What draw_step_card tells, once per snapshot.
struct StepCard {
  std::shared_ptr<const void> source;  // snapshot that it is of
  StepSums sums;
};

enum class Canvas : std::uint8_t { graph, timeline, icicle, roofline };
constexpr int kCanvases = 4;

struct Ui {
  Ui(Controller& controller, Host& window)
      : app(controller), host(window), graph([&window] { window.wake(); }) {
    graph.filters.filters = kernel_table.filters.filters = &controller.edit_state().settings.filters;
  }
  Controller& app;
  Host& host;
  PaneTree panes;
  PaneFocus pane_focus;
  std::vector<Command> commands;

  GraphStage stage = GraphStage::after;
  bool model_stands_in = false;  // the model's graph is shown while the step is planned
  GraphCanvasState graph;        // holds the selection
  Actions asks;                  // what the views asked for in this frame
  std::string outline;           // node under the mouse in the last frame, in any view
  // To show once its stage is: of a bookmark, or where the view was left
  std::optional<GraphPlace> place_after;
  std::string query_after;         // what is searched for in the graph, the same
  std::optional<Note> note_after;  // time to show once its run is
  NoteEditor note_editor;
  TableState notes_table;
  bool show_diff = false;  // what the last change did, marked in the graph
  // What the marks of the graph were made of.
  std::shared_ptr<const Marks> marks_of;
  std::shared_ptr<const RangeFilter> filter_of_marks;
  std::shared_ptr<const RooflineSelection> chosen_of_marks;
  std::int64_t change_of_marks = -1;
  // What the marked time and the kernels chosen in the roofline leave: all other kernels are out of sight; null: none is.
  std::shared_ptr<const std::unordered_set<std::string>> inside;
  int canvas_frame[kCanvases] = {-1, -1, -1, -1};  // when each canvas was drawn last
  Canvas keys_to = Canvas::graph;                  // the one that the mouse was over last

  KernelTableModel kernels;
  KernelTableState kernel_table;
  const void* kernel_source = nullptr;  // snapshot the rows came from
  StepCard step_card;
  bool show_recorded = false;  // the run's kernels and memory instead of the plan's
  MemoryViewState memory;
  BudgetViewState budget;
  RooflineState roofline;
  WhatIfForm what_if;
  ScalingForm scaling;
  TuneForm tune;
  TrendsState trends;
  TourState tour;
  bool tell_capture = false;  // the first screen tells how a PyTorch script's capture is made
  bool ask_remote = false;    // and asks where a session of another machine lies:
  std::string remote_address;
  PassPanelState passes;
  // What its proofs were made of.
  std::shared_ptr<const Marks> proofs_of;
  std::string proofs_job;
  CompareViewState compare;
  CurveViewState curves;
  CurvesShown curves_shown;
  TimelineState timeline;
  StepStripState strip;
  TimelineIdle idle;
  BesideState beside;
  TimelineRows lanes;
  IcicleState icicle;
  StepSamples icicle_samples;           // of the run that its tree is of
  const void* icicle_source = nullptr;  // snapshot they came from
  TimesNote times;
  TableState runs_table;
  std::string runs_filter;
  RunEditor run_editor;
  std::int64_t menu_run = 0;  // of the menu of the list of runs
  bool more_settings = false;

  std::map<std::string, std::string> editing;  // text fields with the keyboard, by id
  FileDialog dialog;
  DialogPurpose purpose = DialogPurpose::none;
  std::function<void(const std::string& path)> on_path;  // of a field of a form
  PaletteState command_palette, node_palette;
  bool key_sheet = false, about = false, closing = false;
  Preferences preferences;
  std::string operator_shown;  // whose page is open, or to be opened
  bool open_operator = false;

  const AppState& state() const { return app.state(); }
  const GraphSnapshot* shown_graph() const { return state().graphs.at(stage).get(); }
  // Kernels and memory are those of the shown run, not of the plan as it stands.
  bool shows_recorded() const;
  const TimesNote& times_of_shown();
  TimesOffer times_offer();
  void take_times_offer();
  std::string selected() const;  // name of the selected node; empty: none
  // Selects a node and brings it into view; switches to the stage that has it when the shown one lacks it.
  void go_to(const std::string& node);
  // Selects what a row of a comparison stands for, in the shown stage or the first that has any of it;
  // `show`: and brings the graph to the front.
  void select_row(const ComparedRow& row, bool show);
  // The first stage, the shown one before all, that has any of what `nodes_of` names in it: its nodes are
  // selected. False: none has.
  bool select_first(const std::function<std::vector<std::string>(const GraphModel&)>& nodes_of);
  // Shows another stage and selects nodes of it.
  void go_to_stage(GraphStage at, const std::vector<std::string>& nodes);
  void do_command(const std::string& id);
  bool may_close();  // where a run is going on, its dialog asks first
  // Graph, timeline, icicle and roofline have plain keys in common: they go to the canvas that the mouse was over last, or
  // the only one there is.
  void drawn(Canvas canvas, bool hovered);
  bool takes_keys(Canvas canvas) const;
  void set_bookmark(int slot);  // 1 .. kBookmarks
  void go_to_bookmark(int slot);
  void edit_note(const Note& note);
  void edit_run(RunEditor::What what, std::int64_t run);
  void choose_side(std::int64_t run,
                   bool a);             // of the comparison; one that is chosen already is none any more
  void toggle_curve(std::int64_t run);  // among those that are drawn
  void toggle_pin(std::int64_t run);
  void note_on_node(const std::string& node);
  void note_on_time();
  void note_here();
  void go_to_note(const Note& note);
  // Brings the node panel to the front, but not over the panel that asks for it where a small window has both in one pane.
  void show_node_panel();
  void follow_run_shown();
  void share_marks();
  void follow_roofline();  // its model and with it the chosen kernels, also while another tab is shown
  bool filters() const { return timeline.filter || roofline.view.selection; }
  void reset_layout();
  std::string pane_with_keys() const;  // by its tab in front
  void step_pane(int by);
  void step_tab(int by);
  void use_layout(std::size_t index);  // of all_layouts()
  // Asks what-if for a step with these twice as fast, as --speed names them; of a node of the model all its kernels.
  void ask_twice_as_fast(const std::vector<std::string>& selectors);
  // Whose kernels take most of the run that it is asked of; empty: no run is.
  std::string longest_operator() const;
  // What is selected as those name it; empty: nothing is.
  std::vector<std::string> selected_to_speed() const;
  // By the names of all_views(): the one that has the keys, or else the first that is shown; empty: none is. What its file is
  // made of, or why it has no rows; the dialog for the file, and the file by its ending.
  std::string view_in_front();
  Result<std::pair<const ViewDef*, ViewSource>> view_to_export(const std::string& name) const;
  void ask_where_to_export(const std::string& name);
  void export_view(const std::string& name, const std::string& path);
  void start_tour();  // opens the sample where nothing is open
};

std::vector<Command> make_commands(Ui& ui);

void draw_welcome(Ui& ui);
void draw_model_panel(Ui& ui);
void draw_pass_panel(Ui& ui);
void draw_graph_panel(Ui& ui);
void draw_node_panel(Ui& ui);
void draw_step_card(Ui& ui);  // stands there while no node is selected; REQUIRES a plan or a run
void draw_kernel_panel(Ui& ui);
void draw_memory_panel(Ui& ui);
void draw_timeline_panel(Ui& ui);
void draw_icicle_panel(Ui& ui);
// Of a recorded loop: its shares as a line and a bar, and the colour of a kind of span.
void draw_loop_card(const LoopShares& loop);
ImU32 host_color(const std::string& kind);
void draw_run_panel(Ui& ui);
// What was typed or chosen for a setting becomes the recipe's; what cannot be read is told.
void commit_setting(Ui& ui, const RecipeSetting& setting, const std::string& text);
// Cells of the run panel's form. Data: where the batches of a setting come from.
void data_fields(Ui& ui, const FieldProblems& problems, const RecipeSetting& setting);
void checkpoint_fields(Ui& ui);
void draw_curve_panel(Ui& ui);
// The place of a run's curve among those that are drawn, which is that of its colour: the first is the run that goes on or is
// shown, those beside it follow as they were chosen, also where one has no such quantity.
struct CurvePlace {
  int place = -1;    // -1: its curve is not drawn
  bool own = false;  // it goes on or is shown
};
CurvePlace curve_place(const AppState& s, const CurveRun& run);
// "24 steps of 2.1 ms, loss 5.1 \u2192 4.2"
std::string steps_text(const RunSummary& run);
void draw_session_panel(Ui& ui);
void draw_compare_panel(Ui& ui);
void draw_advice_panel(Ui& ui);
void draw_roofline_panel(Ui& ui);
void draw_what_if_panel(Ui& ui);
void draw_what_if_question(Ui& ui);
// The phases of a step that what-if told of, as a bar from x on, and in grey what is no kernel's: `after` the changed one, else the
// job's. Its end.
float draw_step_phases(const WhatIfView& answer, bool after, ImVec2 at, float height, double points_per_ns);
// A line from the least to the most that it is predicted to take.
void draw_range_line(const WhatIfView& answer, float x, float middle, float most_x, double points_per_ns);
void draw_scaling_panel(Ui& ui);
void draw_tune_panel(Ui& ui);
std::string tune_command(const Ui& ui);  // of the search that the tab would start
bool can_search(const Ui& ui);           // the tab would start it
void draw_scores(Ui& ui);                // of predictions: the other half of the what-if tab
void draw_trends_panel(Ui& ui);
void draw_notes_panel(Ui& ui);
// What stands where a model would be shown: that none is open, or that the session's is
// not found and where it was.
void draw_no_model(Ui& ui, const char* title, const char* hint);
void draw_node_notes(Ui& ui, const std::string& node);  // for the node panel
void draw_note_editor(Ui& ui);
// What a right click on a run offers, the name being typed in its row, and the dialogs of the others.
void draw_run_menu(Ui& ui);
void draw_run_name(Ui& ui);
void draw_run_editor(Ui& ui);
void draw_closing(Ui& ui);  // asks what becomes of the run when the window is closed

// The card of the tour's step, over everything; its keys are its own while it is shown: true.
void draw_tour(Ui& ui);
bool tour_keys(Ui& ui);

// Opens the file dialog for a purpose; what is chosen is handled by draw_dialogs.
void show_dialog(Ui& ui, DialogPurpose purpose);
// The same for a field that holds a path; `set` gets what was chosen.
void show_path_dialog(Ui& ui, FileDialog::Options options, const std::string& path,
                      std::function<void(const std::string&)> set);
void draw_dialogs(Ui& ui);

// ---- Form parts ----

// A text field that reports when editing is finished (Enter or focus lost), not at each letter.
bool committed_text(Ui& ui, const std::string& id, const std::string& hint, std::string* value,
                    float width = -1);
// The same for a path, with a button that opens a dialog; what is typed or chosen goes to `set`.
void path_field(Ui& ui, const std::string& id, const std::string& hint, const std::string& path,
                const FileDialog::Options& options, const std::function<void(const std::string&)>& set);
// A small label above a control; a problem is shown below it in the colour of errors.
void field_label(const std::string& label, const std::string& help = {});
void field_problem(const FieldProblems& problems, const std::string& key);
// A control below its label, on this line where it has room; `first`: it begins one.
void labelled(const char* label, const char* help, float width, bool first,
              const std::function<void(float)>& control);
// The fields of a cluster, named PREFIX.link and so on; they begin a line.
void cluster_fields(Ui& ui, const std::string& prefix, ScalingQuestion& question);
// What can be chosen: `own`, then those of data sheets (known_hardware), and the choice as --on takes it; empty: none of a sheet.
std::vector<std::string> processor_names(const char* own);
std::string processor_id(int chosen);
// A dropdown of suggestions beside a text field; returns the chosen one or -1.
int suggestions(const std::string& id, const std::vector<std::string>& choices);
// The pill that says whose times are shown, wherever they stand; ID.do runs the job again where they are of something else.
void times_chip(Ui& ui, const std::string& id, float room);
bool run_fits_plan(const AppState& s);  // the shown run was recorded with the very plan that stands
// Says that a time range, or the kernels chosen in the roofline, filter the view, each with an x to end it; nothing while
// nothing does. Their names are ID.range and ID.roofline.
void filter_chips(Ui& ui, const std::string& id);
// A link to a node: clickable, dimmed when the shown graphs lack it.
bool node_link(Ui& ui, const std::string& id, const std::string& node, float width = 0);
std::string joined(const std::vector<std::string>& parts, const char* separator = ", ");

}  // namespace gradloom
