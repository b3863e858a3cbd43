// fuse-layernorm: layer normalization in pieces (exports before opset 17) becomes
// one LayerNormalization node.
//   y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + bias
// with means over the last axes (Ba et al., 2016; ONNX-17).
#include "engine/ir/op.h"
#include "passes/fusion.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

std::string apply_layernorm(Rewriter& rw, const Match& match) {
  const Graph& graph = rw.graph();
  const ValueId x = match.value("x"), scale = match.value("w"), y = match.value("y");
  const MeanAxes mean = mean_axes(graph, match.value("u")), variance = mean_axes(graph, match.value("v"));
  if (mean.axes != variance.axes) return "mean and variance are over different axes";
  if (!mean.why_not.empty()) return mean.why_not;
  const Shape& shape = graph.type(x).shape;
  const auto axis = static_cast<std::int64_t>(mean.axes.front());
  if (!is_float(graph.type(x).dtype)) return "the input is not floating point";
  if (graph.type(y) != graph.type(x)) return "the result has another type than the input";
  const Shape normalized(shape.begin() + axis, shape.end());
  const Type parameter_type{graph.type(x).dtype, normalized};
  if (graph.type(scale) != parameter_type) {
    return "scale is " + to_string(graph.type(scale)) + ", the normalized dims are " + to_string(normalized);
  }
  std::vector<ValueId> inputs = {x, scale};
  if (match.values.count("b") != 0) {
    inputs.push_back(match.value("b"));
    if (graph.type(inputs[2]) != parameter_type) {
      return "bias is " + to_string(graph.type(inputs[2])) + ", the normalized dims are " +
             to_string(normalized);
    }
  }
  const double epsilon = match.constants.at("epsilon");
  if (!(epsilon >= 0)) return "epsilon is negative";
  const Attrs attrs{{"axis", axis}, {"epsilon", epsilon}};
  GraphBuilder& b = rw.begin("layernorm", match.root, match.nodes);
  rw.replace(y, b.op("LayerNormalization", inputs, attrs));
  rw.commit(std::to_string(match.nodes.size()) + " nodes become 1");
  return "";
}

// Axes are an attribute (until opset 17) or an input (from 18).
std::vector<FusionRule> layernorm_rules() {
  std::vector<FusionRule> rules;
  for (const std::string roots : {"y = Add(m, b); m = Mul(n, w); ", "y = Mul(n, w); "})
    rules.push_back(
        {"layernorm",
         Pattern((roots + "n = Div(d, s); s = Sqrt(a); a = Add(v, #epsilon); v = ReduceMean(p, i?);"
                          "p = Pow(d, #2) | Mul(d, d); d = Sub(x, u); u = ReduceMean(x, j?)")
                     .c_str()),
         "Sqrt", apply_layernorm});
  return rules;
}

class FuseLayerNorm final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    static const std::vector<FusionRule> rules = layernorm_rules();
    return run_fusion(rw, rules);
  }
};

Result<PassExample> example() {
  const Type x_type{DType::f32, {2, 4, 8}}, p_type{DType::f32, {8}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", x_type), w = b.input("scale", p_type), bias = b.input("bias", p_type);
  const OpDef* mean = find_op("ReduceMean", "", 13);
  if (mean == nullptr) return Error{Errc::bug, "ReduceMean-13 has no row"};
  const Attrs last{{"axes", std::vector<std::int64_t>{-1}}, {"keepdims", std::int64_t{1}}};
  const ValueId d = b.op("Sub", {x, b.op(*mean, {x}, last)});
  const ValueId variance = b.op(*mean, {b.op("Pow", {d, b.scalar(DType::f32, 2)})}, last);
  const ValueId deviation = b.op("Sqrt", {b.op("Add", {variance, b.scalar(DType::f32, 1e-5)})});
  e.before.outputs = {b.op("Add", {b.op("Mul", {b.op("Div", {d, deviation}), w}), bias})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", x_type), aw = a.input("scale", p_type), abias = a.input("bias", p_type);
  const double epsilon = Tensor::scalar(DType::f32, 1e-5).at(0);
  e.after.outputs = {
      a.op("LayerNormalization", {ax, aw, abias}, {{"axis", std::int64_t{2}}, {"epsilon", epsilon}})};
  return e;
}

}  // namespace

extern const PassDef fuse_layernorm_pass;
const PassDef fuse_layernorm_pass = {
    .name = "fuse-layernorm",
    .summary = "replace the pieces of a layer normalization by one operator",
    .doc =
        "Matches ReduceMean, Sub, Pow (or Mul), ReduceMean, Add, Sqrt, Div, Mul and optionally Add over the "
        "last axes, and puts one "
        "LayerNormalization node in their place: two passes over memory instead of nine, and mean and "
        "inverse deviation are the only "
        "things kept for the gradient besides the input.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseLayerNorm); },
    .example = example,
};

}  // namespace gradloom
