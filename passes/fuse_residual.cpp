// fuse-residual: a sum inside the kernel that makes one of its operands, which is then not written and read again:
//   addend               Add(A B + bias, x), a residual stream: the library reads x as its C
//   layernorm-gradient   Add(LayerNormGrad's dx, x), the gradient that goes around the layer
#include <string_view>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr const char *kAddend = "addend", *kNormGradient = "layernorm-gradient";

class FuseResidual final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field(
        "devices", devices_,
        {.help =
             "where: gpu, whose kernels wait for memory; all: the CPU too, where a product has it done after it",
         .choices = {"gpu", "all"}});
  }
  Status run_for(kernels::Target target, Rewriter& rw) const override {
    FuseResidual of_target = *this;
    of_target.target_ = target;
    return of_target.run(rw);
  }

  Status run(Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph())))
      if (rw.graph().nodes[id].alive() && adds_alike(rw.graph(), rw.graph().nodes[id])) fuse(rw, id);
    return {};
  }

 private:
  // Floats of one known shape, which is not broadcast.
  static bool adds_alike(const Graph& graph, const Node& node) {
    if (!is_op(node, "Add")) return false;
    const Type& sum = graph.type(node.outputs[0]);
    return is_float(sum.dtype) && is_static(sum.shape) && graph.type(node.inputs[0]) == sum &&
           graph.type(node.inputs[1]) == sum && node.inputs[0] != node.inputs[1];
  }

  // The operand whose kernel adds the other; else why each that might is none.
  void fuse(Rewriter& rw, NodeId id) const {
    const char* rule = nullptr;
    std::string why;
    for (const std::size_t side : {0u, 1u}) {
      const Graph& graph = rw.graph();
      const ValueId made = graph.nodes[id].inputs[side], other = graph.nodes[id].inputs[1 - side];
      const NodeId producer = graph.values[made].producer;
      if (producer == kNone) continue;
      const bool norm = is_op(graph.nodes[producer], "LayerNormGrad");
      const auto product = norm ? std::nullopt : read_product(graph, producer);
      if (!norm && !product) continue;
      rule = norm ? kNormGradient : kAddend;
      why = norm ? norm_problem(rw, producer, made, other) : product_problem(rw, *product, producer);
      if (why.empty()) why = used_elsewhere(rw, made, {id});
      if (why.empty()) why = only_on_gpus(devices_, target_);
      if (!why.empty()) continue;
      if (!rw.allowed(rule, id, {id, producer})) return;
      return norm ? fuse_norm(rw, id, producer, other) : fuse_product(rw, id, producer, *product, other);
    }
    if (rule != nullptr) rw.reject(rule, id, why);
  }

  static std::string product_problem(const Rewriter& rw, const Product& product, NodeId id) {
    if (product.activation != "none") return "the product has an activation";
    if (rw.graph().type(product.a).shape[static_cast<std::size_t>(product.perm_a.back())] == 0)
      return "the product is of nothing";
    return rw.graph().nodes[id].outputs.size() > 1 ? "the product has a second result" : "";
  }

  static std::string norm_problem(const Rewriter& rw, NodeId id, ValueId made, ValueId other) {
    const Node& node = rw.graph().nodes[id];
    if (node.outputs[0] != made) return "it is the gradient of a parameter";
    if (node.inputs.size() > 5) return "it adds a gradient already";
    const NodeId maker = rw.graph().values[other].producer;
    return maker != kNone && leads_to(rw, id, maker) ? "the other gradient waits for this one" : "";
  }

  static void fuse_product(Rewriter& rw, NodeId id, NodeId producer, const Product& product, ValueId other) {
    const ValueId sum = rw.graph().nodes[id].outputs[0];
    GraphBuilder& b = rw.begin(kAddend, id, {id, producer});
    rw.replace(sum, b.op("FusedMatMul", {product.a, product.b, product.bias, other}, layout_attrs(product)));
    rw.commit();
  }

  static void fuse_norm(Rewriter& rw, NodeId id, NodeId producer, ValueId other) {
    const ValueId sum = rw.graph().nodes[id].outputs[0];
    const Node norm = rw.graph().nodes[producer];
    std::vector<ValueId> inputs = norm.inputs;
    inputs.push_back(other);
    GraphBuilder& b = rw.begin(kNormGradient, id, {id, producer});
    const auto made = b.ops(*norm.op, std::move(inputs), norm.attrs, static_cast<int>(norm.outputs.size()));
    rw.replace(sum, made[0]);
    for (std::size_t i = 1; i < made.size(); ++i)
      if (norm.outputs[i] != kNone) rw.replace(norm.outputs[i], made[i]);
    rw.commit();
  }

  std::string devices_ = "gpu";
  kernels::Target target_ = kernels::Target::cpu;
};

Result<PassExample> example() {
  const Type x_type{DType::f32, {4, 6}}, w_type{DType::f32, {6, 6}}, p_type{DType::f32, {6}},
      row_type{DType::f32, {4, 1}};
  PassExample e;
  const Attrs last{{"axis", std::int64_t{-1}}};
  for (const bool fused : {false, true}) {
    Graph& graph = fused ? e.after : e.before;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", x_type), w = b.input("w", w_type), bias = b.input("bias", p_type),
                  dy = b.input("dy", x_type), scale = b.input("scale", p_type),
                  mean = b.input("mean", row_type), inv = b.input("inv_std", row_type),
                  around = b.input("around", x_type);
    const OpDef& norm = op_by_name("LayerNormGrad");
    if (fused) {
      const ValueId y = b.op("FusedMatMul", {x, w, bias, x});
      const auto dx = b.ops(norm, {dy, x, scale, mean, inv, around}, last, 3);
      graph.outputs = {y, dx[0], dx[1], dx[2]};
    } else {
      const ValueId y = b.op("Add", {x, b.op("FusedMatMul", {x, w, bias})});
      const auto dx = b.ops(norm, {dy, x, scale, mean, inv}, last, 3);
      graph.outputs = {y, b.op("Add", {around, dx[0]}), dx[1], dx[2]};
    }
  }
  return e;
}

}  // namespace

extern const PassDef fuse_residual_pass;
const PassDef fuse_residual_pass = {
    .name = "fuse-residual",
    .summary =
        "GPUs: add residuals, and the gradients that go around a layer, inside the kernels beside them",
    .doc =
        "A sum of a product and another tensor of its shape, as in a residual stream, moves into the product's kernel, which reads "
        "that tensor as it writes its result; the sum of the gradient of a LayerNormalization and of what goes around it moves into "
        "the kernel of that gradient. Each saves writing one operand and reading it again, and a launch. On the CPU, where products "
        "have it done after them, only with devices=all.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,
    .target = kernels::Target::gpu,
    .make = [] { return std::unique_ptr<Pass>(new FuseResidual); },
    .example = example,
};

}  // namespace gradloom
