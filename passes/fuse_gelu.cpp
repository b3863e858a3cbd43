// fuse-gelu: the pieces that exporters make of GELU (Hendrycks and Gimpel,
// 2016) become one Gelu or GeluTanh node.
//   erf form   x * (1 + erf(x / sqrt 2)) / 2
//   tanh form  x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
#include "engine/ir/op.h"
#include "passes/fusion.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

FusionRule gelu_rule(const char* name, const char* pattern, const char* key_op, const char* op) {
  auto apply = [name, op](Rewriter& rw, const Match& match) -> std::string {
    const ValueId x = match.value("x"), y = match.value("y");
    if (rw.graph().type(x) != rw.graph().type(y)) return "the result has another type than the input";
    GraphBuilder& b = rw.begin(name, match.root, match.nodes);
    rw.replace(y, b.op(op, {x}));
    rw.commit(std::to_string(match.nodes.size()) + " nodes become 1, and the gradient is one formula");
    return "";
  };
  return {name, Pattern(pattern), key_op, apply};
}

// Factors stand in any order. erf(x / sqrt 2) may be written erf(x * sqrt 1/2), and x^3 as a power or a product.
std::vector<FusionRule> gelu_rules() {
  return {
      gelu_rule("gelu-erf",
                "y = Mul(x, s, #0.5); s = Add(e, #1); e = Erf(d);"
                "d = Div(x, #1.4142135623730951) | Mul(x, #0.7071067811865476)",
                "Erf", "Gelu"),
      gelu_rule("gelu-tanh",
                "y = Mul(x, a, #0.5); a = Add(#1, t); t = Tanh(k); k = Mul(#0.7978845608028654, i);"
                "i = Add(x, c); c = Mul(#0.044715, q) | Mul(#0.044715, x, x, x); q = Pow(x, #3)",
                "Tanh", "GeluTanh"),
  };
}

class FuseGelu final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    static const std::vector<FusionRule> rules = gelu_rules();
    return run_fusion(rw, rules);
  }
};

Result<PassExample> example() {
  PassExample e;
  GraphBuilder before(e.before);
  const ValueId x = before.input("x", {DType::f32, {4, 8}});
  const ValueId d = before.op("Div", {x, before.scalar(DType::f32, 1.4142135381698608)});
  const ValueId s = before.op("Add", {before.op("Erf", {d}), before.scalar(DType::f32, 1)});
  e.before.outputs = {before.op("Mul", {before.op("Mul", {x, s}), before.scalar(DType::f32, 0.5)})};
  GraphBuilder after(e.after);
  e.after.outputs = {after.op("Gelu", {after.input("x", {DType::f32, {4, 8}})})};
  return e;
}

}  // namespace

extern const PassDef fuse_gelu_pass;
const PassDef fuse_gelu_pass = {
    .name = "fuse-gelu",
    .summary = "replace the pieces of a GELU by one operator",
    .doc =
        "Matches the erf form (5 nodes) and the tanh form (8 or 9 nodes) that exporters write, and puts one "
        "Gelu or GeluTanh node in their "
        "place: forward and backward read and write memory once, and only the input is kept for the "
        "gradient. A piece that "
        "something else reads, or a constant that is off by more than the precision of its type, keeps the "
        "pieces.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseGelu); },
    .example = example,
};

}  // namespace gradloom
