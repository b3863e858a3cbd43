// The controller's sessions, runs and comparisons.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/advice/advice.h"
#include "app/checkpoint_folder.h"
#include "app/desktop/controller.h"
#include "app/desktop/run_events.h"
#include "app/desktop/suggest.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"

namespace gradloom {
namespace {

// Between two readings of the running run: at least this, and so many times what a reading took.
constexpr std::int64_t kPauseNs = 2'000'000'000, kFollowPauses = 30;
constexpr std::size_t kMostLines = 5000;  // of a run, in one frame

// What is recorded in a session is found again there; the others answer in seconds.
bool goes_on(RunKind kind, const std::vector<std::string>& arguments) {
  const bool kept =
      kind == RunKind::train || kind == RunKind::compare || kind == RunKind::tune || kind == RunKind::worth;
  return kept && std::find(arguments.begin(), arguments.end(), "--session") != arguments.end();
}

// The job of a run on its model as it lies now. Without a model: the run is of no recipe, or `missing` says where it was.
struct JobOfRun {
  Recipe recipe;
  std::string missing;
};
JobOfRun find_job(const RunRecord& run, const std::string& session) {
  if (!run.summary.has_recipe()) return {};
  const FoundModel model = find_model(run, session);
  auto recipe = parse_recipe(run.recipe_json);
  JobOfRun job;
  if (model.state == FoundModel::State::none) job.missing = model_note(model, run);
  if (!recipe) return job;
  job.recipe = std::move(recipe).value();
  job.recipe.model = model.path;
  job.recipe.model_hash = run.summary.model_hash;
  return job;
}

std::string passes_text(const Recipe& recipe) {
  const auto pipeline = recipe_pipeline(recipe);
  if (!pipeline) return "default";
  const std::string text = pipeline->text();
  if (text == default_pipeline().text()) return "default";
  return text.empty() ? "none" : text;
}

}  // namespace

// ---- Sessions ----

const RunSummary* find_run(const AppState& s, std::int64_t id) {
  if (!s.session) return nullptr;
  const auto& runs = s.session->runs;
  const auto at = std::find_if(runs.begin(), runs.end(), [id](const RunSummary& r) { return r.id == id; });
  return at == runs.end() ? nullptr : &*at;
}

void Controller::set_session(const std::string& path) {
  if (path == state_.session_path) return;
  if (remote_) return notice(NoticeKind::warning, "close the session of the other machine first");
  want_run(0, 0);
  state_.session_path = path;
  background_next_ns_ = 0;
  state_.session.reset();
  forget_runs();
  retime();
  reload_session();
}

void Controller::forget_runs() {
  state_.run.reset();
  state_.curves = {};
  forget_answers();
}

void Controller::forget_answers() {
  state_.run_a = state_.run_b = 0;
  state_.other_run = 0;
  state_.comparison.reset();
  state_.tune = {};
  state_.what_if = {};
}

void Controller::want_run(std::int64_t run, std::int64_t against) {
  opened_run_ = run;
  opened_against_ = against;
}

void Controller::open_session(const std::string& path, const std::string& called) {
  reader_->post("session", "reading " + path,
                [this, path, called, wanted = opened_run_](std::stop_token) -> Worker::Publish {
                  auto session = load_session_snapshot(path);
                  if (!session) return [this, error = session.error()] { opening_failed(error); };
                  // The newest run says which model to open; of another profiler's, the newest of ours beside it.
                  JobOfRun job;
                  const auto& runs = (*session)->runs;
                  const auto tells = std::find_if(runs.begin(), runs.end(), [wanted](const RunSummary& r) {
                    return wanted > 0 ? r.id == wanted : !r.is_import();
                  });
                  if (tells != runs.end()) {
                    const auto say = [this](const char* what) { reader_->say(what); };
                    if (auto run = load_run_snapshot(path, tells->id, say))
                      job = find_job((*run)->record, path);
                  }
                  return [this, path, called, job, s = std::move(session).value()] {
                    add_recent(state_.settings, called.empty() ? path : called);
                    if (!state_.session_path.empty() && path != state_.session_path) want_run(0, 0);
                    state_.session_path = path;
                    forget_runs();
                    wanted_run_ = -1;
                    session_loaded(s);
                    state_.without_model.reset();
                    if (job.missing.empty() && !job.recipe.model.empty()) return open_recipe(job.recipe);
                    if (job.missing.empty()) return;
                    state_.without_model = job.recipe;
                    notice(NoticeKind::warning, job.missing);
                  };
                });
}

void Controller::open_model_of_run() {
  if (!state_.run) return;
  reader_->post("job of run", "looking for the run's model",
                [this, run = state_.run](std::stop_token) -> Worker::Publish {
                  const JobOfRun job = find_job(run->record, run->session_path);
                  return [this, job] {
                    if (!job.missing.empty()) return notice(NoticeKind::warning, job.missing);
                    if (!job.recipe.model.empty()) open_recipe(job.recipe);
                  };
                });
}

void Controller::locate_model(const std::string& path) {
  if (!state_.without_model) return;
  Recipe recipe = *state_.without_model;
  recipe.model = path;
  open_recipe(std::move(recipe));
}

void Controller::reload_session() {
  const std::string path = state_.session_path;
  if (path.empty()) return;
  reader_->post("session", "reading " + path, [this, path](std::stop_token) -> Worker::Publish {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return {};
    auto session = load_session_snapshot(path);
    if (!session) return [this, error = session.error()] { notice(NoticeKind::error, error.message); };
    return [this, path, s = std::move(session).value()] {
      if (path == state_.session_path) session_loaded(s);
    };
  });
}

void Controller::session_loaded(std::shared_ptr<const SessionSnapshot> session) {
  state_.session = std::move(session);
  const auto& runs = state_.session->runs;
  std::vector<std::int64_t> of_model;  // runs of the open model, newest first; all when none is open
  for (const RunSummary& r : runs)
    if (!state_.model || (!r.model_hash.empty() && !state_.of_other_model(r))) of_model.push_back(r.id);
  const auto known = [&](std::int64_t id) { return find_run(state_, id) != nullptr; };
  const auto gone = [&](std::int64_t id) { return id != 0 && !known(id); };
  if (state_.comparison && (gone(state_.comparison->run_a) || gone(state_.comparison->run_b)))
    state_.comparison.reset();
  const auto& comparisons = state_.session->comparisons;
  const auto stranger = [&](std::int64_t id) {
    const RunSummary* const run = find_run(state_, id);
    return run != nullptr && state_.of_other_model(*run);
  };
  const auto newest_pair =
      std::find_if(comparisons.begin(), comparisons.end(),
                   [&](const StoredComparison& c) { return !stranger(c.run_a) && !stranger(c.run_b); });
  if (!state_.comparison && newest_pair != comparisons.end() && !known(state_.run_a) &&
      !known(state_.run_b)) {
    show_comparison(*newest_pair);
  } else if (!state_.comparison) {
    const auto nth = [&](std::size_t i) { return i < of_model.size() ? of_model[i] : 0; };
    const std::int64_t b = known(state_.run_b) ? state_.run_b : nth(0);
    choose_sides(known(state_.run_a) ? state_.run_a : nth(b == nth(1) ? 0 : 1), b);
  }
  // What is shown of a run that was deleted goes with it.
  if (state_.run && state_.run->session_path == state_.session_path &&
      !known(state_.run->record.summary.id)) {
    state_.run.reset();
    retime();
  }
  if (state_.beside && (!state_.run || !known(state_.beside->run->record.summary.id))) state_.beside.reset();
  if (stranger(opened_run_)) leave_run_of_other_model(opened_run_, true);
  const bool coming = remote_ && wanted_run_ > 0 && !known(wanted_run_);  // from the other machine
  const bool newest = wanted_run_ == -1 || !state_.run;
  const std::int64_t usual = known(opened_run_) ? opened_run_ : of_model.empty() ? 0 : of_model[0];
  const std::int64_t wanted = wanted_run_ > 0 && known(wanted_run_) ? wanted_run_ : newest ? usual : 0;
  if (newest && known(opened_run_) && known(opened_against_)) choose_sides(opened_against_, opened_run_);
  if (!coming) wanted_run_ = 0;
  if (wanted != 0) show_run(wanted);
  follow_searches();
  follow_curves();
}

void Controller::choose_sides(std::int64_t run_a, std::int64_t run_b) {
  state_.run_a = run_a;
  state_.run_b = run_b;
  state_.comparison.reset();
  if (!state_.session || run_a == 0 || run_b == 0) return;
  for (const StoredComparison& c : state_.session->comparisons)
    if (c.run_a == run_a && c.run_b == run_b) return show_comparison(c);
}

void Controller::show_comparison(const StoredComparison& stored) {
  state_.run_a = stored.run_a;
  state_.run_b = stored.run_b;
  state_.comparison = ComparisonView{stored.comparison, stored.run_a, stored.run_b};
}

void Controller::show_run(std::int64_t id) {
  const std::string path = state_.session_path;
  reader_->post(
      "run", "reading run " + std::to_string(id), [this, path, id](std::stop_token) -> Worker::Publish {
        auto run = load_run_snapshot(path, id, [this](const char* what) { reader_->say(what); });
        if (!run) return [this, error = run.error()] { notice(NoticeKind::error, error.message); };
        return [this, r = std::move(run).value()] {
          state_.run = r;
          retime();
          if (!state_.beside) return;
          const std::int64_t below = state_.beside->run->record.summary.id, shown = r->record.summary.id;
          if (state_.beside->of_run != shown) show_beside(below == shown ? state_.beside->of_run : below);
        };
      });
}

void Controller::show_beside(std::int64_t id) {
  state_.beside.reset();
  reader_->cancel("beside");
  if (id == 0 || !state_.run) return;
  reader_->post(
      "beside", "reading run " + std::to_string(id),
      [this, path = state_.session_path, id, shown = state_.run](std::stop_token) -> Worker::Publish {
        auto made = [&]() -> Result<RunBeside> {
          auto run = TRY(load_run_snapshot(path, id));
          auto pair = TRY(pair_runs(shown->record, run->record));
          return RunBeside{shown->record.summary.id, run, std::move(pair)};
        }();
        if (!made) return [this, error = made.error()] { notice(NoticeKind::error, error.message); };
        auto beside = std::make_shared<const RunBeside>(std::move(made).value());
        return [this, beside] { state_.beside = beside; };
      });
}

// ---- Checkpoints ----

void Controller::set_checkpoints(const CheckpointOptions& options) {
  const bool other = options.folder != state_.checkpoints.options.folder;
  state_.checkpoints.options = options;
  if (!other) return;
  state_.checkpoints.held.clear();
  list_checkpoints();
}

void Controller::list_checkpoints() {
  if (remote_) return;  // they are on the other machine
  const std::string folder = state_.checkpoints.options.folder;
  reader_->post("checkpoints", "listing checkpoints", [this, folder](std::stop_token) -> Worker::Publish {
    std::vector<HeldCheckpoint> held;
    for (const std::int64_t step : checkpoint_steps(folder)) {
      std::string path = checkpoint_path(folder, step);
      std::error_code ignored;
      const auto written = std::filesystem::last_write_time(path, ignored);
      held.insert(held.begin(), {step, std::move(path), written});
    }
    return [this, folder, held] {
      if (folder == state_.checkpoints.options.folder) state_.checkpoints.held = held;
    };
  });
}

void Controller::go_on_from(const std::string& path) {
  if (path.empty()) return state_.checkpoints.from.reset();
  if (remote_)
    return notice(NoticeKind::warning, "checkpoints of the other machine cannot be read from here");
  reader_->post("resume", "reading " + path, [this, path](std::stop_token) -> Worker::Publish {
    const auto checkpoint = open_checkpoint(path);
    if (!checkpoint) return [this, error = checkpoint.error()] { notice(NoticeKind::error, error.message); };
    auto from =
        std::make_shared<ResumeFrom>(ResumeFrom{checkpoint->path, checkpoint->step, checkpoint->recipe});
    return [this, from] { resume(from); };
  });
}

// The form takes the settings of the checkpoint, so that what it shows is what the run takes. A training that has
// made all its steps goes on for as many as the form says.
void Controller::resume(std::shared_ptr<const ResumeFrom> from) {
  Recipe next = from->recipe;
  next.expect.reset();
  next.import_limits = state_.recipe.import_limits;
  if (next.steps <= from->step)
    next.steps = state_.recipe.steps > from->step ? state_.recipe.steps : from->step + state_.recipe.steps;
  if (state_.model && next.model_hash == state_.model->model.content_hash) {  // the file may have moved
    next.model = state_.recipe.model;
    next.model_hash.clear();
  }
  const std::string what = "go on from step " + std::to_string(from->step);
  state_.checkpoints.from = std::move(from);
  edit(what, [&](Recipe& r) { r = next; });
}

// ---- Runs ----

std::map<std::string, std::string> Controller::problems() const {
  if (fields_.checked == 0 || fields_.model != state_.model || fields_.recipe != state_.recipe)
    fields_ = {
        state_.recipe, state_.model,
        field_problems(state_.recipe, state_.model ? state_.model->symbols : std::vector<std::string>()),
        fields_.checked + 1};
  auto problems = fields_.problems;
  if (!state_.plan_error.empty()) problems["plan"] = state_.plan_error;
  problems.insert(state_.data_problems.begin(), state_.data_problems.end());
  if (state_.session_path.empty()) problems["session"] = "choose a file to record into";
  for (const DeviceInfo& d : state_.devices)
    if (d.id == state_.recipe.device && !d.available) problems["device"] = d.why_not;
  const CheckpointState& c = state_.checkpoints;
  const std::int64_t made = c.from ? c.from->step : 0;
  if (!c.held.empty() && c.held.front().step > made)
    problems["checkpoint"] = "the folder holds step " + std::to_string(c.held.front().step) +
                             ": go on from it, or name another folder";
  else if (c.from && state_.recipe.steps <= made)
    problems["checkpoint"] =
        std::to_string(made) + " steps are made: Steps counts from the start and must be more";
  return problems;
}

std::string Controller::run_command() const {
  const CheckpointState& c = state_.checkpoints;
  return command_line(state_.recipe, {state_.session_path, c.options, c.from ? c.from->path : "",
                                      c.from ? &c.from->recipe : nullptr});
}

std::string Controller::compare_command(bool stored) const {
  return "gradloom compare " + std::to_string(state_.run_a) + " " + std::to_string(state_.run_b) +
         " --session " + shell_quoted(state_.session_path) + (stored ? " --stored" : "");
}

// "gradloom COMMAND MODEL FLAGS .."; `recorded`: into the session.
std::string Controller::job_command(const char* command, const Recipe& recipe, bool recorded) const {
  const std::string train = "gradloom train ";
  RunFlags flags;
  if (recorded) flags.session = state_.session_path;
  return std::string("gradloom ") + command + " " + command_line(recipe, flags).substr(train.size());
}

std::string Controller::compare_passes_command() const {
  Recipe base = state_.recipe;
  set_pipeline(base, default_pipeline());  // the sides say which passes
  return job_command("compare", base, true) + " --a passes=none --b " +
         shell_quoted("passes=" + passes_text(state_.recipe));
}

void Controller::start_run() {
  if (child_) return notice(NoticeKind::warning, "a run is going on already");
  if (!state_.model) return notice(NoticeKind::warning, "open a model first");
  const auto wrong = problems();
  if (!wrong.empty()) return notice(NoticeKind::error, wrong.begin()->first + ": " + wrong.begin()->second);
  spawn(RunKind::train, run_command());
}

void Controller::start_compare(const std::string& command) {
  if (child_) return notice(NoticeKind::warning, "a run is going on already");
  spawn(RunKind::compare, command);
}

std::string Controller::advise_command(bool of_run) const {
  if (const auto run = state_.own_run(); of_run && run)
    return "gradloom advise " + shell_quoted(state_.session_path) + " --run " +
           std::to_string(run->record.summary.id);
  return job_command("advise", state_.recipe, false);
}

void Controller::start_advice(bool of_run) {
  if (child_) return notice(NoticeKind::warning, "a run is going on already");
  state_.advice = {.command = advise_command(of_run)};
  spawn(RunKind::advise, state_.advice.command);
}

bool Controller::can_apply(const std::string& change) const {
  // Synthetic data are for measuring alone.
  return state_.model && !change.empty() && change != kEditedModel &&
         change.find("data=synthetic") == std::string::npos;
}

void Controller::apply_change(const std::string& change) {
  Recipe recipe = state_.recipe;
  if (const Status read = RecipeFlags::override_with(recipe, change); !read)
    return notice(NoticeKind::error, read.error().message);
  if (recipe == state_.recipe)
    return notice(NoticeKind::info, "The recipe has this change already: " + change);
  edit(change, [&](Recipe& r) { r = recipe; });
  notice(NoticeKind::good, "The recipe is now with " + change + "; undo takes it back");
}

bool Controller::predicts_run() const {
  const auto run = state_.own_run();
  return run && run->record.summary.has_recipe();
}

std::string Controller::what_if_command(const std::string& flags) const {
  const std::string advise = "gradloom advise ";
  const bool of_run = predicts_run();
  return "gradloom what-if " + advise_command(of_run).substr(advise.size()) + " " + flags;
}

void Controller::start_what_if(const std::string& flags) {
  if (child_) return notice(NoticeKind::warning, "a run is going on already");
  state_.what_if = {.command = what_if_command(flags),
                    .run = predicts_run() ? state_.run->record.summary.id : 0};
  spawn(RunKind::what_if, state_.what_if.command);
}

void Controller::measure_devices() {
  if (child_) return notice(NoticeKind::warning, "a run is going on already");
  spawn(RunKind::measure, "gradloom devices --measure");
}

void Controller::spawn(RunKind kind, const std::string& command) {
  auto words = split_command_line(command);
  if (!words) return notice(NoticeKind::error, words.error().message);
  std::vector<std::string> arguments(words->begin() + 1, words->end());
  arguments.emplace_back("--json");
  for (const RunKind tells :
       {RunKind::compare, RunKind::advise, RunKind::tune, RunKind::worth, RunKind::verify})
    if (kind == tells) arguments.emplace_back("--progress");
  state_.progress = {};
  RunProgress& p = state_.progress;
  p.kind = kind;
  p.command = command;
  p.planned_steps = state_.recipe.steps;
  p.started_ns = monotonic_ns();
  if (command == compare_command(false) || command == compare_command(true)) {
    p.run_a = state_.run_a;
    p.run_b = state_.run_b;
  }
  // The verdict that was shown is of another measurement: it goes when a new one begins. Settings that are
  // compared are no runs, so none is marked.
  if (kind == RunKind::compare) {
    state_.run_a = p.run_a;
    state_.run_b = p.run_b;
    state_.comparison.reset();
  }
  p.running = true;
  const std::string folder = std::filesystem::path(state_.session_path).parent_path().string();
  const bool stays = !remote_ && !background_folder_.empty() && goes_on(kind, arguments);
  reader_->post("start", "starting",
                [this, folder, arguments, note = searching_,
                 root = stays ? background_folder_ : std::string()](std::stop_token) -> Worker::Publish {
                  std::error_code error;
                  if (!folder.empty()) std::filesystem::create_directories(folder, error);
                  const auto failed = [this](const Error& why) {
                    state_.progress.running = false;
                    state_.progress.outcome = "failed";
                    state_.progress.error = why.message;
                    notice(NoticeKind::error, why.message);
                  };
                  if (error)
                    return [failed, why = Error{Errc::io, folder + ": " + error.message()}] { failed(why); };
                  std::optional<Result<BackgroundCommand>> kept;
                  if (!root.empty()) kept = start_in_background(root, program_, arguments, note);
                  return [this, failed, arguments, kept] {
                    auto child = !kept   ? start_child(arguments)
                                 : *kept ? Child::follow(**kept, notify_)
                                         : Result<std::unique_ptr<Child>>(kept->error());
                    if (!child) return failed(child.error());
                    child_ = std::move(child).value();
                  };
                });
}

void Controller::find_devices() {
  if (std::exchange(devices_asked_, true)) return;
  auto child = start_child({"devices", "--json"});
  if (child) devices_child_ = std::move(child).value();
}

void Controller::list_devices() {
  if (!devices_child_ || devices_child_->running()) return;
  state_.devices = read_devices(devices_child_->take_lines());
  devices_child_.reset();
}

// ---- What is said of runs ----

std::string Controller::runs_command(const std::vector<std::string>& flags) const {
  std::string command = "gradloom runs " + shell_quoted(state_.session_path);
  for (const std::string& word : flags) command += " " + shell_quoted(word);
  return command;
}

void Controller::change_runs(const std::vector<std::string>& flags) {
  run_changes_.push_back(runs_command(flags));
  end_run_changes();
}

// One after the other, as they were asked for: each is a command line that could be typed.
void Controller::end_run_changes() {
  if (run_changes_child_) {
    if (run_changes_child_->running()) return;
    const ChildExit exit = run_changes_child_->exit();
    for (const std::string& line : run_changes_child_->take_lines())
      if (const std::int64_t run = changed_run(line); state_.run && run == state_.run->record.summary.id)
        wanted_run_ = run;
    run_changes_child_.reset();
    notice(exit.ok() ? NoticeKind::good : NoticeKind::error, exit.ok() ? run_changes_.front() : exit.error);
    run_changes_.erase(run_changes_.begin());
    reload_session();
  }
  while (!run_changes_.empty() && !run_changes_child_) {
    auto words = split_command_line(run_changes_.front());
    if (words) words->push_back("--json");
    auto child = words ? start_child({words->begin() + 1, words->end()})
                       : Result<std::unique_ptr<Child>>(words.error());
    if (child) {
      run_changes_child_ = std::move(child).value();
      return;
    }
    notice(NoticeKind::error, child.error().message);
    run_changes_.erase(run_changes_.begin());
  }
}

void Controller::stop_run() {
  if (!child_) return;
  if (state_.progress.stopping)
    child_->kill();
  else
    child_->interrupt();
  state_.progress.stopping = true;
}

void Controller::read_child() {
  if (!child_) return;
  const bool over = !child_->running();  // before taking: nothing can come after
  RunProgress& p = state_.progress;
  for (const std::string& line : child_->take_lines(kMostLines)) {
    RunEvent event = read_run_line(line, p);
    if (event.notice) state_.notices.push_back(*event.notice);
    if (event.checkpoint) list_checkpoints();
    if (event.finding || event.advised_step_ns > 0) state_.advice.said.push_back(line);
    if (event.finding) state_.advice.rows.push_back(std::move(*event.finding));
    if (event.answer) {
      event.answer->command = std::move(state_.what_if.command);
      event.answer->run = state_.what_if.run;
      event.answer->said = line;
      state_.what_if = std::move(*event.answer);
    }
    if (event.advised_step_ns > 0) state_.advice.step_ns = event.advised_step_ns;
    search_line(event);
    if (event.comparison) state_.comparison = ComparisonView{std::move(*event.comparison), p.run_a, p.run_b};
  }
  const bool all = child_->all_taken();
  if (over && all) child_ended();
  if (!all && notify_) notify_();
}

// The run that goes on, as far as the session holds it. Reading costs time that the run may need, so the
// pause between two readings is long against one of them.
void Controller::follow_run() {
  const RunProgress& p = state_.progress;
  if (!state_.settings.follow_run || !p.running || p.kind != RunKind::train || p.run_id <= 0) return;
  if (monotonic_ns() < follow_next_ns_ || reader_->busy_with("run")) return;
  follow_next_ns_ = monotonic_ns() + kPauseNs;
  reader_->post("run", "reading run " + std::to_string(p.run_id),
                [this, path = state_.session_path, id = p.run_id](std::stop_token) -> Worker::Publish {
                  const std::int64_t start_ns = monotonic_ns();
                  auto run = load_run_snapshot(path, id);
                  const std::int64_t took_ns = monotonic_ns() - start_ns;
                  if (!run || (*run)->record.steps.empty()) return {};  // nothing is committed yet
                  return [this, path, took_ns, r = std::move(run).value()] {
                    follow_next_ns_ = monotonic_ns() + std::max(kPauseNs, kFollowPauses * took_ns);
                    if (path == state_.session_path)
                      state_.run =
                          r;  // times on the graph come when the run has ended: they need a new layout
                  };
                });
}

void Controller::child_ended() {
  const ChildExit exit = child_->exit();
  // Its end is seen: another window that follows it has the files open.
  if (const BackgroundCommand* kept = child_->background()) (void)forget_background(*kept);
  child_.reset();
  RunProgress& p = state_.progress;
  std::optional<Verdict> verdict;
  if (p.kind == RunKind::compare && state_.comparison) verdict = state_.comparison->comparison.verdict;
  const Notice said = end_run(exit, verdict, p);
  notice(said.kind, said.text);
  search_ended();
  if (p.kind == RunKind::train && p.run_id > 0) {
    if (state_.settings.follow_run) wanted_run_ = p.run_id;
    // The newest pair stands ready to be compared, but does not push the comparison of two settings away.
    const bool of_settings = state_.comparison && state_.run_b == 0;
    if (state_.run_b != p.run_id && !of_settings)
      choose_sides(state_.run_b != 0 ? state_.run_b : state_.run_a, p.run_id);
  }
  reload_session();
}

}  // namespace gradloom
