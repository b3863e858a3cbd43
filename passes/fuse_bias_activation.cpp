// fuse-bias-activation: the epilogue of a product: Y = relu(A B + bias), bias one value per column.

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

class FuseBiasActivation final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    for (NodeId id : order) {
      if (is_op(rw.graph().nodes[id], "Add")) fuse_bias(rw, id);
    }
    for (NodeId id : order) {
      if (is_op(rw.graph().nodes[id], "Relu")) fuse_relu(rw, id);
    }
    return {};
  }

 private:
  static void fuse_bias(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node& add = graph.nodes[id];
    for (std::size_t side = 0; side < 2; ++side) {
      const ValueId product_value = add.inputs[side], bias = add.inputs[1 - side];
      const NodeId producer = graph.values[product_value].producer;
      if (producer == kNone || graph.type(bias).shape.size() != 1) continue;
      auto product = read_product(graph, producer);
      if (!product) continue;
      const std::string why = bias_problem(rw, id, product_value, bias, *product);
      if (!why.empty()) {
        rw.reject("bias", id, why);
        return;
      }
      if (!rw.allowed("bias", id, {id, producer})) return;
      product->bias = bias;
      const ValueId result = add.outputs[0];
      GraphBuilder& b = rw.begin("bias", id, {id, producer});
      rw.replace(result, add_product(b, *product));
      rw.commit();
      return;
    }
  }

  static std::string bias_problem(const Rewriter& rw, NodeId id, ValueId product_value, ValueId bias,
                                  const Product& product) {
    const Graph& graph = rw.graph();
    const Shape& shape = graph.type(product_value).shape;
    if (product.bias != kNone || product.activation != "none")
      return "the product has a bias or an activation already";
    if (!is_identity(product.perm_y))
      return "the product writes its result transposed, its columns are not the last axis";
    if (graph.type(bias) != Type{graph.type(product_value).dtype, {shape.back()}}) {
      return "the bias is " + to_string(graph.type(bias)) + ", the product has " +
             std::to_string(shape.back()) + " columns";
    }
    return used_elsewhere(rw, product_value, {id});
  }

  static void fuse_relu(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const ValueId before = graph.nodes[id].inputs[0], result = graph.nodes[id].outputs[0];
    const NodeId producer = graph.values[before].producer;
    if (producer == kNone) return;
    auto product = read_product(graph, producer);
    if (!product || product->activation != "none") return;
    const std::string elsewhere = used_elsewhere(rw, before, {id});
    if (!elsewhere.empty()) {
      rw.reject("relu", id, elsewhere);
      return;
    }
    if (!rw.allowed("relu", id, {id, producer})) return;
    product->activation = "relu";
    GraphBuilder& b = rw.begin("relu", id, {id, producer});
    rw.replace(result, add_product(b, *product));
    rw.commit();
  }
};

Result<PassExample> example() {
  const Type x_type{DType::f32, {4, 8}}, w_type{DType::f32, {8, 3}}, bias_type{DType::f32, {3}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", x_type), w = b.input("w", w_type), bias = b.input("bias", bias_type);
  e.before.outputs = {b.op("Relu", {b.op("Add", {b.op("MatMul", {x, w}), bias})})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", x_type), aw = a.input("w", w_type), abias = a.input("bias", bias_type);
  e.after.outputs = {a.op("FusedMatMul", {ax, aw, abias}, {{"activation", std::string("relu")}})};
  return e;
}

}  // namespace

extern const PassDef fuse_bias_activation_pass;
const PassDef fuse_bias_activation_pass = {
    .name = "fuse-bias-activation",
    .summary = "apply bias and ReLU inside the kernel of a matrix product",
    .doc =
        "Add of one value per column and Relu after MatMul, FusedMatMul or Gemm move into the product's "
        "kernel, which applies them while the "
        "result is in registers. The product must have no other reader. GELU is left to "
        "fuse-matmul-epilogue: its gradient needs the value before it.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseBiasActivation); },
    .example = example,
};

}  // namespace gradloom
