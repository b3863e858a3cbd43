#include "app/desktop/timeline.h"

#include <algorithm>

namespace gradloom {
namespace {

// The first `depth` parts of a scope; empty when it has fewer.
std::string cut_scope(const std::string& scope, int depth) {
  std::size_t end = 0;
  for (int i = 0; i < depth; ++i) {
    if (end == std::string::npos || scope.empty()) return {};
    end = scope.find('/', i == 0 ? 0 : end + 1);
  }
  return scope.substr(0, end);
}

int depth_of(const std::string& scope) {
  return scope.empty() ? 0 : 1 + static_cast<int>(std::count(scope.begin(), scope.end(), '/'));
}

// Appends a bar, or lengthens the last one when it goes on with the same label and phase.
void extend(TimelineLane& lane, const TimelineBar& bar) {
  if (!lane.bars.empty()) {
    TimelineBar& last = lane.bars.back();
    if (last.label == bar.label && last.phase == bar.phase && last.kernel < 0) {
      last.end_ns = std::max(last.end_ns, bar.end_ns);
      return;
    }
  }
  lane.bars.push_back(bar);
}

}  // namespace

std::vector<std::int64_t> timed_steps(const TraceDocument& trace) {
  std::vector<std::int64_t> steps;
  for (const TraceStep& s : trace.steps) steps.push_back(s.step);
  return steps;
}

TimelineModel build_timeline(const TraceDocument& trace, std::int64_t step) {
  TimelineModel model;
  model.step = step;
  const auto of_step = std::find_if(trace.steps.begin(), trace.steps.end(),
                                    [&](const TraceStep& s) { return s.step == step; });
  if (of_step == trace.steps.end()) return model;
  model.duration_ns = static_cast<double>(of_step->duration_ns);
  std::vector<const TraceRow*> rows;
  std::int32_t streams = 1;
  int depth = 0;
  for (const TraceRow& r : trace.rows) {
    if (r.step != step || r.plan_step < 0 || static_cast<std::size_t>(r.plan_step) >= trace.kernels.size())
      continue;
    rows.push_back(&r);
    streams = std::clamp(r.stream + 1, streams, 64);
    depth = std::max(depth, depth_of(trace.kernels[static_cast<std::size_t>(r.plan_step)].scope));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TraceRow* a, const TraceRow* b) { return a->start_ns < b->start_ns; });
  depth = std::min(depth, kMostScopeLanes);
  model.lanes.push_back({"Phase", {}});
  for (int d = 1; d <= depth; ++d) model.lanes.push_back({"Scope " + std::to_string(d), {}});
  const auto first_stream = model.lanes.size();
  for (std::int32_t s = 0; s < streams; ++s)
    model.lanes.push_back({streams == 1 ? "Kernels" : "Stream " + std::to_string(s), {}});
  for (const TraceRow* r : rows) {
    const auto index = static_cast<std::size_t>(r->plan_step);
    const KernelInfo& k = trace.kernels[index];
    const auto start_ns = static_cast<double>(r->start_ns - of_step->start_ns);
    TimelineBar bar{start_ns, start_ns + static_cast<double>(r->duration_ns), k.phase, k.phase, -1};
    extend(model.lanes[0], bar);
    for (int d = 1; d <= depth; ++d) {
      bar.label = cut_scope(k.scope, d);
      if (!bar.label.empty()) extend(model.lanes[static_cast<std::size_t>(d)], bar);
    }
    bar.label = k.node;
    bar.kernel = r->plan_step;
    model.lanes[first_stream + static_cast<std::size_t>(std::clamp(r->stream, 0, streams - 1))]
        .bars.push_back(bar);
    model.busy_ns += static_cast<double>(r->duration_ns);
    model.duration_ns = std::max(model.duration_ns, bar.end_ns);
    if (index < trace.live_bytes.size()) {
      model.live_ns.push_back(start_ns);
      model.live_bytes.push_back(static_cast<double>(trace.live_bytes[index]));
    }
  }
  return model;
}

std::size_t first_bar_after(const TimelineLane& lane, double time_ns) {
  const auto it = std::partition_point(lane.bars.begin(), lane.bars.end(),
                                       [&](const TimelineBar& b) { return b.end_ns <= time_ns; });
  return static_cast<std::size_t>(it - lane.bars.begin());
}

}  // namespace gradloom
