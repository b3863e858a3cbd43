// The controller's curves of runs beside the shown one.
#include <algorithm>
#include <utility>

#include "app/desktop/controller.h"

namespace gradloom {
namespace {

Result<std::shared_ptr<const RunCurves>> load_curves(const CurveRun& of) {
  auto store = TRY(Store::open(of.session, StoreMode::read));
  return std::shared_ptr<const RunCurves>(
      std::make_shared<RunCurves>(run_curves(TRY(store->load_run(of.run)))));
}

}  // namespace

void Controller::overlay_curves(const std::vector<CurveRun>& runs) {
  std::vector<OverlaidRun> now;
  for (const CurveRun& run : runs) {
    const auto known = std::find_if(state_.curves.runs.begin(), state_.curves.runs.end(),
                                    [&](const OverlaidRun& overlaid) { return overlaid.of == run; });
    now.push_back(known == state_.curves.runs.end() ? OverlaidRun{run, nullptr} : *known);
  }
  state_.curves.runs = std::move(now);
  read_curves();
}

void Controller::overlay_curve(const CurveRun& run, bool on) {
  std::vector<CurveRun> runs;
  for (const OverlaidRun& overlaid : state_.curves.runs)
    if (overlaid.of != run) runs.push_back(overlaid.of);
  if (on) runs.push_back(run);
  overlay_curves(runs);
}

void Controller::read_curves() {
  std::vector<CurveRun> missing;
  for (const OverlaidRun& overlaid : state_.curves.runs)
    if (!overlaid.curves) missing.push_back(overlaid.of);
  if (missing.empty()) return reader_->cancel("curves");
  reader_->post("curves", "reading curves", [this, missing](std::stop_token stop) -> Worker::Publish {
    std::vector<std::pair<CurveRun, Result<std::shared_ptr<const RunCurves>>>> read;
    for (const CurveRun& run : missing) {
      if (stop.stop_requested()) return {};
      read.emplace_back(run, load_curves(run));
    }
    return [this, read] {
      std::vector<OverlaidRun>& runs = state_.curves.runs;
      for (const auto& [run, curves] : read) {
        const auto at = std::find_if(runs.begin(), runs.end(),
                                     [&](const OverlaidRun& overlaid) { return overlaid.of == run; });
        if (at == runs.end()) continue;
        if (curves) {
          at->curves = *curves;
          continue;
        }
        notice(NoticeKind::error, curves.error().message);
        runs.erase(at);
      }
    };
  });
}

// After the session was read again: runs that went, and those that have more steps now.
void Controller::follow_curves() {
  std::vector<OverlaidRun>& runs = state_.curves.runs;
  const std::vector<RunSummary>& known = state_.session->runs;
  std::erase_if(runs, [&](OverlaidRun& overlaid) {
    if (overlaid.of.session != state_.session->path) return false;
    const auto at = std::find_if(known.begin(), known.end(),
                                 [&](const RunSummary& run) { return run.id == overlaid.of.run; });
    if (at == known.end()) return true;
    const bool grown =
        overlaid.curves && static_cast<std::int64_t>(overlaid.curves->steps.size()) != at->steps;
    if (grown || (overlaid.curves && overlaid.curves->name != run_label(*at))) overlaid.curves.reset();
    return false;
  });
  read_curves();
}

void Controller::add_curve_session(const std::string& path) {
  reader_->post("curve session", "reading " + path, [this, path](std::stop_token) -> Worker::Publish {
    auto session = load_session_snapshot(path);
    if (!session) return [this, error = session.error()] { notice(NoticeKind::error, error.message); };
    return [this, path, s = std::move(session).value()] {
      auto& sessions = state_.curves.sessions;
      std::erase_if(sessions, [&](const auto& other) { return other->path == path; });
      if (path != state_.session_path) sessions.push_back(s);
    };
  });
}

}  // namespace gradloom
