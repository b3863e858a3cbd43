// gather-early: what pass zero's ranks make of parameters goes to the others at the beginning of the next step, in the order in which the forward
// pass reads it, while that pass goes on, not at the end of the step, where all wait for it (Rajbhandari et al. 2020, ZeRO; the order is that of
// Zhao et al. 2023, FSDP, whose gathers are begun ahead).
//
// ShareParameters at the end becomes GatherParameters before all else, one for each bucket, written over the parameters; each is waited for in front
// of the first kernel that reads one of its parameters. So between two steps a rank has its own elements of a parameter up to date, and no others
// (app/ranks.h, gather_parameters).
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/owned_parts.h"
#include "engine/ops/collectives/share_parameters.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

constexpr const char* kGather = "gather";

// A parameter, or its 16-bit copy, whose elements ranks give each other.
struct GivenState {
  std::size_t place = 0;  // among the inputs of ShareParameters
  ValueId state = kNone;
  std::int64_t bytes = 0;
  std::size_t first_read = 0;  // by this step of the order
  std::int64_t rank = 0;       // of that step in the schedule
};
using GatherBucket = std::vector<GivenState>;

class GatherEarly final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("bucket_mb", bucket_mb_,
            {.help = "megabytes after which a piece is full", .min = 0, .max = 1 << 20});
  }

  Status run(Rewriter& rw) const override { return run_for(kernels::Target::cpu, rw); }

  Status run_for(kernels::Target target, Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    for (const NodeId id : order) {
      if (!updates_states(rw.graph(), id)) continue;
      const std::optional<ValueId> micro = micro_batch(rw.graph());
      if (micro && target == kernels::Target::gpu) {
        rw.reject(kGather, id, "with accumulate a GPU would exchange in each micro-batch");
        continue;
      }
      const std::vector<GatherBucket> buckets = buckets_of(find(rw, id, order));
      if (!buckets.empty() && rw.allowed(kGather, id)) TRY(gather(rw, id, buckets, micro));
    }
    return {};
  }

 private:
  // ShareParameters of what states hold next, and not of other numbers.
  static bool updates_states(const Graph& graph, NodeId id) {
    const Node& node = graph.nodes[id];
    return node.op == &share_parameters_op() &&
           std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId out) { return state_of(graph, out) != kNone; });
  }

  static ValueId state_of(const Graph& graph, ValueId next) {
    for (const Update& update : graph.updates)
      if (update.next == next) return update.state;
    return kNone;
  }

  // The number of the micro-batch. Nothing: a step is one.
  static std::optional<ValueId> micro_batch(const Graph& graph) {
    for (const Node& node : graph.nodes) {
      if (!node.alive() || !node.op->has(kAccumulates)) continue;
      for (const ValueId in : node.inputs)
        if (in != kNone && graph.values[in].role == Role::hyper && graph.type(in) == Type{DType::i64, {}})
          return in;
    }
    return std::nullopt;
  }

  // Kernels that read the value, as it is or through views, but for its update and the exchange of that.
  static void collect_kernels(const Rewriter& rw, ValueId value, std::set<NodeId>& found) {
    for (const Use& use : rw.uses(value)) {
      const Node& node = rw.graph().nodes[use.node];
      if (node.op->has(kView))
        collect_kernels(rw, node.outputs[0], found);
      else if (!is_op(node, "Optimizer") && node.op != &share_parameters_op())
        found.insert(use.node);
    }
  }

  // In the order in which they are read, which is the same on every rank: what reads them is.
  static std::vector<GivenState> find(Rewriter& rw, NodeId share, const std::vector<NodeId>& order) {
    const Graph& graph = rw.graph();
    const std::vector<ValueId>& next = graph.nodes[share].outputs;
    std::vector<std::size_t> places(graph.nodes.size(), 0);
    for (std::size_t i = 0; i < order.size(); ++i) places[order[i]] = i;
    const auto is_output = [&](ValueId v) {
      return std::find(graph.outputs.begin(), graph.outputs.end(), v) != graph.outputs.end();
    };
    std::vector<GivenState> all;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const ValueId state = state_of(graph, next[i]);
      if (state == kNone) continue;
      std::set<NodeId> kernels;
      collect_kernels(rw, state, kernels);
      std::string why;
      if (!rw.uses(next[i]).empty()) why = " is read in the same step as it becomes";
      if (is_output(state) || is_output(next[i])) why = " is an output of the graph";
      if (kernels.empty()) why = " is read by its update alone";
      if (!why.empty()) {
        rw.reject(kGather, share, graph.values[state].name + why);
        continue;
      }
      const NodeId first = *std::min_element(kernels.begin(), kernels.end(),
                                             [&](NodeId a, NodeId b) { return places[a] < places[b]; });
      all.push_back({i, state, static_cast<std::int64_t>(byte_size(graph.type(state))), places[first],
                     graph.nodes[first].rank});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const GivenState& a, const GivenState& b) { return a.first_read < b.first_read; });
    return all;
  }

  std::vector<GatherBucket> buckets_of(const std::vector<GivenState>& all) const {
    std::vector<GatherBucket> buckets;
    std::int64_t bytes = 0;
    for (const GivenState& given : all) {
      if (buckets.empty() || bytes >= bucket_mb_ * 1'000'000) {
        buckets.emplace_back();
        bytes = 0;
      }
      buckets.back().push_back(given);
      bytes += given.bytes;
    }
    return buckets;
  }

  // ShareParameters whose attributes speak of these of its tensors alone.
  static Result<Attrs> attrs_of(const Graph& graph, const Node& share,
                                const std::vector<std::size_t>& tensors) {
    std::vector<Type> all, types;
    for (const ValueId out : share.outputs) all.push_back(graph.type(out));
    const std::vector<std::int64_t> masters = share.attrs.integers(kMasters);
    std::vector<std::int64_t> own_masters;
    std::vector<OwnedPart> parts;
    const std::vector<OwnedPart> all_parts = TRY(owned_parts(share.attrs, all));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      types.push_back(all[tensors[i]]);
      if (!masters.empty()) own_masters.push_back(masters[tensors[i]]);
      for (const OwnedPart& part : all_parts)
        if (part.tensor == tensors[i]) parts.push_back({i, part.begin, part.count, part.owner});
    }
    return given_attrs(share.attrs.integer("ranks"), share.attrs.integer("rank", 0), parts, types,
                       own_masters);
  }

  static Status gather(Rewriter& rw, NodeId share_id, const std::vector<GatherBucket>& buckets,
                       std::optional<ValueId> micro) {
    const Graph& graph = rw.graph();
    const Node share = graph.nodes[share_id];
    std::set<NodeId> readers;
    std::set<std::size_t> early;
    for (const GatherBucket& bucket : buckets)
      for (const GivenState& given : bucket) {
        early.insert(given.place);
        for (const Use& use : rw.uses(given.state))
          if (use.node != share_id) readers.insert(use.node);
      }
    GraphBuilder& b = rw.begin(kGather, share_id, {share_id});
    const std::map<ValueId, ValueId> gathered = TRY(add_gathers(b, share, buckets, micro));
    for (const NodeId reader : readers) {
      std::vector<ValueId> inputs = graph.nodes[reader].inputs;
      for (ValueId& in : inputs)
        if (const auto at = gathered.find(in); at != gathered.end()) in = at->second;
      rw.retype(reader, std::move(inputs), graph.nodes[reader].attrs);
    }
    for (const GatherBucket& bucket : buckets)
      for (const GivenState& given : bucket) {
        const ValueId made = share.inputs[given.place];  // the state itself where others update it
        rw.replace_outputs(share.outputs[given.place], made == given.state ? gathered.at(made) : made);
      }
    TRY(share_rest(rw, b, share, early));
    rw.commit(plural_text(std::ssize(gathered), "tensor") + " in " +
              plural_text(std::ssize(buckets), "exchange") + " before the step, in the background");
    return {};
  }

  // What each state is, once it was gathered.
  static Result<std::map<ValueId, ValueId>> add_gathers(GraphBuilder& b, const Node& share,
                                                        const std::vector<GatherBucket>& buckets,
                                                        std::optional<ValueId> micro) {
    const Graph& graph = b.graph();
    std::int64_t first_rank = std::numeric_limits<std::int64_t>::max();
    for (const Node& node : graph.nodes)
      if (node.alive()) first_rank = std::min(first_rank, node.rank);
    std::vector<std::vector<ValueId>> begun;
    for (const GatherBucket& bucket : buckets) {
      std::vector<ValueId> inputs;
      std::vector<std::size_t> tensors;
      for (const GivenState& given : bucket) {
        inputs.push_back(given.state);
        tensors.push_back(given.place);
      }
      if (micro) inputs.push_back(*micro);
      const BuildScope before_all(b, {b.context().origin, first_rank - 1, ""});
      begun.push_back(
          TRY(b.add(gather_parameters_op(), inputs, TRY(attrs_of(graph, share, tensors)),
                    static_cast<int>(bucket.size()) + 1, {}, b.unique_name("early/GatherParameters"))));
    }
    std::map<ValueId, ValueId> gathered;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const BuildScope there(b, {b.context().origin, buckets[i].front().rank, ""});
      std::vector<ValueId> held{begun[i].back()};
      held.insert(held.end(), begun[i].begin(), begun[i].end() - 1);
      const ValueId done =
          TRY(b.add(all_reduce_wait_op(), held, {}, 1, {}, b.unique_name("early/AllReduceWait")))[0];
      for (std::size_t k = 0; k < buckets[i].size(); ++k)
        gathered[buckets[i][k].state] = TRY(
            b.add(all_reduce_result_op(), {begun[i][k], done}, {}, 1, {}, b.unique_name("early/result")))[0];
    }
    return gathered;
  }

  // What is not early stays at the end.
  static Status share_rest(Rewriter& rw, GraphBuilder& b, const Node& share,
                           const std::set<std::size_t>& early) {
    std::vector<std::size_t> rest;
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < share.inputs.size(); ++i) {
      if (early.count(i) != 0) continue;
      inputs.push_back(share.inputs[i]);
      if (i < share.outputs.size()) rest.push_back(i);
    }
    if (rest.empty()) return {};
    const std::vector<ValueId> shared =
        TRY(b.add(share_parameters_op(), inputs, TRY(attrs_of(b.graph(), share, rest)),
                  static_cast<int>(rest.size()), {}, b.unique_name(share.name)));
    for (std::size_t i = 0; i < rest.size(); ++i) rw.replace(share.outputs[rest[i]], shared[i]);
    return {};
  }

  std::int64_t bucket_mb_ = 1;
};

// One rank of one owns all.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool early) {
    const Attrs attrs{{"ranks", std::int64_t{1}}, {"owners", std::vector<std::int64_t>{0}}};
    GraphBuilder b(graph, {.origin = {{}, Phase::optimizer}, .rank = 9});
    const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                  step = b.input("step", {DType::i64, {}}, Role::hyper);
    const ValueId x = b.input("x", {DType::f32, {4}}), gradient = b.input("dp", {DType::f32, {4}});
    const ValueId p = b.parameter("p", Tensor(DType::f32, {4}));
    ValueId read = p;
    if (early) {
      const BuildScope before_all(b, {b.context().origin, 0, ""});
      const std::vector<ValueId> begun = b.ops(gather_parameters_op(), {p}, attrs, 2);
      read = b.op(all_reduce_result_op(), {begun[0], b.op(all_reduce_wait_op(), {begun[1], begun[0]})});
    }
    {
      const BuildScope forward(b, {{{}, Phase::forward}, 1, ""});
      graph.outputs = {b.op("Mul", {x, read})};
    }
    const ValueId next =
        b.op("Optimizer", {lr, step, kNone, kNone, read, gradient}, {{"kind", std::string("sgd")}});
    b.update(p, early ? next : b.ops(share_parameters_op(), {next}, attrs, 1)[0]);
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef gather_early_pass;
const PassDef gather_early_pass = {
    .name = "gather-early",
    .summary = "ranks give each other updated parameters while the next forward pass runs",
    .doc =
        "With pass zero ranks update elements of parameters apart, and give them to the others at the end of the step, when nothing else is left to do. With "
        "this pass they do so at the beginning of the next: pieces of bucket_mb megabytes, in the order in which the forward pass reads them, go in "
        "the background, and a kernel waits for the piece that it reads alone. Bit-equal. What is evaluated, saved or written to a checkpoint is gathered "
        "before, so each of these costs an exchange of all parameters. Parameters whose new contents the same step reads (a moving average) are exchanged at "
        "its end. For `gradloom train`: libgradloom and the Python package, whose callers read parameters between steps, refuse it; on a GPU it is "
        "for steps of one micro-batch.",
    .phase = PassPhase::post_gradient,
    .by_default = false,
    .make = [] { return std::unique_ptr<Pass>(new GatherEarly); },
    .example = example,
};

}  // namespace gradloom
