// fuse-swish: x * sigmoid(alpha x), in pieces, becomes one Swish node (Ramachandran et al., 2017). With alpha = 1 it is SiLU,
// with 1.702 the QuickGELU of CLIP (Hendrycks and Gimpel, 2016).
#include "engine/ir/op.h"
#include "passes/fusion.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

std::string apply_swish(Rewriter& rw, const Match& match) {
  const ValueId x = match.value("x"), y = match.value("y");
  if (rw.graph().type(x) != rw.graph().type(y)) return "the result has another type than the input";
  const auto alpha = match.constants.find("alpha");
  GraphBuilder& b = rw.begin("swish", match.root, match.nodes);
  rw.replace(y, b.op("Swish", {x}, {{"alpha", alpha == match.constants.end() ? 1.0 : alpha->second}}));
  rw.commit(std::to_string(match.nodes.size()) + " nodes become 1, and the gradient is one formula");
  return "";
}

class FuseSwish final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    static const FusionRule rule = {"swish",
                                    Pattern("y = Mul(x, s); s = Sigmoid(k) | Sigmoid(x); k = Mul(x, #alpha)"),
                                    "Sigmoid", apply_swish};
    return run_fusion(rw, {&rule, 1});
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {4, 8}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type);
  e.before.outputs = {b.op("Mul", {x, b.op("Sigmoid", {b.op("Mul", {x, b.scalar(DType::f32, 1.5)})})})};
  GraphBuilder a(e.after);
  e.after.outputs = {a.op("Swish", {a.input("x", type)}, {{"alpha", 1.5}})};
  return e;
}

}  // namespace

extern const PassDef fuse_swish_pass;
const PassDef fuse_swish_pass = {
    .name = "fuse-swish",
    .summary = "replace the pieces of a SiLU or QuickGELU by one operator",
    .doc =
        "Matches x * sigmoid(alpha x), which is SiLU for alpha 1 and QuickGELU for 1.702, and puts one Swish node in its "
        "place: only x is kept for the gradient. A sigmoid that something else reads keeps the pieces.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseSwish); },
    .example = example,
};

}  // namespace gradloom
