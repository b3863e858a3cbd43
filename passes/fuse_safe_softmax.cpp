// fuse-safe-softmax: a softmax whose NaN are replaced by zeros becomes one that gives zeros by itself.
#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

class FuseSafeSoftmax final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    static const Pattern safe("y = Where(n, #0, s); n = IsNaN(s); s = Softmax(x)");
    for (NodeId id : TRY(topological_order(rw.graph()))) {
      Match match;
      if (!is_op(rw.graph().nodes[id], "Where") || !safe.match(rw.graph(), id, match)) continue;
      const ValueId s = match.value("s"), y = match.value("y");
      std::string why;
      if (rw.graph().type(s) != rw.graph().type(y)) {
        rw.reject("softmax", id, "the result has another type than the softmax");
      } else if (!only_used_inside(rw, match, &why)) {
        rw.reject("softmax", id, why);
      } else if (rw.allowed("softmax", id, match.nodes)) {
        const Node softmax = rw.graph().nodes[rw.graph().values[s].producer];
        Attrs attrs = softmax.attrs;
        attrs.set("safe", std::int64_t{1});
        GraphBuilder& b = rw.begin("softmax", id, match.nodes);
        rw.replace(y, b.ops(*softmax.op, {match.value("x")}, std::move(attrs), 1)[0]);
        rw.commit("rows of -inf give zeros, and so do their gradients");
      }
    }
    return {};
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {4, 8}};
  PassExample e;
  GraphBuilder before(e.before);
  const ValueId s = before.op("Softmax", {before.input("x", type)});
  e.before.outputs = {before.op("Where", {before.op("IsNaN", {s}), before.scalar(DType::f32, 0), s})};
  GraphBuilder after(e.after);
  e.after.outputs = {after.op("Softmax", {after.input("x", type)}, {{"safe", std::int64_t{1}}})};
  return e;
}

}  // namespace

extern const PassDef fuse_safe_softmax_pass;
const PassDef fuse_safe_softmax_pass = {
    .name = "fuse-safe-softmax",
    .summary = "give zeros, not NaN, for softmax rows in which all is hidden",
    .doc =
        "torch.onnx writes scaled_dot_product_attention as a softmax whose NaN, those of queries that see no "
        "key, become zeros by IsNaN and Where. The gradient of such a softmax is NaN all the same, 0 times "
        "NaN, where PyTorch has zeros. Softmax with `safe` gives zeros in both; fuse-attention takes it. A score that is NaN or +inf "
        "stays visible as NaN, as in PyTorch; the exported pieces hide it.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseSafeSoftmax); },
    .example = example,
};

}  // namespace gradloom
