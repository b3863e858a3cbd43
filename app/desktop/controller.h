// What the window can do, without a window: opening, editing the recipe with undo, re-planning in the
// background, running and comparing in child processes, exporting. Every action returns at once; `tick`
// publishes what finished.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "app/desktop/child.h"
#include "app/desktop/history.h"
#include "app/desktop/state.h"
#include "app/desktop/worker.h"
#include "app/remote/remote_session.h"
#include "app/view_exports.h"
#include "viz/model/trend_news.h"

namespace gradloom {

struct RunEvent;

class Controller {
 public:
  // `program` runs commands: the same executable. `notify` is called from background threads when `tick` has
  // something to do. `marks_folder` holds what is left on models; empty: nothing is kept. `background` holds runs
  // that go on without this process (app/background/background.h); empty: they end with it.
  Controller(std::string program, Settings settings, std::function<void()> notify,
             std::string marks_folder = {}, std::string background = {});
  ~Controller();

  const AppState& state() const { return state_; }
  AppState& edit_state() { return state_; }  // selections and settings only
  void tick();
  bool busy() const;  // background work or a child process

  void open(const std::string& path);                                     // by its kind
  void open_recipe(Recipe recipe, const std::string& session_path = {});  // and its model
  // `called`: as it is remembered among the recent files, when that is not its path.
  void open_session(const std::string& path, const std::string& called = {});
  // Of the session that is opened next: the run that is shown, and the one that it is compared with; 0: as usual.
  void want_run(std::int64_t run, std::int64_t against);
  // ssh://..: a session of another machine, on which runs run then
  void open_remote(const std::string& address);
  void set_remote_program(const std::string& program) { remote_program_ = program; }
  void locate_model(const std::string& path);  // where state().without_model's model is now
  void close_model();
  void reload_session();
  void show_run(std::int64_t id);
  void show_run_of(const std::string& session, std::int64_t id);  // opens the session, if it is another one
  void open_model_of_run();                                       // that is shown, which stays so
  void open_sample();                                             // sample_job()
  void show_beside(std::int64_t id);  // fills state().beside with another run of the session; 0: none
  // Runs of the session, beside the shown one, that have times of kernels: the newest first; and which of them the times on the
  // graph are compared with. 0: none.
  std::vector<std::int64_t> timed_runs() const;
  void time_against(std::int64_t run);
  // Fill state().curves: these runs and no others; one more or less; a session whose runs may be chosen.
  void overlay_curves(const std::vector<CurveRun>& runs);
  void overlay_curve(const CurveRun& run, bool on);
  void add_curve_session(const std::string& path);

  // One undoable change. What only concerns running (steps, data, ...) is not re-planned.
  void edit(const std::string& what, const std::function<void(Recipe&)>& change);
  void undo();
  void redo();
  bool can_undo() const { return history_.can_undo(); }
  bool can_redo() const { return history_.can_redo(); }
  void set_passes(const Pipeline& pipeline);  // named by what differs
  void set_pass(const std::string& name, bool on);
  void set_all_passes(bool on);
  void read_rules(const std::string& path);  // a file; they are switched on, those that were there go
  void remove_rules();
  void set_session(const std::string& path);
  void set_checkpoints(const CheckpointOptions& options);
  // Of a checkpoint, or of a folder of them, whose newest it is then: the recipe becomes the one that it has. Empty:
  // training begins at the start, with the recipe as it stands.
  void go_on_from(const std::string& path);

  // By field, see field_problems; "plan" and "data" from background checks
  std::map<std::string, std::string> problems() const;
  std::int64_t fields_checked() const {
    return fields_.checked;
  }                                 // how often problems() looked at the fields
  std::string run_command() const;  // what Start runs and the window shows
  // In a terminal of this machine: by ssh where it runs elsewhere
  std::string as_typed(const std::string& command) const;
  std::string compare_command(bool stored) const;  // runs A and B of the session
  std::string compare_passes_command() const;      // passes off against the recipe's
  void find_stages();                              // fills state().graphs.passes for the plan as it stands
  // What the step as it stands can be compared with: "all passes off", "before the last change", "run 3".
  std::vector<std::string> diff_sides() const;
  void diff_against(const std::string& side);  // fills state().difference; empty: no more
  void find_operators();                       // fills state().operators, once
  void find_devices();  // fills state().devices, once: in a child process, as the window calls no device
  void start_run();
  void start_compare(const std::string& command);
  std::string advise_command(bool of_run) const;  // of the shown run, else of the recipe as it stands
  void start_advice(bool of_run);
  // A finding's change as one undoable change of the recipe that stands; one of the model's file or of the data is none.
  bool can_apply(const std::string& change) const;
  void apply_change(const std::string& change);
  // Of the shown run, where it has a recipe, else of the recipe as it stands
  bool predicts_run() const;
  std::string what_if_command(const std::string& flags) const;
  void start_what_if(const std::string& flags);
  // "gradloom plan .. --ranks N ..", and what it says in state().scaling: made in the background, once for a question, a
  // plan and a shown run.
  std::string scaling_command(const ScalingQuestion& question) const;
  void find_scaling(const ScalingQuestion& question);
  // What `plan --memory-curve` says, in state().budget: made in the background, once for a recipe and a shown run. A point of
  // it as the recipe's budget; the first one: none.
  void find_budget();
  void choose_budget(std::size_t point);
  // Of the open session and those that were added: reads them in the background where they changed.
  void read_trends();
  void add_trend_session(const std::string& path);
  void remove_trend_session(const std::string& path);
  void read_scores();  // of the session's predictions, the same
  // What runs the job that was predicted, into the session; empty: no run can measure it.
  std::string measure_command(const KeptPrediction& prediction) const;
  void measure_prediction(const KeptPrediction& prediction);
  void look_for_recents();  // fills state().recents, where the list has others
  void forget_recent(const std::string& path);
  void measure_devices();  // what they reach: the roofs of the roofline

  // `over`: as tune --over takes it. Of the recipe as it stands; a search of the same job goes on from its trials.
  std::string tune_command(std::int64_t seconds, const std::string& over) const;
  std::string worth_command(std::int64_t seconds) const;  // of each pass
  void start_tune(const std::string& command);
  void show_search(const std::string& key);  // one of the session's
  // A configuration of the shown search by its changes: as a recipe, against the search's job, as the recipe that
  // stands, as a file, and kept in sight.
  Result<Recipe> tried_recipe(const std::string& changes) const;
  std::string tried_command(const std::string& changes) const;
  void apply_tried(const std::string& changes);
  void save_tried(const std::string& changes, const std::string& path);
  void pin_tried(const std::string& changes, bool on);
  std::set<std::string> pinned_tried() const;
  const std::string& recipe_hash() const;  // job_hash of the recipe as it stands
  bool tunes_recipe() const;               // the shown search is of it

  std::string verify_command() const;
  void start_verify();
  // Which runs are A and B (0: not chosen). Shows their comparison when the session has one.
  void choose_sides(std::int64_t run_a, std::int64_t run_b);
  void show_comparison(const StoredComparison& stored);
  void stop_run();  // finish the step and keep what is recorded; again: kill
  // Whether the run that is shown goes on when this object ends.
  bool outlives_window() const { return child_ && child_->background() != nullptr; }
  void open_background(const BackgroundRun& run);  // its session, where it is followed
  // The recipe as it stands, without promises; the file is then the one that Save writes.
  void save_recipe(const std::string& path);
  // The recipe of the shown run, as it was recorded, with what a replay must show.
  void export_run(const std::string& path);
  bool can_export() const;
  void report_run(const std::string& path);  // .html or .md
  // What a view shows, of what is open: made by its command in a child process, where it is not said yet. `chosen`: further words.
  ViewSource view_source(std::vector<std::string> chosen) const;
  void export_view(const ViewDef& view, const ViewSource& source, const std::string& path);  // .csv or .json
  bool shown_run_is_current() const;  // it was recorded with the recipe as it stands

  // "gradloom runs SESSION FLAG VALUE ..", and that in a child process; the session is read again then.
  std::string runs_command(const std::vector<std::string>& flags) const;
  void change_runs(const std::vector<std::string>& flags);

  // Bookmarks and notes of the open model. Notes are undone with the recipe.
  void set_bookmark(int slot, const Bookmark& bookmark);  // 1 .. kBookmarks
  void put_note(const Note& note);                        // adds, replaces by id; an empty text deletes
  void save(const Settings& settings, const std::string& path);
  // The same with anything else of the window's own; one of a kind at a time, the newest.
  void keep(const std::string& what, std::function<Status()> write);
  void forget_kept(const std::string& what);  // what is not written yet
  bool planning() const;
  bool reading() const { return reader_->busy(); }  // a session, or writing a file
  std::string running_job() const;

  void notice(NoticeKind kind, const std::string& text);
  // "gradloom COMMAND MODEL FLAGS .."; `recorded`: into the session.
  std::string job_command(const char* command, const Recipe& recipe, bool recorded) const;

 private:
  // What field_problems said of the recipe with the model: views ask in each frame.
  struct CheckedFields {
    Recipe recipe;
    std::shared_ptr<const ModelSnapshot> model;
    std::map<std::string, std::string> problems;
    std::int64_t checked = 0;
  };
  void opening_failed(const Error& error);
  void forget_other_model(bool tell);  // what is shown of another model than the one that was opened now
  void leave_run_of_other_model(std::int64_t run, bool tell);
  struct Snapshot {  // what undo restores
    Recipe recipe;
    std::shared_ptr<const Marks> marks;  // its notes
    std::string model_hash;              // whose notes they are
  };
  void load_model_of(Recipe recipe, bool keep_history, const std::string& recipe_path = {});
  Snapshot snapshot() const;
  void restore(const Snapshot& to, const std::string& what);
  void set_notes(const std::vector<Note>& notes);
  void keep_marks(Marks marks);
  void write_marks();  // at once, when they are not written yet
  void follow_run();
  void model_loaded(Recipe recipe, std::shared_ptr<const ModelSnapshot> model,
                    std::shared_ptr<const GraphSnapshot> view);
  void refresh_passes();
  void replan();
  void planned(std::shared_ptr<const GraphSnapshot> view, std::shared_ptr<const GraphSnapshot> after,
               double ms);
  void plan_baseline();
  void check_data();
  void retime();
  void make_difference();
  void apply_recipe(Recipe recipe, const std::string& what);
  void forget_runs();     // what is shown of the session's
  void forget_answers();  // comparison, search and prediction, and the runs that they are asked of
  void session_loaded(std::shared_ptr<const SessionSnapshot> session);
  void read_curves();
  void follow_curves();
  Result<std::unique_ptr<Child>> start_child(const std::vector<std::string>& arguments);
  void read_remote();
  void leave_remote();
  bool leave_other_machine();  // with what was open of it; false: a run goes on there
  void spawn(RunKind kind, const std::string& command);
  void follow_searches();
  void search_line(RunEvent& event);
  void search_ended();
  void read_child();
  void child_ended();
  void look_for_background();
  void follow_background(const BackgroundCommand& command);
  void show_followed_search();
  bool leave_run();  // it goes on in the background; false: there is one that cannot
  void set_rules(const std::string& text, const std::string& file);
  void list_devices();
  void end_run_changes();
  void end_view_export();
  void write_view_export(const ViewDef& view, const std::string& path,
                         std::function<std::vector<std::string>()> said);
  void follow_sessions();
  void list_checkpoints();
  void resume(std::shared_ptr<const ResumeFrom> from);

  AppState state_;
  std::string program_, change_what_, remote_program_ = "gradloom";
  std::unique_ptr<RemoteSession> remote_;
  std::int64_t remote_states_ = 0;  // that were read
  std::function<void()> notify_;
  History<Snapshot> history_{100};
  std::string marks_folder_, unwritten_marks_;  // path of marks that are not on disk yet; empty: all are
  std::int64_t follow_next_ns_ = 0;             // when the running run is read again
  std::string baseline_key_;
  std::shared_ptr<const GraphSnapshot> imported_;  // the model's graph, before any plan said what is trained
  std::string proving_, searching_;  // job_hash of what verify runs on, and of what tune searches
  mutable CheckedFields fields_;
  mutable Recipe hashed_;
  mutable std::string hash_;                         // of it
  std::shared_ptr<const PlanSnapshot> plan_before_;  // the last change
  std::int64_t changes_ = 0;
  std::shared_ptr<const SessionSnapshot> trends_of_, scores_of_;  // what these were read of, with:
  std::vector<std::string> trends_with_, recents_of_;
  std::int64_t wanted_run_ = 0;  // to show once the session is read again; 0: keep, -1: the newest
  std::string background_folder_;
  std::int64_t background_next_ns_ = 0;  // when it is looked at again
  std::unique_ptr<Child> child_;
  bool devices_asked_ = false, operators_asked_ = false;
  std::unique_ptr<Child> devices_child_;  // lists them
  // Command lines that are still to be run, the first one by the child
  std::vector<std::string> run_changes_;
  std::unique_ptr<Child> run_changes_child_;
  struct ViewExport {
    std::unique_ptr<Child> child;
    const ViewDef* view = nullptr;
    std::string path;
    std::vector<std::string> lines;
  };
  std::optional<ViewExport> view_export_;
  std::int64_t opened_run_ = 0, opened_against_ = 0;  // want_run's
  std::int64_t session_next_ns_ = 0;  // when the files of sessions are looked at again, which were so:
  std::map<std::string, std::string> stamps_;
  TrendNews trend_news_;
  // Two, so that a plan never waits for a session to be read. Last: their jobs publish into everything above.
  std::unique_ptr<Worker> planner_;  // models and plans
  std::unique_ptr<Worker> reader_;   // sessions, recipes and what is written
};

// The model's graph as imported, to be drawn: without costs.
std::shared_ptr<const GraphSnapshot> model_view(const ImportedModel& model);

// The recipe with everything that does not enter the plan made equal: two recipes with one key have one plan.
std::string plan_key(const Recipe& recipe);
// A side of Controller::diff_sides().
inline constexpr const char* kAllPassesOff = "all passes off";
inline constexpr std::string_view kSideOfRun = "run ";  // and its number
// The shown run, where it tells what kernels take; 0: none does.
std::int64_t timed_run(const AppState& state);
// Kernels take the times of a run of the session (0: none) where the recipe names none itself.
Recipe with_times_of(Recipe recipe, const std::string& session, std::int64_t run);

}  // namespace gradloom
