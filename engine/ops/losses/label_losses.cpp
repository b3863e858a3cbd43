// What the classification losses share; see label_losses.h.
#include "engine/ops/losses/label_losses.h"
#include "engine/ops/contents.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "kernels/launcher.h"

namespace gradloom {

Result<kernels::LossReduction> loss_reduction(const Attrs& attrs) {
  const std::string text = attrs.text("reduction", "mean");
  if (text == "none") return kernels::LossReduction::none;
  if (text == "sum") return kernels::LossReduction::sum;
  if (text == "mean") return kernels::LossReduction::mean;
  return infer_error("reduction '" + text + "' is unknown");
}

Status check_loss_inputs(const InferContext& ctx, std::size_t scores, std::size_t labels, std::size_t weight,
                         DType losses) {
  if (!is_float(ctx.dtype(scores)))
    return infer_error(std::string("the scores are ") + dtype_name(ctx.dtype(scores)));
  return check_labels(ctx, ctx.shape(scores), labels, weight, losses);
}

Status check_labels(const InferContext& ctx, const Shape& s, std::size_t labels, std::size_t weight,
                    DType losses) {
  const Shape& l = ctx.shape(labels);
  if (ctx.dtype(labels) != DType::i32 && ctx.dtype(labels) != DType::i64)
    return infer_error(std::string("labels must be i32 or i64, they are ") + dtype_name(ctx.dtype(labels)));
  bool fits = s.size() >= 2 && l.size() + 1 == s.size() && !dims_differ(s[0], l[0]);
  for (std::size_t i = 1; fits && i < l.size(); ++i) fits = !dims_differ(s[i + 1], l[i]);
  if (!fits)
    return infer_error("labels " + to_string(l) + " do not fit scores " + to_string(s) + " [n, classes, ..]");
  const std::int64_t ignored = ctx.attrs.integer("ignore_index");
  if (s[1] >= 0)
    TRY(require_between(ctx.constant(labels), 0, s[1] - 1, "label",
                        ctx.attrs.has("ignore_index") ? &ignored : nullptr));
  if (!ctx.has(weight)) return {};
  if (ctx.dtype(weight) != losses)
    return infer_error(std::string("weight must be ") + dtype_name(losses) + " like the losses, it is " +
                       dtype_name(ctx.dtype(weight)));
  if (ctx.shape(weight).size() != 1 || dims_differ(ctx.shape(weight)[0], s[1]))
    return infer_error("weight " + to_string(ctx.shape(weight)) + " does not fit " + std::to_string(s[1]) +
                       " classes");
  return {};
}

Result<LossLayout> loss_layout(const Attrs& attrs, const Shape& scores) {
  LossLayout layout;
  layout.reduction = TRY(loss_reduction(attrs));
  layout.outer = scores[0];
  layout.n = scores[1];
  layout.inner = dim_product(scores, 2, scores.size());
  layout.has_ignore = attrs.has("ignore_index");
  layout.ignore_index = attrs.integer("ignore_index");
  return layout;
}

Shape loss_shape(kernels::LossReduction reduction, const Shape& labels) {
  return reduction == kernels::LossReduction::none ? labels : Shape{};
}

Attrs loss_attrs(const Attrs& forward) {
  Attrs attrs;
  for (const char* name : {"reduction", "ignore_index"}) {
    const auto found = forward.all().find(name);
    if (found != forward.all().end()) attrs.set(name, found->second);
  }
  return attrs;
}

Result<ValueId> class_weight_gradient(GradContext& ctx, int total) {
  TRY(require_static(ctx, ctx.in(2)));
  GraphBuilder& b = ctx.b;
  Attrs attrs = ctx.node.attrs;
  attrs.set("reduction", std::string("none"));
  const std::vector<ValueId> inputs{ctx.in(0), ctx.in(1)};
  ValueId rows = b.op(*ctx.node.op, inputs, attrs), labels = ctx.in(1);
  const DType type = ctx.dtype(rows);
  const bool mean = ctx.node.attrs.text("reduction", "mean") == "mean";
  if (mean) rows = b.op("Sub", {rows, ctx.out(0)});
  rows = b.op("Mul", {rows, ctx.grad(0)});
  if (mean) rows = b.op("Div", {rows, cast_to(b, ctx.require_out(total), type)});
  if (ctx.node.attrs.has("ignore_index")) {
    const DType index = ctx.dtype(labels);
    const double ignored = static_cast<double>(ctx.node.attrs.integer("ignore_index"));
    const ValueId out = b.op("Equal", {labels, b.scalar(index, ignored)});
    rows = b.op("Where", {out, b.scalar(type, 0), rows});
    labels = b.op("Where", {out, b.scalar(index, 0), labels});
  }
  return b.op("GatherGrad", {rows, labels, shape_of(ctx, ctx.in(2))}, {{"axis", std::int64_t{0}}});
}

}  // namespace gradloom
