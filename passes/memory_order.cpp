// memory-order: the order of the nodes that needs the least memory, where the one at hand can be bettered.
//
// While a node runs, memory holds what nodes before it made and others still read. Which nodes run before it is free
// within limits: with each node all that it depends on, and nothing that depends on the node itself. The set that leaves the least
// in memory is a minimum cut: a storage of b bytes costs b when its producer is in the set and a reader is not. So for the node at the peak the best set is
// found exactly; its nodes run first, in the order in which they were, and then the rest; the peak is elsewhere now, and the search goes
// on there until it falls no more. The peak of no order can be less than that cut. (Scheduling for memory at large: Liu, An application of generalized tree pebbling
// to sparse matrix factorization, 1987; Steiner et al., OLLA, 2022.)
#include <algorithm>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/plan/micro_steps.h"
#include "engine/plan/plan.h"
#include "passes/min_cut.h"
#include "passes/pass.h"
#include "passes/phases.h"

namespace gradloom {
namespace {

constexpr const char* kRule = "memory-order";

using Order = std::vector<NodeId>;

// What nodes make and read, by storages: views have their operand's.
class Lifetimes {
 public:
  Lifetimes(const Graph& graph, const Order& order) : graph_(graph), storage_(graph.values.size()) {
    for (ValueId v = 0; v < storage_.size(); ++v) storage_[v] = v;
    readers_.resize(storage_.size());
    waits_for_.resize(graph.nodes.size());
    bytes_.assign(storage_.size(), 0);
    kept_.assign(storage_.size(), false);
    for (const NodeId id : order) {
      const Node& node = graph.nodes[id];
      for (const ValueId in : node.inputs)
        if (in != kNone && graph.values[in].producer != kNone)
          waits_for_[id].push_back(graph.values[in].producer);
      if (node.op->has(kView)) {
        storage_[node.outputs[0]] = storage_[node.inputs[0]];
        continue;
      }
      for (const ValueId v : storages_read(node)) readers_[v].push_back(id);
      for (const ValueId out : node.outputs)
        if (out != kNone)
          bytes_[out] = aligned_bytes(static_cast<std::int64_t>(byte_size(graph.values[out].type)));
    }
    for (const NodeId id : order) write_over(id);
    for (const ValueId out : graph.outputs) kept_[storage_[out]] = true;
    if (graph.loss != kNone) kept_[storage_[graph.loss]] = true;
    for (const Update& u : graph.updates) bytes_[u.next] = 0;
  }

  bool is_view(NodeId id) const { return graph_.nodes[id].op->has(kView); }
  ValueId storage(ValueId v) const { return storage_[v]; }
  const std::vector<NodeId>& readers(ValueId storage) const { return readers_[storage]; }
  const std::vector<NodeId>& waits_for(NodeId id) const { return waits_for_[id]; }
  bool kept(ValueId storage) const { return kept_[storage]; }
  // Of the arena: nothing for parameters, inputs and states.
  std::int64_t bytes(ValueId storage) const { return bytes_[storage]; }

  struct Peak {
    std::int64_t bytes = 0, steps = 0;  // steps: how many have as much
    std::size_t position = 0;           // of the first of them, in the order
    bool operator<(const Peak& other) const {
      return bytes != other.bytes ? bytes < other.bytes : steps < other.steps;
    }
  };
  Peak peak(const Order& order) const {
    std::vector<std::size_t> left(readers_.size(), 0);
    for (ValueId v = 0; v < left.size(); ++v) left[v] = readers_[v].size();
    Peak peak;
    std::int64_t live = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (is_view(order[i])) continue;
      const Node& node = graph_.nodes[order[i]];
      std::vector<ValueId> freed = storages_read(node);
      std::erase_if(freed, [&](ValueId v) { return --left[v] > 0 || kept_[v]; });
      for (const ValueId out : node.outputs)
        if (out != kNone && bytes(out) > 0 && !overwrites(node, out, freed)) live += bytes(out);
      if (live > peak.bytes) peak = {live, 0, i};
      if (live == peak.bytes) ++peak.steps;
      for (const ValueId v : freed) live -= bytes(v);
      for (const ValueId out : node.outputs)
        if (out != kNone && left[out] == 0 && !kept_[out]) live -= bytes(out);
    }
    return peak;
  }

 private:
  std::vector<ValueId> storages_read(const Node& node) const {  // each once
    std::vector<ValueId> read;
    for (const ValueId in : node.inputs)
      if (in != kNone) read.push_back(storage_[in]);
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    return read;
  }

  // States take no part, and what writes over one waits for all that read it.
  void write_over(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (!node.op->has(kMustAlias)) return;
    for (const auto& [output, input] : node.op->aliases(node)) {
      const ValueId out = node.outputs[static_cast<std::size_t>(output)];
      if (out != kNone) bytes_[out] = 0;
      for (const NodeId reader : readers_[storage_[node.inputs[static_cast<std::size_t>(input)]]])
        if (reader != id) waits_for_[id].push_back(reader);
    }
  }

  // Whether the result takes the place of an operand that dies here, which then is freed no more.
  bool overwrites(const Node& node, ValueId out, std::vector<ValueId>& freed) const {
    const bool any = node.op->has(kElementwise) || node.op->has(kPointwise);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone || (!any && static_cast<int>(i) != node.op->inplace_input)) continue;
      const Type &from = graph_.values[node.inputs[i]].type, &to = graph_.values[out].type;
      const ValueId storage = storage_[node.inputs[i]];
      if (from.shape != to.shape || dtype_bytes(from.dtype) != dtype_bytes(to.dtype) ||
          bytes(storage) != bytes(out) || std::erase(freed, storage) == 0)
        continue;
      return true;
    }
    return false;
  }

  const Graph& graph_;
  std::vector<ValueId> storage_;                // by value
  std::vector<std::vector<NodeId>> readers_;    // by storage
  std::vector<std::vector<NodeId>> waits_for_;  // by node
  std::vector<bool> kept_;                      // by storage: to the end of the step
  std::vector<std::int64_t> bytes_;             // by storage
};

// Nodes in stages that no order mixes: forward and loss, backward and optimizer, and what runs once per step.
std::vector<int> stages_of(const Graph& graph, const Lifetimes& lifetimes, const Order& order) {
  constexpr int kOnce = 2;
  const std::vector<bool> once = once_per_step(graph, order);
  std::vector<int> stage(graph.nodes.size(), 0);
  for (const NodeId id : order) {
    const Node& node = graph.nodes[id];
    stage[id] = once[id] ? kOnce : runs_after_loss(node) ? 1 : 0;
    for (const NodeId other : lifetimes.waits_for(id)) stage[id] = std::max(stage[id], stage[other]);
  }
  return stage;
}

// What is free to run before or after a node, and the best of it.
class Around {
 public:
  Around(const Graph& graph, const Lifetimes& lifetimes, const std::vector<int>& stage, const Order& order,
         std::size_t position)
      : graph_(graph),
        lifetimes_(lifetimes),
        order_(order),
        at_(order[position]),
        side_(graph.nodes.size(), free) {
    for (const NodeId id : order)
      if (stage[id] != stage[at_]) side_[id] = stage[id] < stage[at_] ? before : after;
    side_[at_] = after;
    for (std::size_t i = order.size(); i-- > 0;)
      if (order[i] == at_ || side_[order[i]] == before)
        for (const NodeId other : lifetimes.waits_for(order[i])) side_[other] = before;
    for (const NodeId id : order)
      for (const NodeId other : lifetimes.waits_for(id))
        if (side_[other] == after) side_[id] = after;
  }

  // Bytes that are live while the node runs in any order.
  std::int64_t always_live() const {
    std::int64_t bytes = 0;
    for (const NodeId id : order_)
      for_storages(id, [&](ValueId out) {
        const bool read_after = std::any_of(lifetimes_.readers(out).begin(), lifetimes_.readers(out).end(),
                                            [&](NodeId reader) { return side_[reader] == after; });
        if (id == at_ || (side_[id] == before && (lifetimes_.kept(out) || read_after)))
          bytes += lifetimes_.bytes(out);
      });
    return bytes;
  }

  Order best() const {
    const std::size_t source = graph_.nodes.size() + graph_.values.size(), sink = source + 1;
    MinCut network(sink + 1);
    const auto node_of = [&](NodeId id) {
      return side_[id] == before ? source : side_[id] == after ? sink : id;
    };
    for (const NodeId id : order_) {
      if (side_[id] == after) continue;
      if (side_[id] == free)
        for (const NodeId other : lifetimes_.waits_for(id))
          network.add_edge(id, node_of(other), MinCut::kUnlimited);
      for_storages(id, [&](ValueId out) {
        const std::size_t storage = graph_.nodes.size() + out;
        network.add_edge(node_of(id), storage, static_cast<double>(lifetimes_.bytes(out)));
        for (const NodeId reader : lifetimes_.readers(out))
          network.add_edge(storage, node_of(reader), MinCut::kUnlimited);
        if (lifetimes_.kept(out)) network.add_edge(storage, sink, MinCut::kUnlimited);
      });
    }
    network.solve(source, sink);
    Order first, rest;
    for (const NodeId id : order_) {
      if (id == at_) continue;
      const bool goes_first = side_[id] == before || (side_[id] == free && network.on_source_side(id));
      (goes_first ? first : rest).push_back(id);
    }
    first.push_back(at_);
    first.insert(first.end(), rest.begin(), rest.end());
    return first;
  }

 private:
  enum Side : std::uint8_t { free, before, after };
  template <class Body>
  void for_storages(NodeId id, const Body& body) const {
    if (lifetimes_.is_view(id)) return;
    for (const ValueId out : graph_.nodes[id].outputs)
      if (out != kNone && lifetimes_.bytes(out) > 0) body(out);
  }

  const Graph& graph_;
  const Lifetimes& lifetimes_;
  const Order& order_;
  const NodeId at_;
  std::vector<Side> side_;  // by node: must it run before or after (or as) the one in question
};

std::int64_t perfect(const std::vector<Request>& requests, std::vector<std::int64_t>&) {
  return lower_bound_bytes(requests);
}

class MemoryOrder final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field(
        "min_percent", min_percent_,
        {.help = "orders that lower the peak by less are not worth another plan", .min = 0.01, .max = 100});
  }

  // Behind ShareParameters every rank has a plan of its own, and the same exchanges in it.
  static auto begins_exchange(const Graph& graph) {
    return [&graph](NodeId id) {
      const OpDef& op = *graph.nodes[id].op;
      return op.begins_exchange() || op.exchange == RankExchange::share;
    };
  }

  Status run(Rewriter& rw) const override { return run_for(kernels::Target::cpu, rw); }

  Status run_for(kernels::Target target, Rewriter& rw) const override {
    const Graph& graph = rw.graph();
    const Order found = TRY(topological_order(graph));
    if (found.empty() || !std::all_of(found.begin(), found.end(),
                                      [&](NodeId id) { return shapes_known(graph, graph.nodes[id]); }))
      return {};
    if (const auto begun = std::find_if(found.begin(), found.end(), begins_exchange(graph));
        begun != found.end()) {
      rw.reject(kRule, *begun,
                "exchanges between ranks begin where their gradients are complete: the order is theirs");
      return {};
    }
    const Lifetimes lifetimes(graph, found);
    const std::vector<int> stage = stages_of(graph, lifetimes, found);
    Order best = found;
    std::stable_sort(best.begin(), best.end(),
                     [&](NodeId a, NodeId b) { return stage[a] / 2 < stage[b] / 2; });
    const Lifetimes::Peak before = lifetimes.peak(best);
    const NodeId at = best[before.position];
    Lifetimes::Peak peak = before;
    const std::size_t rounds = std::clamp<std::size_t>(kNodes / found.size(), 2, kRounds);
    for (std::size_t round = 0; round < rounds; ++round) {
      const Around around(graph, lifetimes, stage, best, peak.position);
      if (!worth_it(before.bytes, around.always_live())) break;
      Order order = around.best();
      const Lifetimes::Peak other = lifetimes.peak(order);
      if (!(other < peak)) break;
      best = std::move(order);
      peak = other;
    }
    if (!worth_it(before.bytes, peak.bytes)) return {};
    return take(rw, target, best, at);
  }

 private:
  bool worth_it(std::int64_t before, std::int64_t after) const {
    return static_cast<double>(after) <= static_cast<double>(before) * (1 - min_percent_ / 100);
  }

  // The whole plan is the judge: of workspaces, and of what this pass counts otherwise.
  Status take(Rewriter& rw, kernels::Target target, const Order& order, NodeId at) const {
    const PlanOptions options{perfect, "", true, target};
    Graph reordered = rw.graph();
    for (std::size_t i = 0; i < order.size(); ++i)
      reordered.nodes[order[i]].rank = static_cast<std::int64_t>(i);
    const auto plan = make_plan(rw.graph(), options), better = make_plan(reordered, options);
    if (!plan || !better) return {};  // what cannot be planned is told when it is
    if (!worth_it(plan->arena_bytes, better->arena_bytes)) {
      rw.reject(kRule, at, "no order that was found lowers the peak by min_percent");
      return {};
    }
    if (!rw.allowed(kRule, at)) return {};
    rw.begin(kRule, at, {at});
    for (std::size_t i = 0; i < order.size(); ++i) rw.reorder(order[i], static_cast<std::int64_t>(i));
    rw.commit("the arena's peak falls from " + bytes_text(static_cast<double>(plan->arena_bytes)) + " to " +
              bytes_text(static_cast<double>(better->arena_bytes)));
    return {};
  }

  static constexpr std::size_t kRounds = 32, kNodes = 100'000;
  double min_percent_ = 1;
};

// Two products, each of which is summed up at once: not both before either sum.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool in_turn) {
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {64, 8}}), y = b.input("y", {DType::f32, {8, 64}});
    std::vector<ValueId> sums;
    const auto sum = [&](ValueId v) {
      sums.push_back(b.op("ReduceSum", {v}, {{"keepdims", std::int64_t{0}}}));
    };
    const ValueId first = b.op("MatMul", {x, y});
    if (in_turn) sum(first);
    const ValueId second = b.op("MatMul", {x, y});
    if (!in_turn) sum(first);
    sum(second);
    graph.outputs = {b.op("Add", {sums[0], sums[1]})};
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef memory_order_pass;
const PassDef memory_order_pass = {
    .name = "memory-order",
    .summary = "run nodes in the order that needs the least memory",
    .doc =
        "Where nodes may run in more than one order, the one that lowers the peak of the arena is taken: for the node at the peak, a minimum "
        "cut finds what is best run before it. Nothing is computed otherwise. Where the peak would fall by less than min_percent, the "
        "order stays as it is, so that no plan needs more than without the pass.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new MemoryOrder); },
    .example = example,
};

}  // namespace gradloom
