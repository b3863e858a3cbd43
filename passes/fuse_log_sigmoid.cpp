// fuse-log-sigmoid: the logarithm of a sigmoid becomes a softplus, which no logit can overflow.
//   log(sigmoid(x)) = -softplus(-x);  log(1 - sigmoid(x)) = -softplus(x)
#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

class FuseLogSigmoid final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    static const Pattern of_sigmoid("y = Log(s); s = Sigmoid(x)"),
        of_complement("y = Log(d); d = Sub(#1, s); s = Sigmoid(x)");
    for (NodeId id : TRY(topological_order(rw.graph()))) {
      fuse(rw, id, of_sigmoid, "log-sigmoid", true);
      fuse(rw, id, of_complement, "log-complement", false);
    }
    return {};
  }

 private:
  // The sigmoid stays for what else reads it, as the other logarithm of a binary cross-entropy does.
  static void fuse(Rewriter& rw, NodeId id, const Pattern& pattern, const char* rule, bool negated) {
    Match match;
    if (!is_op(rw.graph().nodes[id], "Log") || !pattern.match(rw.graph(), id, match)) return;
    const ValueId x = match.value("x"), y = match.value("y");
    if (rw.graph().type(x) != rw.graph().type(y))
      return rw.reject(rule, id, "the result has another type than the input");
    if (!rw.allowed(rule, id, match.nodes)) return;
    GraphBuilder& b = rw.begin(rule, id, match.nodes);
    rw.replace(y, b.op("Neg", {b.op("Softplus", {negated ? b.op("Neg", {x}) : x})}));
    rw.commit("finite where the sigmoid rounds to 0 or 1");
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {4, 8}};
  PassExample e;
  GraphBuilder before(e.before);
  e.before.outputs = {before.op("Log", {before.op("Sigmoid", {before.input("x", type)})})};
  GraphBuilder after(e.after);
  e.after.outputs = {after.op("Neg", {after.op("Softplus", {after.op("Neg", {after.input("x", type)})})})};
  return e;
}

}  // namespace

extern const PassDef fuse_log_sigmoid_pass;
const PassDef fuse_log_sigmoid_pass = {
    .name = "fuse-log-sigmoid",
    .summary = "compute the logarithm of a sigmoid as a softplus",
    .doc =
        "torch.onnx writes binary_cross_entropy_with_logits as log(sigmoid(x)) and log(1 - sigmoid(x)). From a "
        "logit of 17 on the sigmoid is 1 in f32, its complement 0, the logarithm -inf, and the loss NaN, where "
        "PyTorch trains on. Softplus has neither, in the loss and in its gradient.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseLogSigmoid); },
    .example = example,
};

}  // namespace gradloom
