// The controller's searches and proofs: `tune` and `verify` in child processes, what the session holds of searches, and what
// is done with a configuration that was found.
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/desktop/controller.h"
#include "app/desktop/run_events.h"
#include "app/recipe_flags.h"
#include "app/verify.h"
#include "engine/base/text.h"

namespace gradloom {

std::string Controller::tune_command(std::int64_t seconds, const std::string& over) const {
  return job_command("tune", state_.recipe, true) + " --over " + shell_quoted(over) + " --seconds " +
         std::to_string(seconds);
}

std::string Controller::worth_command(std::int64_t seconds) const {
  return job_command("tune", state_.recipe, true) + " --worth --seconds " + std::to_string(seconds);
}

// What is shown of the job stays while more of it is measured; another job begins anew.
void Controller::start_tune(const std::string& command) {
  if (child_) return notice(NoticeKind::warning, "a run is going on already");
  if (!state_.model) return notice(NoticeKind::warning, "open a model first");
  auto wrong = problems();
  wrong.erase("checkpoint");  // a search neither reads nor writes any
  if (!wrong.empty()) return notice(NoticeKind::error, wrong.begin()->first + ": " + wrong.begin()->second);
  const std::string key = recipe_hash();
  if (state_.tune.key != key) state_.tune = {};
  state_.tune.key = searching_ = key;
  state_.tune.job = state_.recipe;
  state_.tune.seconds_left = 0;
  const bool worth = command.find(" --worth ") != std::string::npos;
  spawn(worth ? RunKind::worth : RunKind::tune, command);
}

void Controller::show_search(const std::string& key) {
  if (!state_.session) return;
  for (const KeptSearch& kept : state_.session->searches)
    if (kept.key == key) {
      state_.tune = {kept.job, kept.key, kept.search.table, kept.worth};
      return;
    }
}

const std::string& Controller::recipe_hash() const {
  if (hash_.empty() || hashed_ != state_.recipe) {  // asked for in every frame
    hashed_ = state_.recipe;
    hash_ = job_hash(hashed_);
  }
  return hash_;
}

bool Controller::tunes_recipe() const { return state_.tune.job && recipe_hash() == state_.tune.key; }

// A session was read: the search that is shown gets what it does not know; where none is, the one of the recipe is
// shown, else the newest of the model.
void Controller::follow_searches() {
  const bool searching =
      child_ && (state_.progress.kind == RunKind::tune || state_.progress.kind == RunKind::worth);
  if (!state_.model || searching) return;
  const KeptSearch* shown = nullptr;
  const std::string wanted = state_.tune.job ? state_.tune.key : recipe_hash();
  for (const KeptSearch& kept : state_.session->searches) {
    if (kept.key == wanted) {
      shown = &kept;
      break;
    }
    if (!state_.tune.job && shown == nullptr && kept.job.model == state_.recipe.model &&
        kept.search.table.measured() > 0)
      shown = &kept;
  }
  if (shown == nullptr) return;
  if (!state_.tune.job) {
    state_.tune.job = shown->job;
    state_.tune.key = shown->key;
  }
  // Lines of the search itself tell of more: what was not measured, too.
  std::vector<TuneTableRow> fresh;
  for (const TuneTableRow& row : shown->search.table.rows()) {
    const TuneTableRow* const known = state_.tune.table.find(row.changes);
    if (known == nullptr || known->round < row.round) fresh.push_back(row);
  }
  if (!fresh.empty()) state_.tune.table.put(fresh);
  if (!state_.tune.worth.all.measured()) state_.tune.worth = shown->worth;
}

void Controller::search_line(RunEvent& event) {
  // Where another search is shown meanwhile, the session tells of this one.
  const bool shown = state_.tune.key == searching_;
  if (event.tried && shown) state_.tune.table.put(std::move(*event.tried));
  if (event.worth && shown && event.worth->step_ns > 0) state_.tune.worth = std::move(*event.worth);
  if (!event.proof || !state_.model) return;
  event.proof->job = proving_;
  event.proof->created_utc = utc_timestamp();
  Marks marks = *state_.marks;
  put_proof(marks.proofs, std::move(*event.proof));
  keep_marks(std::move(marks));
}

// A search that was stopped goes on for what its time had left.
void Controller::search_ended() {
  const RunProgress& p = state_.progress;
  if (p.kind != RunKind::tune || p.outcome != "stopped" || p.seconds_left < 0 ||
      state_.tune.key != searching_)
    return;
  const double since = static_cast<double>(monotonic_ns() - p.left_at_ns) * 1e-9;
  state_.tune.seconds_left = std::max(1.0, p.seconds_left - since);
}

// ---- A configuration that was found ----

Result<Recipe> Controller::tried_recipe(const std::string& changes) const {
  if (!state_.tune.job) return Error{Errc::usage, "no search is shown"};
  Recipe recipe = *state_.tune.job;
  TRY(RecipeFlags::override_with(recipe, changes));
  recipe.expect.reset();
  recipe.steps = state_.recipe.steps;
  return recipe;
}

std::string Controller::tried_command(const std::string& changes) const {
  return job_command("compare", state_.tune.job ? *state_.tune.job : state_.recipe, true) + " --b " +
         shell_quoted(changes);
}

void Controller::apply_tried(const std::string& changes) {
  const auto recipe = tried_recipe(changes);
  if (!recipe) return notice(NoticeKind::error, recipe.error().message);
  const TuneTableRow* const row = state_.tune.table.find(changes);
  const std::string what = row == nullptr || row->is_job() ? "the job of the search" : row->label;
  edit(what, [&](Recipe& r) {
    const auto limits = r.import_limits;
    r = *recipe;
    r.import_limits = limits;
  });
  notice(NoticeKind::good, "The recipe is now: " + what + "; undo takes it back");
}

void Controller::save_tried(const std::string& changes, const std::string& path) {
  auto recipe = tried_recipe(changes);
  if (!recipe) return notice(NoticeKind::error, recipe.error().message);
  if (state_.model) recipe->model_hash = state_.model->model.content_hash;
  reader_->post("save", "writing " + path,
                [this, path, r = std::move(recipe).value()](std::stop_token) -> Worker::Publish {
                  const Status written = write_recipe(r, path);
                  return [this, path, written] {
                    if (!written) return notice(NoticeKind::error, written.error().message);
                    notice(NoticeKind::good, "Recipe written to " + path);
                  };
                });
}

void Controller::pin_tried(const std::string& changes, bool on) {
  if (!state_.model || !state_.tune.job) return;
  Marks marks = *state_.marks;
  const Pin pin{state_.tune.key, changes};
  std::erase(marks.pins, pin);
  if (on && marks.pins.size() >= kMostPins)
    return notice(NoticeKind::error,
                  "there are " + std::to_string(kMostPins) + " pins already: take some away");
  if (on) marks.pins.push_back(pin);
  keep_marks(std::move(marks));
}

std::set<std::string> Controller::pinned_tried() const {
  std::set<std::string> pinned;
  for (const Pin& pin : state_.marks->pins)
    if (pin.job == state_.tune.key) pinned.insert(pin.changes);
  return pinned;
}

// ---- Proofs ----

std::string Controller::verify_command() const { return verify_line(state_.recipe, {}); }

void Controller::start_verify() {
  if (child_) return notice(NoticeKind::warning, "a run is going on already");
  if (!state_.model) return notice(NoticeKind::warning, "open a model first");
  proving_ = recipe_hash();
  spawn(RunKind::verify, verify_command());
}

}  // namespace gradloom
