#include "app/desktop/controller.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "app/desktop/suggest.h"
#include "app/recipe_flags.h"
#include "app/replay.h"
#include "engine/base/text.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostUndo = 100;

// The recipe with everything that does not enter the plan made equal: two recipes with one key have one plan.
std::string plan_key(const Recipe& recipe) {
  Recipe key = recipe;
  for (const RecipeSetting& setting : recipe_settings())
    if (setting.effect == SettingEffect::data || setting.effect == SettingEffect::run)
      reset_setting(key, setting);
  key.model_hash.clear();
  key.expect.reset();
  return recipe_json(key);
}

bool same_import(const Recipe& a, const Recipe& b) {
  return a.model == b.model && a.dims == b.dims && a.precision == b.precision;
}

std::shared_ptr<const GraphSnapshot> make_graph(const Graph& graph, std::shared_ptr<const PlanSnapshot> plan,
                                                const std::shared_ptr<const RunSnapshot>& run) {
  auto s = std::make_shared<GraphSnapshot>();
  s->model = build_graph_model(graph, plan ? &plan->plan() : nullptr);
  if (plan && run) {
    apply_times(s->model, run->record.kernels);
    s->timed_run = run->record.summary.id;
  }
  s->plan = std::move(plan);
  return s;
}

const PassConfig* config_of(const Pipeline& pipeline, const PassDef* def) {
  for (const PassConfig& c : pipeline.passes)
    if (c.def == def) return &c;
  return nullptr;
}

// "fuse-gelu off", "fuse-elementwise options": what to call the change in history and reports.
std::string pipeline_change(const Pipeline& before, const Pipeline& after) {
  std::vector<std::string> changes;
  for (const PassDef* def : all_passes()) {
    const PassConfig *a = config_of(before, def), *b = config_of(after, def);
    if (a == nullptr && b == nullptr) continue;
    if (a == nullptr || b == nullptr)
      changes.push_back(std::string(def->name) + (b ? " on" : " off"));
    else if (a->options != b->options)
      changes.push_back(std::string(def->name) + " options");
    else if (a->excluded_sites != b->excluded_sites)
      changes.push_back(std::string(def->name) + " at one place");
  }
  if (changes.size() == 1) return changes[0];
  return std::to_string(changes.size()) + " passes";
}

}  // namespace

Controller::Controller(std::string program, Settings settings, std::function<void()> notify,
                       std::string marks_folder)
    : program_(std::move(program)), notify_(std::move(notify)), marks_folder_(std::move(marks_folder)) {
  state_.settings = std::move(settings);
  worker_ = std::make_unique<Worker>(notify_);
}

Controller::~Controller() {
  worker_.reset();
  write_marks();
}

void Controller::notice(NoticeKind kind, const std::string& text) {
  if (!text.empty()) state_.notices.push_back({kind, text});
}

void Controller::tick() {
  worker_->drain();
  read_child();
  read_devices();
  follow_run();
}

bool Controller::busy() const { return worker_->busy() || child_ != nullptr || devices_child_ != nullptr; }

void Controller::open(const std::string& path) {
  FileKind kind = file_kind(path);
  if (kind == FileKind::session) return open_session(path);
  if (kind == FileKind::recipe) {
    worker_->post("model", "reading " + path, [this, path](std::stop_token) -> Worker::Publish {
      auto recipe = read_recipe(path);
      if (!recipe) return [this, error = recipe.error()] { notice(NoticeKind::error, error.message); };
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
  worker_->cancel("plan");
  const std::string doing = "reading " + recipe.model;
  worker_->post(
      "model", doing,
      [this, recipe = std::move(recipe), keep_history, recipe_path,
       folder = marks_folder_](std::stop_token stop) -> Worker::Publish {
        Recipe used = recipe;
        std::error_code ignored;
        if (const auto absolute = std::filesystem::absolute(used.model, ignored); !ignored)
          used.model = absolute.lexically_normal().string();
        auto model = load_model_snapshot(used, stop);
        if (!model) {
          return [this, error = model.error()] {
            state_.opening = false;
            notice(NoticeKind::error, error.message);
          };
        }
        const auto marks =
            std::make_shared<const Marks>(load_marks(marks_file(folder, (*model)->model.content_hash)));
        return [this, used, keep_history, recipe_path, marks, m = std::move(model).value()] {
          const bool other = !state_.model || state_.model->model.content_hash != m->model.content_hash;
          if (other) {
            write_marks();
            state_.marks = marks;
          }
          if (!keep_history) {
            undo_.clear();
            redo_.clear();
            add_recent(state_.settings, used.model);
          }
          model_loaded(used, m);
          if (keep_history) return;
          state_.recipe_path = recipe_path;
          state_.saved_recipe = state_.recipe;
        };
      });
}

void Controller::model_loaded(Recipe recipe, std::shared_ptr<const ModelSnapshot> model) {
  state_.opening = false;
  const bool other = !state_.model || state_.model->model.content_hash != model->model.content_hash;
  state_.model = std::move(model);
  if (recipe.loss.empty() && !state_.model->losses.empty()) recipe.loss = state_.model->losses.front();
  if (!recipe.model_hash.empty() && recipe.model_hash != state_.model->model.content_hash)
    notice(NoticeKind::warning, "the model is not the one of the recipe: its contents differ");
  recipe.model_hash.clear();
  state_.recipe = std::move(recipe);
  if (other) {
    state_.plan.reset();
    state_.baseline.reset();
    state_.change.reset();
    for (auto& graph : state_.graphs) graph.reset();
    baseline_key_.clear();
    state_.comparison.reset();
    state_.progress = {};
    if (state_.session_path.empty() && !data_folder().empty())
      state_.session_path = data_folder() + "/sessions/" + model_label(state_.recipe.model) + "-" +
                            state_.model->model.content_hash.substr(0, 8) + ".db";
    reload_session();
  }
  if (const std::string why = state_.model->unplannable(); !why.empty())
    notice(NoticeKind::warning, "the model has " + why + ": it can be viewed, not trained");
  refresh_passes();
  replan();
}

void Controller::close_model() {
  if (child_) return notice(NoticeKind::warning, "a run is going on: stop it first");
  worker_->cancel("model");
  worker_->cancel("plan");
  worker_->cancel("baseline");
  write_marks();
  Settings settings = std::move(state_.settings);
  state_ = AppState();
  state_.settings = std::move(settings);
  undo_.clear();
  redo_.clear();
  baseline_key_.clear();
}

// ---- The recipe ----

void Controller::apply_recipe(Recipe recipe, const std::string& what) {
  const bool import_again = !same_import(recipe, state_.recipe);
  const bool plan_again = plan_key(recipe) != plan_key(state_.recipe);
  const bool data_again = recipe.data != state_.recipe.data || recipe.seed != state_.recipe.seed;
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
  push_undo();
  apply_recipe(std::move(next), what);
}

void Controller::undo() {
  if (undo_.empty()) return;
  redo_.push_back(snapshot());
  const Snapshot back = std::move(undo_.back());
  undo_.pop_back();
  restore(back, "undo");
}

void Controller::redo() {
  if (redo_.empty()) return;
  undo_.push_back(snapshot());
  const Snapshot forward = std::move(redo_.back());
  redo_.pop_back();
  restore(forward, "redo");
}

Controller::Snapshot Controller::snapshot() const {
  return {state_.recipe, state_.marks, state_.model ? state_.model->model.content_hash : std::string()};
}

void Controller::push_undo() {
  undo_.push_back(snapshot());
  if (undo_.size() > kMostUndo) undo_.erase(undo_.begin());
  redo_.clear();
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
  push_undo();
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
  worker_->post("marks", "writing notes",
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
  if (worker_) worker_->cancel("marks");
  const Status saved = save_marks(*state_.marks, std::exchange(unwritten_marks_, {}));
  if (!saved) notice(NoticeKind::error, saved.error().message);
}

void Controller::set_passes(const Pipeline& pipeline) {
  const auto before = recipe_pipeline(state_.recipe);
  edit(before ? pipeline_change(*before, pipeline) : "passes", [&](Recipe& r) { set_pipeline(r, pipeline); });
}

void Controller::set_pass(const std::string& name, bool on) {
  const PassDef* def = find_pass(name);
  const auto pipeline = recipe_pipeline(state_.recipe);
  if (def && pipeline) set_passes(with_pass(*pipeline, *def, on));
}

void Controller::set_all_passes(bool on) {
  edit(on ? "default passes" : "all passes off", [&](Recipe& r) {
    if (on)
      set_pipeline(r, default_pipeline());
    else
      r = without_passes(r);
  });
}

void Controller::refresh_passes() {
  const auto pipeline = recipe_pipeline(state_.recipe);
  state_.passes = build_pass_model(pipeline ? *pipeline : Pipeline(),
                                   state_.plan ? state_.plan->compiled.reports : std::vector<PassReport>());
}

// ---- Background plans ----

void Controller::replan() {
  state_.data_problem.clear();
  const auto model = state_.model;
  const Recipe recipe = state_.recipe;
  worker_->post("plan", "planning",
                [this, model, recipe, run = state_.run](std::stop_token stop) -> Worker::Publish {
                  const std::int64_t start_ns = monotonic_ns();
                  auto view = make_graph(model->model.graph, nullptr, nullptr);
                  if (const std::string why = model->unplannable(); !why.empty())
                    return [this, view, why] {
                      state_.graphs[0] = view;
                      state_.plan_error = "the model has " + why;
                    };
                  auto plan = make_plan_snapshot(model->model, recipe, stop);
                  if (!plan) {
                    return [this, view, error = plan.error()] {
                      state_.graphs[0] = view;
                      state_.plan_error = error.message;
                    };
                  }
                  auto after = make_graph((*plan)->graph(), *plan, run);
                  const double ms = static_cast<double>(monotonic_ns() - start_ns) * 1e-6;
                  return [this, view, after, ms, plan = std::move(plan).value()] {
                    state_.plan_error.clear();
                    if (state_.plan && state_.graphs[2]) {
                      const GraphDiff diff = diff_graphs(state_.graphs[2]->model, after->model);
                      state_.change = PlanChange{change_what_,
                                                 state_.plan->totals,
                                                 plan->totals,
                                                 diff.added.size(),
                                                 diff.removed.size(),
                                                 {},
                                                 {},
                                                 ms,
                                                 ++changes_};
                      const auto name = [](const GraphModel& m, std::int32_t box) {
                        return m.boxes[static_cast<std::size_t>(box)].name;
                      };
                      for (const std::int32_t box : diff.added)
                        state_.change->added_nodes.push_back(name(after->model, box));
                      for (const std::int32_t box : diff.removed)
                        state_.change->removed_nodes.push_back(name(state_.graphs[2]->model, box));
                    }
                    state_.plan = plan;
                    refresh_passes();
                    state_.graphs[0] = view;
                    state_.graphs[2] = after;
                    // The run to show may have been read while this plan was being made.
                    if (state_.run && after->timed_run != state_.run->record.summary.id) retime();
                    plan_baseline();
                    check_data();
                  };
                });
}

void Controller::plan_baseline() {
  const Recipe bare = without_passes(state_.recipe);
  const std::string key = plan_key(bare) + state_.model->model.content_hash;
  if (key == baseline_key_) return;
  worker_->post("baseline", "planning without passes",
                [this, key, bare, model = state_.model](std::stop_token stop) -> Worker::Publish {
                  auto plan = make_plan_snapshot(model->model, bare, stop);
                  if (!plan) return {};
                  auto graph = make_graph((*plan)->graph(), *plan, nullptr);
                  return [this, key, graph, p = std::move(plan).value()] {
                    baseline_key_ = key;
                    state_.baseline = p;
                    state_.graphs[1] = graph;
                  };
                });
}

void Controller::check_data() {
  if (!state_.plan) return;
  auto plan = std::make_shared<PlanSnapshot>();
  plan->recipe = state_.recipe;
  plan->inputs = state_.plan->inputs;
  worker_->post("data", "looking at the data", [this, plan](std::stop_token) -> Worker::Publish {
    return [this, problem = data_problem(*plan)] { state_.data_problem = problem; };
  });
}

// The same graph with the times of the run that is shown now.
void Controller::retime() {
  const auto graph = state_.graphs[2];
  if (!graph) return;
  worker_->post("times", "reading times",
                [this, graph, run = state_.run](std::stop_token) -> Worker::Publish {
                  auto timed = std::make_shared<GraphSnapshot>(*graph);
                  timed->timed_run = run ? run->record.summary.id : 0;
                  apply_times(timed->model, run ? run->record.kernels : std::vector<KernelRow>());
                  return [this, graph, timed] {
                    if (state_.graphs[2] == graph) state_.graphs[2] = timed;
                  };
                });
}

// ---- Saving and exporting ----

void Controller::save_recipe(const std::string& path) {
  Recipe recipe = state_.recipe;
  recipe.expect.reset();
  if (state_.model) recipe.model_hash = state_.model->model.content_hash;
  worker_->post("save", "writing " + path,
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

bool Controller::can_export() const { return state_.run && !state_.run->record.steps.empty(); }

bool Controller::shown_run_is_current() const {
  if (!can_export()) return false;
  const auto recorded = parse_recipe(state_.run->record.recipe_json);
  return recorded && plan_key(*recorded) == plan_key(state_.recipe) && recorded->data == state_.recipe.data &&
         recorded->seed == state_.recipe.seed;
}

void Controller::export_run(const std::string& path) {
  if (!can_export()) return notice(NoticeKind::warning, "there is no run to export: run some steps first");
  worker_->post(
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

void Controller::save(const Settings& settings, const std::string& path) {
  worker_->post("settings", "saving settings", [this, settings, path](std::stop_token) -> Worker::Publish {
    const Status saved = save_settings(settings, path);
    if (saved) return {};
    return [this, error = saved.error()] { notice(NoticeKind::error, error.message); };
  });
}

}  // namespace gradloom
