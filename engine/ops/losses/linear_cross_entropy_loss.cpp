// LinearCrossEntropyLoss (ours): softmax cross-entropy of a linear layer's results, which never exist whole: rows
// are taken in chunks, and the gradients of a chunk are made while its logits are there. (The idea: Hsu et al.
// 2024, Liger Kernel; Wijmans et al. 2024, Cut Your Losses.)
//   x: [n, k], w: [k, classes], or [classes, k] with attribute axis, which is that of the classes, = 0, bias: [classes] or omitted, labels: [n],
//   class weight: [classes] or omitted
//   loss = SoftmaxCrossEntropyLoss(x w + bias, labels, class weight), reduction mean or sum, f32 where x is 16 bits
//   LinearCrossEntropyGrad(dloss, x, w, bias, labels, class weight) -> loss, dx, dw, dbias: all from one product per
//     chunk; attribute wide_gradients: dw and dbias are f32 where w is 16 bits
//   AccumulateLinearCrossEntropy(acc, micro, dloss, x, w, bias, labels, class weight) -> loss, dx, next, dbias: the same of a micro-batch, whose
//     dw / count is added where it is made: next = (micro == 0 ? 0 : acc) + dw / count, written over acc, [as w], f32 where w is 16 bits
// LinearPartScores (ours): PartScores (part_scores.cpp) of x w + bias, of classes that are a part of all: labels [n] are places among these,
//   or anything else; attribute parts; scores [parts + 1, n]; nothing reads those of rows whose label is ignore_index
//   LinearPartScoresGrad(dscores, x, w, bias, labels, scores) -> dx, dw, dbias: the logits are computed again, for scores of other ranks
//     lie between
// Attribute chunk_rows: how many rows at a time. On the CPU rows that add nothing (ignore_index) are left out before
// the products; on GPUs, where the host does not see the labels, they are computed and add 0.
#include <memory>
#include <optional>

#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/losses/label_losses.h"
#include "engine/ops/losses/linear_head.h"
#include "engine/ops/losses/part_scores.h"
#include "engine/ops/micro_batches.h"
#include "engine/ops/preparation.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rank_part.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"

namespace gradloom {
namespace {

// Labels are classes, along attribute axis of w.
constexpr InputRole kLabels[] = {{.input = 3, .use = InputUse::labels, .of = 1, .axis = 1}},
                    kGradientLabels[] = {{.input = 4, .use = InputUse::labels, .of = 2, .axis = 1}},
                    kAccumulatedLabels[] = {{.input = 6, .use = InputUse::labels, .of = 4, .axis = 1}};

Result<bool> classes_first(const Attrs& attrs) {
  const std::int64_t axis = attrs.integer("axis", 1);
  if (axis != 0 && axis != 1) return infer_error("axis must be 0 or 1");
  return axis == 0;
}

constexpr std::size_t kAccumulatedFirst = 3;  // where x is in AccumulateLinearCrossEntropy

// x, w, bias and labels are the inputs from `first` on.
Status check_operands(const InferContext& ctx, std::size_t first) {
  for (const std::size_t i : {first, first + 1, first + 3})
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
  const DType type = ctx.dtype(first);
  const Shape &x = ctx.shape(first), &w = ctx.shape(first + 1);
  if (!is_float(type) || ctx.dtype(first + 1) != type)
    return infer_error(std::string("x is ") + dtype_name(type) + ", w " + dtype_name(ctx.dtype(first + 1)));
  if (x.size() != 2 || w.size() != 2) return infer_error("x and w must have 2 dims");
  const bool transposed = TRY(classes_first(ctx.attrs));
  const std::int64_t classes = w[transposed ? 0 : 1];
  if (dims_differ(x[1], w[transposed ? 1 : 0]))
    return infer_error("x " + to_string(x) + " and w " + to_string(w) + " do not fit");
  if (ctx.has(first + 2)) {
    const Shape& bias = ctx.shape(first + 2);
    if (ctx.dtype(first + 2) != type || bias.size() != 1 || dims_differ(bias[0], classes))
      return infer_error("bias " + to_string(ctx.in(first + 2)) + " does not fit " + std::to_string(classes) +
                         " classes of " + dtype_name(type));
  }
  if (ctx.attrs.integer("chunk_rows", 1) < 1) return infer_error("chunk_rows must be at least 1");
  return {};
}

// The class weight follows.
Status check(const InferContext& ctx, std::size_t first) {
  TRY(check_operands(ctx, first));
  const auto reduction = TRY(loss_reduction(ctx.attrs));
  if (reduction == kernels::LossReduction::none) return infer_error("the reduction must be mean or sum");
  const std::int64_t classes = ctx.shape(first + 1)[TRY(classes_first(ctx.attrs)) ? 0 : 1];
  return check_labels(ctx, {ctx.shape(first)[0], classes}, first + 3, first + 4,
                      statistics_type(ctx.dtype(first)));
}

// The scores of x at `first`.
Result<Type> part_scores_of(const InferContext& ctx, std::size_t first) {
  TRY(check_operands(ctx, first));
  const Shape &x = ctx.shape(first), &labels = ctx.shape(first + 3);
  if (labels.size() != 1 || dims_differ(labels[0], x[0]))
    return infer_error("labels " + to_string(labels) + " do not fit x " + to_string(x));
  const Type type = TRY(part_scores_type(ctx.attrs, ctx.dtype(first), ctx.in(first + 3)));
  const Shape& w = ctx.shape(first + 1);
  if (is_static(w)) TRY(own_classes(ctx.attrs, w[TRY(classes_first(ctx.attrs)) ? 0 : 1]));
  return type;
}

Status infer_part(InferContext& ctx) { return set_outputs(ctx, {TRY(part_scores_of(ctx, 0))}); }

Status infer_part_grad(InferContext& ctx) {
  const Type scores = TRY(part_scores_of(ctx, 1));
  for (const std::size_t i : {0u, 5u})
    if (!ctx.has(i) || ctx.in(i) != scores)
      return infer_error("input " + std::to_string(i) + " must be " + to_string(scores));
  std::vector<Type> outputs = {ctx.in(1), ctx.in(2)};
  if (ctx.has(3)) outputs.push_back(ctx.in(3));
  if (ctx.output_count > static_cast<int>(outputs.size())) return infer_error("there is no bias");
  return set_outputs(ctx, std::move(outputs));
}

Status grad_part(GradContext& ctx) {
  std::vector<ValueId> inputs = {ctx.grad()};
  inputs.insert(inputs.end(), ctx.node.inputs.begin(), ctx.node.inputs.end());
  inputs.push_back(ctx.out(0));
  const int count = ctx.in(2) == kNone ? 2 : 3;
  const auto out = ctx.b.ops(op_by_name("LinearPartScoresGrad"), inputs, ctx.node.attrs, count);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (ctx.wants(i)) ctx.set(i, out[i]);
  return {};
}

Status infer(InferContext& ctx) {
  TRY(check(ctx, 0));
  return set_outputs(ctx, {{statistics_type(ctx.dtype(0)), {}}});
}

// dloss is input `first`; dw has the type that its accumulator has, or that of gradients.
Status infer_gradients(InferContext& ctx, std::size_t first, std::optional<Type> accumulator) {
  TRY(check(ctx, first + 1));
  const DType type = ctx.dtype(first + 1), sums = statistics_type(type);
  if (!ctx.has(first) || ctx.in(first) != Type{sums, {}})
    return infer_error(std::string("the gradient of the loss must be a scalar of ") + dtype_name(sums));
  const DType gradient = ctx.attrs.integer("wide_gradients") != 0 ? sums : type;
  std::vector<Type> outputs = {
      {sums, {}}, ctx.in(first + 1), accumulator.value_or(Type{gradient, ctx.shape(first + 2)})};
  if (ctx.has(first + 3)) outputs.push_back({gradient, ctx.shape(first + 3)});
  if (ctx.output_count > static_cast<int>(outputs.size())) return infer_error("there is no bias");
  return set_outputs(ctx, std::move(outputs));
}

Status infer_grad(InferContext& ctx) { return infer_gradients(ctx, 0, {}); }

Status infer_accumulated(InferContext& ctx) {
  TRY(check(ctx, kAccumulatedFirst));
  const Type sum{statistics_type(ctx.dtype(kAccumulatedFirst)), ctx.shape(kAccumulatedFirst + 1)};
  if (!ctx.has(0) || ctx.in(0) != sum)
    return infer_error("accumulator " + to_string(ctx.in(0)) + ", gradient " + to_string(sum));
  if (!ctx.has(1)) return infer_error("micro is missing");
  TRY(check_micro(ctx, 1));
  return infer_gradients(ctx, kAccumulatedFirst - 1, sum);
}

Status grad(GradContext& ctx) {
  if (ctx.wants(4)) return infer_error("no gradient: of the class weight of LinearCrossEntropyLoss");
  std::vector<ValueId> inputs = {ctx.grad()};
  inputs.insert(inputs.end(), ctx.node.inputs.begin(), ctx.node.inputs.end());
  const int count = ctx.in(2) == kNone ? 3 : 4;
  const auto out = ctx.b.ops(op_by_name("LinearCrossEntropyGrad"), inputs, ctx.node.attrs, count);
  for (std::size_t i = 0; i + 1 < out.size(); ++i)
    if (ctx.wants(i)) ctx.set(i, out[i + 1]);
  return {};
}

double product_flops(const NodeTypes& types, std::size_t first) {
  const std::int64_t n = types.inputs[first].shape[0],
                     elements = element_count(types.inputs[first + 1].shape);
  return 2.0 * static_cast<double>(n) * static_cast<double>(elements);
}
Cost cost(const NodeTypes& types) { return cost_of(types, product_flops(types, 0)); }
Cost cost_grad(const NodeTypes& types) { return cost_of(types, 3 * product_flops(types, 1)); }
Cost cost_accumulated(const NodeTypes& types) {
  return cost_of(types, 3 * product_flops(types, kAccumulatedFirst));
}

Result<LinearHead> head_of(const NodeTypes& types, std::size_t first) {
  const Type &x = types.inputs[first], &w = types.inputs[first + 1];
  TRY(require_kernel_type(types.target, x.dtype, multiplies_bf16(types.target, x.dtype)));
  LinearHead head;
  head.target = types.target;
  head.library = types.dnn_library;
  head.transposed = TRY(classes_first(types.attrs));
  head.n = x.shape[0];
  head.k = x.shape[1];
  head.classes = w.shape[head.transposed ? 0 : 1];
  if (head.n == 0 || head.k == 0 || head.classes == 0) return no_kernel("no rows, columns or classes");
  head.rows = std::min(head.n, types.attrs.integer("chunk_rows", chunk_rows(head.n, head.classes)));
  head.type = x.dtype;
  head.sums = statistics_type(x.dtype);
  head.scores = multiplies_bf16(types.target, x.dtype) ? head.sums : x.dtype;
  head.labels = types.inputs[first + 3].dtype;
  head.parts = types.attrs.integer("parts", 0);
  if (head.parts > 0) head.number = own_part(head.parts);
  head.own = head.parts > 0 ? TRY(own_classes(types.attrs, head.classes)) : head.classes;
  head.mean = TRY(loss_reduction(types.attrs)) == kernels::LossReduction::mean;
  head.has_ignore = types.attrs.has("ignore_index");
  head.ignore_index = types.attrs.integer("ignore_index");
  head.bias = types.has(first + 2);
  head.weight = head.parts == 0 && types.has(first + 4);
  head.first = first;
  return head;
}

Result<Kernel> prepare(const NodeTypes& types) {
  LinearHead head = TRY(head_of(types, 0));
  head.want_loss = true;
  return prepare_linear_head("linear_cross_entropy", head);
}

Result<LinearHead> head_with_gradients(const NodeTypes& types, std::size_t first) {
  LinearHead head = TRY(head_of(types, first));
  head.gradient = types.attrs.integer("wide_gradients") != 0 ? head.sums : head.type;
  head.want_loss = types.wants(0);
  head.want_dx = types.wants(1);
  head.want_dw = types.wants(2);
  head.want_dbias = types.wants(3);
  return head;
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  return prepare_linear_head("linear_cross_entropy_grad", TRY(head_with_gradients(types, 1)));
}

Result<Kernel> prepare_accumulated(const NodeTypes& types) {
  LinearHead head = TRY(head_with_gradients(types, kAccumulatedFirst));
  if (!head.want_dw) return no_kernel("nothing is added up");
  head.micro_batches = types.attrs.integer("count", 1);
  return prepare_linear_head("linear_cross_entropy_grad accumulate", head);
}

Result<Kernel> prepare_part(const NodeTypes& types) {
  return prepare_linear_head("linear_part_scores", TRY(head_of(types, 0)));
}

Result<Kernel> prepare_part_grad(const NodeTypes& types) {
  LinearHead head = TRY(head_of(types, 1));
  head.gradient = head.type;
  head.want_dx = types.wants(0);
  head.want_dw = types.wants(1);
  head.want_dbias = types.wants(2);
  return prepare_linear_head("linear_part_scores_grad", head);
}

Attrs attrs_of(std::int64_t rows, bool transposed, const char* reduction = "mean", bool ignore = false) {
  Attrs attrs{{"chunk_rows", rows}, {"reduction", std::string(reduction)}};
  if (transposed) attrs.set("axis", std::int64_t{0});
  if (ignore) attrs.set("ignore_index", std::int64_t{-100});
  return attrs;
}

// Two chunks and a rest; all rows in one; labels that are left out; class weights.
std::vector<Sample> samples_of(bool gradient) {
  const SampleInput labels = exact(DType::i64, {5}, {2, 0, 1, 2, 2}),
                    some = exact(DType::i32, {5}, {2, -100, 1, -100, 0});
  SampleInput weight = statistic({3}, 0.5, 2);
  weight.constant = true;  // it has no gradient
  std::vector<Sample> samples = {
      {.name = "chunks",
       .attrs = attrs_of(2, false),
       .inputs = {floats({5, 4}), floats({4, 3}), omitted(), labels}},
      {.name = "transposed-bias",
       .attrs = attrs_of(8, true, "sum"),
       .inputs = {floats({5, 4}), floats({3, 4}), floats({3}), labels}},
      {.name = "ignored-rows",
       .attrs = attrs_of(2, true, "mean", true),
       .inputs = {floats({5, 4}), floats({3, 4}), floats({3}), some, weight}},
      {.name = "vocabulary",
       .attrs = attrs_of(256, true),
       .inputs = {floats({1024, 256}), floats({8192, 256}), omitted(), ints({1024}, 0, 8191)},
       .bench = true},
  };
  if (!gradient) return samples;
  for (Sample& sample : samples) {
    sample.inputs.insert(sample.inputs.begin(), statistic({}, 0.5, 2));
    sample.output_count = sample.inputs[3].omitted ? 3 : 4;
  }
  return samples;
}
std::vector<Sample> samples() { return samples_of(false); }
std::vector<Sample> samples_grad() { return samples_of(true); }

// In the first micro-batch, which takes the accumulator for 0, and in a later one.
std::vector<Sample> samples_accumulated() {
  std::vector<Sample> samples;
  for (const Sample& gradient : samples_of(true))
    for (const int micro : {0, 2}) {
      if (gradient.bench && micro == 0) continue;
      Sample sample = gradient;
      sample.name += micro == 0 ? ", first" : ", later";
      sample.attrs.set("count", std::int64_t{4});
      const SampleInput acc = statistic(gradient.inputs[2].type.shape, -1, 1),
                        number = exact(DType::i64, {}, {static_cast<double>(micro)});
      sample.inputs.insert(sample.inputs.begin(), {acc, number});
      samples.push_back(std::move(sample));
    }
  return samples;
}

std::vector<std::pair<int, int>> aliases_accumulated(const Node&) { return {{2, 0}}; }

// Labels are of these classes, of others and of none.
std::vector<Sample> samples_of_part(bool gradient) {
  const auto attrs = [](std::int64_t rows, std::int64_t parts, bool transposed) {
    Attrs a{{"chunk_rows", rows}, {"parts", parts}};
    if (transposed) a.set("axis", std::int64_t{0});
    return a;
  };
  std::vector<Sample> samples = {
      {.name = "chunks",
       .attrs = attrs(2, 2, false),
       .inputs = {floats({5, 4}), floats({4, 3}), omitted(), exact(DType::i64, {5}, {2, 4, 0, -100, 5})}},
      {.name = "transposed-bias",
       .attrs = attrs(8, 3, true),
       .inputs = {floats({5, 4}), floats({3, 4}), floats({3}), exact(DType::i32, {5}, {-3, 0, 1, 2, 8})}},
      {.name = "vocabulary",
       .attrs = attrs(256, 2, true),
       .inputs = {floats({1024, 256}), floats({4096, 256}), omitted(), ints({1024}, 0, 8191)},
       .bench = true}};
  if (!gradient) return samples;
  for (Sample& sample : samples) {
    const std::int64_t parts = sample.attrs.integer("parts"), n = sample.inputs[0].type.shape[0];
    sample.output_count = sample.inputs[2].omitted ? 2 : 3;
    sample.inputs.insert(sample.inputs.begin(), statistic({parts + 1, n}, -1, 1));
    sample.inputs.push_back(statistic({parts + 1, n}, 1, 2));
  }
  return samples;
}
std::vector<Sample> part_samples() { return samples_of_part(false); }
std::vector<Sample> part_samples_grad() { return samples_of_part(true); }

}  // namespace

const OpDef linear_cross_entropy_loss_op = {
    .name = "LinearCrossEntropyLoss",
    .domain = "gradloom",
    .summary = "Softmax cross-entropy of a linear layer, whose results never exist whole.",
    .min_inputs = 4,
    .max_inputs = 5,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .precision = Precision::low,
    .roles = kLabels,
    .arithmetic = Arithmetic::products,
};

const OpDef linear_cross_entropy_grad_op = {
    .name = "LinearCrossEntropyGrad",
    .domain = "gradloom",
    .summary = "LinearCrossEntropyLoss with its gradients, from one product per chunk of rows.",
    .traits = kOptionalOutputs | kFirstOutputOptional,
    .min_inputs = 5,
    .max_inputs = 6,
    .max_outputs = 4,
    .infer = infer_grad,
    .cost = cost_grad,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = samples_grad,
    .roles = kGradientLabels,
    .arithmetic = Arithmetic::products,
};

const OpDef accumulate_linear_cross_entropy_op = {
    .name = "AccumulateLinearCrossEntropy",
    .domain = "gradloom",
    .summary = "LinearCrossEntropyGrad of a micro-batch, which adds the weight's gradient to an accumulator.",
    .traits = kNoGradient | kOptionalOutputs | kFirstOutputOptional | kMustAlias | kAccumulates,
    .min_inputs = 7,
    .max_inputs = 8,
    .max_outputs = 4,
    .infer = infer_accumulated,
    .cost = cost_accumulated,
    .cpu = prepare_accumulated,
    .gpu = prepare_accumulated,
    .samples = samples_accumulated,
    .aliases = aliases_accumulated,
    .roles = kAccumulatedLabels,
    .arithmetic = Arithmetic::products,
};

const OpDef linear_part_scores_op = {
    .name = "LinearPartScores",
    .domain = "gradloom",
    .summary = "PartScores of a linear layer, whose results never exist whole.",
    .min_inputs = 4,
    .max_inputs = 4,
    .infer = infer_part,
    .grad = grad_part,
    .cost = cost,
    .cpu = prepare_part,
    .gpu = prepare_part,
    .samples = part_samples,
    .precision = Precision::low,
    .arithmetic = Arithmetic::products,
};

const OpDef linear_part_scores_grad_op = {
    .name = "LinearPartScoresGrad",
    .domain = "gradloom",
    .summary = "Gradients of LinearPartScores, from logits computed again.",
    .traits = kOptionalOutputs | kFirstOutputOptional,
    .min_inputs = 6,
    .max_inputs = 6,
    .max_outputs = 3,
    .infer = infer_part_grad,
    .cost = cost_grad,
    .cpu = prepare_part_grad,
    .gpu = prepare_part_grad,
    .samples = part_samples_grad,
    .arithmetic = Arithmetic::products,
};

}  // namespace gradloom
