// Everything the window shows, as plain data. The controller changes it on the window's thread; results of
// background work arrive as immutable snapshots.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint_folder.h"
#include "app/desktop/marks.h"
#include "app/desktop/settings.h"
#include "app/desktop/snapshots.h"
#include "app/desktop/timeline_pair.h"
#include "app/rank_scaling.h"
#include "app/what_if.h"
#include "engine/onnx/read/op_table.h"
#include "sessions/compare.h"
#include "sessions/comparison_noise.h"
#include "viz/model/curves.h"
#include "viz/model/graph_diff.h"
#include "viz/model/graph_model.h"
#include "viz/model/memory_model.h"
#include "viz/model/pass_model.h"
#include "viz/model/stage_model.h"
#include "viz/model/trend.h"

namespace gradloom {

// A graph ready to be laid out and drawn.
struct GraphSnapshot {
  GraphModel model;
  std::shared_ptr<const PlanSnapshot> plan;  // null: opened for viewing, without costs
  std::int64_t timed_run = 0;                // whose times the boxes carry; 0: none
  std::int64_t other_run = 0;                // that they are compared with; 0: none
  std::shared_ptr<const StageModel> stages;  // of the graph of all stages; else null
};

// As imported; the whole step before passes; after them; pass by pass.
enum class GraphStage : std::uint8_t { model, before, after, passes };

// The graphs of the open model, by stage; null: not made yet.
struct StageGraphs {
  std::shared_ptr<const GraphSnapshot> model, before, after;
  std::shared_ptr<const GraphSnapshot> passes;  // of the plan of `after`, once it was asked for
  const std::shared_ptr<const GraphSnapshot>& at(GraphStage stage) const {
    const std::shared_ptr<const GraphSnapshot>* const by_stage[] = {&model, &before, &after, &passes};
    return *by_stage[static_cast<std::size_t>(stage)];
  }
};

// The step as it stands beside another graph: another recipe's, or as a run had it.
struct DifferenceView {
  std::string against;  // one of Controller::diff_sides(); empty: nothing is asked
  std::shared_ptr<const GraphDifference> difference;  // the other graph is A; null: being made, or `problem`
  std::string problem;
  std::shared_ptr<const PlanSnapshot> plan;  // the step that it is of
  bool marked = false;                       // in the graph
};

// What the last change of the recipe did, in numbers that need no run.
struct PlanChange {
  std::string what;  // "fuse-gelu on"
  PlanTotals before, after;
  std::size_t added = 0, removed = 0;  // nodes, by name
  std::vector<std::string> added_nodes, removed_nodes;
  double replan_ms = 0;
  std::int64_t number = 0;  // 1 for the first change of the model
};

enum class RunKind : std::uint8_t { train, compare, advise, measure, what_if, tune, worth, verify };

// A child process as seen from outside.
struct RunProgress {
  RunKind kind = RunKind::train;
  bool running = false, stopping = false;
  std::string command;
  std::int64_t run_id = 0, planned_steps = 0, step = 0;
  std::int64_t started_ns = 0, kernels_per_step = 0;
  std::int64_t run_a = 0, run_b = 0;  // compared runs of the session; 0: two settings of the recipe
  double fraction = 0;
  std::string what;          // what is looked at or measured
  double seconds_left = -1;  // of a search when its last line came, with:
  std::int64_t left_at_ns = 0;
  std::vector<double> steps, losses, step_ns, grad_norms;
  std::int64_t first_step_at_ns = 0, last_step_at_ns = 0;  // when their lines came
  std::vector<double> held_out_steps, held_out;            // losses of evaluations
  std::vector<ComparedGroup> measured;                     // of a comparison so far, with:
  RunningIntervals intervals;
  double seconds = 0, most_seconds = 0;  // of a comparison: that it measures, and may at most
  std::string outcome;                   // after the end: "done", "stopped", "failed"
  std::string error;                     // as the command line would print it
  int exit_code = 0;
};

struct ComparisonView {
  Comparison comparison;
  std::int64_t run_a = 0, run_b = 0;  // 0: not from recorded runs
};

// A finding of `advise`, as its line says it.
struct AdviceRow {
  std::string title, node, change, remedy, command;
  std::vector<std::string> numbers;
  double gain_ns = 0, gain = 0, low = 0, high = 0;  // parts of a step
  std::int64_t saved_bytes = 0;
  bool compares = false;  // its command can be started as it is
};
struct AdviceView {
  std::string command;  // that gave it; empty: none was asked for
  std::vector<AdviceRow> rows;
  std::vector<std::string> said;  // the command's lines that these are of
  double step_ns = 0;             // 0: not ended
};

// The answer of `what-if`, as its line says it.
struct WhatIfView {
  std::string command;   // that gave it; empty: nothing was asked
  std::int64_t run = 0;  // of the session, that it is of; 0: of the recipe
  std::string question, times, note;
  double before_ns = 0, after_ns = 0, low_ns = 0, high_ns = 0;  // of a step; before 0: not answered yet
  double ratio = 1, low = 1, high = 1, samples = 1, known = 1, exposed_ns = 0;
  std::int64_t before_peak_bytes = 0, after_peak_bytes = 0;
  std::vector<WhatIfPart> phases, ops;
  std::string said;  // the command's line
};

// What recompute can do for the step as it stands, whatever its memory budget.
struct BudgetView {
  // What it is of: the recipe without its budget, with the times that it has; empty: nothing was asked
  std::string key;
  std::shared_ptr<const PlanSnapshot> plan;  // with the next one, for which it was seen that it holds
  std::int64_t run = 0;                      // whose times it was to have; 0: none
  std::vector<BudgetPoint> points;           // from the largest peak on; none: being made, or `problem`
  std::string problem, times;                // times: where they come from
  std::string costs;                         // as the recipe names them; empty: estimates
};

// What more ranks are predicted to do for the step as it stands.
struct ScalingQuestion {
  std::string link = kUsualLink, local_link;  // as --link and --local-link take them; empty: the processor's
  std::int64_t ranks_per_machine = 8;         // 0: all are on one
  std::string on;                             // as --on takes it; empty: the job's processor
  bool operator==(const ScalingQuestion&) const = default;
};
std::vector<std::string> cluster_words(const ScalingQuestion& question);  // flags of plan and what-if
struct ScalingView {
  ScalingQuestion question;
  std::shared_ptr<const PlanSnapshot> plan;    // it is of; null: nothing was asked
  std::int64_t run = 0;                        // whose times it has; 0: none
  std::shared_ptr<const RankScaling> scaling;  // null: being made, or `problem`
  std::int64_t ranks = 0;                      // of the plan that was predicted from
  std::string times, problem;                  // where times of kernels come from; why there is no prediction
};

// The session of another machine that is shown: what runs, runs there.
struct RemoteView {
  std::string address;   // ssh://..
  double fraction = 0;   // of what arrives now
  bool arrived = false;  // a whole state of the session is here
  bool awaited = false;  // the far end answers, and has no session there yet
  std::string problem;   // why the connection is gone; empty: it stands
};

// The search of `tune` that is shown: one that goes on, or one that the session holds.
struct TuneView {
  std::optional<Recipe> job;  // whose it is; nothing: there is none
  std::string key;            // job_hash of it
  TuneTable table;
  WorthTable worth;         // without a step time: not measured
  double seconds_left = 0;  // of a search that was paused; 0: none was
};

// Runs from session to session.
struct TrendsView {
  std::vector<std::string> added;                    // session files beside the open one
  std::shared_ptr<const std::vector<Trend>> trends;  // null: not read yet
  std::string problem;                               // why they could not be read
};

// A run in the background that the window does not follow.
struct BackgroundRun {
  std::int64_t number = 0;         // as `gradloom background` lists it
  std::string command, session;    // as it is typed; empty: it records nothing
  std::string started, last_said;  // local time; "step 120, loss 2.31"
  bool running = false;            // else it has ended, and nobody has seen how
};

// A file of Settings::recents, as it was found on the disk.
struct RecentFile {
  bool exists = false;
  std::string when;  // last written, local time
  double bytes = 0;
};

// What training keeps to go on from, and what it goes on from.
struct HeldCheckpoint {
  std::int64_t step = 0;
  std::string path;
  std::filesystem::file_time_type written{};
};
struct ResumeFrom {
  std::string path;       // of the checkpoint
  std::int64_t step = 0;  // that were made
  Recipe recipe;          // as it has it: what the command line need not say
};
struct CheckpointState {
  CheckpointOptions options;
  std::vector<HeldCheckpoint> held;        // by the folder of `options`, the newest first
  std::shared_ptr<const ResumeFrom> from;  // null: training begins at the start
};

// Runs whose curves are drawn beside the shown one's, and sessions beside the open one that they may be chosen of.
struct CurveRun {
  std::string session;
  std::int64_t run = 0;
  bool operator==(const CurveRun&) const = default;
};
struct OverlaidRun {
  CurveRun of;
  std::shared_ptr<const RunCurves> curves;  // null: being read
};
struct CurvesView {
  std::vector<OverlaidRun> runs;  // as they were chosen
  std::vector<std::shared_ptr<const SessionSnapshot>> sessions;
  bool has(const CurveRun& run) const {
    for (const OverlaidRun& overlaid : runs)
      if (overlaid.of == run) return true;
    return false;
  }
};

enum class NoticeKind : std::uint8_t { info, good, warning, error };
struct Notice {
  NoticeKind kind = NoticeKind::info;
  std::string text;
};

// Another run below the shown one.
struct RunBeside {
  std::int64_t of_run = 0;  // the shown one, that `pair` has as A
  std::shared_ptr<const RunSnapshot> run;
  TimelinePair pair;
};

struct AppState {
  Settings settings;

  // What is open.
  Recipe recipe;            // model empty: nothing is open
  std::string recipe_path;  // file that Save writes; empty: not chosen yet
  Recipe saved_recipe;      // as the file holds it
  std::shared_ptr<const ModelSnapshot> model;
  // The hash that the recipe or run which named the model gives; the contents may be others by now.
  std::string model_told;
  std::shared_ptr<const PlanSnapshot> plan, baseline;  // baseline: the same step with all passes off
  StageGraphs graphs;
  PassModel passes;                    // switches as in the recipe, matches as in the plan
  std::string rules_file, rules_text;  // where rules were read, and what the recipe has got from there
  std::string rules_problem;           // why the file that was asked for was not read
  std::optional<PlanChange> change;
  std::shared_ptr<const Marks> marks = std::make_shared<Marks>();  // of the open model
  std::shared_ptr<const std::vector<OpTableRow>> operators;        // null: not asked for yet
  std::string plan_error;                            // why there is no plan for the recipe as it stands
  std::map<std::string, std::string> data_problems;  // by setting: data, eval_data
  CheckpointState checkpoints;
  bool opening = false;             // a model is being read
  std::vector<DeviceInfo> devices;  // as the command lists them; empty: not asked yet, or it could not be

  // The recipe of the shown session's newest run when its model is not where it was; no model is open then.
  std::optional<Recipe> without_model;

  std::optional<RemoteView> remote;  // where the session comes from; none: it is of this machine
  // What is recorded.
  std::string session_path;
  std::shared_ptr<const SessionSnapshot> session;
  std::shared_ptr<const RunSnapshot> run;   // shown in kernels, memory, timeline and on the graph
  std::shared_ptr<const RunBeside> beside;  // below it in the timeline; null: none
  std::int64_t other_run = 0;               // that times on the graph are compared with; 0: none
  // A and B mean one pair everywhere: these runs are marked in the list of runs, and `comparison` is of them.
  // 0 and 0 with a comparison: it is of two settings of the recipe, which are no runs.
  std::int64_t run_a = 0, run_b = 0;
  std::optional<ComparisonView> comparison;
  CurvesView curves;
  DifferenceView difference;
  AdviceView advice;
  WhatIfView what_if;
  ScalingView scaling;
  BudgetView budget;
  TuneView tune;
  TrendsView trends;
  std::shared_ptr<const std::vector<PredictionScore>> scores;  // null: not read yet
  std::map<std::string, RecentFile> recents;                   // by path; none: not looked for yet
  RunProgress progress;
  std::vector<BackgroundRun> background;  // the oldest first

  std::optional<Error> open_failed;  // why what was opened last could not be
  std::vector<Notice> notices;       // to be shown as toasts, oldest first
  bool has_model() const { return model != nullptr; }
  // A run that tells its model, and it is not the open one.
  bool of_other_model(const RunSummary& r) const {
    return model && !r.model_hash.empty() && r.model_hash != model->model.content_hash &&
           r.model_hash != model_told;
  }
  // The shown run where its times may stand for the open model's; else null.
  std::shared_ptr<const RunSnapshot> own_run() const {
    return run && !of_other_model(run->record.summary) ? run : nullptr;
  }
  bool unsaved() const { return !recipe_path.empty() && recipe != saved_recipe; }
};

const RunSummary* find_run(const AppState& s, std::int64_t id);  // of the session; null: there is none

}  // namespace gradloom
