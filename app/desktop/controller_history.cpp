// The controller's trends and predictions: what sessions say from run to run; and the files that were open before.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/desktop/controller.h"
#include "app/desktop/sample.h"
#include "app/recipe_flags.h"
#include "app/trends.h"
#include "engine/base/text.h"
#include "sessions/copy_session.h"
#include "viz/draw/file_dialog.h"

namespace gradloom {

namespace {
constexpr std::int64_t kLookNs = 2'000'000'000;  // between two looks at the files of sessions
}  // namespace

// ---- Sessions that others write ----

// What is read again: the open session, trends and with them their changes, when no run of the window goes on, which itself tells
// what it does. Reading a session that another run is just writing must not slow it: so seldom, then.
void Controller::follow_sessions() {
  if (state_.session && !state_.progress.running && !reader_->busy()) read_trends();
  if (monotonic_ns() < session_next_ns_) return;
  session_next_ns_ = monotonic_ns() + kLookNs;
  if (remote_ || state_.session_path.empty() || state_.progress.running || reader_->busy()) return;
  const std::string stamp = session_stamp(state_.session_path);
  const bool read = state_.session && state_.session->path == state_.session_path;
  if (!stamp.empty() && stamp != (read ? state_.session->stamp : "") &&
      stamp != stamps_[state_.session_path]) {
    stamps_[state_.session_path] = stamp;
    session_next_ns_ += 2 * kLookNs;
    reload_session();
  }
  for (const std::string& path : state_.trends.added) {
    const std::string now = session_stamp(path);
    if (const auto before = stamps_.find(path); before != stamps_.end() && before->second != now)
      trends_of_.reset();
    stamps_[path] = now;
  }
}

// ---- Trends ----

void Controller::read_trends() {
  TrendsView& view = state_.trends;
  if (!state_.session && reader_->busy_with("session")) return;
  if (state_.session == trends_of_ && view.added == trends_with_) return;
  trends_of_ = state_.session;
  trends_with_ = view.added;
  std::vector<std::string> sessions = view.added;
  if (state_.session) sessions.insert(sessions.begin(), state_.session->path);
  if (sessions.empty()) {
    reader_->cancel("trends");
    view.trends.reset();
    view.problem.clear();
    return;
  }
  reader_->post("trends",
                "reading runs of " + plural_text(static_cast<std::int64_t>(sessions.size()), "session"),
                [this, sessions](std::stop_token stop) -> Worker::Publish {
                  auto found = find_trends(sessions, {}, std::move(stop));
                  if (!found) {
                    return [this, error = found.error()] {
                      state_.trends.trends.reset();
                      state_.trends.problem = error.message;
                    };
                  }
                  auto trends = std::make_shared<const std::vector<Trend>>(std::move(found).value());
                  return [this, trends, sessions] {
                    state_.trends.trends = trends;
                    state_.trends.problem.clear();
                    for (const std::string& text : trend_news_.of(sessions, *trends))
                      notice(NoticeKind::error, text);  // it stays until it is seen
                  };
                });
}

void Controller::add_trend_session(const std::string& path) {
  std::vector<std::string>& added = state_.trends.added;
  const bool open = state_.session && state_.session->path == path;
  if (!open && std::find(added.begin(), added.end(), path) == added.end()) added.push_back(path);
}

void Controller::remove_trend_session(const std::string& path) { std::erase(state_.trends.added, path); }

void Controller::show_run_of(const std::string& session, std::int64_t id) {
  if (session == state_.session_path) return show_run(id);
  if (child_) return notice(NoticeKind::warning, "a run is going on: it records into the open session");
  // What was the open session stays among those that are looked at.
  const std::string before = state_.session ? state_.session->path : "";
  set_session(session);
  if (state_.session_path != session) return;
  wanted_run_ = id;
  remove_trend_session(session);
  std::vector<std::string>& added = state_.trends.added;
  if (!before.empty() && std::find(added.begin(), added.end(), before) == added.end())
    added.push_back(before);
}

// ---- Predictions ----

void Controller::read_scores() {
  if (state_.session == scores_of_) return;
  if (!scores_of_ || !state_.session || scores_of_->path != state_.session->path) state_.scores.reset();
  scores_of_ = state_.session;
  if (!state_.session) return;
  reader_->post("scores", "reading predictions",
                [this, path = state_.session->path](std::stop_token) -> Worker::Publish {
                  const auto read = [&]() -> Result<std::vector<PredictionScore>> {
                    const auto store = TRY(Store::open(path, StoreMode::read));
                    return score_predictions(*store);
                  };
                  auto found = read();
                  if (!found)
                    return [this, error = found.error()] { notice(NoticeKind::error, error.message); };
                  auto scores =
                      std::make_shared<const std::vector<PredictionScore>>(std::move(found).value());
                  return [this, scores] { state_.scores = scores; };
                });
}

std::string Controller::measure_command(const KeptPrediction& prediction) const {
  return measuring_command(prediction, state_.session_path);
}

void Controller::measure_prediction(const KeptPrediction& prediction) {
  if (child_) return notice(NoticeKind::warning, "a run is going on already");
  const std::string command = measure_command(prediction);
  if (command.empty()) return notice(NoticeKind::error, "no run can measure '" + prediction.question + "'");
  spawn(RunKind::train, command);
}

// ---- Files that were open before ----

void Controller::look_for_recents() {
  if (state_.settings.recents == recents_of_) return;
  recents_of_ = state_.settings.recents;
  reader_->post("recents", "looking for files",
                [this, paths = recents_of_](std::stop_token stop) -> Worker::Publish {
                  std::map<std::string, RecentFile> found;
                  for (const std::string& path : paths) {
                    if (stop.stop_requested()) return {};
                    if (is_remote(path)) continue;  // only its machine knows
                    std::error_code error;
                    RecentFile& file = found[path];
                    file.exists = std::filesystem::exists(path, error);
                    if (const auto written = std::filesystem::last_write_time(path, error); !error)
                      file.when = file_time_text(written);
                    if (const auto bytes = std::filesystem::file_size(path, error); !error)
                      file.bytes = static_cast<double>(bytes);
                  }
                  return [this, found] { state_.recents = found; };
                });
}

void Controller::forget_recent(const std::string& path) { std::erase(state_.settings.recents, path); }

void Controller::open_sample() {
  const auto job = sample_job();
  if (!job)
    return opening_failed(
        {Errc::io, "the sample is not beside the program: share/gradloom/samples is missing"});
  if (!leave_other_machine()) return;
  state_.open_failed.reset();
  open_recipe(*job);
}

}  // namespace gradloom
