#include "app/desktop/controller.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "app/desktop/suggest.h"
#include "app/recipe_flags.h"
#include "app/replay.h"
#include "app/run_report.h"
#include "app/user_folders.h"
#include "engine/base/text.h"
#include "sessions/recipe_settings.h"
#include "sessions/find_model.h"

namespace gradloom {
namespace {

bool same_import(const Recipe& a, const Recipe& b) {
  return a.model == b.model && a.dims == b.dims && a.precision == b.precision;
}

// "fuse-gelu off", "fuse-elementwise options": what to call the change in history and reports.
std::string pipeline_change(const Pipeline& before, const Pipeline& after) {
  std::vector<std::string> changes;
  for (const PassConfig& a : before.passes) {
    const std::string name = a.def->name;
    const PassConfig* const b = after.find(name);
    if (b == nullptr)
      changes.push_back(name + " off");
    else if (a.options != b->options)
      changes.push_back(name + " options");
    else if (a.sites != b->sites)
      changes.push_back(name + " at one place");
  }
  for (const PassConfig& b : after.passes)
    if (before.find(b.def->name) == nullptr) changes.push_back(std::string(b.def->name) + " on");
  if (changes.size() == 1) return changes[0];
  return std::to_string(changes.size()) + " passes";
}

}  // namespace

Controller::Controller(std::string program, Settings settings, std::function<void()> notify,
                       std::string marks_folder, std::string background)
    : program_(std::move(program)),
      notify_(std::move(notify)),
      marks_folder_(std::move(marks_folder)),
      background_folder_(std::move(background)) {
  state_.settings = std::move(settings);
  planner_ = std::make_unique<Worker>(notify_);
  reader_ = std::make_unique<Worker>(notify_);
}

Controller::~Controller() {
  // Closed before they go: their jobs still speak to them.
  planner_->close();
  reader_->close();
  write_marks();
}

void Controller::notice(NoticeKind kind, const std::string& text) {
  if (!text.empty()) state_.notices.push_back({kind, text});
}

void Controller::opening_failed(const Error& error) {
  state_.opening = false;
  state_.open_failed = error;
  notice(NoticeKind::error, error.message);
}

void Controller::tick() {
  planner_->drain();
  reader_->drain();
  read_remote();
  read_child();
  list_devices();
  end_run_changes();
  end_view_export();
  follow_sessions();
  look_for_background();
  follow_run();
}

bool Controller::busy() const {
  return planner_->busy() || reader_->busy() || child_ != nullptr || devices_child_ != nullptr ||
         !run_changes_.empty() || view_export_ ||
         (state_.remote && !state_.remote->arrived && state_.remote->problem.empty());
}

bool Controller::planning() const { return planner_->busy_with("plan") || planner_->busy_with("model"); }

std::string Controller::running_job() const {
  const std::string reading = reader_->running();
  return reading.empty() ? planner_->running() : reading;
}

void Controller::open(const std::string& named) {
  const std::string path = file_to_open(named);
  state_.open_failed.reset();
  if (is_remote(path)) return open_remote(path);
  if (!leave_other_machine()) return;
  const FileKind kind = file_kind(path);
  if (kind == FileKind::session) return open_session(path);
  if (kind == FileKind::recipe) {
    planner_->post("model", "reading " + path, [this, path](std::stop_token) -> Worker::Publish {
      auto recipe = read_recipe(path);
      if (!recipe) return [this, error = recipe.error()] { opening_failed(error); };
      return [this, path, r = std::move(recipe).value()] {
        add_recent(state_.settings, path);
        load_model_of(r, false, path);
      };
    });
    return;
  }
  Recipe recipe;
  set_pipeline(recipe, default_pipeline());
  recipe.steps = kFirstSteps;
  recipe.model = path;
  open_recipe(std::move(recipe));
}

void Controller::open_recipe(Recipe recipe, const std::string& session_path) {
  if (!session_path.empty()) state_.session_path = session_path;
  load_model_of(std::move(recipe), false);
}

void Controller::load_model_of(Recipe recipe, bool keep_history, const std::string& recipe_path) {
  state_.opening = true;
  planner_->cancel("plan");
  const std::string doing = "reading " + recipe.model;
  planner_->post(
      "model", doing,
      [this, recipe = std::move(recipe), keep_history, recipe_path,
       folder = marks_folder_](std::stop_token stop) -> Worker::Publish {
        Recipe used = recipe;
        std::error_code ignored;
        if (const auto absolute = std::filesystem::absolute(used.model, ignored); !ignored)
          used.model = absolute.lexically_normal().string();
        auto model = load_model_snapshot(used, stop);
        if (!model) {
          return [this, error = model.error()] { opening_failed(error); };
        }
        const auto view = model_view((*model)->model);
        const auto marks =
            std::make_shared<const Marks>(load_marks(marks_file(folder, (*model)->model.content_hash)));
        return [this, used, keep_history, recipe_path, view, marks, m = std::move(model).value()] {
          const bool other = !state_.model || state_.model->model.content_hash != m->model.content_hash;
          if (other) {
            write_marks();
            state_.marks = marks;
          }
          if (!keep_history) {
            history_.clear();
            if (!remote_) add_recent(state_.settings, used.model);
          }
          model_loaded(used, m, view);
          if (keep_history) return;
          state_.recipe_path = recipe_path;
          state_.saved_recipe = state_.recipe;
        };
      });
}

void Controller::model_loaded(Recipe recipe, std::shared_ptr<const ModelSnapshot> model,
                              std::shared_ptr<const GraphSnapshot> view) {
  state_.opening = false;
  background_next_ns_ = 0;  // whose run is followed depends on what is shown
  state_.without_model.reset();
  const bool other = !state_.model || state_.model->model.content_hash != model->model.content_hash;
  const bool had_model = state_.model != nullptr;
  state_.model = std::move(model);
  if (other || !recipe.model_hash.empty()) state_.model_told = recipe.model_hash;
  if (recipe.loss.empty() && !state_.model->losses.empty()) recipe.loss = state_.model->losses.front();
  if (!recipe.model_hash.empty() && recipe.model_hash != state_.model->model.content_hash)
    notice(NoticeKind::warning, "the model is not the one of the recipe: its contents differ");
  recipe.model_hash.clear();
  state_.recipe = std::move(recipe);
  if (other) {
    if (outlives_window()) leave_run();
    state_.plan.reset();
    state_.baseline.reset();
    state_.change.reset();
    state_.graphs = {};
    baseline_key_.clear();
    forget_other_model(had_model);
    state_.progress = {};
    const auto& from = state_.checkpoints.from;
    if (!from || from->recipe.model_hash != state_.model->model.content_hash) state_.checkpoints = {};
    if (state_.session_path.empty() && !data_folder().empty())
      state_.session_path = data_folder() + "/sessions/" + model_label(state_.recipe.model) + "-" +
                            state_.model->model.content_hash.substr(0, 8) + ".db";
    reload_session();
  }
  if (const std::string why = state_.model->unplannable(); !why.empty())
    notice(NoticeKind::warning, "the model has " + why + ": it can be viewed, not trained");
  imported_ = std::move(view);
  state_.graphs.model = imported_;  // there is something to see while the step is planned
  refresh_passes();
  replan();
}

// The session stays, as the next runs are recorded into it: of its runs the newest of this model is shown, where there is one.
// A run that is the model's already stays: the model was opened for it.
void Controller::forget_other_model(bool tell) {
  reader_->cancel("run");
  const RunSummary* const shown = state_.run ? &state_.run->record.summary : nullptr;
  const bool stays = shown != nullptr && !shown->model_hash.empty() && !state_.of_other_model(*shown);
  wanted_run_ = stays ? shown->id : -1;
  if (shown != nullptr && state_.of_other_model(*shown))
    leave_run_of_other_model(shown->id, tell || shown->id == opened_run_);
  forget_answers();
  state_.difference = {};
  state_.advice = {};
}

void Controller::leave_run_of_other_model(std::int64_t run, bool tell) {
  want_run(0, 0);
  state_.run.reset();
  state_.beside.reset();
  if (tell)
    notice(NoticeKind::info,
           "Run " + std::to_string(run) + " is of another model: it stays in the list of runs");
}

void Controller::close_model() {
  if (!leave_run()) return;
  planner_->cancel("model");
  planner_->cancel("plan");
  planner_->cancel("baseline");
  write_marks();
  leave_remote();
  Settings settings = std::move(state_.settings);
  AppState fresh;  // what is about the program and not about the model stays
  fresh.settings = std::move(settings);
  fresh.devices = std::move(state_.devices);
  fresh.operators = std::move(state_.operators);
  fresh.recents = std::move(state_.recents);
  fresh.background = std::move(state_.background);
  recents_of_.clear();  // some may be gone meanwhile
  state_ = std::move(fresh);
  history_.clear();
  baseline_key_.clear();
}

// ---- The recipe ----

// Batch by batch.
static bool same_data(const Recipe& a, const Recipe& b) {
  return a.data == b.data && a.seed == b.seed && a.shuffle == b.shuffle && (a.epochs > 0) == (b.epochs > 0);
}

void Controller::apply_recipe(Recipe recipe, const std::string& what) {
  const bool import_again = !same_import(recipe, state_.recipe);
  const bool plan_again = plan_key(recipe) != plan_key(state_.recipe);
  const bool data_again = !same_data(recipe, state_.recipe) || recipe.eval_data != state_.recipe.eval_data;
  state_.recipe = recipe;
  change_what_ = what;
  refresh_passes();
  if (import_again)
    load_model_of(std::move(recipe), true);
  else if (plan_again)
    replan();
  else if (data_again)
    check_data();
}

void Controller::edit(const std::string& what, const std::function<void(Recipe&)>& change) {
  Recipe next = state_.recipe;
  change(next);
  if (next == state_.recipe) return;
  next.expect.reset();  // the promise was of another recipe
  history_.push(snapshot());
  apply_recipe(std::move(next), what);
}

void Controller::undo() {
  if (const auto back = history_.undo(snapshot())) restore(*back, "undo");
}

void Controller::redo() {
  if (const auto forward = history_.redo(snapshot())) restore(*forward, "redo");
}

Controller::Snapshot Controller::snapshot() const {
  return {state_.recipe, state_.marks, state_.model ? state_.model->model.content_hash : std::string()};
}

void Controller::restore(const Snapshot& to, const std::string& what) {
  const bool same_model = state_.model && to.model_hash == state_.model->model.content_hash;
  if (same_model && to.marks->notes != state_.marks->notes) set_notes(to.marks->notes);
  if (to.recipe != state_.recipe) apply_recipe(to.recipe, what);
}

// ---- Bookmarks and notes ----

void Controller::set_bookmark(int slot, const Bookmark& bookmark) {
  if (!state_.model || slot < 1 || slot > kBookmarks) return;
  Marks marks = *state_.marks;
  marks.bookmarks[static_cast<std::size_t>(slot - 1)] = bookmark;
  keep_marks(std::move(marks));
  notice(NoticeKind::info, "Bookmark " + std::to_string(slot) + " is this view");
}

void Controller::put_note(const Note& note) {
  if (!state_.model) return;
  std::vector<Note> notes = state_.marks->notes;
  if (gradloom::put_note(notes, note) == 0 && !note.text.empty())
    return notice(NoticeKind::error,
                  "there are " + std::to_string(kMostNotes) + " notes already: delete some");
  if (notes == state_.marks->notes) return;
  history_.push(snapshot());
  set_notes(notes);
}

void Controller::set_notes(const std::vector<Note>& notes) {
  Marks marks = *state_.marks;
  marks.notes = notes;
  keep_marks(std::move(marks));
}

void Controller::keep_marks(Marks marks) {
  state_.marks = std::make_shared<const Marks>(std::move(marks));
  const std::string path = marks_file(marks_folder_, state_.model->model.content_hash);
  if (path.empty()) return;
  unwritten_marks_ = path;
  reader_->post("marks", "writing notes",
                [this, path, kept = state_.marks](std::stop_token) -> Worker::Publish {
                  const Status saved = save_marks(*kept, path);
                  return [this, kept, saved] {
                    if (state_.marks == kept) unwritten_marks_.clear();
                    if (!saved) notice(NoticeKind::error, saved.error().message);
                  };
                });
}

void Controller::write_marks() {
  if (unwritten_marks_.empty()) return;
  if (reader_) reader_->cancel("marks");
  const Status saved = save_marks(*state_.marks, std::exchange(unwritten_marks_, {}));
  if (!saved) notice(NoticeKind::error, saved.error().message);
}

void Controller::set_passes(const Pipeline& pipeline) {
  const auto before = recipe_pipeline(state_.recipe);
  edit(before ? pipeline_change(*before, pipeline) : "passes", [&](Recipe& r) { set_pipeline(r, pipeline); });
}

void Controller::set_pass(const std::string& name, bool on) {
  const auto pipeline = recipe_pipeline(state_.recipe);
  for (const PassView& pass : state_.passes.passes)
    if (pipeline && name == pass.def->name)
      return set_passes(with_pass(*pipeline, *pass.def, on, state_.passes.rules));
}

void Controller::set_all_passes(bool on) {
  edit(on ? "default passes" : "all passes off", [&](Recipe& r) {
    const auto rules = recipe_rules(r);
    if (on)
      set_pipeline(r, default_pipeline(rules.ok() ? *rules : Rules()));
    else
      r = without_passes(r);
  });
}

void Controller::read_rules(const std::string& path) {
  state_.rules_problem.clear();
  reader_->post("rules", "reading " + path, [this, path](std::stop_token) -> Worker::Publish {
    Recipe read;  // the setting knows files and their errors
    const Status status = find_setting("rules")->set_text(read, path);
    return [this, path, status, text = read.rules] {
      if (status && text.find("->") == std::string::npos) state_.rules_problem = path + ": no rule in it";
      if (!status) state_.rules_problem = status.error().message;
      if (state_.rules_problem.empty()) set_rules(text, path);
    };
  });
}

void Controller::remove_rules() {
  state_.rules_problem.clear();
  set_rules("", "");
}

void Controller::set_rules(const std::string& text, const std::string& file) {
  edit(text.empty() ? "without rules" : "rules " + file, [&](Recipe& r) {
    const Status status = find_setting("rules")->set_text(r, text);
    CHECK(status.ok(), "rules that were read before");
  });
  state_.rules_file = file;
  state_.rules_text = state_.recipe.rules;
}

// ---- Saving and exporting ----

void Controller::save_recipe(const std::string& path) {
  Recipe recipe = state_.recipe;
  recipe.expect.reset();
  if (state_.model) recipe.model_hash = state_.model->model.content_hash;
  reader_->post("save", "writing " + path,
                [this, path, recipe, saved = state_.recipe](std::stop_token) -> Worker::Publish {
                  const Status written = write_recipe(recipe, path);
                  return [this, path, written, saved] {
                    if (!written) return notice(NoticeKind::error, written.error().message);
                    state_.recipe_path = path;
                    state_.saved_recipe = saved;
                    add_recent(state_.settings, path);
                    notice(NoticeKind::good, "Recipe saved to " + path);
                  };
                });
}

bool Controller::can_export() const {
  return state_.run && !state_.run->record.steps.empty() && state_.run->record.summary.has_recipe();
}

bool Controller::shown_run_is_current() const {
  if (!can_export()) return false;
  const auto recorded = parse_recipe(state_.run->record.recipe_json);
  return recorded && plan_key(*recorded) == plan_key(state_.recipe) && same_data(*recorded, state_.recipe);
}

void Controller::export_run(const std::string& path) {
  if (!can_export()) return notice(NoticeKind::warning, "there is no run to export: run some steps first");
  reader_->post(
      "export", "writing " + path, [this, path, run = state_.run](std::stop_token) -> Worker::Publish {
        const auto recipe = recipe_with_expectations(run->record);
        const Status written = recipe ? write_recipe(*recipe, path) : Status(recipe.error());
        return [this, path, written, id = run->record.summary.id] {
          if (!written) return notice(NoticeKind::error, written.error().message);
          notice(NoticeKind::good,
                 "Run " + std::to_string(id) + " written to " + path + ", with what a replay must show");
        };
      });
}

void Controller::report_run(const std::string& path) {
  if (!state_.run) return notice(NoticeKind::warning, "there is no run to report: run some steps first");
  const std::int64_t id = state_.run->record.summary.id;
  reader_->post("report", "writing " + path,
                [this, path, id, session = state_.session_path](std::stop_token) -> Worker::Publish {
                  const auto written = write_run_report(session, std::to_string(id), "", path);
                  const Status status = written ? Status() : Status(written.error());
                  return [this, path, id, status] {
                    if (!status) return notice(NoticeKind::error, status.error().message);
                    notice(NoticeKind::good, "Report of run " + std::to_string(id) + " written to " + path);
                  };
                });
}

void Controller::find_operators() {
  if (std::exchange(operators_asked_, true)) return;
  reader_->post("operators", "listing operators", [this](std::stop_token) -> Worker::Publish {
    auto table = std::make_shared<const std::vector<OpTableRow>>(op_table());
    return [this, table] { state_.operators = table; };
  });
}

void Controller::save(const Settings& settings, const std::string& path) {
  keep("settings", [settings, path] { return save_settings(settings, path); });
}

void Controller::keep(const std::string& what, std::function<Status()> write) {
  reader_->post(what, "saving " + what, [this, write = std::move(write)](std::stop_token) -> Worker::Publish {
    const Status saved = write();
    if (saved) return {};
    return [this, error = saved.error()] { notice(NoticeKind::error, error.message); };
  });
}

void Controller::forget_kept(const std::string& what) {
  if (reader_) reader_->cancel(what);
}

}  // namespace gradloom
