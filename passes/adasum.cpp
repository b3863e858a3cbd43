// adasum: gradients of the ranks are combined by AdaSum (Maleki et al. 2020, Scaling Distributed Training with Adaptive Summation).
#include <map>
#include <string>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/collectives/adasum.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

constexpr const char* kRule = "adasum";

class Adasum final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    const Graph& graph = rw.graph();
    std::map<DType, std::vector<NodeId>> exchanges;
    for (const NodeId id : TRY(topological_order(graph))) {
      const Node& node = graph.nodes[id];
      if (node.op == &reduce_gradients_op())
        return Error{Errc::usage, "AdaSum needs every gradient on all ranks: zero{stage=1}, not stage=2"};
      if (node.op != &all_reduce_op() || node.inputs.size() != 1 || !is_gradient(rw, node)) continue;
      const std::int64_t ranks = node.attrs.integer("ranks");
      if ((ranks & (ranks - 1)) != 0)
        return Error{Errc::usage,
                     "AdaSum combines pairs of ranks: " + std::to_string(ranks) + " are no power of two"};
      if (rw.allowed(kRule, id)) exchanges[graph.type(node.inputs[0]).dtype].push_back(id);
    }
    for (const auto& [type, nodes] : exchanges) TRY(combine(rw, nodes));
    return {};
  }

 private:
  // All that is exchanged for updates but the loss, which leaves the graph, and what states hold next. The answer is the same on every
  // rank: with zero the update that reads a gradient is on some of them.
  static bool is_gradient(const Rewriter& rw, const Node& exchange) {
    return exchange.origin.phase == Phase::optimizer && !rw.is_output(exchange.outputs[0]);
  }

  static Status combine(Rewriter& rw, const std::vector<NodeId>& nodes) {
    std::vector<ValueId> inputs, means;
    for (const NodeId id : nodes) {
      inputs.push_back(rw.graph().nodes[id].inputs[0]);
      means.push_back(rw.graph().nodes[id].outputs[0]);
    }
    const Attrs attrs = rw.graph().nodes[nodes[0]].attrs;
    GraphBuilder& b = rw.begin(kRule, nodes[0], nodes);
    const auto combined = TRY(b.add(all_reduce_adasum_op(), inputs, attrs, static_cast<int>(inputs.size()),
                                    {}, b.unique_name("all/AllReduceAdasum")));
    for (std::size_t i = 0; i < means.size(); ++i) rw.replace(means[i], combined[i]);
    rw.commit(std::to_string(nodes.size()) + " gradients, each by itself");
    return {};
  }
};

// Of one rank.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool adasum) {
    GraphBuilder b(graph, {.origin = {{}, Phase::optimizer}, .rank = 5});
    const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                  step = b.input("step", {DType::i64, {}}, Role::hyper);
    const ValueId p = b.parameter("p", Tensor(DType::f32, {4})), x = b.input("x", {DType::f32, {4}});
    const ValueId gradient = b.ops(adasum ? all_reduce_adasum_op() : all_reduce_op(), {b.op("Neg", {x})},
                                   {{"ranks", std::int64_t{1}}}, 1)[0];
    b.update(p, b.op("Optimizer", {lr, step, kNone, kNone, p, gradient}, {{"kind", std::string("sgd")}}));
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef adasum_pass;
const PassDef adasum_pass = {
    .name = "adasum",
    .summary = "combine the gradients of ranks by AdaSum instead of their mean",
    .doc =
        "With several ranks, each parameter's gradients are combined pairwise by (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b: added where "
        "they are orthogonal, averaged where they are parallel, so that the learning rate of one rank holds for many. That is another training "
        "than with means. The number of ranks must be a power of two, others are refused; the exchange waits for the backward pass and sends log2(ranks) "
        "times the gradients.",
    .phase = PassPhase::post_gradient,
    .by_default = false,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new Adasum); },
    .example = example,
};

}  // namespace gradloom
