#include "app/desktop/timeline.h"

#include <algorithm>

#include "engine/base/text.h"

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

TimelineBar kernel_bar(const TraceDocument& trace, const TraceRow& row, const TraceStep& step) {
  const KernelInfo& k = trace.kernels[static_cast<std::size_t>(row.plan_step)];
  const auto start_ns = static_cast<double>(row.start_ns - step.start_ns);
  return {start_ns, start_ns + static_cast<double>(row.duration_ns), k.node, k.phase, row.plan_step};
}

void sort_by_start(std::vector<TimelineBar>& bars) {
  std::stable_sort(bars.begin(), bars.end(),
                   [](const TimelineBar& a, const TimelineBar& b) { return a.start_ns < b.start_ns; });
}

// The host's launches in a lane above those of the streams, copies and fills in the lanes of their streams.
void add_activities(TimelineModel& model, const TraceDocument& trace, const TraceStep& step,
                    std::size_t first_stream) {
  TimelineLane launches{"Launches", {}};
  for (std::size_t i = 0; i < trace.activities.size(); ++i) {
    const TraceActivity& a = trace.activities[i];
    if (a.step != step.step) continue;
    TimelineBar bar;
    bar.start_ns = static_cast<double>(a.start_ns - step.start_ns);
    bar.end_ns = bar.start_ns + static_cast<double>(a.duration_ns);
    bar.label = a.name;
    bar.activity = static_cast<std::int32_t>(i);
    model.duration_ns = std::max(model.duration_ns, bar.end_ns);
    const auto lane = first_stream + static_cast<std::size_t>(std::max(a.stream, 0));
    if (a.stream < 0)
      launches.bars.push_back(bar);
    else if (lane < model.lanes.size())
      model.lanes[lane].bars.push_back(bar);
  }
  for (std::size_t lane = first_stream; lane < model.lanes.size(); ++lane)
    sort_by_start(model.lanes[lane].bars);
  if (launches.bars.empty()) return;
  sort_by_start(launches.bars);
  model.lanes.insert(model.lanes.begin() + static_cast<std::ptrdiff_t>(first_stream), std::move(launches));
}

// The spans of a loop's step, those inside others in a lane below; the step itself is the lanes' ground.
void add_host(TimelineModel& model, const TraceDocument& trace, const TraceStep& step) {
  const auto begins = std::find_if(trace.host.begin(), trace.host.end(),
                                   [&](const HostSpan& s) { return s.step == step.step; });
  const auto ends =
      std::find_if(begins, trace.host.end(), [&](const HostSpan& s) { return s.step != step.step; });
  const std::vector<int> depth = depths({begins, ends});
  std::vector<TimelineLane> lanes;
  for (auto s = begins; s != ends; ++s) {
    const int at = depth[static_cast<std::size_t>(s - begins)];
    if (at < 1 || at > kMostHostLanes) continue;
    while (static_cast<int>(lanes.size()) < at)
      lanes.push_back({lanes.empty() ? "Host" : "Host " + std::to_string(lanes.size() + 1), {}});
    TimelineBar bar;
    bar.start_ns = static_cast<double>(s->start_ns - step.start_ns);
    bar.end_ns = bar.start_ns + static_cast<double>(s->duration_ns);
    bar.label = s->name.empty() ? find_host_kind(s->kind)->title : escaped(s->name);
    bar.host = static_cast<std::int32_t>(s - trace.host.begin());
    lanes[static_cast<std::size_t>(at - 1)].bars.push_back(bar);
  }
  model.lanes.insert(model.lanes.begin(), lanes.begin(), lanes.end());
}

// Behind the kernels of the rank that all else is of its exchanges, then kernels and exchanges of the others.
void add_ranks(TimelineModel& model, const TraceDocument& trace, const TraceStep& step) {
  if (trace.ranks.empty()) return;
  const auto shown = std::min<std::size_t>(trace.ranks.size(), kMostOtherRanks + 1);
  std::vector<TimelineLane> kernels(shown), exchanges(shown);
  const auto has_lane = [&](std::int32_t rank) {
    return rank >= 0 && static_cast<std::size_t>(rank) < shown;
  };
  for (const TraceRow& row : trace.other_ranks) {
    if (row.step != step.step || !has_lane(row.rank) || row.plan_step < 0 ||
        static_cast<std::size_t>(row.plan_step) >= trace.kernels.size())
      continue;
    kernels[static_cast<std::size_t>(row.rank)].bars.push_back(kernel_bar(trace, row, step));
  }
  for (std::size_t i = 0; i < trace.exchanges.size(); ++i) {
    const TraceExchange& e = trace.exchanges[i];
    if (e.step != step.step || !has_lane(e.rank)) continue;
    TimelineBar bar;
    bar.exchange = static_cast<std::int32_t>(i);
    bar.start_ns = static_cast<double>(e.start_ns - step.start_ns);
    const double end_ns = bar.start_ns + static_cast<double>(e.duration_ns);
    bar.end_ns = bar.start_ns + static_cast<double>(e.wait_ns);
    bar.label = "wait";
    bar.waits = true;
    std::vector<TimelineBar>& bars = exchanges[static_cast<std::size_t>(e.rank)].bars;
    if (e.wait_ns > 0) bars.push_back(bar);
    bar.start_ns = bar.end_ns;
    bar.end_ns = end_ns;
    bar.label = "transfer";
    bar.waits = false;
    bars.push_back(bar);
  }
  for (std::size_t rank = 0; rank < shown; ++rank) {
    const bool other = static_cast<std::int32_t>(rank) != trace.rank;
    for (TimelineLane* lane : {&kernels[rank], &exchanges[rank]}) {
      sort_by_start(lane->bars);
      lane->other_rank = other;
      for (const TimelineBar& bar : lane->bars) model.duration_ns = std::max(model.duration_ns, bar.end_ns);
    }
    kernels[rank].name = "Rank " + std::to_string(rank);
    kernels[rank].stream = true;
    exchanges[rank].name = "exchanges";
    if (other) model.lanes.push_back(std::move(kernels[rank]));
    model.lanes.push_back(std::move(exchanges[rank]));
  }
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
  for (const TraceActivity& a : trace.activities)
    if (a.step == step) streams = std::clamp(a.stream + 1, streams, 64);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TraceRow* a, const TraceRow* b) { return a->start_ns < b->start_ns; });
  depth = std::min(depth, kMostScopeLanes);
  model.lanes.push_back({"Phase", {}});
  for (int d = 1; d <= depth; ++d) model.lanes.push_back({"Scope " + std::to_string(d), {}});
  const auto first_stream = model.lanes.size();
  for (std::int32_t s = 0; s < streams; ++s)
    model.lanes.push_back({streams > 1           ? "Stream " + std::to_string(s)
                           : trace.ranks.empty() ? "Kernels"
                                                 : "Rank " + std::to_string(trace.rank),
                           {},
                           true});
  for (const TraceRow* r : rows) {
    const auto index = static_cast<std::size_t>(r->plan_step);
    const KernelInfo& k = trace.kernels[index];
    TimelineBar bar = kernel_bar(trace, *r, *of_step);
    bar.label = k.phase;
    bar.kernel = -1;
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
      model.live_ns.push_back(bar.start_ns);
      model.live_bytes.push_back(static_cast<double>(trace.live_bytes[index]));
    }
  }
  if (std::all_of(model.live_bytes.begin(), model.live_bytes.end(), [](double bytes) { return bytes == 0; }))
    model.live_ns = model.live_bytes = {};  // runs of other profilers have no arena
  add_activities(model, trace, *of_step, first_stream);
  add_ranks(model, trace, *of_step);
  add_host(model, trace, *of_step);
  // Streams of other profilers are not numbered one by one.
  if (streams > 3)
    std::erase_if(model.lanes, [](const TimelineLane& lane) { return lane.stream && lane.bars.empty(); });
  return model;
}

std::size_t first_bar_after(const TimelineLane& lane, double time_ns) {
  const auto it = std::partition_point(lane.bars.begin(), lane.bars.end(),
                                       [&](const TimelineBar& b) { return b.end_ns <= time_ns; });
  return static_cast<std::size_t>(it - lane.bars.begin());
}

TimeRange range_between(double a_ns, double b_ns) { return {std::min(a_ns, b_ns), std::max(a_ns, b_ns)}; }

TimeRange launch_of(const TimelineModel& model, const TraceDocument& trace, const std::string& node) {
  TimeRange found;
  for (const TimelineLane& lane : model.lanes)
    for (const TimelineBar& bar : lane.bars)
      if (bar.kernel >= 0 && !lane.other_rank &&
          trace.kernels[static_cast<std::size_t>(bar.kernel)].node == node &&
          (found.empty() || bar.start_ns < found.from_ns))
        found = {bar.start_ns, bar.end_ns};
  return found;
}

RangeFilter filter_of(const TimelineModel& model, const TraceDocument& trace, const TimeRange& range) {
  RangeFilter filter;
  filter.range = range;
  for (const TimelineLane& lane : model.lanes) {
    if (lane.other_rank) continue;
    for (std::size_t i = first_bar_after(lane, range.from_ns); i < lane.bars.size(); ++i) {
      const TimelineBar& bar = lane.bars[i];
      if (bar.start_ns >= range.to_ns) break;
      if (bar.kernel < 0) continue;
      filter.nodes.insert(trace.kernels[static_cast<std::size_t>(bar.kernel)].node);
      filter.first_step = filter.first_step < 0 ? bar.kernel : std::min(filter.first_step, bar.kernel);
      filter.last_step = std::max(filter.last_step, bar.kernel);
    }
  }
  return filter;
}

void show_run(TimelineState& state, const void* source, std::int64_t run, const TraceDocument& trace) {
  const std::vector<std::int64_t> steps = timed_steps(trace);
  if (steps.empty()) {
    state = TimelineState();
    return;
  }
  const int last = static_cast<int>(steps.size()) - 1;
  const bool other_run = state.run != run;
  if (other_run) state = TimelineState();
  state.step_index = state.newest_step ? last : std::clamp(state.step_index, 0, last);
  const std::int64_t step = steps[static_cast<std::size_t>(state.step_index)];
  if (state.source == source && state.model.step == step) return;
  if (state.model.step != step) state.ruler = {};
  const TimeRange marked = state.filter ? state.filter->range : TimeRange();
  state.model = build_timeline(trace, step);
  state.source = source;
  state.run = run;
  set_range(state, trace, marked);
}

void set_range(TimelineState& state, const TraceDocument& trace, const TimeRange& range) {
  state.filter =
      range.empty() ? nullptr : std::make_shared<const RangeFilter>(filter_of(state.model, trace, range));
}

}  // namespace gradloom
