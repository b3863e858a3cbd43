// zero: each rank keeps the optimizer's states of its share of the parameters, and with stage 2 their gradients (Rajbhandari et al.
// 2020, ZeRO; shares of whole parameters, so that every optimizer keeps its bits).
#include "passes/zero.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ops/inference.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/ranks/world.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

using namespace optimizer_inputs;

constexpr const char *kStates = "states", *kShare = "share", *kGradients = "gradients";

// An update and what it remembers.
struct Kept {
  NodeId node = kNone;
  ValueId parameter = kNone, next = kNone;
  std::vector<ValueId> states;
  NodeId mean = kNone;     // stage 2: that makes the gradient's mean for all ranks, until now
  std::int64_t bytes = 0;  // of the states, and of a gradient that its owner alone gets
  std::int64_t owner = 0;
};

bool is_norm(const Node& node) { return is_op(node, "GlobalNorm"); }

class Zero final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("stage", stage_,
            {.help = "what is divided: 1 the optimizer's states, 2 gradients too", .min = 1, .max = 2});
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
    TRY(share(rw, all, ranks, TRY(reduce(rw, all, ranks))));
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

  // Why a gradient has to be on every rank; empty: its update and norms alone read it. `mean`: what makes it.
  static std::string needed_by_all(const Rewriter& rw, NodeId update, NodeId mean) {
    const Graph& graph = rw.graph();
    if (mean == kNone || graph.nodes[mean].op != &all_reduce_op() || graph.nodes[mean].inputs.size() != 1)
      return "its gradient has no exchange of its own";
    const ValueId gradient = graph.nodes[mean].outputs[0];
    const std::vector<Use>& uses = rw.uses(gradient);
    const bool others = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.node != update && !is_norm(graph.nodes[use.node]);
    });
    if (others || rw.is_output(gradient)) return "others than the update read its gradient";
    const bool low = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.node != update && is_half(graph.type(graph.nodes[use.node].outputs[0]).dtype);
    });
    return low ? "the norm of gradients is in 16 bits" : "";
  }

  // In the order of the parameters.
  Result<std::vector<Kept>> find(Rewriter& rw) const {
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
      if (stage_ == 2) {
        const ValueId gradient = node.inputs[kFirst + 1];
        const NodeId mean = graph.values[gradient].producer;
        if (const std::string why = needed_by_all(rw, id, mean); !why.empty()) {
          rw.reject(kGradients, id, why);
        } else {
          kept.mean = mean;
          kept.bytes += static_cast<std::int64_t>(byte_size(graph.type(gradient)));
        }
      }
      if (kept.bytes == 0) {
        rw.reject(kStates, id, "the optimizer remembers nothing");
        continue;
      }
      if (rw.allowed(kStates, id)) all.push_back(std::move(kept));
    }
    return all;
  }

  // A gradient that its owner gets alone.
  struct Reduced {
    ValueId result = kNone;  // at its owner
    std::int64_t owner = 0;
  };

  // What was waited for, without which no rank goes on.
  Result<std::vector<ValueId>> reduce(Rewriter& rw, const std::vector<Kept>& all, std::int64_t ranks) const {
    std::vector<NodeId> replaced;
    std::vector<ValueId> waits;
    for (const Kept& kept : all)
      if (kept.mean != kNone) replaced.push_back(kept.mean);
    if (replaced.empty()) return waits;
    const auto reduced = static_cast<std::int64_t>(replaced.size());
    const std::vector<NodeId> norms = norms_of(rw, replaced);
    replaced.insert(replaced.end(), norms.begin(), norms.end());
    GraphBuilder& b = rw.begin(kGradients, replaced[0], replaced);
    std::map<ValueId, Reduced> gradients;  // by the mean
    for (const Kept& kept : all) {
      if (kept.mean == kNone) continue;
      const ValueId mean = rw.graph().nodes[kept.mean].outputs[0];
      gradients[mean] = {TRY(reduce_one(b, kept, ranks, waits)), kept.owner};
    }
    for (const NodeId norm : norms) {
      const ValueId old = rw.graph().nodes[norm].outputs[0];
      rw.replace(old, TRY(norm_of_shares(b, norm, gradients, ranks, waits)));
    }
    for (const auto& [mean, gradient] : gradients)
      if (gradient.owner == own_rank()) rw.replace(mean, gradient.result);
    rw.commit(plural_text(reduced, "gradient") + ", each at the rank that keeps its states");
    return waits;
  }

  static std::vector<NodeId> norms_of(const Rewriter& rw, const std::vector<NodeId>& means) {
    std::vector<NodeId> norms;
    for (const NodeId mean : means)
      for (const Use& use : rw.uses(rw.graph().nodes[mean].outputs[0]))
        if (is_norm(rw.graph().nodes[use.node])) norms.push_back(use.node);
    std::sort(norms.begin(), norms.end());
    norms.erase(std::unique(norms.begin(), norms.end()), norms.end());
    return norms;
  }

  // Begun and waited for; pass data-parallel puts work in between. The gradient at its owner, else kNone.
  Result<ValueId> reduce_one(GraphBuilder& b, const Kept& kept, std::int64_t ranks,
                             std::vector<ValueId>& waits) const {
    const Graph& graph = b.graph();
    const Node mean = graph.nodes[kept.mean];
    const std::string name = graph.values[kept.parameter].name;
    const bool own = kept.owner == own_rank();
    const BuildScope there(b, {b.context().origin, mean.rank, ""});
    const Attrs attrs{
        {"ranks", ranks}, {"rank", own_rank()}, {"owners", std::vector<std::int64_t>{kept.owner}}};
    const std::vector<ValueId> made = TRY(b.add(reduce_gradients_op(), mean.inputs, attrs, own ? 2 : 1, {},
                                                b.unique_name(name + "/ReduceGradients")));
    std::vector<ValueId> held{made.back(), mean.inputs[0]};
    if (own) held.push_back(made[0]);
    waits.push_back(
        TRY(b.add(all_reduce_wait_op(), held, {}, 1, {}, b.unique_name(name + "/AllReduceWait")))[0]);
    if (!own) return kNone;
    return TRY(b.add(all_reduce_result_op(), {made[0], waits.back()}, {}, 1, {},
                     b.unique_name(name + "/result")))[0];
  }

  // GlobalNorm of gradients that are at their owners, who tell each other their squares: the same sums in the same order.
  // `waits`: every rank has made all else that it exchanges before.
  Result<ValueId> norm_of_shares(GraphBuilder& b, NodeId norm, const std::map<ValueId, Reduced>& gradients,
                                 std::int64_t ranks, const std::vector<ValueId>& waits) const {
    const Graph& graph = b.graph();
    const Node node = graph.nodes[norm];
    const BuildScope there(b, {b.context().origin, node.rank, ""});
    const std::int64_t everywhere = ranks;  // in the place of an owner
    std::map<std::int64_t, std::vector<ValueId>> own;
    std::map<std::int64_t, std::int64_t> totals;  // pieces
    std::vector<std::int64_t> from, pieces;
    for (const ValueId gradient : node.inputs) {
      const auto reduced = gradients.find(gradient);
      const std::int64_t owner = reduced == gradients.end() ? everywhere : reduced->second.owner;
      pieces.push_back(square_pieces(element_count(graph.type(gradient).shape)));
      totals[owner] += pieces.back();
      from.push_back(owner);
      if (owner == everywhere) own[owner].push_back(gradient);
      if (owner == own_rank()) own[owner].push_back(reduced->second.result);
    }
    std::vector<ValueId> squares;
    std::vector<std::int64_t> owners;
    for (const auto& [owner, total] : totals) {
      const auto found = own.find(owner);
      squares.push_back(found == own.end() ? b.constant(Tensor(DType::f64, {total}))
                                           : TRY(b.add(gradient_squares_op(), found->second, {}, 1, {},
                                                       b.unique_name(node.name + "/squares")))[0]);
      owners.push_back(owner);
    }
    for (std::int64_t& of : from) of = std::find(owners.begin(), owners.end(), of) - owners.begin();
    const bool has_local = owners.back() == everywhere;
    std::vector<ValueId> shared(squares.begin(), squares.end() - (has_local ? 1 : 0));
    const std::size_t count = shared.size();
    shared.insert(shared.end(), waits.begin(), waits.end());
    owners.resize(count);
    std::vector<ValueId> all =
        TRY(b.add(share_parameters_op(), shared, {{"ranks", ranks}, {"owners", owners}},
                  static_cast<int>(count), {}, b.unique_name(node.name + "/ShareSquares")));
    if (has_local) all.push_back(squares.back());
    const Attrs attrs{{"type", std::int64_t{onnx_from_dtype(graph.type(node.outputs[0]).dtype)}},
                      {"from", from},
                      {"pieces", pieces}};
    return TRY(b.add(norm_of_squares_op(), all, attrs, 1, {}, b.unique_name(node.name + "/norm")))[0];
  }

  // Whatever comes after an update reads what its owner has made. `waits`: what else every rank has made before.
  Status share(Rewriter& rw, const std::vector<Kept>& all, std::int64_t ranks,
               const std::vector<ValueId>& waits) const {
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
    std::vector<ValueId> inputs = updated;
    inputs.insert(inputs.end(), waits.begin(), waits.end());
    const std::vector<ValueId> shared =
        TRY(b.add(share_parameters_op(), inputs, {{"ranks", ranks}, {"owners", owners}},
                  static_cast<int>(updated.size()), {}, b.unique_name("all/ShareParameters")));
    for (std::size_t i = 0; i < shared.size(); ++i) {
      rw.replace_outputs(updated[i], shared[i]);
      for (const Use& use : uses[i]) {
        const Node& reader = rw.graph().nodes[use.node];
        std::vector<ValueId> read = reader.inputs;
        read[use.input_index] = shared[i];
        rw.retype(use.node, std::move(read), reader.attrs);
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
    std::vector<NodeId> replaced{kept.node};
    if (kept.mean != kNone) replaced.push_back(kept.mean);
    rw.begin(kStates, kept.node, replaced);
    for (const ValueId state : kept.states) rw.forget(state);
    rw.replace(kept.next, kept.parameter);
    rw.commit("rank " + std::to_string(kept.owner) + " keeps " + bytes_text(static_cast<double>(kept.bytes)));
  }

  std::int64_t stage_ = 1, rank_ = -1;
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
    .summary = "each rank keeps the optimizer's states of its share of the parameters, or gradients too",
    .doc =
        "With several ranks, each parameter's update and the optimizer's states for it are on one rank alone, which sends the parameter to "
        "the others (ZeRO, stage 1): Adam's moments, two thirds of what parameters take in training beside their gradients, are divided by the "
        "number of ranks. Shares are whole parameters, the largest first to the rank that has least, so that a rank has no less than the "
        "largest parameter; every optimizer works and keeps its bits. Gradients are exchanged as without it. With stage=2 the rank that keeps a "
        "parameter's states alone gets its gradient: the others send theirs and are done with it. The sums keep their order, the norm of all gradients "
        "is that of what each rank tells of its own, and each rank sends two thirds of what it does in stage 1. With accumulate every rank adds up the "
        "gradients of its own micro-batches, all of them, and the sums are exchanged. Checkpoints are those of one rank.",
    .phase = PassPhase::post_gradient,
    .by_default = false,
    .make = [] { return std::unique_ptr<Pass>(new Zero); },
    .example = example,
};

}  // namespace gradloom
