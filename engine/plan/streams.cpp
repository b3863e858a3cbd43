#include "engine/plan/streams.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "engine/ir/op.h"
#include "engine/ops/collectives/host_work.h"
#include "engine/ops/transfers.h"

namespace gradloom {

std::vector<double> step_times(const Graph& graph, const Plan& plan, const StepSpeeds& speeds) {
  std::vector<double> ns, known;
  if (speeds.step_ns) known = speeds.step_ns(graph, plan);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    const OpDef& op = *graph.nodes[step.node].op;
    if (copies_to_host(op) || copies_from_host(op))
      ns.push_back(speeds.latency_ns + step.bytes_written / speeds.link);
    else if (!known.empty())
      ns.push_back(known[i]);
    else
      ns.push_back(std::max(step.flops / speeds.flops_per_byte, step.bytes_read + step.bytes_written) /
                   speeds.memory);
  }
  return ns;
}

namespace {

// A value that leaves and comes back. Steps are positions in the plan before copies move.
struct Trip {
  std::size_t out = 0, back = 0;    // the copies
  std::size_t made = 0;             // by this step of the compute stream
  std::size_t last_read = 0;        // by others than the copy out
  std::size_t first_read_back = 0;  // of what came back
  double out_ns = 0, back_ns = 0;   // how long
  double out_end_ns = 0;            // predicted
  std::size_t begin_back = 0;       // behind this step of the compute stream
  std::size_t join = 0;             // the step that waits for the copy out; the number of steps: none
};

class CopyPlacer {
 public:
  CopyPlacer(const Graph& graph, const StepSpeeds& speeds, std::vector<NodeId>& order, Plan& plan)
      : graph_(graph), order_(order), plan_(plan), uses_(uses_of(graph)), step_of_(graph.nodes.size(), -1) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i)
      step_of_[plan.steps[i].node] = static_cast<std::int32_t>(i);
    ns_ = step_times(graph, plan, speeds);
    hold_ns_ = speeds.hold_ns;
  }

  void run() {
    find_trips();
    if (trips_.empty()) return;
    find_starts();
    place_copies_out();
    place_copies_back();
    reorder();
    add_waits();
  }

 private:
  bool is_copy(std::size_t step) const { return copy_[step]; }

  // Steps that read `v`, through views too; an output of the graph is read by the end.
  void readers_of(ValueId v, std::vector<std::size_t>& readers) const {
    for (const Use& use : uses_[v]) {
      const Node& node = graph_.nodes[use.node];
      if (node.op->has(kView))
        readers_of(node.outputs[0], readers);
      else if (step_of_[use.node] >= 0)
        readers.push_back(static_cast<std::size_t>(step_of_[use.node]));
    }
    const bool kept = std::find(graph_.outputs.begin(), graph_.outputs.end(), v) != graph_.outputs.end() ||
                      v == graph_.loss;
    if (kept) readers.push_back(plan_.steps.size());
  }

  void find_trips() {
    copy_.assign(plan_.steps.size(), false);
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const Node& node = graph_.nodes[plan_.steps[i].node];
      Trip trip;
      if (!copies_to_host(*node.op) || !find_trip(node, i, trip)) continue;
      copy_[trip.out] = copy_[trip.back] = true;
      trips_.push_back(trip);
    }
  }

  bool find_trip(const Node& node, std::size_t step, Trip& trip) const {
    ValueId from = node.inputs[0];
    while (graph_.values[from].producer != kNone && graph_.nodes[graph_.values[from].producer].op->has(kView))
      from = graph_.nodes[graph_.values[from].producer].inputs[0];
    std::vector<std::size_t> away, before, behind;
    readers_of(node.outputs[0], away);
    readers_of(from, before);
    if (graph_.values[from].producer == kNone || away.size() != 1 || away[0] == plan_.steps.size())
      return false;
    const Node& back = graph_.nodes[plan_.steps[away[0]].node];
    if (!copies_from_host(*back.op)) return false;
    readers_of(back.outputs[0], behind);
    if (behind.empty()) return false;
    trip = {step, away[0], static_cast<std::size_t>(step_of_[graph_.values[from].producer])};
    trip.last_read = trip.made;
    for (const std::size_t reader : before)
      if (reader != step) trip.last_read = std::max(trip.last_read, reader);
    trip.first_read_back = *std::min_element(behind.begin(), behind.end());
    trip.out_ns = ns_[trip.out];
    trip.back_ns = ns_[trip.back];
    // Copies are of the micro-batch: what is made or read after the last one stays where it is.
    return trip.first_read_back < plan_.steps.size() && trip.last_read < trip.first_read_back &&
           plan_.steps[trip.made].micro && plan_.steps[trip.first_read_back].micro && !copy_[trip.made] &&
           !copy_[trip.first_read_back];
  }

  // Of the steps of the compute stream, as if nothing else ran.
  void find_starts() {
    double now_ns = 0;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      start_ns_.push_back(now_ns);
      if (!is_copy(i)) now_ns += ns_[i];
      end_ns_.push_back(now_ns);
      if (plan_.steps[i].micro) micro_end_ = i + 1;
    }
  }

  void place_copies_out() {
    std::stable_sort(trips_.begin(), trips_.end(),
                     [](const Trip& a, const Trip& b) { return a.made < b.made; });
    double free_ns = 0;
    for (Trip& trip : trips_) {
      free_ns = std::max(free_ns, end_ns_[trip.made]) + trip.out_ns;
      trip.out_end_ns = free_ns;
      const double join_ns = std::min(trip.out_end_ns, end_ns_[trip.last_read] + hold_ns_);
      const auto over = [&](std::size_t i) { return !is_copy(i) && start_ns_[i] >= join_ns; };
      trip.join = trip.last_read + 1;
      while (trip.join < micro_end_ && !over(trip.join)) ++trip.join;
      if (trip.join >= micro_end_) trip.join = plan_.steps.size();
    }
  }

  void place_copies_back() {
    std::vector<Trip*> by_reader;
    for (Trip& trip : trips_) by_reader.push_back(&trip);
    std::stable_sort(by_reader.begin(), by_reader.end(),
                     [](const Trip* a, const Trip* b) { return a->first_read_back > b->first_read_back; });
    double free_ns = 1e300;  // until when the link is free
    for (Trip* const trip : by_reader) {
      const double first_ns = start_ns_[trip->first_read_back] - trip->back_ns - hold_ns_;
      const double last_ns =
          std::max(first_ns, std::min(free_ns, start_ns_[trip->first_read_back]) - trip->back_ns);
      free_ns = last_ns;
      const double begin_ns = std::max(last_ns, trip->out_end_ns);
      trip->begin_back = trip->first_read_back;
      do --trip->begin_back;
      while (trip->begin_back > trip->last_read &&
             (is_copy(trip->begin_back) || end_ns_[trip->begin_back] > begin_ns));
      while (is_copy(trip->begin_back)) --trip->begin_back;  // of another trip of the same value
    }
  }

  void mark_views(ValueId v, std::vector<bool>& views) const {
    for (const Use& use : uses_[v])
      if (graph_.nodes[use.node].op->has(kView)) {
        views[use.node] = true;
        mark_views(graph_.nodes[use.node].outputs[0], views);
      }
  }
  void add_views(ValueId v, std::vector<NodeId>& order) const {
    for (const Use& use : uses_[v])
      if (graph_.nodes[use.node].op->has(kView) && use.input_index == 0) {
        order.push_back(use.node);
        add_views(graph_.nodes[use.node].outputs[0], order);
      }
  }

  // Copies stand behind the step of the compute stream that they wait for.
  void reorder() {
    std::map<std::size_t, std::vector<std::size_t>> behind;  // step -> copies
    for (const Trip& trip : trips_) behind[trip.made].push_back(trip.out);
    std::vector<const Trip*> by_reader;
    for (const Trip& trip : trips_) by_reader.push_back(&trip);
    std::stable_sort(by_reader.begin(), by_reader.end(),
                     [](const Trip* a, const Trip* b) { return a->first_read_back < b->first_read_back; });
    for (const Trip* trip : by_reader) behind[trip->begin_back].push_back(trip->back);
    for (const Trip& trip : trips_) {
      plan_.steps[trip.out].stream = kDownloadStream;
      plan_.steps[trip.back].stream = kUploadStream;
    }
    std::vector<NodeId> order;
    std::vector<PlanStep> steps;
    now_at_.assign(plan_.steps.size() + 1, plan_.steps.size());
    const auto add = [&](std::size_t step) {
      now_at_[step] = steps.size();
      order.push_back(plan_.steps[step].node);
      steps.push_back(std::move(plan_.steps[step]));
    };
    std::vector<bool> moved(graph_.nodes.size(),
                            false);  // views of what comes back, which stand behind the copy
    for (const Trip& trip : trips_) mark_views(graph_.nodes[plan_.steps[trip.back].node].outputs[0], moved);
    for (const NodeId id : order_) {
      const std::int32_t step = step_of_[id];
      if (step < 0) {
        if (!moved[id]) order.push_back(id);
        continue;
      }
      if (is_copy(static_cast<std::size_t>(step))) continue;
      add(static_cast<std::size_t>(step));
      if (const auto at = behind.find(static_cast<std::size_t>(step)); at != behind.end())
        for (const std::size_t copy : at->second) {
          add(copy);
          add_views(graph_.nodes[order.back()].outputs[0], order);
        }
    }
    order_ = std::move(order);
    plan_.steps = std::move(steps);
  }

  // Only what does not follow from other waits.
  void add_waits() {
    std::map<std::size_t, std::vector<std::size_t>> wanted;  // step -> steps
    for (const Trip& trip : trips_) {
      wanted[now_at_[trip.back]].push_back(now_at_[trip.out]);
      wanted[now_at_[trip.first_read_back]].push_back(now_at_[trip.back]);
      if (trip.join < plan_.steps.size()) wanted[now_at_[trip.join]].push_back(now_at_[trip.out]);
    }
    using Known = std::array<std::int32_t, kStreamCount>;  // the latest step of each stream that is over
    Known none;
    none.fill(-1);
    std::array<Known, kStreamCount> stream_knows;
    stream_knows.fill(none);
    std::vector<Known> known;
    std::int32_t computed = -1;  // the latest step of the compute stream
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      PlanStep& step = plan_.steps[i];
      Known& mine = stream_knows[static_cast<std::size_t>(step.stream)];
      std::vector<std::size_t> others = wanted[i];
      if (step.stream != kComputeStream && computed >= 0)
        others.push_back(static_cast<std::size_t>(computed));
      std::sort(others.begin(), others.end(),
                std::greater<>());  // the latest first: it may tell of the others
      for (const std::size_t other : others) {
        const auto at = static_cast<std::int32_t>(other);
        const auto on = static_cast<std::size_t>(plan_.steps[other].stream);
        if (mine[on] >= at) continue;
        step.waits.insert(step.waits.begin(), at);
        for (std::size_t s = 0; s < mine.size(); ++s) mine[s] = std::max(mine[s], known[other][s]);
      }
      mine[static_cast<std::size_t>(step.stream)] = static_cast<std::int32_t>(i);
      known.push_back(mine);
      if (step.stream == kComputeStream) computed = static_cast<std::int32_t>(i);
    }
  }

  const Graph& graph_;
  std::vector<NodeId>& order_;
  Plan& plan_;
  const std::vector<std::vector<Use>> uses_;
  std::vector<std::int32_t> step_of_;  // by node; -1: a view
  std::vector<double> ns_, start_ns_, end_ns_;
  double hold_ns_ = 0;
  std::vector<bool> copy_;  // by step: of a trip
  std::vector<Trip> trips_;
  std::size_t micro_end_ = 0;
  std::vector<std::size_t> now_at_;  // where each step stands after reorder
};

void place_exchanges(const Graph& graph, Plan& plan) {
  std::map<ValueId, std::int32_t> begun;   // what each exchange under way makes -> its step
  std::int32_t computed = -1, aside = -1;  // the latest step of the compute stream, and that of exchanges
  bool micro = true;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    PlanStep& step = plan.steps[i];
    const auto number = static_cast<std::int32_t>(i);
    if (micro != step.micro) {  // nothing is under way between ranges
      computed = aside = -1;
      begun.clear();
    }
    micro = step.micro;
    const Node& node = graph.nodes[step.node];
    const auto wait_for = [&](std::int32_t other) {
      const auto at = std::lower_bound(step.waits.begin(), step.waits.end(), other);
      if (other >= 0 && (at == step.waits.end() || *at != other)) step.waits.insert(at, other);
    };
    if (node.op->begins_exchange()) {
      step.stream = kExchangeStream;
      wait_for(computed);
      aside = begun[node.outputs.back()] = number;
    } else if (node.op->exchange == RankExchange::wait) {
      const auto of = begun.find(node.inputs[0]);
      if (of != begun.end()) wait_for(of->second);
    } else if (may_run_on_host(*node.op)) {
      wait_for(std::exchange(aside, -1));
    }
    if (step.stream == kComputeStream) computed = number;
  }
}

}  // namespace

void place_streams(const Graph& graph, const StepSpeeds& speeds, std::vector<NodeId>& order, Plan& plan) {
  const bool any = std::any_of(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& step) {
    return copies_to_host(*graph.nodes[step.node].op);
  });
  if (any) CopyPlacer(graph, speeds, order, plan).run();
  place_exchanges(graph, plan);
}

std::vector<std::int32_t> last_busy_steps(const Plan& plan) {
  const auto count = static_cast<std::int32_t>(plan.steps.size());
  std::vector<std::int32_t> last(plan.steps.size());
  std::int32_t micro_last = -1;
  for (std::int32_t i = 0; i < count; ++i) {
    const PlanStep& step = plan.steps[static_cast<std::size_t>(i)];
    last[static_cast<std::size_t>(i)] = i;
    if (step.micro) micro_last = i;
  }
  // By stream: steps of it that the compute stream has not waited for, and by step what the step itself knows to be over.
  std::array<std::vector<std::int32_t>, kStreamCount> open;
  using Known = std::array<std::int32_t, kStreamCount>;
  Known none;
  none.fill(-1);
  std::array<Known, kStreamCount> stream_knows;
  stream_knows.fill(none);
  std::vector<Known> known;
  for (std::int32_t i = 0; i < count; ++i) {
    const PlanStep& step = plan.steps[static_cast<std::size_t>(i)];
    const auto stream = static_cast<std::size_t>(step.stream);
    Known& mine = stream_knows[stream];
    for (const std::int32_t other : step.waits)
      for (std::size_t s = 0; s < mine.size(); ++s)
        mine[s] = std::max(mine[s], known[static_cast<std::size_t>(other)][s]);
    mine[stream] = i;
    known.push_back(mine);
    if (step.stream != kComputeStream) {
      open[stream].push_back(i);
      continue;
    }
    for (std::size_t s = 1; s < open.size(); ++s) {
      const auto over = [&](std::int32_t side) {
        if (side > mine[s]) return false;
        last[static_cast<std::size_t>(side)] = i - 1;
        return true;
      };
      open[s].erase(std::remove_if(open[s].begin(), open[s].end(), over), open[s].end());
    }
  }
  for (const std::vector<std::int32_t>& steps : open)
    for (const std::int32_t side : steps)
      last[static_cast<std::size_t>(side)] =
          plan.steps[static_cast<std::size_t>(side)].micro ? micro_last : count - 1;
  return last;
}

StepTimes predict_times(const Graph& graph, const Plan& plan, const StepSpeeds& speeds) {
  const std::vector<double> ns = step_times(graph, plan, speeds);
  StepTimes times;
  std::array<double, kStreamCount> free_ns{};
  double computing_ns = 0;
  bool micro = true;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (micro && !step.micro) free_ns.fill(*std::max_element(free_ns.begin(), free_ns.end()));
    micro = step.micro;
    double& free = free_ns[static_cast<std::size_t>(step.stream)];
    double start = free;
    for (const std::int32_t other : step.waits)
      start = std::max(start, times.end_ns[static_cast<std::size_t>(other)]);
    times.start_ns.push_back(start);
    times.end_ns.push_back(free = start + ns[i]);
    if (step.stream == kComputeStream) computing_ns += ns[i];
  }
  times.total_ns = *std::max_element(free_ns.begin(), free_ns.end());
  times.exposed_ns = times.total_ns - computing_ns;
  return times;
}

}  // namespace gradloom
