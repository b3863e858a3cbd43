// early-updates: the optimizer's update of a large parameter runs as soon as its gradient is complete and the parameter is read no
// more, not at the end of the step: the gradient's memory is free again. (The idea: Lv et al. 2023, LOMO.)
#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

using namespace optimizer_inputs;

constexpr const char* kRule = "early-update";

class EarlyUpdates final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("min_kib", min_kib_,
            {.help = "updates of smaller parameters stay together at the end", .min = 0, .max = 1 << 30});
  }

  Status run(Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    for (const NodeId id : order) {
      const Node& node = rw.graph().nodes[id];
      if (!is_op(node, "Optimizer") || parameter_count(node.attrs) != 1) continue;
      const NodeId last = rw.graph().values[node.inputs[kFirst + 1]].producer;
      if (last == kNone || rw.graph().nodes[last].rank >= node.rank) continue;
      const Type& type = rw.graph().type(node.inputs[kFirst]);
      if (static_cast<std::int64_t>(byte_size(type)) < min_kib_ * 1024) continue;
      if (const std::string why = waits(rw.graph(), node, last); !why.empty()) {
        rw.reject(kRule, id, why);
        continue;
      }
      if (!rw.allowed(kRule, id)) continue;
      const std::int64_t rank = rw.graph().nodes[last].rank;
      rw.begin(kRule, id, {id});
      rw.reorder(id, rank);
      rw.commit();
    }
    return {};
  }

 private:
  // What the update has to wait for besides its gradient.
  static std::string waits(const Graph& graph, const Node& node, NodeId last) {
    if (node.inputs[kScale] != kNone || node.inputs[kApply] != kNone)
      return "it waits for the norm of all gradients (clip_norm, loss scaling)";
    if (graph.nodes[last].op->has(kMustAlias)) return "it waits for the last micro-batch";
    return "";
  }

  std::int64_t min_kib_ = 1024;
};

// Two layers: the second one's update comes before the first one's gradient.
Result<PassExample> example() {
  constexpr std::int64_t k = 512;
  const auto build = [&](Graph& graph, bool early) {
    const Attrs turned{{"perm_a", std::vector<std::int64_t>{1, 0}}},
        sgd{{"kind", std::string("sgd")}, {"n", std::int64_t{1}}};
    GraphBuilder b(graph, {.origin = {{}, Phase::backward}, .rank = 1});
    const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                  step = b.input("step", {DType::i64, {}}, Role::hyper);
    const ValueId p = b.parameter("p", Tensor(DType::f32, {k, k})), x = b.input("x", {DType::f32, {4, k}}),
                  dy = b.input("dy", {DType::f32, {4, k}});
    const ValueId gradient = b.op("FusedMatMul", {x, dy}, turned);
    GraphBuilder update(graph, {.origin = {{}, Phase::optimizer}, .rank = early ? 1 : 9});
    graph.updates = {{p, update.op("Optimizer", {lr, step, kNone, kNone, p, gradient}, sgd)}};
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef early_updates_pass;
const PassDef early_updates_pass = {
    .name = "early-updates",
    .summary = "update a large parameter as soon as its gradient is complete",
    .doc =
        "The update of a parameter of at least min_kib runs when its gradient is complete and nothing reads the parameter any more, so "
        "that the gradient takes memory for a moment only. Updates that wait for the norm of all gradients (clip_norm, f16's loss "
        "scaling) or for other micro-batches (accumulate) stay at the end.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new EarlyUpdates); },
    .example = example,
};

}  // namespace gradloom
