// fuse-softmax-cross-entropy: NegativeLogLikelihoodLoss(LogSoftmax(x), labels) becomes
// SoftmaxCrossEntropyLoss(x, labels). The class axis of both losses is axis 1 (ONNX-13), so LogSoftmax must
// normalize over axis 1.
#include "engine/ir/op.h"
#include "passes/fusion.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

std::string apply(Rewriter& rw, const Match& match) {
  const Graph& graph = rw.graph();
  const Node loss = graph.nodes[match.root];
  const Node& log_softmax = graph.nodes[graph.values[match.value("p")].producer];
  const auto rank = static_cast<std::int64_t>(graph.type(match.value("x")).shape.size());
  const bool flattens =
      log_softmax.op->until < 13;  // before opset 13 everything from the axis on is one axis
  std::int64_t axis = log_softmax.attrs.integer("axis", flattens ? 1 : -1);
  axis += axis < 0 ? rank : 0;
  if (axis != 1)
    return "LogSoftmax is over axis " + std::to_string(axis) + ", the loss takes classes from axis 1";
  if (flattens && rank != 2) return "LogSoftmax before opset 13 flattens the axes after 1";
  std::vector<ValueId> inputs = loss.inputs;
  inputs[0] = match.value("x");
  GraphBuilder& b = rw.begin("softmax-cross-entropy", match.root, match.nodes);
  rw.replace(match.value("y"), b.op("SoftmaxCrossEntropyLoss", inputs, loss.attrs));
  rw.commit("log-probabilities are not written to memory");
  return "";
}

class FuseSoftmaxCrossEntropy final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    static const std::vector<FusionRule> rules = {
        {"softmax-cross-entropy", Pattern("y = NegativeLogLikelihoodLoss(p, labels); p = LogSoftmax(x)"),
         "NegativeLogLikelihoodLoss", apply},
        {"softmax-cross-entropy",
         Pattern("y = NegativeLogLikelihoodLoss(p, labels, weight); p = LogSoftmax(x)"),
         "NegativeLogLikelihoodLoss", apply},
    };
    return run_fusion(rw, rules);
  }
};

Result<PassExample> example() {
  PassExample e;
  const Attrs mean{{"reduction", std::string("mean")}};
  GraphBuilder b(e.before);
  const ValueId x = b.input("logits", {DType::f32, {4, 8}}), labels = b.input("labels", {DType::i64, {4}});
  e.before.outputs = {b.op("NegativeLogLikelihoodLoss",
                           {b.op("LogSoftmax", {x}, {{"axis", std::int64_t{-1}}}), labels}, mean)};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("logits", {DType::f32, {4, 8}}), alabels = a.input("labels", {DType::i64, {4}});
  e.after.outputs = {a.op("SoftmaxCrossEntropyLoss", {ax, alabels}, mean)};
  return e;
}

}  // namespace

extern const PassDef fuse_softmax_cross_entropy_pass;
const PassDef fuse_softmax_cross_entropy_pass = {
    .name = "fuse-softmax-cross-entropy",
    .summary = "replace LogSoftmax and negative log-likelihood by one kernel",
    .doc =
        "NegativeLogLikelihoodLoss over LogSoftmax becomes SoftmaxCrossEntropyLoss, whose kernel keeps one "
        "number per row for the gradient "
        "instead of all log-probabilities. Needs the softmax over axis 1, where the loss takes its classes, "
        "and no other reader of the "
        "log-probabilities.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseSoftmaxCrossEntropy); },
    .example = example,
};

}  // namespace gradloom
