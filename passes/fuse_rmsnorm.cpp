// fuse-rmsnorm: root mean square normalization in pieces (Llama, T5, Mistral, Qwen; exports before opset 23) becomes one
// RMSNormalization node.
//   y = x / sqrt(mean(x^2) + epsilon) * scale
// with the mean over the last axes (Zhang and Sennrich, 2019; ONNX-23).
#include "engine/ir/op.h"
#include "passes/fusion.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

std::string apply_rmsnorm(Rewriter& rw, const Match& match) {
  const Graph& graph = rw.graph();
  const ValueId x = match.value("x"), scale = match.value("w"), y = match.value("y");
  const MeanAxes mean = mean_axes(graph, match.value("v"));
  if (!mean.why_not.empty()) return mean.why_not;
  const Type& type = graph.type(x);
  if (!is_float(type.dtype)) return "the input is not floating point";
  if (graph.type(y) != graph.type(x)) return "the result has another type than the input";
  const auto axis = static_cast<std::int64_t>(mean.axes.front());
  const Shape normalized(type.shape.begin() + axis, type.shape.end());
  if (graph.type(scale) != Type{type.dtype, normalized})
    return "scale is " + to_string(graph.type(scale)) + ", the normalized dims are " + to_string(normalized);
  const double epsilon = match.constants.at("epsilon");
  if (!(epsilon >= 0)) return "epsilon is negative";
  GraphBuilder& b = rw.begin("rmsnorm", match.root, match.nodes);
  rw.replace(y, b.op("RMSNormalization", {x, scale}, {{"axis", axis}, {"epsilon", epsilon}}));
  rw.commit(std::to_string(match.nodes.size()) + " nodes become 1");
  return "";
}

class FuseRmsNorm final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    static const FusionRule rule = {
        "rmsnorm",
        Pattern(
            "y = Mul(n, w); n = Mul(x, r) | Div(x, s); r = Reciprocal(s) | Div(#1, s) | Pow(a, #-0.5);"
            "s = Sqrt(a) | Pow(a, #0.5); a = Add(v, #epsilon); v = ReduceMean(p, i?); p = Pow(x, #2) | Mul(x, x)"),
        "ReduceMean", apply_rmsnorm};
    return run_fusion(rw, {&rule, 1});
  }
};

Result<PassExample> example() {
  const Type x_type{DType::f32, {2, 4, 8}}, p_type{DType::f32, {8}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", x_type), w = b.input("scale", p_type);
  const OpDef* mean = find_op("ReduceMean", "", 13);
  if (mean == nullptr) return Error{Errc::bug, "ReduceMean-13 has no row"};
  const Attrs last{{"axes", std::vector<std::int64_t>{-1}}, {"keepdims", std::int64_t{1}}};
  const ValueId square = b.op(*mean, {b.op("Pow", {x, b.scalar(DType::f32, 2)})}, last);
  const ValueId rms = b.op("Sqrt", {b.op("Add", {square, b.scalar(DType::f32, 1e-6)})});
  e.before.outputs = {b.op("Mul", {w, b.op("Mul", {x, b.op("Reciprocal", {rms})})})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", x_type), aw = a.input("scale", p_type);
  const double epsilon = Tensor::scalar(DType::f32, 1e-6).at(0);
  e.after.outputs = {a.op("RMSNormalization", {ax, aw}, {{"axis", std::int64_t{2}}, {"epsilon", epsilon}})};
  return e;
}

}  // namespace

extern const PassDef fuse_rmsnorm_pass;
const PassDef fuse_rmsnorm_pass = {
    .name = "fuse-rmsnorm",
    .summary = "replace the pieces of a root mean square normalization by one operator",
    .doc =
        "Matches Pow (or Mul), ReduceMean, Add, Sqrt, Reciprocal (or Div) and two Mul over the last axes, as Llama, T5 and "
        "their relatives export them, and puts one RMSNormalization node in their place: one pass over memory instead of "
        "four, and the inverse of the root mean square is the only thing kept for the gradient besides the input.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseRmsNorm); },
    .example = example,
};

}  // namespace gradloom
