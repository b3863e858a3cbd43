#include "profiler/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace gradloom {
namespace {

constexpr int kStepLane = 0;            // of steps, phases and, on the CPU, kernels
constexpr int kLaunchLane = 1;          // of the host's launches on other devices
constexpr int kHostLane = 1'000'000;    // of the host's spans in recorded loops
constexpr int kExchangeLane = 900'000;  // of the exchanges with other ranks
constexpr int kThreadLane = 800'000;    // of the CPU's threads
constexpr int kStreamLanes = 100;       // of other devices: 100 * (stream + 1) + lane

TraceKernel trace_kernel(const KernelInfo& kernel, const std::string& model, bool on_cpu) {
  TraceKernel made;
  made.name = on_cpu && !kernel.op.empty() ? kernel.op : kernel.kernel;
  made.arguments = {{"kernel", kernel.kernel},
                    {"node", kernel.node},
                    {"onnx_node", fmt::to_string(fmt::join(kernel.onnx_nodes, " "))},
                    {"scope", kernel.scope},
                    {"phase", kernel.phase},
                    {"pass_chain", kernel.passes},
                    {"flops", std::isfinite(kernel.flops) ? kernel.flops : 0.0}};
  const auto add = [&](const char* name, std::string value) {
    TraceArgument& argument = made.arguments.emplace_back();
    argument.name = name;
    argument.value = std::move(value);
  };
  if (!kernel.implementation.empty()) add("implementation", kernel.implementation);
  if (!kernel.sources.empty()) add("loc", model + ":" + std::to_string(kernel.sources[0]));
  return made;
}

template <class Event>
bool earlier(const Event* a, const Event* b) {
  return a->step != b->step ? a->step < b->step : a->start_ns < b->start_ns;
}

}  // namespace

struct TraceEvents::Walk {
  using Rows = std::span<const TraceRow* const>;  // of one step, by start
  using Take = std::function<Status(const TraceGroup&)>;
  struct Launch {
    std::int32_t micro = 0, plan_step = 0;
  };

  explicit Walk(const TraceDocument& of) : document(of), on_cpu(of.device == "cpu") {
    base_ns = !of.rows.empty() ? of.rows.front().start_ns : !of.host.empty() ? of.host.front().start_ns : 0;
    const auto begin_with = [&](const auto& events) {
      for (const auto& event : events) base_ns = std::min(base_ns, event.start_ns);
    };
    begin_with(of.rows);
    begin_with(of.activities);
    begin_with(of.host);
    begin_with(of.other_ranks);
    begin_with(of.exchanges);
    begin_with(of.steps);
    for (const TraceStep& step : of.steps) steps.emplace(step.step, &step);
    for (const KernelInfo& kernel : of.kernels) kernels.push_back(trace_kernel(kernel, of.model, on_cpu));
    kernels.push_back(trace_kernel({}, of.model, on_cpu));
  }

  Status run(const Take& take) {
    for (const TraceActivity& activity : document.activities) activities[activity.step].push_back(&activity);
    for (auto& [step, list] : activities) std::stable_sort(list.begin(), list.end(), earlier<TraceActivity>);
    for (const TraceThread& thread : document.threads) threads[thread.step].push_back(&thread);
    std::map<std::int32_t, std::vector<const TraceRow*>> of_ranks;
    for (const TraceRow& row : document.rows) of_ranks[document.rank].push_back(&row);
    for (const TraceRow& row : document.other_ranks) of_ranks[row.rank].push_back(&row);
    std::map<std::int32_t, std::vector<const TraceExchange*>> exchanges;
    for (const TraceExchange& exchange : document.exchanges) exchanges[exchange.rank].push_back(&exchange);
    of_ranks[document.rank];  // of a recorded loop there may be spans alone
    for (auto& [of, timed] : of_ranks) {
      rank = of;
      begin_process();
      std::stable_sort(timed.begin(), timed.end(), earlier<TraceRow>);
      TRY(each_step<TraceRow>(timed, take, [&](Rows of_step) { add_step(of_step); }));
      std::vector<const TraceExchange*>& own = exchanges[rank];
      std::stable_sort(own.begin(), own.end(), earlier<TraceExchange>);
      TRY(each_step<TraceExchange>(own, take, [&](std::span<const TraceExchange* const> of_step) {
        for (const TraceExchange* exchange : of_step) add_exchange(*exchange);
      }));
      if (!group.process_name.empty()) TRY(take(group));  // nothing of it was timed
    }
    rank = document.rank;
    begin_group();
    std::vector<const HostSpan*> spans;
    for (const HostSpan& span : document.host) spans.push_back(&span);
    return each_step<HostSpan>(spans, take, [&](std::span<const HostSpan* const> of_step) {
      for (const HostSpan* span : of_step) add_host(*span);
    });
  }

  template <class Event, class Add>
  Status each_step(std::span<const Event* const> events, const Take& take, const Add& add) {
    for (std::size_t i = 0, j = 0; i < events.size(); i = j) {
      while (j < events.size() && events[j]->step == events[i]->step) ++j;
      add(events.subspan(i, j - i));
      TRY(take(group));
      begin_group();
    }
    return {};
  }

  void begin_group() {
    group.lanes.clear();
    group.slices.clear();
    group.arrows.clear();
    group.live_bytes.clear();
    group.process_name.clear();
    group.process = rank + 1;
  }

  void begin_process() {
    begin_group();
    group.process_name = "gradloom " + document.device;
    const auto number = static_cast<std::size_t>(rank);
    if (number < document.ranks.size())
      group.process_name +=
          fmt::format(", rank {} of {} on {}", number, document.ranks.size(), document.ranks[number].host);
    use_lane(kStepLane, "training step");
  }

  void use_lane(int lane, const std::string& name) {
    if (named.insert({rank, lane}).second) group.lanes.push_back({lane, name});
  }

  TraceSlice& add(int lane, const char* category, std::string name, std::int64_t start_ns,
                  std::int64_t duration_ns) {
    TraceSlice& slice = group.slices.emplace_back();
    slice.lane = lane;
    slice.category = category;
    slice.name = std::move(name);
    slice.start_ns = start_ns - base_ns;
    slice.duration_ns = duration_ns;
    return slice;
  }

  // What it waited for the last rank lies inside.
  void add_exchange(const TraceExchange& e) {
    const int at = free_lane(kExchangeLane, "exchanges", e.start_ns, e.duration_ns);
    add(at, "exchange", "exchange", e.start_ns, e.duration_ns).arguments = {
        {"step", e.step},
        {"micro", std::int64_t{e.micro}},
        {"plan_step", std::int64_t{e.plan_step}},
        {"sent_bytes", e.sent_bytes},
        {"wait_us", static_cast<double>(e.wait_ns) / 1000}};
    if (e.wait_ns > 0) add(at, "exchange", "wait for the last rank", e.start_ns, e.wait_ns);
  }

  std::size_t index(const TraceRow& row) const {
    const auto at = static_cast<std::size_t>(row.plan_step);
    return row.plan_step >= 0 && at < document.kernels.size() ? at : document.kernels.size();
  }
  const KernelInfo& info(const TraceRow& row) const {
    static const KernelInfo unknown;
    const std::size_t at = index(row);
    return at < document.kernels.size() ? document.kernels[at] : unknown;
  }

  void annotate(std::string name, std::int64_t start_ns, std::int64_t end_ns) {
    add(kStepLane, "user_annotation", std::move(name), start_ns, end_ns - start_ns);
  }

  void add_step(Rows of_step) {
    const std::int64_t step = of_step.front()->step;
    std::int64_t start = of_step.front()->start_ns, end = start;
    for (const TraceRow* row : of_step) end = std::max(end, row->start_ns + row->duration_ns);
    const auto [first, last] = steps.equal_range(step);
    for (auto known = first; known != last && rank == document.rank; ++known) {
      start = std::min(start, known->second->start_ns);
      end = std::max(end, known->second->start_ns + known->second->duration_ns);
    }
    annotate("ProfilerStep#" + std::to_string(step), start, end);
    add_phases(of_step);
    const auto found = activities.find(step);
    const std::vector<const TraceActivity*> none;
    const std::vector<const TraceActivity*>& others =
        found == activities.end() || rank != document.rank ? none : found->second;
    rows = of_step;
    find_launched(others);
    slice_of.clear();
    std::vector<std::pair<std::size_t, std::size_t>> launches;  // slice, row
    std::size_t next = 0;  // lanes are given out in the order of the starts
    const auto add_others_until = [&](std::int64_t start_ns) {
      for (; next < others.size() && others[next]->start_ns <= start_ns; ++next) {
        if (const auto at = row_of(*others[next])) launches.emplace_back(group.slices.size(), *at);
        add_activity(*others[next]);
      }
    };
    for (const TraceRow* row : of_step) {
      add_others_until(row->start_ns);
      slice_of.push_back(group.slices.size());
      add_kernel(*row);
    }
    add_others_until(std::numeric_limits<std::int64_t>::max());
    if (const auto of_threads = threads.find(step); of_threads != threads.end() && rank == document.rank)
      for (const TraceThread* thread : of_threads->second) add_thread(*thread);
    add_arrows();
    for (const auto& [from, row] : launches) add_arrow("ac2g", from, slice_of[row]);
    if (!memory_told) add_memory(of_step);
  }

  void add_host(const HostSpan& span) {
    use_lane(kHostLane, "host");
    const std::string name = span.kind == "step" ? "step " + std::to_string(span.step)
                             : span.name.empty() ? find_host_kind(span.kind)->title
                                                 : span.name;
    add(kHostLane, "host", name, span.start_ns, span.duration_ns).arguments = {{"kind", span.kind},
                                                                               {"step", span.step}};
  }

  // Stretches of equal phase, in time order; a phase that returns (micro-batches) gets several.
  void add_phases(Rows of_step) {
    for (std::size_t i = 0; i < of_step.size();) {
      std::size_t j = i;
      std::int64_t end = of_step[i]->start_ns;
      while (j < of_step.size() && info(*of_step[j]).phase == info(*of_step[i]).phase &&
             of_step[j]->micro == of_step[i]->micro) {
        end = std::max(end, of_step[j]->start_ns + of_step[j]->duration_ns);
        ++j;
      }
      // Streams may overlap; annotations share one lane and must not.
      if (j < of_step.size()) end = std::min(end, of_step[j]->start_ns);
      const std::string& phase = info(*of_step[i]).phase;
      annotate(phase.empty() ? "kernels" : phase, of_step[i]->start_ns, end);
      i = j;
    }
  }

  // The lane of that number, or where it is busy one of those behind it.
  int free_lane(int base, const std::string& name, std::int64_t start_ns, std::int64_t duration_ns) {
    for (int i = 0; i < kStreamLanes - 1; ++i) {
      const std::pair<std::int32_t, int> key{rank, base + i};
      const auto found = busy_until.find(key);
      if (found != busy_until.end() && found->second > start_ns) continue;
      busy_until[key] = start_ns + duration_ns;
      use_lane(base + i, i == 0 ? name : fmt::format("{} ({})", name, i));
      return base + i;
    }
    use_lane(base + kStreamLanes - 1, name + " (others)");
    return base + kStreamLanes - 1;
  }
  // `stream` -1: the host's launches.
  int stream_lane(std::int32_t stream, std::int64_t start_ns, std::int64_t duration_ns) {
    const int base = on_cpu ? kStepLane : stream < 0 ? kLaunchLane : kStreamLanes * (stream + 1);
    static const std::map<std::string, std::string> untold;  // what it says is of the own rank
    const std::string name = stream_name(stream, rank == document.rank ? document.environment : untold);
    return free_lane(base, name, start_ns, duration_ns);
  }

  void add_activity(const TraceActivity& a) {
    const char* category = a.kind == Activity::Kind::api    ? "cuda_runtime"
                           : a.kind == Activity::Kind::copy ? "gpu_memcpy"
                           : a.kind == Activity::Kind::fill ? "gpu_memset"
                                                            : "kernel";
    TraceSlice& slice =
        add(stream_lane(a.stream, a.start_ns, a.duration_ns), category, a.name, a.start_ns, a.duration_ns);
    slice.arguments = {{"run_id", document.run_id}, {"step", a.step}, {"bytes", a.bytes}};
    if (a.stream >= 0) add_stream(slice, a.stream);
    const auto at = row_of(a);
    if (!at) return;
    const TraceRow& row = *rows[*at];
    slice.arguments.insert(slice.arguments.end(), {{"correlation", row.correlation},
                                                   {"External id", row.correlation},
                                                   {"kernel", info(row).kernel},
                                                   {"plan_step", std::int64_t{a.plan_step}},
                                                   {"micro", std::int64_t{a.micro}}});
  }

  static void add_stream(TraceSlice& slice, std::int32_t stream) {
    slice.arguments.insert(
        slice.arguments.end(),
        {{"device", std::int64_t{0}}, {"context", std::int64_t{0}}, {"stream", std::int64_t{stream}}});
  }

  // Of several executions of a kernel in a step, as other profilers saw them, each has its launch.
  void find_launched(const std::vector<const TraceActivity*>& of_step) {
    launched.clear();
    if (of_step.empty()) return;
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::size_t>> executions;
    for (std::size_t i = 0; i < rows.size(); ++i)
      executions[{rows[i]->micro, rows[i]->plan_step}].push_back(i);
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> launches;
    for (const TraceActivity* a : of_step) {
      if (a->kind != Activity::Kind::api) continue;
      const std::pair key{a->micro, a->plan_step};
      const auto found = executions.find(key);
      if (found == executions.end()) continue;
      launched[a] = found->second[std::min(launches[key]++, found->second.size() - 1)];
    }
  }

  // The row of this step that a launch started.
  std::optional<std::size_t> row_of(const TraceActivity& a) const {
    const auto row = launched.find(&a);
    return row == launched.end() ? std::nullopt : std::optional(row->second);
  }

  void add_arrow(const char* name, std::size_t from, std::size_t to) {
    group.arrows.push_back({name, ++arrows, from, to});
  }

  void add_kernel(const TraceRow& row) {
    TraceSlice& slice = add(stream_lane(row.stream, row.start_ns, row.duration_ns),
                            on_cpu ? "cpu_op" : "kernel", "", row.start_ns, row.duration_ns);
    slice.kernel = static_cast<std::int32_t>(index(row));
    slice.arguments = {{"run_id", document.run_id},
                       {"bytes", row.bytes},
                       {"step", row.step},
                       {"micro", std::int64_t{row.micro}},
                       {"plan_step", std::int64_t{row.plan_step}},
                       {"External id", row.correlation},
                       {"correlation", row.correlation}};
    if (!on_cpu) add_stream(slice, row.stream);
  }

  void add_thread(const TraceThread& thread) {
    const int lane = kThreadLane + thread.thread;
    use_lane(lane, "thread " + std::to_string(thread.thread + 1));
    const auto kernel = static_cast<std::size_t>(thread.plan_step);
    const bool known = thread.plan_step >= 0 && kernel < document.kernels.size();
    TraceSlice& slice =
        add(lane, "thread", known ? kernels[kernel].name : "", thread.start_ns, thread.duration_ns);
    slice.arguments = {{"step", thread.step},
                       {"micro", std::int64_t{thread.micro}},
                       {"plan_step", std::int64_t{thread.plan_step}},
                       {"busy_us", static_cast<double>(thread.busy_ns) / 1000}};
  }

  // From the last forward kernel of an ONNX node to its first backward kernel, per micro-batch; one arrow per
  // pair of kernels. Steps mostly run the same kernels in the same order: their pairs are found once.
  void add_arrows() {
    const auto alike = [](const Launch& a, const TraceRow* b) {
      return a.micro == b->micro && a.plan_step == b->plan_step;
    };
    if (!std::equal(paired.begin(), paired.end(), rows.begin(), rows.end(), alike)) find_pairs();
    for (const auto& [from, to] : pairs) add_arrow("fwdbwd", slice_of[from], slice_of[to]);
  }

  void find_pairs() {
    paired.clear();
    pairs.clear();
    std::map<std::pair<std::int32_t, std::uint32_t>, std::size_t> forward,
        backward;  // by (micro-batch, ONNX node)
    for (std::size_t i = 0; i < rows.size(); ++i) {
      paired.push_back({rows[i]->micro, rows[i]->plan_step});
      const KernelInfo& kernel = info(*rows[i]);
      for (const std::uint32_t source : kernel.sources) {
        if (kernel.phase == "backward") {
          backward.try_emplace({rows[i]->micro, source}, i);
        } else if (kernel.phase == "forward" || kernel.phase == "loss") {
          forward[{rows[i]->micro, source}] = i;
        }
      }
    }
    std::set<std::pair<std::size_t, std::size_t>> done;
    for (const auto& [key, to] : backward) {
      const auto from = forward.find(key);
      if (from != forward.end() && done.insert({from->second, to}).second)
        pairs.emplace_back(from->second, to);
    }
  }

  void add_memory(Rows of_step) {
    memory_told = true;
    for (const TraceRow* row : of_step) {
      const auto at = static_cast<std::size_t>(row->plan_step);
      if (row->plan_step >= 0 && at < document.live_bytes.size())
        group.live_bytes.push_back({row->start_ns - base_ns, document.live_bytes[at]});
    }
  }

  const TraceDocument& document;
  bool on_cpu, memory_told = false;
  std::int64_t base_ns = 0, arrows = 0;
  std::int32_t rank = 0;  // whose process it is
  TraceGroup group;
  std::vector<TraceKernel> kernels;
  std::multimap<std::int64_t, const TraceStep*> steps;
  std::map<std::int64_t, std::vector<const TraceActivity*>> activities;  // by step, by start
  std::map<std::int64_t, std::vector<const TraceThread*>> threads;       // by step
  // Of one step, rows by index: the launched ones by their launch, their slices.
  Rows rows;
  std::map<const TraceActivity*, std::size_t> launched;
  std::vector<std::size_t> slice_of;
  std::vector<Launch> paired;  // the order that `pairs` was found for
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  std::map<std::pair<std::int32_t, int>, std::int64_t> busy_until;  // by rank and lane
  std::set<std::pair<std::int32_t, int>> named;
};

TraceEvents::TraceEvents(const TraceDocument& document) : walk_(std::make_unique<Walk>(document)) {}
TraceEvents::~TraceEvents() = default;
std::int64_t TraceEvents::base_ns() const { return walk_->base_ns; }
const std::vector<TraceKernel>& TraceEvents::kernels() const { return walk_->kernels; }
Status TraceEvents::each(const std::function<Status(const TraceGroup&)>& take) { return walk_->run(take); }

}  // namespace gradloom
