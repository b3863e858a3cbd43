// fuse-accumulate: with --accumulate, the product that makes a weight's gradient adds it to the accumulator itself:
//   next = Accumulate(acc, [Cast] A B, micro)  becomes  next = AccumulateMatMul(acc, micro, A, B)
#include <string_view>

#include "engine/ir/op.h"
#include "engine/ops/inference.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr const char* kRule = "accumulate";

class FuseAccumulate final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph())))
      if (is_op(rw.graph().nodes[id], "Accumulate")) fuse(rw, id);
    return {};
  }

 private:
  static void fuse(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node node = graph.nodes[id];
    std::vector<NodeId> nodes = {id};
    ValueId value = node.inputs[1];
    NodeId producer = graph.values[value].producer;
    if (producer != kNone && is_op(graph.nodes[producer], "Cast")) {
      const ValueId narrow = graph.nodes[producer].inputs[0];
      if (graph.type(value).dtype != statistics_type(graph.type(narrow).dtype)) return;
      if (const std::string why = used_elsewhere(rw, value, nodes); !why.empty())
        return rw.reject(kRule, id, why);
      nodes.push_back(producer);
      value = narrow;
      producer = graph.values[value].producer;
    }
    if (producer == kNone) return;
    const auto product = read_product(graph, producer);
    if (!product) return;
    if (const std::string why = problem(rw, value, nodes, *product); !why.empty())
      return rw.reject(kRule, id, why);
    if (!rw.allowed(kRule, id)) return;
    nodes.push_back(producer);
    Attrs attrs = layout_attrs(*product);
    attrs.set("count", node.attrs.integer("count", 1));
    GraphBuilder& b = rw.begin(kRule, id, nodes);
    rw.replace(
        node.outputs[0],
        b.op("AccumulateMatMul", {node.inputs[0], node.inputs[2], product->a, product->b}, std::move(attrs)));
    rw.commit();
  }

  static std::string problem(const Rewriter& rw, ValueId value, const std::vector<NodeId>& inside,
                             const Product& product) {
    if (product.bias != kNone || product.activation != "none")
      return "the product has a bias or an activation";
    const Type& type = rw.graph().type(value);
    if (!is_static(type.shape) || element_count(type.shape) == 0 ||
        rw.graph().type(product.a).shape.back() == 0)
      return "there is nothing to multiply";
    return used_elsewhere(rw, value, inside);
  }
};

Result<PassExample> example() {
  const Attrs turned{{"perm_a", Perm{1, 0}}};
  Attrs counted = turned;
  counted.set("count", std::int64_t{2});
  const auto build = [&](Graph& graph, bool fused) {
    GraphBuilder b(graph, {.origin = {{}, Phase::backward}});
    const ValueId micro = b.input("micro", {DType::i64, {}}, Role::hyper),
                  acc = b.input("acc", {DType::f32, {4, 3}}, Role::state),
                  x = b.input("x", {DType::f32, {8, 4}}), dy = b.input("dy", {DType::f32, {8, 3}});
    const ValueId next = fused ? b.op("AccumulateMatMul", {acc, micro, x, dy}, counted)
                               : b.op("Accumulate", {acc, b.op("FusedMatMul", {x, dy}, turned), micro},
                                      {{"count", std::int64_t{2}}});
    graph.updates = {{acc, next}};
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef fuse_accumulate_pass;
const PassDef fuse_accumulate_pass = {
    .name = "fuse-accumulate",
    .summary = "CPU: add a weight's gradient to its accumulator in the product that makes it",
    .doc =
        "With --accumulate, a product whose result is only added to an accumulator adds it itself (BLAS's beta = 1), in "
        "f32 where its operands are bf16: the gradient is not written and read once more, and needs no memory. "
        "Gradients that several nodes add up to (of tied weights), and those of biases and scales, are accumulated by "
        "kernels of their own.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,
    .target = kernels::Target::cpu,
    .make = [] { return std::unique_ptr<Pass>(new FuseAccumulate); },
    .example = example,
};

}  // namespace gradloom
