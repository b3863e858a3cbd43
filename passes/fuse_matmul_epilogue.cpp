// fuse-matmul-epilogue: what a backward pass makes a product's library do beside the product (cuBLASLt's
// GELU_AUX, DGELU, BGRAD):
//   gelu            GeluTanh(A B + bias), with the value before it as a second result where something else (its gradient) reads that
//   gelu-gradient   GeluTanhGrad(dY B, x) in the product
//   bias-gradient   the sums of dY over its rows beside A dY, the gradient of the weight
#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr const char *kGelu = "gelu", *kGeluGradient = "gelu-gradient", *kBiasGradient = "bias-gradient";

// What the library asks of the columns of a value that it keeps for the gradient.
constexpr std::int64_t kColumns = 8;

enum class Form { none, erf, tanh };

Form gelu_form(const Node& node) {
  if (!node.alive()) return Form::none;
  const std::string_view name = node.op->name;
  if (name == "GeluTanh" || name == "GeluTanhGrad") return Form::tanh;
  if (name == "GeluGrad") return Form::erf;
  if (name != "Gelu") return Form::none;
  return node.attrs.text("approximate", "none") == "tanh" ? Form::tanh : Form::erf;
}
bool is_gradient(const Node& node) { return std::string_view(node.op->name).ends_with("Grad"); }

// The values that hold the elements of `value` in the same order: itself and its reshapes.
std::vector<ValueId> images(const Rewriter& rw, ValueId value) {
  std::vector<ValueId> result{value};
  for (const Use& use : rw.uses(value)) {
    const Node& node = rw.graph().nodes[use.node];
    if (use.input_index == 0 && is_op(node, "Reshape")) result.push_back(node.outputs[0]);
  }
  return result;
}

class FuseMatMulEpilogue final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("devices", devices_,
            {.help = "where: gpu, whose libraries do it in the product's kernel; all: the CPU too, after it",
             .choices = {"gpu", "all"}});
  }
  Status run_for(kernels::Target target, Rewriter& rw) const override {
    FuseMatMulEpilogue of_target = *this;
    of_target.target_ = target;
    return of_target.run(rw);
  }

  Status run(Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    for (NodeId id : order) {
      const Node& node = rw.graph().nodes[id];
      if (gelu_form(node) == Form::none) continue;
      if (is_gradient(node))
        fuse_gelu_gradient(rw, id);
      else
        fuse_gelu(rw, id);
    }
    for (NodeId id : order) {
      const Node& node = rw.graph().nodes[id];
      if (is_op(node, "ReduceSum")) fuse_bias_gradient(rw, id);
    }
    return {};
  }

 private:
  // Why an activation or its slope cannot be part of `product`; empty when it can.
  std::string activation_problem(const Graph& graph, NodeId id, const Product& product) const {
    const Node& node = graph.nodes[id];
    if (gelu_form(node) == Form::erf)
      return "the erf form: the libraries of GPUs have the tanh form, and without them the product would "
             "lose the tensor cores";
    if (product.activation != "none") return "the product has an activation already";
    if (!is_identity(product.perm_y)) return "the product writes its result transposed";
    if (graph.type(product.b).shape.size() != 2) return "a product of batches";
    const std::int64_t columns = graph.type(node.outputs[0]).shape.back();
    if (columns % kColumns != 0)
      return std::to_string(columns) +
             " columns: the libraries keep the value for the gradient in lines of a multiple of " +
             std::to_string(kColumns);
    return only_on_gpus(devices_, target_);
  }

  void fuse_gelu(Rewriter& rw, NodeId id) const {
    const Graph& graph = rw.graph();
    const ValueId before = graph.nodes[id].inputs[0], result = graph.nodes[id].outputs[0];
    const NodeId producer = graph.values[before].producer;
    if (producer == kNone) return;
    const auto product = read_product(graph, producer);
    if (!product) return;
    if (const std::string why = activation_problem(graph, id, *product); !why.empty())
      return rw.reject(kGelu, id, why);
    if (!rw.allowed(kGelu, id, {id, producer})) return;
    const bool kept = rw.use_count(before) > 1;
    GraphBuilder& b = rw.begin(kGelu, id, {id, producer});
    Attrs attrs = layout_attrs(*product);
    attrs.set("activation", std::string("gelu_tanh"));
    std::vector<ValueId> inputs = {product->a, product->b};
    if (product->bias != kNone) inputs.push_back(product->bias);
    const auto results = b.ops(op_by_name("FusedMatMul"), inputs, std::move(attrs), kept ? 2 : 1);
    rw.replace(result, results[0]);
    if (kept) rw.replace(before, results[1]);
    rw.commit();
  }

  void fuse_gelu_gradient(Rewriter& rw, NodeId id) const {
    const Graph& graph = rw.graph();
    const Node& node = graph.nodes[id];
    const ValueId dy = node.inputs[0], x = node.inputs[1], result = node.outputs[0];
    const NodeId producer = graph.values[dy].producer;
    if (producer == kNone) return;
    const auto product = read_product(graph, producer);
    if (!product) return;
    std::string why = activation_problem(graph, id, *product);
    if (why.empty() && product->bias != kNone) why = "the product has a bias";
    if (why.empty() && graph.type(x).shape != graph.type(result).shape) why = "the shapes differ";
    if (why.empty()) why = used_elsewhere(rw, dy, {id});
    if (!why.empty()) return rw.reject(kGeluGradient, id, why);
    if (!rw.allowed(kGeluGradient, id, {id, producer})) return;
    Attrs attrs = layout_attrs(*product);
    attrs.set("activation", std::string("gelu_tanh"));
    GraphBuilder& b = rw.begin(kGeluGradient, id, {id, producer});
    rw.replace(result, b.op("FusedMatMulGrad", {product->a, product->b, x}, std::move(attrs)));
    rw.commit();
  }

  // The product that sums over the rows of `dy` too.
  struct Partner {
    NodeId node = kNone;
    Product product;
    const char* sums = nullptr;  // "a" | "b"
  };
  static Partner find_partner(const Rewriter& rw, ValueId dy) {
    const Graph& graph = rw.graph();
    const std::int64_t columns = graph.type(dy).shape.back();
    for (const ValueId image : images(rw, dy)) {
      const Shape& shape = graph.type(image).shape;
      if (shape.size() != 2 || shape[1] != columns) continue;
      for (const Use& use : rw.uses(image)) {
        const auto product = read_product(graph, use.node);
        if (!product || use.input_index > 1) continue;
        const bool is_a = use.input_index == 0;
        const ValueId other = is_a ? product->b : product->a;
        if (graph.type(other).shape.size() != 2 || product->bias != kNone || product->activation != "none")
          continue;
        // Its rows are what the product sums over: A turned, B as it is stored.
        if (is_identity(is_a ? product->perm_a : product->perm_b) == is_a) continue;
        return {use.node, *product, is_a ? "a" : "b"};
      }
    }
    return {};
  }

  void fuse_bias_gradient(Rewriter& rw, NodeId id) const {
    const Graph& graph = rw.graph();
    const Node& node = graph.nodes[id];
    const ValueId dy = node.inputs[0], result = node.outputs[0];
    if (!sums_rows(graph, node)) return;
    const Partner partner = find_partner(rw, dy);
    if (partner.node == kNone) return;
    std::string why = only_on_gpus(devices_, target_);
    if (why.empty() && partner.product.alpha != 1) why = "the product has a scale, which the sums have not";
    if (why.empty() && leads_to(rw, id, partner.node)) why = "the product waits for the sums";
    if (!why.empty()) return rw.reject(kBiasGradient, id, why);
    if (!rw.allowed(kBiasGradient, id, {id, partner.node})) return;
    Attrs attrs = layout_attrs(partner.product);
    attrs.set("sums", std::string(partner.sums));
    const ValueId gradient = graph.nodes[partner.node].outputs[0];
    GraphBuilder& b = rw.begin(kBiasGradient, id, {id, partner.node});
    const auto results =
        b.ops(op_by_name("FusedMatMulGrad"), {partner.product.a, partner.product.b}, std::move(attrs), 2);
    rw.replace(gradient, results[0]);
    rw.replace(result, results[1]);
    rw.commit();
  }

  // The gradient of a bias: one value per column of a floating tensor of known shape.
  static bool sums_rows(const Graph& graph, const Node& node) {
    const Type& in = graph.type(node.inputs[0]);
    const std::size_t rank = in.shape.size();
    if (!is_float(in.dtype) || rank < 2 || !is_static(in.shape)) return false;
    if (graph.type(node.outputs[0]).shape != Shape{in.shape.back()}) return false;
    std::vector<std::int64_t> axes = node.attrs.integers("axes");
    if (node.inputs.size() > 1 && node.inputs[1] != kNone) {
      const Tensor& known = graph.values[node.inputs[1]].data;
      if (!known.defined()) return false;
      axes = known.to_i64();
    }
    for (std::int64_t& axis : axes) axis += axis < 0 ? static_cast<std::int64_t>(rank) : 0;
    std::sort(axes.begin(), axes.end());
    return axes == identity_perm(rank - 1);
  }

  std::string devices_ = "gpu";
  kernels::Target target_ = kernels::Target::cpu;
};

// A layer with GELU, and what its backward pass has of it.
Result<PassExample> example() {
  const Type x_type{DType::f32, {4, 6}}, w_type{DType::f32, {6, 8}}, v_type{DType::f32, {8, 6}},
      bias_type{DType::f32, {8}};
  const Attrs turned_a{{"perm_a", Perm{1, 0}}}, turned_b{{"perm_b", Perm{1, 0}}};
  PassExample e;
  {
    GraphBuilder b(e.before);
    const ValueId x = b.input("x", x_type), w = b.input("w", w_type), bias = b.input("bias", bias_type),
                  v = b.input("v", v_type), dy = b.input("dy", x_type);
    const ValueId before = b.op("FusedMatMul", {x, w, bias});
    const ValueId after = b.op("GeluTanh", {before});
    const ValueId slope = b.op("GeluTanhGrad", {b.op("FusedMatMul", {dy, v}, turned_b), before});
    e.before.outputs = {after, b.op("FusedMatMul", {x, slope}, turned_a),
                        b.op("ReduceSum", {slope, b.i64s({0})}, {{"keepdims", std::int64_t{0}}})};
  }
  GraphBuilder b(e.after);
  const ValueId x = b.input("x", x_type), w = b.input("w", w_type), bias = b.input("bias", bias_type),
                v = b.input("v", v_type), dy = b.input("dy", x_type);
  const std::string gelu = "gelu_tanh";
  const auto layer = b.ops(op_by_name("FusedMatMul"), {x, w, bias}, {{"activation", gelu}}, 2);
  Attrs slope_attrs = turned_b, sum_attrs = turned_a;
  slope_attrs.set("activation", gelu);
  sum_attrs.set("sums", std::string("b"));
  const ValueId slope = b.op("FusedMatMulGrad", {dy, v, layer[1]}, std::move(slope_attrs));
  const auto gradients = b.ops(op_by_name("FusedMatMulGrad"), {x, slope}, std::move(sum_attrs), 2);
  e.after.outputs = {layer[0], gradients[0], gradients[1]};
  return e;
}

}  // namespace

extern const PassDef fuse_matmul_epilogue_pass;
const PassDef fuse_matmul_epilogue_pass = {
    .name = "fuse-matmul-epilogue",
    .summary = "GPUs: compute GELU, its gradient and bias gradients inside the kernel of a matrix product",
    .doc =
        "GELU after a product moves into its kernel, which also writes the value before it where the "
        "gradient "
        "reads that; the slope of GELU moves into the product that makes its gradient; the sum over the rows "
        "of "
        "a gradient (that of a bias) moves into the product that makes the gradient of the weight. Each "
        "saves "
        "reading or writing an activation once. In the tanh form of GELU only, which is the one that GPU "
        "libraries have. On the CPU, where it would gain nothing, only with devices=all.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,
    .target = kernels::Target::gpu,
    .make = [] { return std::unique_ptr<Pass>(new FuseMatMulEpilogue); },
    .example = example,
};

}  // namespace gradloom
