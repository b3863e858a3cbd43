#include "app/desktop/timeline.h"

#include <algorithm>
#include <set>

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
    if (last.step == bar.step && last.label == bar.label && last.phase == bar.phase) {
      last.end_ns = std::max(last.end_ns, bar.end_ns);
      return;
    }
  }
  lane.bars.push_back(bar);
}

// The steps that are shown, on one clock.
struct Shown {
  const TraceDocument& trace;
  std::vector<const TraceStep*> steps;  // ascending, as those of the document are
  std::int64_t origin_ns = 0;
  std::int32_t index_of(std::int64_t step) const {  // -1: not shown
    const auto at = std::lower_bound(steps.begin(), steps.end(), step,
                                     [](const TraceStep* s, std::int64_t value) { return s->step < value; });
    return at != steps.end() && (*at)->step == step ? static_cast<std::int32_t>(at - steps.begin()) : -1;
  }
  bool is_kernel(const TraceRow& row) const {
    return row.plan_step >= 0 && static_cast<std::size_t>(row.plan_step) < trace.kernels.size();
  }
  TimelineBar bar(std::int32_t step, std::int64_t start_ns, std::int64_t duration_ns) const {
    TimelineBar made;
    made.start_ns = static_cast<double>(start_ns - origin_ns);
    made.end_ns = made.start_ns + static_cast<double>(duration_ns);
    made.step = step;
    return made;
  }
  TimelineBar kernel_bar(const TraceRow& row, std::int32_t step) const {
    TimelineBar made = bar(step, row.start_ns, row.duration_ns);
    made.phase = trace.kernels[static_cast<std::size_t>(row.plan_step)].phase;
    made.kernel = row.plan_step;
    return made;
  }
};

void sort_by_start(std::vector<TimelineBar>& bars) {
  std::stable_sort(bars.begin(), bars.end(),
                   [](const TimelineBar& a, const TimelineBar& b) { return a.start_ns < b.start_ns; });
}

// The host's launches in a lane above those of the streams, copies and fills in the lanes of their streams.
void add_activities(TimelineModel& model, const Shown& shown, std::size_t first_stream) {
  TimelineLane launches{"Launches", {}};
  for (std::size_t i = 0; i < shown.trace.activities.size(); ++i) {
    const TraceActivity& a = shown.trace.activities[i];
    const std::int32_t step = shown.index_of(a.step);
    if (step < 0) continue;
    TimelineBar bar = shown.bar(step, a.start_ns, a.duration_ns);
    bar.label = a.name;
    bar.activity = static_cast<std::int32_t>(i);
    const auto lane = first_stream + static_cast<std::size_t>(std::max(a.stream, 0));
    if (a.stream < 0)
      launches.bars.push_back(std::move(bar));
    else if (lane < model.lanes.size())
      model.lanes[lane].bars.push_back(std::move(bar));
  }
  for (std::size_t lane = first_stream; lane < model.lanes.size(); ++lane)
    sort_by_start(model.lanes[lane].bars);
  if (launches.bars.empty()) return;
  sort_by_start(launches.bars);
  model.lanes.insert(model.lanes.begin() + static_cast<std::ptrdiff_t>(first_stream), std::move(launches));
}

void add_threads(TimelineModel& model, const Shown& shown) {
  std::vector<TimelineLane> lanes;
  for (std::size_t i = 0; i < shown.trace.threads.size(); ++i) {
    const TraceThread& t = shown.trace.threads[i];
    const std::int32_t step = shown.index_of(t.step);
    const auto kernel = static_cast<std::size_t>(t.plan_step);
    if (step < 0 || t.plan_step < 0 || kernel >= shown.trace.kernels.size() || t.thread >= kMostThreadLanes)
      continue;
    while (static_cast<std::int32_t>(lanes.size()) <= t.thread) {
      TimelineLane& lane = lanes.emplace_back();
      lane.name = "Thread " + std::to_string(lanes.size());
      lane.thread = true;
    }
    TimelineBar bar = shown.bar(step, t.start_ns, t.thread == 0 ? t.busy_ns : t.duration_ns);
    bar.phase = shown.trace.kernels[kernel].phase;
    bar.kernel = t.plan_step;
    bar.thread = static_cast<std::int32_t>(i);
    lanes[static_cast<std::size_t>(t.thread)].bars.push_back(std::move(bar));
  }
  for (TimelineLane& lane : lanes) sort_by_start(lane.bars);
  model.lanes.insert(model.lanes.end(), lanes.begin(), lanes.end());
}

// The spans of a loop's steps, those inside others in a lane below; the step itself is the lanes' ground.
void add_host(TimelineModel& model, const Shown& shown) {
  const std::vector<HostSpan>& host = shown.trace.host;
  std::vector<TimelineLane> lanes;
  for (auto begins = host.begin(), ends = begins; begins != host.end(); begins = ends) {
    ends = std::find_if(begins, host.end(), [&](const HostSpan& s) { return s.step != begins->step; });
    const std::int32_t step = shown.index_of(begins->step);
    if (step < 0) continue;
    const std::vector<int> depth = depths({begins, ends});
    for (auto s = begins; s != ends; ++s) {
      const int at = depth[static_cast<std::size_t>(s - begins)];
      if (at < 1 || at > kMostHostLanes) continue;
      while (static_cast<int>(lanes.size()) < at)
        lanes.push_back({lanes.empty() ? "Host" : "Host " + std::to_string(lanes.size() + 1), {}});
      TimelineBar bar = shown.bar(step, s->start_ns, s->duration_ns);
      bar.label = s->name.empty() ? find_host_kind(s->kind)->title : escaped(s->name);
      bar.host = static_cast<std::int32_t>(s - host.begin());
      lanes[static_cast<std::size_t>(at - 1)].bars.push_back(std::move(bar));
    }
  }
  model.lanes.insert(model.lanes.begin(), lanes.begin(), lanes.end());
}

// Behind the kernels of the rank that all else is of its exchanges, then kernels and exchanges of the others.
void add_ranks(TimelineModel& model, const Shown& shown) {
  const TraceDocument& trace = shown.trace;
  if (trace.ranks.empty()) return;
  const auto ranks = std::min<std::size_t>(trace.ranks.size(), kMostOtherRanks + 1);
  std::vector<TimelineLane> kernels(ranks), exchanges(ranks);
  const auto has_lane = [&](std::int32_t rank) {
    return rank >= 0 && static_cast<std::size_t>(rank) < ranks;
  };
  for (const TraceRow& row : trace.other_ranks) {
    const std::int32_t step = shown.index_of(row.step);
    if (step >= 0 && has_lane(row.rank) && shown.is_kernel(row))
      kernels[static_cast<std::size_t>(row.rank)].bars.push_back(shown.kernel_bar(row, step));
  }
  for (std::size_t i = 0; i < trace.exchanges.size(); ++i) {
    const TraceExchange& e = trace.exchanges[i];
    const std::int32_t step = shown.index_of(e.step);
    if (step < 0 || !has_lane(e.rank)) continue;
    TimelineBar bar = shown.bar(step, e.start_ns, e.wait_ns);
    bar.exchange = static_cast<std::int32_t>(i);
    bar.label = "wait";
    bar.waits = true;
    std::vector<TimelineBar>& bars = exchanges[static_cast<std::size_t>(e.rank)].bars;
    if (e.wait_ns > 0) bars.push_back(bar);
    bar.start_ns = bar.end_ns;
    bar.end_ns += static_cast<double>(e.duration_ns - e.wait_ns);
    bar.label = "transfer";
    bar.waits = false;
    bars.push_back(std::move(bar));
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const bool other = static_cast<std::int32_t>(rank) != trace.rank;
    for (TimelineLane* lane : {&kernels[rank], &exchanges[rank]}) {
      sort_by_start(lane->bars);
      lane->other_rank = other;
    }
    kernels[rank].name = "Rank " + std::to_string(rank);
    kernels[rank].stream = true;
    kernels[rank].rank = static_cast<std::int32_t>(rank);
    kernels[rank].number = 0;
    exchanges[rank].name = "exchanges";
    exchanges[rank].rank = static_cast<std::int32_t>(rank);
    if (other) model.lanes.push_back(std::move(kernels[rank]));
    model.lanes.push_back(std::move(exchanges[rank]));
  }
}

Shown shown_steps(const TraceDocument& trace, std::int64_t first_step, std::int64_t last_step) {
  Shown shown{trace, {}};
  for (const TraceStep& s : trace.steps)
    if (s.step >= first_step && s.step <= last_step) shown.steps.push_back(&s);
  if (!shown.steps.empty()) shown.origin_ns = shown.steps.front()->start_ns;
  return shown;
}

void add_steps(TimelineModel& model, const Shown& shown) {
  for (const TraceStep* s : shown.steps) {
    const auto start_ns = static_cast<double>(s->start_ns - shown.origin_ns);
    const std::int64_t between = model.steps.empty() ? 0 : s->step - model.steps.back().step - 1;
    model.steps.push_back({s->step, start_ns, start_ns + static_cast<double>(s->duration_ns), between});
  }
}

// Phases, scopes and the streams' kernels, and the arena's bytes as the kernels go.
void add_kernels(TimelineModel& model, const Shown& shown, int depth, std::size_t first_stream,
                 const std::vector<std::pair<const TraceRow*, std::int32_t>>& rows) {
  const TraceDocument& trace = shown.trace;
  const auto streams = static_cast<std::int32_t>(model.lanes.size() - first_stream);
  for (const auto& [r, step] : rows) {
    const auto index = static_cast<std::size_t>(r->plan_step);
    const KernelInfo& k = trace.kernels[index];
    TimelineBar bar = shown.kernel_bar(*r, step);
    if (index < trace.live_bytes.size()) {
      model.live_ns.push_back(bar.start_ns);
      model.live_bytes.push_back(static_cast<double>(trace.live_bytes[index]));
    }
    TimelineBar around = bar;
    around.kernel = -1;
    around.label = k.phase;
    extend(model.lanes[0], around);
    for (int d = 1; d <= depth; ++d) {
      around.label = cut_scope(k.scope, d);
      if (!around.label.empty()) extend(model.lanes[static_cast<std::size_t>(d)], around);
    }
    model.lanes[first_stream + static_cast<std::size_t>(std::clamp(r->stream, 0, streams - 1))]
        .bars.push_back(std::move(bar));
  }
  if (std::all_of(model.live_bytes.begin(), model.live_bytes.end(), [](double bytes) { return bytes == 0; }))
    model.live_ns = model.live_bytes = {};  // runs of other profilers have no arena
  for (std::size_t i = 0; i < model.live_bytes.size(); ++i) {
    if (i % kLiveBlock == 0) model.live_most.push_back(0);
    model.live_most.back() = std::max(model.live_most.back(), model.live_bytes[i]);
  }
}

double kernel_ns(const TimelineLane& lane) {
  double ns = 0;
  for (const TimelineBar& bar : lane.bars)
    if (bar.kernel >= 0) ns += bar.end_ns - bar.start_ns;
  return ns;
}

}  // namespace

int find_main_lane(const TimelineModel& model) {
  int best = -1;
  double most = -1;
  for (std::size_t l = 0; l < model.lanes.size(); ++l) {
    const TimelineLane& lane = model.lanes[l];
    if (!lane.stream || lane.other_rank || lane.bars.empty()) continue;
    if (const double ns = kernel_ns(lane); ns > most) {
      most = ns;
      best = static_cast<int>(l);
    }
  }
  return best;
}

std::vector<std::int64_t> timed_steps(const TraceDocument& trace) {
  std::vector<std::int64_t> steps;
  for (const TraceStep& s : trace.steps) steps.push_back(s.step);
  return steps;
}

const std::string& bar_name(const TraceDocument& trace, const TimelineBar& bar) {
  return bar.kernel >= 0 ? trace.kernels[static_cast<std::size_t>(bar.kernel)].node : bar.label;
}

TimelineModel build_timeline(const TraceDocument& trace, std::int64_t first_step, std::int64_t last_step) {
  TimelineModel model;
  model.step = first_step;
  const Shown shown = shown_steps(trace, first_step, last_step);
  if (shown.steps.empty()) return model;
  model.step = shown.steps.front()->step;
  add_steps(model, shown);
  std::vector<std::pair<const TraceRow*, std::int32_t>> rows;
  std::int32_t streams = 1;
  int depth = 0;
  for (const TraceRow& r : trace.rows) {
    const std::int32_t step = shown.is_kernel(r) ? shown.index_of(r.step) : -1;
    if (step < 0) continue;
    rows.emplace_back(&r, step);
    streams = std::clamp(r.stream + 1, streams, 64);
    depth = std::max(depth, depth_of(trace.kernels[static_cast<std::size_t>(r.plan_step)].scope));
  }
  for (const TraceActivity& a : trace.activities)
    if (shown.index_of(a.step) >= 0) streams = std::clamp(a.stream + 1, streams, 64);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first->start_ns < b.first->start_ns; });
  depth = std::min(depth, kMostScopeLanes);
  model.lanes.push_back({"Phase", {}});
  for (int d = 1; d <= depth; ++d) model.lanes.push_back({"Scope " + std::to_string(d), {}});
  const auto first_stream = model.lanes.size();
  for (std::int32_t s = 0; s < streams; ++s)
    model.lanes.push_back({streams > 1           ? "Stream " + std::to_string(s)
                           : trace.ranks.empty() ? "Kernels"
                                                 : "Rank " + std::to_string(trace.rank),
                           {},
                           true,
                           trace.rank,
                           s});
  add_kernels(model, shown, depth, first_stream, rows);
  add_activities(model, shown, first_stream);
  add_threads(model, shown);
  add_ranks(model, shown);
  for (const TimelineLane& lane : model.lanes)
    for (const TimelineBar& bar : lane.bars) {
      TimelineStep& step = model.steps[static_cast<std::size_t>(bar.step)];
      step.end_ns = std::max(step.end_ns, bar.end_ns);  // to the end of the last rank
    }
  for (const TimelineStep& step : model.steps) {
    model.duration_ns = std::max(model.duration_ns, step.end_ns);
    model.step_ns += step.end_ns - step.start_ns;
  }
  add_host(model, shown);
  // Streams of other profilers are not numbered one by one.
  if (streams > 3)
    std::erase_if(model.lanes, [](const TimelineLane& lane) { return lane.stream && lane.bars.empty(); });
  model.main_lane = find_main_lane(model);
  return model;
}

double TimelineModel::most_live(double from_ns, double to_ns) const {
  const auto begin = live_ns.begin();
  auto i = static_cast<std::size_t>(std::upper_bound(begin, live_ns.end(), from_ns) - begin);
  if (i > 0) --i;  // it goes on
  const auto end = static_cast<std::size_t>(std::lower_bound(begin, live_ns.end(), to_ns) - begin);
  double most = 0;
  while (i < end) {
    const bool whole = i % kLiveBlock == 0 && i + kLiveBlock <= end;
    most = std::max(most, whole ? live_most[i / kLiveBlock] : live_bytes[i]);
    i += whole ? kLiveBlock : 1;
  }
  return most;
}

const TimelineStep* TimelineModel::step_at(double time_ns) const {
  if (steps.empty()) return nullptr;
  const auto after = std::upper_bound(steps.begin(), steps.end(), time_ns,
                                      [](double time, const TimelineStep& s) { return time < s.start_ns; });
  return after == steps.begin() ? &*after : &*(after - 1);
}

std::string shown_numbers_text(const TimelineModel& model) {
  if (model.steps.size() < 2) return std::to_string(model.step);
  return std::to_string(model.step) + " to " + std::to_string(model.steps.back().step);
}

std::string shown_steps_text(const TimelineModel& model) {
  return (model.steps.size() < 2 ? "step " : "steps ") + shown_numbers_text(model);
}

std::size_t first_bar_after(const TimelineLane& lane, double time_ns, std::size_t from) {
  const auto it = std::partition_point(lane.bars.begin() + static_cast<std::ptrdiff_t>(from), lane.bars.end(),
                                       [&](const TimelineBar& b) { return b.end_ns <= time_ns; });
  return static_cast<std::size_t>(it - lane.bars.begin());
}

TimeRange range_between(double a_ns, double b_ns) { return {std::min(a_ns, b_ns), std::max(a_ns, b_ns)}; }

TimeRange launch_of(const TimelineModel& model, const TraceDocument& trace, const std::string& node) {
  TimeRange found;
  for (const TimelineLane& lane : model.lanes)
    for (const TimelineBar& bar : lane.bars)
      if (bar.kernel >= 0 && !lane.repeats() &&
          trace.kernels[static_cast<std::size_t>(bar.kernel)].node == node &&
          (found.empty() || bar.start_ns < found.from_ns))
        found = {bar.start_ns, bar.end_ns};
  return found;
}

std::vector<TimelineFlow> flows_of(const TimelineModel& model, const TraceDocument& trace,
                                   const std::string& node) {
  std::set<std::int32_t> own, partners;  // plan steps
  std::set<std::uint32_t> sources;
  const auto is_forward = [](const KernelInfo& k) { return k.phase == "forward" || k.phase == "loss"; };
  bool forward = false;
  for (std::size_t i = 0; i < trace.kernels.size(); ++i) {
    const KernelInfo& k = trace.kernels[i];
    if (k.node != node || (k.phase != "backward" && !is_forward(k))) continue;
    own.insert(static_cast<std::int32_t>(i));
    sources.insert(k.sources.begin(), k.sources.end());
    forward = is_forward(k);
  }
  if (own.empty()) return {};
  for (std::size_t i = 0; i < trace.kernels.size(); ++i) {
    const KernelInfo& k = trace.kernels[i];
    if (forward ? k.phase != "backward" : !is_forward(k)) continue;
    if (std::any_of(k.sources.begin(), k.sources.end(),
                    [&](std::uint32_t s) { return sources.count(s) != 0; }))
      partners.insert(static_cast<std::int32_t>(i));
  }
  struct End {
    std::size_t lane;
    const TimelineBar* bar;
  };
  std::vector<End> ends[2];  // forward, backward
  for (std::size_t l = 0; l < model.lanes.size(); ++l)
    for (const TimelineBar& bar : model.lanes[l].bars) {
      if (bar.kernel < 0 || model.lanes[l].repeats()) continue;
      if (own.count(bar.kernel) != 0) ends[forward ? 0 : 1].push_back({l, &bar});
      if (partners.count(bar.kernel) != 0) ends[forward ? 1 : 0].push_back({l, &bar});
    }
  std::vector<TimelineFlow> flows;
  for (const End& from : ends[0])
    for (const End& to : ends[1])
      if (from.bar->step == to.bar->step && from.bar->end_ns <= to.bar->start_ns && flows.size() < kMostFlows)
        flows.push_back({from.lane, to.lane, from.bar->end_ns, to.bar->start_ns});
  return flows;
}

RangeFilter filter_of(const TimelineModel& model, const TraceDocument& trace, const TimeRange& range) {
  RangeFilter filter;
  filter.range = range;
  for (const TimelineLane& lane : model.lanes) {
    if (lane.repeats()) continue;
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

namespace {

// As it is before a run is shown; what was made of the last one is known to be so.
TimelineState emptied(const TimelineState& state) {
  TimelineState next;
  next.made = state.made + 1;
  next.show_path = state.show_path;
  return next;
}

}  // namespace

void show_run(TimelineState& state, const void* source, std::int64_t run, const TraceDocument& trace) {
  const std::vector<std::int64_t> steps = timed_steps(trace);
  if (steps.empty()) {
    state = emptied(state);
    return;
  }
  const int last = static_cast<int>(steps.size()) - 1;
  const bool other_run = state.run != run;
  if (other_run) state = emptied(state);
  if (state.newest_step) state.first_index = state.last_index = last;
  state.last_index = std::clamp(state.last_index, 0, last);
  state.first_index = std::clamp(state.first_index, 0, state.last_index);
  const std::int64_t first_step = steps[static_cast<std::size_t>(state.first_index)],
                     last_step = steps[static_cast<std::size_t>(state.last_index)];
  const std::vector<TimelineStep>& shown = state.model.steps;
  const bool same = !shown.empty() && shown.front().step == first_step && shown.back().step == last_step &&
                    static_cast<int>(shown.size()) == state.last_index - state.first_index + 1;
  if (state.source == source && same) return;
  if (!same) state.ruler = {};
  if (shown.size() != static_cast<std::size_t>(state.last_index - state.first_index + 1) && !shown.empty())
    state.view = {};  // a time of one step is none of several
  const TimeRange marked = state.filter ? state.filter->range : TimeRange();
  state.model = build_timeline(trace, first_step, last_step);
  ++state.made;
  state.source = source;
  state.run = run;
  set_range(state, trace, marked);
}

void set_range(TimelineState& state, const TraceDocument& trace, const TimeRange& range) {
  state.filter =
      range.empty() ? nullptr : std::make_shared<const RangeFilter>(filter_of(state.model, trace, range));
}

void choose_steps(TimelineState& state, int first, int last, int count) {
  if (count <= 0) return;
  if (first > last) std::swap(first, last);
  first = std::clamp(first, 0, count - 1);
  last = std::clamp(last, 0, count - 1);
  if (first != last) set_range(state, {}, {});  // times of one step are none of several
  state.first_index = first;
  state.last_index = last;
  state.newest_step = first == last && last == count - 1;
}

}  // namespace gradloom
