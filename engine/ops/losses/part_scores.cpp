// PartScores (ours): what softmax cross-entropy asks of logits whose classes several ranks share (Shoeybi et al. 2019, Megatron-LM, section 3).
//   logits: [n, classes, d..], the number-th of `parts` equal parts of all classes (attribute parts); labels: [n, d..], places among these
//   classes, or anything else where the label is a class of another rank; attribute ignore_index: labels of rows whose scores nothing reads
//   scores: [parts + 1, n, d..], f32 where the logits are 16 bits: line `number` is log sum exp of the logits, line `parts` the logit at the
//   label, or 0; all other lines are 0. With attribute classes, how many there are of all, the last part may have fewer classes than the others:
//   what is behind them is in no score, is to be 0, and has the gradient 0 (logits [n, classes] alone)
// Added up over the ranks (AllReduceSum) the first lines are the log sum exp of every part, to the bit, and the last one is the label's logit:
//   loss of a row = ReduceLogSumExp(first lines) - last line
// PartScoresGrad(dscores, logits, labels, scores) -> dlogits = softmax of this part * dscores[number] + onehot * dscores[parts]
#include "engine/ops/losses/part_scores.h"

#include <algorithm>

#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rank_part.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// Logits at `first`, and labels behind them.
Result<Type> scores_of(const InferContext& ctx, std::size_t first) {
  if (!is_float(ctx.dtype(first)))
    return infer_error(std::string("the logits are ") + dtype_name(ctx.dtype(first)));
  const Shape &x = ctx.shape(first), &labels = ctx.shape(first + 1);
  bool fits = x.size() >= 2 && labels.size() + 1 == x.size() && !dims_differ(x[0], labels[0]);
  for (std::size_t i = 1; fits && i < labels.size(); ++i) fits = !dims_differ(x[i + 1], labels[i]);
  if (!fits)
    return infer_error("labels " + to_string(labels) + " do not fit logits " + to_string(x) +
                       " [n, classes, ..]");
  if (ctx.attrs.has("classes") && x.size() != 2)
    return infer_error("parts of other numbers of classes are of rows");
  const Type type = TRY(part_scores_type(ctx.attrs, ctx.dtype(first), ctx.in(first + 1)));
  if (is_static(x)) TRY(own_classes(ctx.attrs, x[1]));
  return type;
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 2));
  return set_outputs(ctx, {TRY(scores_of(ctx, 0))});
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 4));
  const Type scores = TRY(scores_of(ctx, 1));
  for (const std::size_t i : {0u, 3u})
    if (ctx.in(i) != scores)
      return infer_error("input " + std::to_string(i) + " must be " + to_string(scores));
  return set_outputs(ctx, {ctx.in(1)});
}

Status grad(GradContext& ctx) {
  if (ctx.wants(0))
    ctx.set(0, ctx.b.op("PartScoresGrad", {ctx.grad(), ctx.in(0), ctx.in(1), ctx.out(0)}, ctx.node.attrs));
  return {};
}

Cost cost_of_logits(const NodeTypes& types, std::size_t logits) {
  return cost_of(types, 4.0 * static_cast<double>(element_count(types.inputs[logits].shape)));
}
Cost cost(const NodeTypes& types) { return cost_of_logits(types, 0); }
Cost cost_grad(const NodeTypes& types) { return cost_of_logits(types, 1); }

// Of a kernel's arguments what is known of the logits [outer, n, inner] beforehand.
template <class Args>
Args layout_of(const Type& logits, DType labels, std::int64_t classes) {
  const Shape& shape = logits.shape;
  Args layout{};
  layout.dtype = logits.dtype;
  layout.label_dtype = labels;
  layout.reduction = kernels::LossReduction::none;
  layout.outer = shape[0];
  layout.n = classes;
  if (classes != shape[1]) layout.pitch = shape[1];
  layout.inner = dim_product(shape, 2, shape.size());
  layout.losses = statistics_type(logits.dtype);
  return layout;
}

// Where the lines of scores are that this rank writes and reads.
struct Lines {
  DType type;
  std::int64_t own, target, end;  // elements
  explicit Lines(const Type& scores, std::int64_t parts)
      : type(scores.dtype), own(0), target(0), end(element_count(scores.shape)) {
    const std::int64_t rows = end / (parts + 1);
    own = own_part(parts) * rows;
    target = parts * rows;
  }
};

Result<Kernel> prepare(const NodeTypes& types) {
  const Type& logits = types.inputs[0];
  TRY(require_kernel_type(types.target, logits.dtype, true));
  if (logits.shape[1] == 0) return no_kernel("no classes");
  const auto layout = layout_of<kernels::SoftmaxCrossEntropyArgs>(
      logits, types.inputs[1].dtype, TRY(own_classes(types.attrs, logits.shape[1])));
  const Lines lines(types.outputs[0], types.attrs.integer("parts"));
  return Kernel{"part_scores", kernels::workspace_bytes(types.target, layout),
                [layout, lines](const LaunchArgs& args) {
                  const double zero = 0;  // all bits zero in every type
                  args.on.fill({dtype_bytes(lines.type), lines.end, &zero, args.outputs[0]});
                  kernels::SoftmaxCrossEntropyArgs a = layout;
                  a.logits = args.inputs[0];
                  a.labels = args.inputs[1];
                  a.log_sum_exp = elements_at(args.outputs[0], lines.type, lines.own);
                  a.targets = elements_at(args.outputs[0], lines.type, lines.target);
                  a.workspace = args.workspace;
                  args.on.softmax_cross_entropy(a);
                }};
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  const Type& logits = types.inputs[1];
  TRY(require_kernel_type(types.target, logits.dtype, true));
  if (logits.shape[1] == 0) return no_kernel("no classes");
  const auto layout = layout_of<kernels::SoftmaxCrossEntropyGradArgs>(
      logits, types.inputs[2].dtype, TRY(own_classes(types.attrs, logits.shape[1])));
  const Lines lines(types.inputs[3], types.attrs.integer("parts"));
  const std::int64_t all = layout.pitch == 0 ? 0 : element_count(logits.shape);
  return Kernel{"part_scores_grad", 0, [layout, lines, all](const LaunchArgs& args) {
                  const double zero = 0;  // in place what is behind the classes is 0 already
                  if (all > 0 && args.outputs[0] != args.inputs[1])
                    args.on.fill({dtype_bytes(layout.dtype), all, &zero, args.outputs[0]});
                  kernels::SoftmaxCrossEntropyGradArgs a = layout;
                  a.dloss = elements_at(args.inputs[0], lines.type, lines.own);
                  a.dtargets = elements_at(args.inputs[0], lines.type, lines.target);
                  a.logits = args.inputs[1];
                  a.labels = args.inputs[2];
                  a.log_sum_exp = elements_at(args.inputs[3], lines.type, lines.own);
                  a.dlogits = args.outputs[0];
                  args.on.softmax_cross_entropy_grad(a);
                }};
}

// Labels are of this part, of others and of none; pixels.
std::vector<Sample> samples() {
  const Attrs two{{"parts", std::int64_t{2}}}, three{{"parts", std::int64_t{3}}};
  return {{.name = "rows",
           .attrs = two,
           .inputs = {floats({5, 3}, -3, 3), exact(DType::i64, {5}, {2, 0, 4, -100, 1})}},
          {.name = "pixels",
           .attrs = three,
           .inputs = {floats({2, 4, 3}), exact(DType::i32, {2, 3}, {0, 3, -2, 2, 7, 3})}},
          {.name = "vocabulary",
           .attrs = two,
           .inputs = {floats({1024, 4096}, -3, 3), ints({1024}, 0, 8191)},
           .bench = true}};
}

std::vector<Sample> samples_grad() {
  std::vector<Sample> list = samples();
  for (Sample& sample : list) {
    Shape scores = sample.inputs[1].type.shape;
    scores.insert(scores.begin(), sample.attrs.integer("parts") + 1);
    sample.inputs.insert(sample.inputs.begin(), statistic(scores, -1, 1));
    sample.inputs.push_back(statistic(scores, 1, 2));
  }
  return list;
}

}  // namespace

Result<Type> part_scores_type(const Attrs& attrs, DType logits, const Type& labels) {
  const std::int64_t parts = attrs.integer("parts", 0);
  if (parts < 1 || parts > (1 << 20)) return infer_error("parts must be positive");
  if (labels.dtype != DType::i32 && labels.dtype != DType::i64)
    return infer_error(std::string("labels must be i32 or i64, they are ") + dtype_name(labels.dtype));
  Shape shape = labels.shape;
  shape.insert(shape.begin(), parts + 1);
  return Type{statistics_type(logits), shape};
}

Result<std::int64_t> own_classes(const Attrs& attrs, std::int64_t size) {
  const std::int64_t parts = attrs.integer("parts"), classes = attrs.integer("classes", parts * size);
  if (classes <= (parts - 1) * size || classes > parts * size)
    return infer_error(std::to_string(classes) + " classes are not " + std::to_string(parts) + " parts of " +
                       std::to_string(size));
  return std::min(size, classes - own_part(parts) * size);
}

const OpDef part_scores_op = {
    .name = "PartScores",
    .domain = "gradloom",
    .summary = "Log-sum-exp and label's logit of rows whose classes ranks share.",
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .precision = Precision::wide,
};

const OpDef part_scores_grad_op = {
    .name = "PartScoresGrad",
    .domain = "gradloom",
    .summary = "Gradient of PartScores.",
    .min_inputs = 4,
    .max_inputs = 4,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = samples_grad,
    .inplace_input = 1,
};

}  // namespace gradloom
