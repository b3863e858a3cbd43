#include "viz/model/critical_path.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/text.h"

namespace gradloom {
namespace {

// Where the walk stands: before the kernel of a lane, all of which after `time_ns` is on the path already.
struct PathPlace {
  std::int32_t lane = -1, kernel = -1;
  double time_ns = 0;
};

class Walk {
 public:
  Walk(const StepIdle& step, const TraceDocument& trace) : step_(step) {
    for (const TraceStep& s : trace.steps)
      if (s.step == step.step) origin_ns_ = s.start_ns;
    for (const TraceExchange& e : trace.exchanges)
      if (e.step == step.step) exchanges_.push_back(&e);
  }

  CriticalPath make() {
    CriticalPath path;
    path.alone = step_.lanes.size() < 2;
    for (const IdleLane& lane : step_.lanes) path.of_kernels += lane.kernels.size();
    std::set<std::pair<std::int32_t, std::int32_t>> visited;
    for (PathPlace at = last(); at.kernel >= 0 && visited.emplace(at.lane, at.kernel).second;) {
      const PathPlace next = step_back(at);
      path.changes += next.kernel >= 0 && next.lane != at.lane ? 1 : 0;
      at = next;
    }
    std::reverse(pieces_.begin(), pieces_.end());
    path.pieces = std::move(pieces_);
    path.kernels = visited.size();
    return path;
  }

 private:
  const IdleLane& lane(std::int32_t i) const { return step_.lanes[static_cast<std::size_t>(i)]; }
  const LaneKernel& kernel(const PathPlace& at) const {
    return lane(at.lane).kernels[static_cast<std::size_t>(at.kernel)];
  }
  double at_ns(std::int64_t ns) const { return static_cast<double>(ns - origin_ns_); }

  PathPlace last() const {
    PathPlace found;
    for (std::size_t l = 0; l < step_.lanes.size(); ++l)
      for (std::size_t k = 0; k < step_.lanes[l].kernels.size(); ++k) {
        const double end_ns = step_.lanes[l].kernels[k].end_ns;
        if (found.kernel < 0 || end_ns > found.time_ns)
          found = {static_cast<std::int32_t>(l), static_cast<std::int32_t>(k), end_ns};
      }
    return found;
  }

  void add(PathPiece::Kind kind, double start_ns, double end_ns, const PathPlace& at,
           IdleCause cause = IdleCause::kLaunch) {
    if (end_ns > start_ns) pieces_.push_back({kind, start_ns, end_ns, at.lane, at.kernel, cause});
  }

  // The exchange that a kernel stands still for and that is over last.
  const TraceExchange* awaited(const PathPlace& at) const {
    const LaneKernel& k = kernel(at);
    const TraceExchange* found = nullptr;
    for (const TraceExchange* e : exchanges_) {
      const double end_ns = at_ns(e->start_ns + e->duration_ns);
      if (e->rank != lane(at.lane).rank || !stands_still_for(k, *e, at_ns(e->start_ns), end_ns)) continue;
      if (found == nullptr || end_ns > at_ns(found->start_ns + found->duration_ns)) found = e;
    }
    return found;
  }

  // Of an exchange the part of the rank that was ready last.
  const TraceExchange* last_ready(const TraceExchange& of) const {
    const TraceExchange* found = &of;
    for (const TraceExchange* e : exchanges_)
      if (e->plan_step == of.plan_step && e->micro == of.micro && e->start_ns > found->start_ns) found = e;
    return found;
  }

  // The kernel with which a rank made or began an exchange; -1: it has none.
  PathPlace kernel_of(const TraceExchange& e) const {
    for (std::size_t l = 0; l < step_.lanes.size(); ++l) {
      if (step_.lanes[l].rank != e.rank) continue;
      const std::vector<LaneKernel>& kernels = step_.lanes[l].kernels;
      for (std::size_t k = 0; k < kernels.size(); ++k)
        if (kernels[k].plan_step == e.plan_step && kernels[k].micro == e.micro)
          return {static_cast<std::int32_t>(l), static_cast<std::int32_t>(k), at_ns(e.start_ns)};
    }
    return {};
  }

  // Puts the kernel on the path, and goes to what it began after.
  PathPlace step_back(const PathPlace& at) {
    const LaneKernel& k = kernel(at);
    double from_ns = std::min(at.time_ns, k.end_ns);
    if (const TraceExchange* e = k.stands_still ? awaited(at) : nullptr) {
      const TraceExchange& late = *last_ready(*e);
      const double ready_ns = at_ns(late.start_ns), over_ns = at_ns(e->start_ns + e->duration_ns);
      const PathPlace began = kernel_of(late);
      const bool elsewhere = began.kernel >= 0 && (began.lane != at.lane || began.kernel != at.kernel);
      if (elsewhere && ready_ns < from_ns) {
        add(PathPiece::Kind::kKernel, over_ns, from_ns, at);
        add(PathPiece::Kind::kTransfer, ready_ns, std::min(over_ns, from_ns), at);
        const LaneKernel& theirs = kernel(began);
        // What exchanges while it runs begins with it; one that began an exchange computes up to there.
        if (!theirs.stands_still) return {began.lane, began.kernel, ready_ns};
        add(PathPiece::Kind::kKernel, theirs.start_ns, ready_ns, began);
        return before(began, std::min(theirs.start_ns, ready_ns));
      }
      if (over_ns < from_ns) add(PathPiece::Kind::kKernel, over_ns, from_ns, at);
      from_ns = std::min(from_ns, over_ns);
      add(PathPiece::Kind::kTransfer, std::max(k.start_ns, ready_ns), from_ns, at);
      add(PathPiece::Kind::kKernel, k.start_ns, std::min(from_ns, ready_ns), at);
    } else {
      add(PathPiece::Kind::kKernel, k.start_ns, from_ns, at);
    }
    return before(at, k.start_ns);
  }

  PathPlace before(const PathPlace& at, double start_ns) {
    const IdleLane& on = lane(at.lane);
    const double busy_to =
        at.kernel > 0 ? on.kernels[static_cast<std::size_t>(at.kernel) - 1].end_ns : on.start_ns;
    // The pauses before the kernel, from the last one back.
    auto pause = std::partition_point(on.idle.begin(), on.idle.end(),
                                      [&](const IdlePiece& p) { return p.end_ns <= start_ns; });
    while (pause != on.idle.begin()) {
      --pause;
      if (pause->end_ns <= busy_to || pause->before != at.kernel) break;
      if (pause->by_kernel >= 0) {
        const PathPlace by{pause->by_lane, pause->by_kernel, pause->end_ns};
        if (kernel(by).end_ns <= start_ns) return by;
      }
      add(PathPiece::Kind::kIdle, std::max(pause->start_ns, on.start_ns), pause->end_ns, at, pause->cause);
    }
    if (at.kernel == 0) return {};
    return {at.lane, at.kernel - 1, start_ns};
  }

  const StepIdle& step_;
  std::int64_t origin_ns_ = 0;
  std::vector<const TraceExchange*> exchanges_;
  std::vector<PathPiece> pieces_;  // from the end on
};

}  // namespace

bool CriticalPath::has(std::int32_t lane, std::int32_t kernel) const {
  return std::any_of(pieces.begin(), pieces.end(), [&](const PathPiece& p) {
    return p.kind != PathPiece::Kind::kIdle && p.lane == lane && p.kernel == kernel;
  });
}

CriticalPath critical_path(const StepIdle& step, const TraceDocument& trace) {
  return Walk(step, trace).make();
}

std::vector<std::pair<std::string, double>> path_by_op(const CriticalPath& path, const StepIdle& step,
                                                       const TraceDocument& trace) {
  std::map<std::string, double> sums;
  for (const PathPiece& p : path.pieces) {
    std::string name = "(transfer)";
    if (p.kind == PathPiece::Kind::kIdle)
      name = "(" + std::string(kIdleCauseNames[static_cast<std::size_t>(p.cause)]) + ")";
    if (p.kind == PathPiece::Kind::kKernel) {
      const std::int32_t plan_step =
          step.lanes[static_cast<std::size_t>(p.lane)].kernels[static_cast<std::size_t>(p.kernel)].plan_step;
      const bool known = plan_step >= 0 && static_cast<std::size_t>(plan_step) < trace.kernels.size();
      name = known ? trace.kernels[static_cast<std::size_t>(plan_step)].op : "(no operator)";
    }
    sums[name] += p.end_ns - p.start_ns;
  }
  std::vector<std::pair<std::string, double>> out(sums.begin(), sums.end());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

std::string path_text(const CriticalPath& path, const StepIdle& step) {
  if (path.alone)
    return "all kernels run one after the other on one lane: the whole step is its critical path";
  std::set<std::int32_t> lanes;
  for (const PathPiece& p : path.pieces) lanes.insert(p.lane);
  const bool ranks = step.lanes.front().rank != step.lanes.back().rank;
  return std::to_string(path.kernels) + " of " +
         plural_text(static_cast<std::int64_t>(path.of_kernels), "kernel") +
         " are on the critical path, which lies on " +
         plural_text(static_cast<std::int64_t>(lanes.size()), ranks ? "rank" : "stream") + " of " +
         std::to_string(step.lanes.size());
}

}  // namespace gradloom
