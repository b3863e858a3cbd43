#include "passes/recompute.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/ir/op.h"
#include "passes/min_cut.h"
#include "passes/node_patterns.h"

namespace gradloom {
namespace {

bool runs_forward(const Node& node) { return node.alive() && node.origin.phase == Phase::forward; }
bool runs_after_loss(const Node& node) {
  return node.alive() && (node.origin.phase == Phase::backward || node.origin.phase == Phase::optimizer);
}

// By node: whether it may run twice. What reads or changes a state runs once.
std::vector<bool> repeatable_nodes(const Graph& graph) {
  std::vector<bool> updated(graph.values.size(), false), repeatable(graph.nodes.size(), false);
  for (const Update& u : graph.updates) updated[u.next] = true;
  const auto is_state = [&](ValueId v) { return v != kNone && graph.values[v].role == Role::state; };
  const auto is_updated = [&](ValueId v) { return v != kNone && updated[v]; };
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    repeatable[id] = runs_forward(node) && !node.op->has(kMustAlias) &&
                     std::none_of(node.inputs.begin(), node.inputs.end(), is_state) &&
                     std::none_of(node.outputs.begin(), node.outputs.end(), is_updated);
  }
  return repeatable;
}

// Only the peak matters while searching: as if the planner were perfect.
std::int64_t plan_nothing(const std::vector<Request>& requests, std::vector<std::int64_t>&) {
  return lower_bound_bytes(requests);
}

// Values that hold the same bytes are one: the one that is no view.
ValueId storage_of(const Graph& graph, ValueId v) {
  while (graph.values[v].producer != kNone && graph.nodes[graph.values[v].producer].op->has(kView))
    v = graph.nodes[graph.values[v].producer].inputs[0];
  return v;
}

class Search {
 public:
  Search(const Graph& graph, const RecomputeOptions& options)
      : graph_(graph), options_(options), uses_(uses_of(graph)) {}

  Result<std::vector<RecomputeChoice>> run() {
    TRY(look_at_nodes());
    find_segments();
    choices_.push_back({{}, TRY(peak_of({})), 0});
    // All of it from the inputs at once saves little alone (0: no segments), but a lot of small models.
    for (const std::size_t length : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{0}}) {
      if (length > 1 && boundaries_.size() < length) continue;
      for (const double price : prices()) TRY(try_price(length, price));
    }
    return front();
  }

 private:
  Status look_at_nodes() {
    order_ = TRY(topological_order(graph_));
    cost_.assign(graph_.nodes.size(), 0);
    repeatable_ = repeatable_nodes(graph_);
    for (const NodeId id : order_) {
      const Node& node = graph_.nodes[id];
      if (!node.op->has(kView)) {
        const Cost cost =
            node.op->cost(node_types(graph_, node, options_.plan.target, options_.plan.dnn_library));
        cost_[id] = std::max(cost.flops / options_.flops_per_byte, cost.bytes_read + cost.bytes_written);
        total_ += cost_[id];
      }
    }
    return {};
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
      std::size_t& last = last_read[storage_of(graph_, v)];
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
    std::sort(ratios.begin(), ratios.end());
    std::set<double> chosen;
    constexpr std::size_t kPrices = 7;
    for (std::size_t i = 1; i <= kPrices && !ratios.empty(); ++i)
      chosen.insert(ratios[(ratios.size() - 1) * i / kPrices] * 1.01);
    std::vector<double> prices(chosen.begin(), chosen.end());
    // A value costs what it takes and what that takes in turn: chains are dearer than any one node.
    for (const double chain : {2, 4, 8, 100})
      if (!ratios.empty()) prices.push_back(ratios.back() * chain);
    return prices;
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

  Result<std::int64_t> peak_of(const std::vector<NodeId>& nodes) const {
    if (options_.stop.stop_requested()) return Error{Errc::interrupted, "interrupted"};
    PlanOptions options = options_.plan;
    options.planner = plan_nothing;
    if (nodes.empty()) return TRY(make_plan(graph_, options)).peak_bytes();
    Graph graph = graph_;
    std::vector<PassReport> reports;
    TRY(apply_recompute(graph, nodes, reports));
    return TRY(make_plan(graph, options)).peak_bytes();
  }

  Status try_price(std::size_t length, double price) {
    const std::vector<NodeId> all = cut(length, price);
    if (all.empty()) return {};
    // How many of the segments, from the input on: their values are kept the longest.
    const std::size_t segments = length == 0 ? 1 : boundaries_.size() + 1;
    std::set<std::size_t> counts{segments};
    for (std::size_t i = 1; i < 6; ++i) counts.insert(std::max<std::size_t>(1, segments * i / 6));
    for (const std::size_t count : counts) {
      std::vector<NodeId> nodes;
      double cost = 0;
      for (const NodeId id : all)
        if (length == 0 || segment_[id] < count) {
          nodes.push_back(id);
          cost += cost_[id] / std::max(total_, 1.0);
        }
      if (nodes.empty() || !tried_.insert(nodes).second) continue;
      const std::int64_t peak = TRY(peak_of(nodes));
      choices_.push_back({std::move(nodes), peak, cost});
    }
    return {};
  }

  std::vector<RecomputeChoice> front() {
    std::stable_sort(choices_.begin(), choices_.end(),
                     [](const RecomputeChoice& a, const RecomputeChoice& b) {
                       return a.cost != b.cost ? a.cost < b.cost : a.peak_bytes < b.peak_bytes;
                     });
    std::vector<RecomputeChoice> best;
    for (RecomputeChoice& choice : choices_)
      if (best.empty() || choice.peak_bytes < best.back().peak_bytes) best.push_back(std::move(choice));
    return best;
  }

  const Graph& graph_;
  const RecomputeOptions& options_;
  const std::vector<std::vector<Use>> uses_;
  std::vector<NodeId> order_;
  std::vector<double> cost_;  // by node, in bytes moved
  double total_ = 0;
  std::vector<bool> repeatable_;                // by node
  std::vector<std::size_t> segment_;            // by forward node
  std::vector<std::size_t> boundaries_;         // positions among the forward nodes
  std::vector<std::vector<ValueId>> crossers_;  // by boundary: storages that are read behind it
  std::set<std::vector<NodeId>> tried_;
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
  return Search(graph, options).run();
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
        for (const NodeId id : kept) rw.reject("again", id, "it reads or changes a state, so it runs once");
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
