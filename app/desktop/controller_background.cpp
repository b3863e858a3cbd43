// The controller's runs in the background: they outlive the window, and one that opens their session later follows them.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "app/background/background_output.h"
#include "app/desktop/controller.h"
#include "app/desktop/run_events.h"
#include "app/desktop/suggest.h"
#include "app/recipe_flags.h"
#include "engine/base/dates.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::int64_t kBackgroundLookNs = 2'000'000'000;

// Nothing: the window shows none of this kind.
std::optional<RunKind> kind_of(const std::vector<std::string>& words) {
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (!has("--json")) return std::nullopt;  // its lines are for people
  const std::string& command = words.front();
  if (command == "train") return RunKind::train;
  if (command == "compare") return RunKind::compare;
  if (command == "tune") return has("--worth") ? RunKind::worth : RunKind::tune;
  return std::nullopt;
}

// As the window shows it: without what it adds.
std::string shown_command(const BackgroundCommand& command) {
  std::string line = "gradloom";
  for (const std::string& word : command.words)
    if (word != "--json" && word != "--progress") line += " " + shell_quoted(word);
  return line;
}

}  // namespace

// Those that nobody follows, every two seconds. One of the session that is shown is followed, the oldest first.
void Controller::look_for_background() {
  if (background_folder_.empty() || monotonic_ns() < background_next_ns_) return;
  background_next_ns_ = monotonic_ns() + kBackgroundLookNs;
  state_.background.clear();
  if (reader_->busy_with("start")) return;
  const BackgroundCommand* const followed = child_ ? child_->background() : nullptr;
  std::vector<BackgroundCommand> all = list_background(background_folder_);
  if (!child_ && !remote_ && state_.model && !state_.opening && !state_.session_path.empty()) {
    std::error_code ignored;
    const std::string shown =
        std::filesystem::absolute(state_.session_path, ignored).lexically_normal().string();
    const auto ours = std::find_if(all.begin(), all.end(), [&](const BackgroundCommand& c) {
      return c.session() == shown && kind_of(c.words);
    });
    if (ours != all.end()) {
      follow_background(*ours);
      all.erase(ours);
    }
  }
  for (const BackgroundCommand& c : all) {
    if ((followed != nullptr && c.files == followed->files) || !kind_of(c.words)) continue;
    state_.background.push_back({c.number, shown_command(c), c.session(), local_time_text(c.started_s),
                                 progress_text(last_line(c)), c.running});
  }
}

void Controller::follow_background(const BackgroundCommand& command) {
  auto child = Child::follow(command, notify_);
  if (!child) return notice(NoticeKind::error, child.error().message);
  child_ = std::move(child).value();
  state_.progress = {};
  RunProgress& p = state_.progress;
  p.kind = kind_of(command.words).value_or(RunKind::train);
  p.command = shown_command(command);
  const std::int64_t ago_s = std::max<std::int64_t>(0, std::time(nullptr) - command.started_s);
  p.started_ns = monotonic_ns() - ago_s * 1'000'000'000;
  p.running = true;
  if (p.kind == RunKind::compare &&
      command.words.size() > 2) {  // two runs by number, or two settings of a job
    p.run_a = parse_number<std::int64_t>(command.words[1]).value_or(0);
    p.run_b = parse_number<std::int64_t>(command.words[2]).value_or(0);
    state_.run_a = p.run_a;
    state_.run_b = p.run_b;
    state_.comparison.reset();
  }
  searching_ = command.note;
  if (p.kind == RunKind::tune || p.kind == RunKind::worth) show_followed_search();
  if (command.running) notice(NoticeKind::info, subject_of(p) + " in the background is followed");
}

// Its lines tell of all it has tried; whose job it is, the recipe as it stands or the session says.
void Controller::show_followed_search() {
  state_.tune = {};
  state_.tune.key = searching_;
  if (recipe_hash() == searching_) state_.tune.job = state_.recipe;
  if (state_.tune.job || !state_.session) return;
  for (const KeptSearch& kept : state_.session->searches)
    if (kept.key == searching_) state_.tune.job = kept.job;
}

void Controller::open_background(const BackgroundRun& run) {
  background_next_ns_ = 0;
  if (!run.session.empty()) open(run.session);
}

bool Controller::leave_run() {
  if (!child_) return true;
  if (!outlives_window()) {
    notice(NoticeKind::warning, "a run is going on: stop it first");
    return false;
  }
  child_.reset();
  background_next_ns_ = 0;
  notice(NoticeKind::info, subject_of(state_.progress) + " goes on in the background");
  state_.progress = {};
  return true;
}

}  // namespace gradloom
