// zero: each rank keeps the optimizer's states of its share of the parameters (Rajbhandari et al. 2020, ZeRO, stage 1; shares of
// whole parameters, so that every optimizer keeps its bits).
#include "passes/zero.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/ranks/world.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

using namespace optimizer_inputs;

constexpr const char *kStates = "states", *kShare = "share";

// An update and what it remembers.
struct Kept {
  NodeId node = kNone;
  ValueId parameter = kNone, next = kNone;
  std::vector<ValueId> states;
  std::int64_t bytes = 0;  // of the states
  std::int64_t owner = 0;
};

class Zero final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field(
        "rank", rank_,
        {.help = "whose plan it is; -1: that of the process, 0 where it is none", .min = -1, .max = 65535});
  }

  Status run(Rewriter& rw) const override {
    const std::int64_t ranks = rank_count(rw.graph());
    if (ranks == 0) return {};
    if (rank_ >= ranks)
      return Error{Errc::usage,
                   "zero: there is no rank " + std::to_string(rank_) + " of " + std::to_string(ranks)};
    std::vector<Kept> all = TRY(find(rw));
    if (all.empty()) return {};
    std::vector<std::int64_t> bytes;
    for (const Kept& kept : all) bytes.push_back(kept.bytes);
    const std::vector<std::int64_t> owners = zero_owners(bytes, ranks);
    for (std::size_t i = 0; i < all.size(); ++i) all[i].owner = owners[i];
    TRY(share(rw, all, ranks));
    for (const Kept& kept : all)
      if (kept.owner != own_rank()) leave(rw, kept);
    return {};
  }

 private:
  std::int64_t own_rank() const {
    if (rank_ >= 0) return rank_;
    const World* const world = World::current();
    return world == nullptr ? 0 : world->rank();
  }

  // 0: the graph exchanges nothing.
  static std::int64_t rank_count(const Graph& graph) {
    for (const Node& node : graph.nodes)
      if (node.alive() && (node.op == &all_reduce_op() || node.op == &all_reduce_begin_op()))
        return node.attrs.integer("ranks");
    return 0;
  }

  // It was found before.
  static bool is_shared(const Rewriter& rw, ValueId updated) {
    const std::vector<Use>& uses = rw.uses(updated);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return rw.graph().nodes[use.node].op == &share_parameters_op();
    });
  }

  // In the order of the parameters.
  static Result<std::vector<Kept>> find(Rewriter& rw) {
    const Graph& graph = rw.graph();
    std::map<ValueId, NodeId> updaters;
    for (const NodeId id : TRY(topological_order(graph)))
      if (is_op(graph.nodes[id], "Optimizer")) updaters.emplace(graph.nodes[id].inputs[kFirst], id);
    std::vector<Kept> all;
    for (const auto& [parameter, id] : updaters) {
      const Node& node = graph.nodes[id];
      if (parameter_count(node.attrs) != 1 || node.attrs.has("copies")) {
        rw.reject(kStates, id, "it updates several values at once");
        continue;
      }
      if (is_shared(rw, node.outputs[0])) continue;
      Kept kept{id, parameter, node.outputs[0], {node.inputs.begin() + kFirst + 2, node.inputs.end()}};
      for (const ValueId state : kept.states)
        kept.bytes += static_cast<std::int64_t>(byte_size(graph.type(state)));
      if (kept.bytes == 0) {
        rw.reject(kStates, id, "the optimizer remembers nothing");
        continue;
      }
      if (rw.allowed(kStates, id)) all.push_back(std::move(kept));
    }
    return all;
  }

  // Whatever comes after an update reads what its owner has made.
  Status share(Rewriter& rw, const std::vector<Kept>& all, std::int64_t ranks) const {
    std::vector<ValueId> updated;
    std::vector<std::int64_t> owners;
    std::int64_t own_bytes = 0, bytes = 0, own = 0, rank = 0;
    for (const Kept& kept : all) {
      updated.push_back(kept.next);
      owners.push_back(kept.owner);
      rank = std::max(rank, rw.graph().nodes[kept.node].rank);
      bytes += kept.bytes;
      if (kept.owner != own_rank()) continue;
      own_bytes += kept.bytes;
      ++own;
    }
    std::vector<std::vector<Use>> uses;
    for (const ValueId next : updated) uses.push_back(rw.uses(next));
    GraphBuilder& b = rw.begin(kShare, all[0].node, {});
    const BuildScope later(b, {b.context().origin, rank + 1, ""});
    const std::vector<ValueId> shared =
        TRY(b.add(share_parameters_op(), updated, {{"ranks", ranks}, {"owners", owners}},
                  static_cast<int>(updated.size()), {}, b.unique_name("all/ShareParameters")));
    for (std::size_t i = 0; i < shared.size(); ++i) {
      rw.replace_outputs(updated[i], shared[i]);
      for (const Use& use : uses[i]) {
        const Node& reader = rw.graph().nodes[use.node];
        std::vector<ValueId> inputs = reader.inputs;
        inputs[use.input_index] = shared[i];
        rw.retype(use.node, std::move(inputs), reader.attrs);
      }
    }
    const auto text = [](std::int64_t n) { return bytes_text(static_cast<double>(n)); };
    rw.commit("rank " + std::to_string(own_rank()) + " of " + std::to_string(ranks) +
              " keeps the states of " + std::to_string(own) + " of " +
              plural_text(static_cast<std::int64_t>(all.size()), "parameter") + ", " + text(own_bytes) +
              " of " + text(bytes));
    return {};
  }

  // The update of a parameter that another rank makes.
  static void leave(Rewriter& rw, const Kept& kept) {
    rw.begin(kStates, kept.node, {kept.node});
    for (const ValueId state : kept.states) rw.forget(state);
    rw.replace(kept.next, kept.parameter);
    rw.commit("rank " + std::to_string(kept.owner) + " keeps " + bytes_text(static_cast<double>(kept.bytes)));
  }

  std::int64_t rank_ = -1;
};

// One rank of one keeps all.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool shared) {
    GraphBuilder b(graph, {.origin = {{}, Phase::optimizer}, .rank = 5});
    const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                  step = b.input("step", {DType::i64, {}}, Role::hyper);
    const ValueId x = b.input("x", {DType::f32, {4}});
    const ValueId p = b.parameter("p", Tensor(DType::f32, {4})),
                  buffer = b.state("p/momentum", Tensor(DType::f32, {4}));
    const ValueId gradient = b.ops(all_reduce_op(), {b.op("Neg", {x})}, {{"ranks", std::int64_t{1}}}, 1)[0];
    const auto next = b.ops(op_by_name("Optimizer"), {lr, step, kNone, kNone, p, gradient, buffer},
                            {{"kind", std::string("sgd")}, {"momentum", 0.9}}, 2);
    const ValueId made =
        shared ? b.ops(share_parameters_op(), {next[0]},
                       {{"ranks", std::int64_t{1}}, {"owners", std::vector<std::int64_t>{0}}}, 1)[0]
               : next[0];
    b.update(p, made);
    b.update(buffer, next[1]);
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

std::vector<std::int64_t> zero_owners(const std::vector<std::int64_t>& bytes, std::int64_t ranks) {
  std::vector<std::size_t> by_size(bytes.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::vector<std::int64_t> has(static_cast<std::size_t>(ranks), 0), owners(bytes.size(), 0);
  for (const std::size_t i : by_size) {
    const auto least = std::min_element(has.begin(), has.end());
    *least += bytes[i];
    owners[i] = least - has.begin();
  }
  return owners;
}

extern const PassDef zero_pass;
const PassDef zero_pass = {
    .name = "zero",
    .summary = "each rank keeps the optimizer's states of its share of the parameters",
    .doc =
        "With several ranks, each parameter's update and the optimizer's states for it are on one rank alone, which sends the parameter to "
        "the others (ZeRO, stage 1): Adam's moments, two thirds of what parameters take in training beside their gradients, are divided by the "
        "number of ranks. Shares are whole parameters, the largest first to the rank that has least, so that a rank has no less than the "
        "largest parameter; every optimizer works and keeps its bits. Gradients are exchanged as without it. Checkpoints are those of one rank.",
    .phase = PassPhase::post_gradient,
    .by_default = false,
    .make = [] { return std::unique_ptr<Pass>(new Zero); },
    .example = example,
};

}  // namespace gradloom
