// fuse-scale-matmul: a scalar factor before or after a product becomes its alpha.
//   Mul(MatMul(a, b), c) -> FusedMatMul(a, b){alpha = c}
//   MatMul(Mul(a, c), b) -> FusedMatMul(a, b){alpha = c}
#include <algorithm>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

class FuseScaleMatMul final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    for (NodeId id : TRY(topological_order(rw.graph()))) {
      const auto scaling = read_scaling(rw.graph(), id);
      if (scaling && !fuse_result(rw, id, *scaling)) fuse_operand(rw, id, *scaling);
    }
    return {};
  }

 private:
  // True when the scaled value is a product: fused, or rejected with the reason.
  static bool fuse_result(Rewriter& rw, NodeId id, const Scaling& scaling) {
    const Graph& graph = rw.graph();
    const NodeId producer = graph.values[scaling.value].producer;
    if (producer == kNone) return false;
    auto product = read_product(graph, producer);
    if (!product) return false;
    const std::string elsewhere = used_elsewhere(rw, scaling.value, {id});
    if (!elsewhere.empty() || product->bias != kNone || product->activation != "none") {
      rw.reject("scale-result", id,
                !elsewhere.empty() ? elsewhere : "the product adds a bias or applies an activation first");
      return true;
    }
    if (!rw.allowed("scale-result", id, {id, producer})) return true;
    product->alpha *= scaling.factor;
    const ValueId result = graph.nodes[id].outputs[0];
    GraphBuilder& b = rw.begin("scale-result", id, {id, producer});
    rw.replace(result, add_product(b, *product));
    rw.commit();
    return true;
  }

  // The scaled value is read by products only: each takes the factor, and the scaled copy is never written.
  static void fuse_operand(Rewriter& rw, NodeId id, const Scaling& scaling) {
    const Graph& graph = rw.graph();
    const ValueId scaled = graph.nodes[id].outputs[0];
    std::vector<NodeId> readers;
    for (const Use& use : rw.uses(scaled)) {
      if (!read_product(graph, use.node) || use.input_index > 1) {
        if (!readers.empty())
          rw.reject("scale-operand", id, "also read by node " + graph.nodes[use.node].name);
        return;
      }
      if (std::find(readers.begin(), readers.end(), use.node) != readers.end()) return;  // scaled by itself
      readers.push_back(use.node);
    }
    if (readers.empty() || rw.is_output(scaled)) return;
    for (NodeId reader : readers) {
      if (!rw.allowed("scale-operand", reader, {reader, id})) continue;
      Product product = *read_product(rw.graph(), reader);
      (product.a == scaled ? product.a : product.b) = scaling.value;
      product.alpha *= scaling.factor;
      const ValueId result = rw.graph().nodes[reader].outputs[0];
      GraphBuilder& b = rw.begin("scale-operand", reader, {reader, id});
      rw.replace(result, add_product(b, product));
      rw.commit();
    }
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {2, 3, 4}}, result{DType::f32, {2, 4, 3}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type), y = b.input("y", result);
  e.before.outputs = {b.op("Mul", {b.op("MatMul", {x, y}), b.scalar(DType::f32, 0.125)})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", type), ay = a.input("y", result);
  e.after.outputs = {a.op("FusedMatMul", {ax, ay}, {{"alpha", 0.125}})};
  return e;
}

}  // namespace

extern const PassDef fuse_scale_matmul_pass;
const PassDef fuse_scale_matmul_pass = {
    .name = "fuse-scale-matmul",
    .summary = "make scalar factors around a matrix product its alpha",
    .doc =
        "A product multiplied or divided by a scalar constant, or an operand that is (and is read by "
        "products only), costs nothing in the "
        "matmul kernel. Products with a bias or an activation keep the factor outside.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseScaleMatMul); },
    .example = example,
};

}  // namespace gradloom
