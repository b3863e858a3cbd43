// fuse-gather-grad: an embedding's gradient is added to the table's other gradient in its place.
//   Add(x, GatherGrad(dy, indices, shape))  becomes  GatherGrad(dy, indices, shape, x)
#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

constexpr const char* kRule = "gather-grad";

class FuseGatherGrad final : public Pass {
 public:
  Status run(Rewriter& rw) const override { return run_for(kernels::Target::cpu, rw); }

  Status run_for(kernels::Target target, Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph())))
      if (is_op(rw.graph().nodes[id], "Add")) fuse(target, rw, id);
    return {};
  }

 private:
  static void fuse(kernels::Target target, Rewriter& rw, NodeId id) {
    const Node sum = rw.graph().nodes[id];
    std::string why;
    for (const std::size_t side : {1u, 0u}) {
      const ValueId rows = sum.inputs[side], base = sum.inputs[1 - side];
      const NodeId producer = rw.graph().values[rows].producer;
      if (producer == kNone || !is_op(rw.graph().nodes[producer], "GatherGrad")) continue;
      const Node gather = rw.graph().nodes[producer];
      if (gather.inputs.size() > 3 && gather.inputs[3] != kNone) continue;  // it has a base
      why = problem(target, rw, id, rows, base);
      if (!why.empty()) continue;
      if (!rw.allowed(kRule, id, {id, producer})) return;
      GraphBuilder& b = rw.begin(kRule, id, {id, producer});
      rw.replace(
          sum.outputs[0],
          b.op("GatherGrad", {gather.inputs[0], gather.inputs[1], gather.inputs[2], base}, gather.attrs));
      return rw.commit();
    }
    if (!why.empty()) rw.reject(kRule, id, why);
  }

  static std::string problem(kernels::Target target, const Rewriter& rw, NodeId sum, ValueId rows,
                             ValueId base) {
    const Graph& graph = rw.graph();
    if (graph.type(base) != graph.type(rows)) return "the other operand has another type or is broadcast";
    if (is_half(graph.type(rows).dtype) && !kernels::computes_halves(target))
      return "this processor adds 16-bit rows in f32, and would convert the whole table";
    if (graph.values[base].producer == kNone) return "the other operand stays as it is";
    if (const std::string why = used_elsewhere(rw, rows, {sum}); !why.empty()) return why;
    return used_elsewhere(rw, base, {sum});
  }
};

// A table that is an embedding and, turned, the head of a language model.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool fused) {
    GraphBuilder b(graph, {.origin = {{}, Phase::backward}});
    const ValueId dlogits = b.input("dlogits", {DType::f32, {8, 9}}), h = b.input("h", {DType::f32, {8, 4}}),
                  tokens = b.input("tokens", {DType::i64, {8}}), dx = b.input("dx", {DType::f32, {8, 4}});
    const ValueId head = b.op("FusedMatMul", {dlogits, h}, {{"perm_a", std::vector<std::int64_t>{1, 0}}});
    const Attrs rows{{"axis", std::int64_t{0}}};
    const ValueId shape = b.i64s({9, 4});
    graph.outputs = {fused ? b.op("GatherGrad", {dx, tokens, shape, head}, rows)
                           : b.op("Add", {head, b.op("GatherGrad", {dx, tokens, shape}, rows)})};
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef fuse_gather_grad_pass;
const PassDef fuse_gather_grad_pass = {
    .name = "fuse-gather-grad",
    .summary = "add an embedding's gradient to the other gradient of its table in place",
    .doc =
        "A table that is used twice, as an embedding and as the head of a language model, has two gradients, of which that of the embedding is "
        "zero but in the rows of the tokens. Where they are added up, those rows are added to the other gradient in its place: no "
        "table of zeros is written, read and added, and there is one table less in memory.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,  // in 16 bits the sum of both is rounded once instead of twice
    .make = [] { return std::unique_ptr<Pass>(new FuseGatherGrad); },
    .example = example,
};

}  // namespace gradloom
