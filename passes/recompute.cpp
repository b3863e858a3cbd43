#include "passes/recompute.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "engine/ir/op.h"
#include "engine/ir/views.h"
#include "engine/ops/transfers.h"
#include "passes/min_cut.h"
#include "passes/node_patterns.h"
#include "passes/phases.h"
#include "passes/planners.h"
#include "passes/recompute_bound.h"
#include "passes/repeatable.h"

namespace gradloom {

std::vector<bool> repeatable_nodes(const Graph& graph) {
  std::vector<bool> updated(graph.values.size(), false), repeatable(graph.nodes.size(), false);
  for (const Update& u : graph.updates) updated[u.next] = true;
  const auto is_state = [&](ValueId v) { return v != kNone && graph.values[v].role == Role::state; };
  const auto is_updated = [&](ValueId v) { return v != kNone && updated[v]; };
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    repeatable[id] = runs_forward(node) && !node.op->has(kMustAlias) && !node.op->has(kRunsOnce) &&
                     !copies_to_host(*node.op) &&
                     std::none_of(node.inputs.begin(), node.inputs.end(), is_state) &&
                     std::none_of(node.outputs.begin(), node.outputs.end(), is_updated);
  }
  return repeatable;
}

namespace {

class Search {
 public:
  Search(const Graph& graph, const RecomputeOptions& options)
      : graph_(graph), options_(options), uses_(uses_of(graph)) {}

  // `others`: choices of another search of this graph, which are weighed here again.
  Status run(const std::vector<RecomputeChoice>& others = {}) {
    order_ = TRY(topological_order(graph_));
    repeatable_ = repeatable_nodes(graph_);
    const Plan plan = TRY(plan_of(graph_));
    find_costs(plan);
    find_segments();
    choices_.push_back({{}, plan.peak_bytes(), 0});
    if (is_small()) return try_all();
    for (const RecomputeChoice& other : others)
      if (tried_.insert(other.nodes).second && !other.nodes.empty())
        choices_.push_back({other.nodes, other.peak_bytes, cost_of(other.nodes)});
    // All of it from the inputs at once saves little alone (0: no segments), but a lot of small models.
    for (const std::size_t length : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{0}}) {
      if (length > 1 && boundaries_.size() < length) continue;
      for (const double price : prices()) TRY(try_price(length, price));
    }
    plans_left_ = std::max<std::size_t>(kLeastPlans, kPlannedNodes / std::max<std::size_t>(order_.size(), 1));
    for (int round = 0; round < kRounds; ++round) TRY(fill_gaps());
    for (std::size_t before = 0; before != choices_.size();) {  // until they lead to no others
      before = choices_.size();
      TRY(try_neighbours());
    }
    return {};
  }
  const std::vector<RecomputeChoice>& choices() const { return choices_; }  // all that were tried

  // Those that no other beats.
  std::vector<RecomputeChoice> front() const {
    std::vector<RecomputeChoice> sorted = choices_, best;
    std::stable_sort(sorted.begin(), sorted.end(), [](const RecomputeChoice& a, const RecomputeChoice& b) {
      return a.cost != b.cost ? a.cost < b.cost : a.peak_bytes < b.peak_bytes;
    });
    for (RecomputeChoice& choice : sorted)
      if (best.empty() || choice.peak_bytes < best.back().peak_bytes) best.push_back(std::move(choice));
    return best;
  }

  // The same with times and with what no choice can beat.
  Result<std::vector<RecomputeChoice>> curve() const {
    std::vector<RecomputeChoice> points = front();
    const RecomputeBound bound = TRY(find_bound());
    const std::int64_t least_peak_bytes = std::min(bound.least_peak_bytes(), points.back().peak_bytes);
    for (RecomputeChoice& choice : points) {
      if (options_.kernel_ns) choice.step_ns = total_ * (1 + choice.cost);
      choice.least_cost = std::min(choice.cost, bound.least_cost(choice.peak_bytes));
      choice.least_peak_bytes = least_peak_bytes;
    }
    return points;
  }

 private:
  // Of filling gaps, which takes so many plans of so many nodes in all: seconds.
  static constexpr int kRounds = 2;
  static constexpr std::size_t kLeastPlans = 32, kPlannedNodes = 200'000;
  static constexpr double kGap = 0.005;  // of the step's cost: between points this near nothing is sought
  void find_costs(const Plan& plan) {
    cost_.assign(graph_.nodes.size(), 0);
    std::vector<double> times;
    if (options_.kernel_ns) times = options_.kernel_ns(graph_, plan);
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const PlanStep& step = plan.steps[i];
      const double once = !times.empty() ? times[i]
                                         : std::max(step.flops / options_.flops_per_byte,
                                                    step.bytes_read + step.bytes_written);
      cost_[step.node] = once * (step.micro ? static_cast<double>(options_.micro_batches) : 1);
      total_ += cost_[step.node];
    }
  }

  Result<RecomputeBound> find_bound() const {
    std::vector<double> parts;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) parts.push_back(cost_of(id));
    PlanOptions options = options_.plan;
    options.in_place = false;
    return RecomputeBound(graph_, TRY(plan_of(graph_, options)), repeatable_, parts);
  }

  // As a part of the step's.
  double cost_of(NodeId id) const { return cost_[id] / std::max(total_, 1.0); }
  double cost_of(const std::vector<NodeId>& nodes) const {
    double cost = 0;
    for (const NodeId id : nodes) cost += cost_of(id);
    return cost;
  }

  double bytes_of(ValueId v) const { return static_cast<double>(byte_size(graph_.values[v].type)); }
  bool of_forward(ValueId v) const {
    return v != kNone && graph_.values[v].producer != kNone &&
           runs_forward(graph_.nodes[graph_.values[v].producer]);
  }

  // Behind which forward nodes little crosses: the valleys of the bytes that later forward nodes still read.
  void find_segments() {
    std::vector<NodeId> forward;
    std::vector<std::size_t> position(graph_.nodes.size(), 0);
    for (const NodeId id : order_)
      if (runs_forward(graph_.nodes[id])) {
        position[id] = forward.size();
        forward.push_back(id);
      }
    segment_.assign(graph_.nodes.size(), 0);
    std::map<ValueId, std::size_t> last_read;  // of storages, by forward nodes and the loss
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      if (!of_forward(v)) continue;
      std::size_t& last = last_read[behind_views(graph_, v)];
      for (const Use& use : uses_[v]) {
        const Node& reader = graph_.nodes[use.node];
        if (runs_forward(reader)) last = std::max(last, position[use.node]);
        if (reader.origin.phase == Phase::loss) last = forward.size();
      }
    }
    std::vector<double> crossing(forward.size() + 1, 0);
    for (const auto& [v, last] : last_read)
      if (of_forward(v))
        for (std::size_t p = position[graph_.values[v].producer]; p < last; ++p) crossing[p] += bytes_of(v);
    for (const std::size_t valley : valleys(crossing)) boundaries_.push_back(valley);
    for (std::size_t p = 0, s = 0; p < forward.size(); ++p) {
      segment_[forward[p]] = s;
      if (s < boundaries_.size() && boundaries_[s] == p) ++s;
    }
    crossers_.resize(boundaries_.size());
    for (std::size_t b = 0; b < boundaries_.size(); ++b)
      for (const auto& [v, last] : last_read)
        if (of_forward(v) && position[graph_.values[v].producer] <= boundaries_[b] && boundaries_[b] < last)
          crossers_[b].push_back(v);
  }

  // Positions of lowest crossing between rises of at least a third; in a chain without any, evenly spaced ones.
  static std::vector<std::size_t> valleys(const std::vector<double>& crossing) {
    constexpr double kRise = 4.0 / 3;
    std::vector<std::size_t> found;
    const std::size_t count = crossing.size() - 1;
    if (count < 2) return found;
    double high = 0;
    std::size_t low = 0;
    bool falling = false;
    for (std::size_t p = 0; p < count; ++p) {
      if (!falling) {
        high = std::max(high, crossing[p]);
        if (crossing[p] * kRise <= high) {
          falling = true;
          low = p;
        }
        continue;
      }
      if (crossing[p] < crossing[low]) low = p;
      if (crossing[p] >= crossing[low] * kRise) {
        found.push_back(low);
        high = crossing[p];
        falling = false;
      }
    }
    if (found.size() >= 2 || count < 8) return found;
    found.clear();
    const auto stride = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
    for (std::size_t p = stride; p + 1 < count; p += stride) found.push_back(p);
    return found;
  }

  // Seconds (in units of cost) per byte, from one that buys nothing to one that buys everything.
  std::vector<double> prices() const {
    std::vector<double> ratios;
    for (const NodeId id : order_) {
      const Node& node = graph_.nodes[id];
      if (!repeatable_[id] || node.op->has(kView)) continue;
      double bytes = 0;
      for (const ValueId v : node.outputs)
        if (v != kNone) bytes += bytes_of(v);
      if (bytes > 0) ratios.push_back(cost_[id] / bytes);
    }
    if (ratios.empty()) return {};
    std::sort(ratios.begin(), ratios.end());
    std::set<double> prices;
    constexpr std::size_t kPrices = 7;
    for (std::size_t i = 1; i <= kPrices; ++i)
      prices.insert(ratios[(ratios.size() - 1) * i / kPrices] * 1.01);
    // A value costs what it takes and what that takes in turn: chains are dearer than any one node, the cheap ones too
    // where nothing is about as dear as they are.
    for (const double chain : {2, 4, 8, 100}) prices.insert(ratios.back() * chain);
    const std::vector<double> nodes(prices.begin(), prices.end());
    constexpr double kNear = 1.25;
    for (const double price : nodes)
      for (const double chain : {2, 4, 8}) {
        const auto next = prices.lower_bound(price * chain / kNear);
        if (next == prices.end() || *next > price * chain * kNear) prices.insert(price * chain);
      }
    return {prices.begin(), prices.end()};
  }

  // What a minimum cut at this price runs again, every `length`-th boundary being kept.
  std::vector<NodeId> cut(std::size_t length, double price) const {
    std::set<ValueId> kept(graph_.outputs.begin(), graph_.outputs.end());
    kept.insert(graph_.loss);
    for (std::size_t b = 0; length > 0 && b < crossers_.size(); ++b)
      if ((b + 1) % length == 0) kept.insert(crossers_[b].begin(), crossers_[b].end());
    // Two nodes for each value (wanted after the loss) and each node (run again).
    const std::size_t values = graph_.values.size(), source = values + graph_.nodes.size(), sink = source + 1;
    MinCut network(sink + 1);
    const auto again = [&](NodeId id) { return values + id; };
    for (ValueId v = 0; v < values; ++v) {
      if (!of_forward(v) || kept.count(v)) continue;
      const NodeId producer = graph_.values[v].producer;
      if (!repeatable_[producer]) continue;
      const bool wanted = std::any_of(uses_[v].begin(), uses_[v].end(), [&](const Use& use) {
        return runs_after_loss(graph_.nodes[use.node]);
      });
      if (wanted) network.add_edge(source, v, MinCut::kUnlimited);
      const bool view = graph_.nodes[producer].op->has(kView);
      network.add_edge(v, again(producer), view ? MinCut::kUnlimited : price * bytes_of(v));
    }
    for (const NodeId id : order_) {
      if (!repeatable_[id]) continue;
      network.add_edge(again(id), sink, cost_[id]);
      for (const ValueId in : graph_.nodes[id].inputs)
        if (of_forward(in)) network.add_edge(again(id), in, MinCut::kUnlimited);
    }
    network.solve(source, sink);
    std::vector<NodeId> nodes;
    for (const NodeId id : order_)
      if (repeatable_[id] && network.on_source_side(again(id))) nodes.push_back(id);
    return nodes;
  }

  Result<Plan> plan_of(const Graph& graph) const { return plan_of(graph, options_.plan); }
  Result<Plan> plan_of(const Graph& graph, PlanOptions options) const {
    if (options_.stop.stop_requested()) return Error{Errc::interrupted, "interrupted"};
    options.planner = plan_nothing;
    options.pieces = false;  // with them the arena is no larger, but a plan takes three times as long
    return make_plan(graph, options);
  }

  Result<std::int64_t> peak_with(const std::vector<NodeId>& nodes) const {
    Graph graph = graph_;
    std::vector<PassReport> reports;
    TRY(apply_recompute(graph, nodes, reports));
    return TRY(plan_of(graph)).peak_bytes();
  }

  // How many of the segments, from the input on: their values are kept the longest.
  std::set<std::size_t> some_segments() const {
    std::set<std::size_t> counts;
    for (std::size_t i = 1; i < 6; ++i)
      counts.insert(std::max<std::size_t>(1, (boundaries_.size() + 1) * i / 6));
    return counts;
  }

  Status try_price(std::size_t length, double price) {
    const std::vector<NodeId> all = cut(length, price);
    if (all.empty()) return {};
    std::set<std::size_t> counts{boundaries_.size() + 1};
    if (length > 0) counts.merge(some_segments());
    for (const std::size_t count : counts) {
      std::vector<bool> chosen(graph_.nodes.size(), false);
      for (const NodeId id : all) chosen[id] = segment_[id] < count;
      TRY(try_nodes(chosen));
    }
    return {};
  }

  // What of the chosen nodes is needed again, as a choice.
  Status try_nodes(const std::vector<bool>& chosen) {
    std::vector<bool> needed(graph_.nodes.size(), false);
    std::vector<NodeId> nodes;
    for (std::size_t i = order_.size(); i-- > 0;) {
      const NodeId id = order_[i];
      if (!chosen[id]) continue;
      for (const ValueId out : graph_.nodes[id].outputs)
        needed[id] = needed[id] ||
                     (out != kNone && std::any_of(uses_[out].begin(), uses_[out].end(), [&](const Use& use) {
                        return needed[use.node] || runs_after_loss(graph_.nodes[use.node]);
                      }));
      if (!needed[id]) continue;
      nodes.push_back(id);
    }
    std::reverse(nodes.begin(), nodes.end());
    if (nodes.empty() || plans_left_ == 0 || !tried_.insert(nodes).second) return {};
    --plans_left_;
    const std::int64_t peak = TRY(peak_with(nodes));
    const double cost = cost_of(nodes);
    choices_.push_back({std::move(nodes), peak, cost});
    return {};
  }

  // The nodes that may run again and have a kernel.
  std::vector<NodeId> candidates() const {
    std::vector<NodeId> nodes;
    for (const NodeId id : order_)
      if (repeatable_[id] && !graph_.nodes[id].op->has(kView)) nodes.push_back(id);
    return nodes;
  }

  // All choices together are no more nodes to plan than the search plans.
  bool is_small() const {
    const std::size_t count = candidates().size();
    return count < 32 && (std::size_t{1} << count) * order_.size() <= kPlannedNodes;
  }

  // Views run again with what they are of.
  Status try_all() {
    const std::vector<NodeId> nodes = candidates();
    for (std::size_t set = 1; set < std::size_t{1} << nodes.size(); ++set) {
      std::vector<bool> chosen(graph_.nodes.size(), false);
      for (const NodeId id : order_) chosen[id] = repeatable_[id] && graph_.nodes[id].op->has(kView);
      for (std::size_t i = 0; i < nodes.size(); ++i) chosen[nodes[i]] = (set >> i & 1) != 0;
      TRY(try_nodes(chosen));
    }
    return {};
  }

  // Each point of the curve with one node more or less, the last one with two, where that is no more plans than are left.
  Status try_neighbours() {
    const std::vector<NodeId> nodes = candidates();
    const std::vector<RecomputeChoice> points = front();
    if (points.size() * nodes.size() > plans_left_) return {};
    for (const RecomputeChoice& point : points) {
      std::vector<bool> chosen(graph_.nodes.size(), false);
      for (const NodeId id : point.nodes) chosen[id] = true;
      const bool pairs = &point == &points.back() && nodes.size() * nodes.size() <= plans_left_;
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        chosen[nodes[i]] = !chosen[nodes[i]];
        TRY(try_nodes(chosen));
        for (std::size_t j = i + 1; pairs && j < nodes.size(); ++j) {
          chosen[nodes[j]] = !chosen[nodes[j]];
          TRY(try_nodes(chosen));
          chosen[nodes[j]] = !chosen[nodes[j]];
        }
        chosen[nodes[i]] = !chosen[nodes[i]];
      }
    }
    return {};
  }

  // Between neighbours on the curve, the farthest ones first: one in a part of the segments and the other in the rest, and
  // the dearer one without a part of what it runs again: the dearest for its bytes, or what is kept the shortest.
  Status fill_gaps() {
    std::vector<std::size_t> rank(graph_.nodes.size(), 0);
    for (std::size_t i = 0; i < order_.size(); ++i) rank[order_[i]] = i;
    const auto price = [&](NodeId id) {
      double bytes = 1;
      for (const ValueId v : graph_.nodes[id].outputs)
        if (v != kNone) bytes += bytes_of(v);
      return cost_[id] / bytes;
    };
    const std::vector<RecomputeChoice> points = front();
    const auto gap = [&](std::size_t i) { return points[i].cost - points[i - 1].cost; };
    std::vector<std::size_t> gaps;
    for (std::size_t i = 1; i < points.size(); ++i)
      if (gap(i) >= kGap) gaps.push_back(i);
    std::stable_sort(gaps.begin(), gaps.end(), [&](std::size_t a, std::size_t b) { return gap(a) > gap(b); });
    for (const std::size_t i : gaps) {
      TRY(try_mixed(points[i - 1].nodes, points[i].nodes));
      TRY(try_mixed(points[i].nodes, points[i - 1].nodes));
      std::vector<NodeId> nodes = points[i].nodes;
      std::stable_sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) { return price(a) > price(b); });
      TRY(try_without(nodes, points[i].cost, points[i - 1].cost));
      std::sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) { return rank[a] > rank[b]; });
      TRY(try_without(nodes, points[i].cost, points[i - 1].cost));
    }
    return {};
  }

  // One choice in the first segments, the other one in the rest.
  Status try_mixed(const std::vector<NodeId>& first, const std::vector<NodeId>& rest) {
    for (const std::size_t count : some_segments()) {
      std::vector<bool> chosen(graph_.nodes.size(), false);
      for (const NodeId id : first) chosen[id] = segment_[id] < count;
      for (const NodeId id : rest) chosen[id] = chosen[id] || segment_[id] >= count;
      TRY(try_nodes(chosen));
    }
    return {};
  }

  // The nodes without the first of them, without more, .. until only what costs `least` is left.
  Status try_without(const std::vector<NodeId>& nodes, double most, double least) {
    constexpr int kParts = 8;
    std::vector<bool> chosen(graph_.nodes.size(), false);
    for (const NodeId id : nodes) chosen[id] = true;
    double cost = most;
    int part = 1;
    for (const NodeId id : nodes) {
      chosen[id] = false;
      cost -= cost_of(id);
      if (cost <= least) return {};
      if (cost > most - (most - least) * part / kParts) continue;
      TRY(try_nodes(chosen));
      while (cost <= most - (most - least) * part / kParts) ++part;
    }
    return {};
  }

  const Graph& graph_;
  const RecomputeOptions& options_;
  const std::vector<std::vector<Use>> uses_;
  std::vector<NodeId> order_;
  std::vector<double> cost_;  // by node, of a step: ns, without kernel_ns bytes moved
  double total_ = 0;
  std::vector<bool> repeatable_;                // by node
  std::vector<std::size_t> segment_;            // by forward node
  std::vector<std::size_t> boundaries_;         // positions among the forward nodes
  std::vector<std::vector<ValueId>> crossers_;  // by boundary: storages that are read behind it
  std::set<std::vector<NodeId>> tried_;
  std::size_t plans_left_ = std::numeric_limits<std::size_t>::max();
  std::vector<RecomputeChoice> choices_;
};

// Whether the clone of a node must give this result: where it may leave it out, only to a reader.
bool needed_again(const Graph& graph, const Node& node, std::size_t output, const Rewriter& rw,
                  const std::set<NodeId>& chosen) {
  const ValueId v = node.outputs[output];
  if (v == kNone) return false;
  if (!node.op->has(output == 0 ? kFirstOutputOptional : kOptionalOutputs)) return true;
  return std::any_of(rw.uses(v).begin(), rw.uses(v).end(), [&](const Use& use) {
    return runs_after_loss(graph.nodes[use.node]) || chosen.count(use.node) != 0;
  });
}

// The clone of a node runs before this one: the first after the loss that reads it or a clone that needs it.
std::map<NodeId, NodeId> first_readers(const Rewriter& rw, const std::vector<NodeId>& in_order) {
  const Graph& graph = rw.graph();
  std::map<NodeId, NodeId> first;
  for (std::size_t i = in_order.size(); i-- > 0;) {
    const NodeId id = in_order[i];
    NodeId best = kNone;
    const auto consider = [&](NodeId reader) {
      if (best == kNone || graph.nodes[reader].rank < graph.nodes[best].rank) best = reader;
    };
    for (const ValueId out : graph.nodes[id].outputs) {
      if (out == kNone) continue;
      for (const Use& use : rw.uses(out)) {
        if (runs_after_loss(graph.nodes[use.node])) consider(use.node);
        if (const auto clone = first.find(use.node); clone != first.end()) consider(clone->second);
      }
    }
    if (best != kNone) first[id] = best;
  }
  return first;
}

// Clones of the nodes, in order, which their readers after the loss read from now on.
Status run_again(Graph& graph, const std::vector<NodeId>& in_order, const std::set<NodeId>& chosen,
                 Rewriter& rw) {
  const std::map<NodeId, NodeId> first = first_readers(rw, in_order);
  std::map<ValueId, ValueId> again;
  for (const NodeId id : in_order) {
    const auto reader = first.find(id);
    if (reader == first.end()) continue;
    const Node node = graph.nodes[id];
    std::vector<ValueId> inputs = node.inputs;
    bool other = false;  // a view of what is kept is as good as its clone
    for (ValueId& in : inputs)
      if (const auto at = again.find(in); at != again.end()) {
        in = at->second;
        other = true;
      }
    if (node.op->has(kView) && !other) continue;
    GraphBuilder& b = rw.begin("again", reader->second, {id});
    std::vector<std::string> names;
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      names.push_back(needed_again(graph, node, i, rw, chosen)
                          ? b.unique_name(graph.values[node.outputs[i]].name + "/again")
                          : std::string());
    const std::vector<ValueId> outputs =
        TRY(b.add(*node.op, inputs, node.attrs, static_cast<int>(names.size()), names,
                  b.unique_name(node.name + "/again")));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNone) continue;
      // What contents tell of sizes is not asked for again: the same type, and the same contents where known.
      Value& clone = graph.values[outputs[i]];
      const Value& original = graph.values[node.outputs[i]];
      clone.type = original.type;
      clone.data = original.data;
      clone.role = Role::activation;
      again[node.outputs[i]] = outputs[i];
      const std::vector<Use> uses = rw.uses(node.outputs[i]);
      for (const Use& use : uses) {
        const Node& after = graph.nodes[use.node];
        if (!runs_after_loss(after) || after.inputs[use.input_index] != node.outputs[i]) continue;
        std::vector<ValueId> operands = after.inputs;
        operands[use.input_index] = outputs[i];
        rw.retype(use.node, std::move(operands), after.attrs);
      }
    }
    rw.commit("runs again before " + graph.nodes[reader->second].name);
  }
  return {};
}

// Types are those of the nodes that run again, which some operators infer from contents.
const RewriteRun kRun{.name = "recompute", .infer_again = false};

}  // namespace

Result<std::vector<RecomputeChoice>> recompute_curve(const Graph& graph, const RecomputeOptions& options) {
  Search search(graph, options);
  if (!options.kernel_ns) {
    TRY(search.run());
    return search.curve();
  }
  // Where times are known none of these choices is dearer than those that FLOPs and bytes lead to.
  RecomputeOptions untimed = options;
  untimed.kernel_ns = nullptr;
  Search other(graph, untimed);
  TRY(other.run());
  TRY(search.run(other.choices()));
  return search.curve();
}

Status recompute_named(Graph& graph, const std::vector<std::string>& patterns,
                       std::vector<PassReport>& reports) {
  TRY(check_node_patterns(graph, patterns, "--recompute"));
  const std::vector<bool> repeatable = repeatable_nodes(graph);
  std::vector<NodeId> chosen, kept;
  for (const NodeId id : TRY(topological_order(graph)))
    if (runs_forward(graph.nodes[id]) &&
        std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& p) { return fits_node(p, graph, graph.nodes[id]); }))
      (repeatable[id] ? chosen : kept).push_back(id);
  const std::set<NodeId> names(chosen.begin(), chosen.end());
  return run_rewrites(
      graph, kRun,
      [&](Rewriter& rw) -> Status {
        for (const NodeId id : kept)
          rw.reject("again", id,
                    graph.nodes[id].op->has(kRunsOnce)    ? "it is code of the caller, which runs once"
                    : copies_to_host(*graph.nodes[id].op) ? "it is a copy to the host"
                                                          : "it reads or changes a state, so it runs once");
        const auto first = first_readers(rw, chosen);
        for (const NodeId id : chosen)
          if (!first.count(id) && !graph.nodes[id].op->has(kView))
            rw.reject("again", id, "nothing after the loss reads it");
        return run_again(graph, chosen, names, rw);
      },
      reports);
}

Status apply_recompute(Graph& graph, const std::vector<NodeId>& nodes, std::vector<PassReport>& reports) {
  const std::set<NodeId> chosen(nodes.begin(), nodes.end());
  std::vector<NodeId> in_order;
  for (const NodeId id : TRY(topological_order(graph)))
    if (chosen.count(id)) in_order.push_back(id);
  return run_rewrites(
      graph, kRun, [&](Rewriter& rw) { return run_again(graph, in_order, chosen, rw); }, reports);
}

}  // namespace gradloom
