// Losses of labels, and their gradients.
#include "engine/ops/inference.h"
#include "engine/onnx/write/bodies.h"

namespace gradloom {
namespace {

using Values = std::vector<ValueId>;

// What the labels say: one-hot rows [n, classes, d..], and the weight of each row [n, d..], 0 for ignored ones.
struct Labels {
  ValueId one_hot, weights, total;
};

// weight: of the classes, or kNone.
Labels read_labels(Body& body, ValueId labels, ValueId weight, std::int64_t classes, DType type) {
  const DType index = body.dtype(labels);
  ValueId counts = kNone, safe = labels;
  if (body.attrs().has("ignore_index")) {
    const ValueId ignored = body.number(index, static_cast<double>(body.attrs().integer("ignore_index")));
    const ValueId out = body.op("Equal", {labels, ignored});
    counts = body.op("Where", {out, body.number(type, 0), body.number(type, 1)});
    safe = body.op("Where", {out, body.number(index, 0), labels});
  }
  Labels l{};
  const ValueId values = body.b.constant(Tensor::from_f64(type, {2}, {0, 1}));
  l.one_hot = body.op("OneHot", {safe, body.number(DType::i64, static_cast<double>(classes)), values},
                      {{"axis", std::int64_t{1}}});
  l.weights = weight == kNone ? kNone : body.op("Gather", {body.cast(weight, type), safe});
  if (l.weights == kNone)
    l.weights =
        counts != kNone ? counts : body.op("Expand", {body.number(type, 1), body.b.i64s(body.shape(labels))});
  else if (counts != kNone)
    l.weights = body.op("Mul", {l.weights, counts});
  l.total = body.sum_all(l.weights);
  return l;
}

std::string reduction(const Body& body) { return body.attrs().text("reduction", "mean"); }

// The losses of the rows -> the loss.
ValueId reduced(Body& body, ValueId rows, ValueId total) {
  if (reduction(body) == "none") return rows;
  const ValueId sum = body.sum_all(rows);
  return reduction(body) == "sum" ? sum : body.op("Div", {sum, total});
}

// What reaches each row: weight * dloss (/ total), as [n, 1, d..].
ValueId upstream(Body& body, ValueId dloss, const Labels& labels, DType type) {
  ValueId factor = body.op("Mul", {labels.weights, body.cast(dloss, type)});
  if (reduction(body) == "mean") factor = body.op("Div", {factor, labels.total});
  return body.op("Unsqueeze", {factor, body.b.i64s({1})});
}

// log(sum(exp(logits))) over axis 1, which is kept.
ValueId log_sum_exp(Body& body, ValueId logits) {
  const ValueId peak = body.op("ReduceMax", {logits, body.b.i64s({1})}, {{"keepdims", std::int64_t{1}}});
  const ValueId sum = body.sum(body.op("Exp", {body.op("Sub", {logits, peak})}), {1}, true);
  return body.op("Add", {body.op("Log", {sum}), peak});
}

// lse: log_sum_exp(logits) without its axis.
ValueId cross_entropy_loss(Body& body, ValueId logits, ValueId lse, const Labels& labels) {
  const ValueId at_label = body.sum(body.op("Mul", {logits, labels.one_hot}), {1});
  return reduced(body, body.op("Mul", {labels.weights, body.op("Sub", {lse, at_label})}), labels.total);
}

Result<Values> cross_entropy(Body& body) {
  const DType given = body.dtype(body.in[0]), type = statistics_type(given);
  const ValueId logits = body.cast(body.in[0], type);
  const Labels labels =
      read_labels(body, body.in[1], body.has(2) ? body.in[2] : kNone, body.shape(logits)[1], type);
  const ValueId kept = log_sum_exp(body, logits);
  const ValueId lse = body.op("Squeeze", {kept, body.b.i64s({1})});
  return Values{body.cast(cross_entropy_loss(body, logits, lse, labels), body.types.outputs[0].dtype),
                body.cast(body.op("Sub", {logits, kept}), given), lse, labels.total};
}

// SoftmaxCrossEntropyGrad(dloss, logits, labels, weight, log_sum_exp, total_weight)
Result<Values> cross_entropy_grad(Body& body) {
  const DType given = body.dtype(body.in[1]), type = statistics_type(given);
  const ValueId logits = body.cast(body.in[1], type);
  Labels labels =
      read_labels(body, body.in[2], body.has(3) ? body.in[3] : kNone, body.shape(logits)[1], type);
  labels.total = body.in[5];
  const ValueId lse = body.op("Unsqueeze", {body.in[4], body.b.i64s({1})});
  const ValueId slope = body.op("Sub", {body.op("Exp", {body.op("Sub", {logits, lse})}), labels.one_hot});
  return Values{body.cast(body.op("Mul", {slope, upstream(body, body.in[0], labels, type)}), given)};
}

Result<Values> nll(Body& body) {
  const DType given = body.dtype(body.in[0]), type = statistics_type(given);
  const ValueId log_prob = body.cast(body.in[0], type);
  const Labels labels =
      read_labels(body, body.in[1], body.has(2) ? body.in[2] : kNone, body.shape(log_prob)[1], type);
  const ValueId at_label = body.sum(body.op("Mul", {log_prob, labels.one_hot}), {1});
  const ValueId rows = body.op("Neg", {body.op("Mul", {labels.weights, at_label})});
  return Values{body.cast(reduced(body, rows, labels.total), body.types.outputs[0].dtype), labels.total};
}

// NllLossGrad(dloss, labels, weight, total_weight)
Result<Values> nll_grad(Body& body) {
  const Shape shape = body.attrs().integers("input_shape");
  const DType given = body.types.outputs[0].dtype, type = statistics_type(given);
  Labels labels = read_labels(body, body.in[1], body.has(2) ? body.in[2] : kNone, shape[1], type);
  if (body.has(3)) labels.total = body.in[3];
  const ValueId rows = body.op("Neg", {upstream(body, body.in[0], labels, type)});
  return Values{body.cast(body.op("Mul", {labels.one_hot, rows}), given)};
}

// ---- of a linear layer ----------------------------------------------------------------------------------------

struct Linear {
  ValueId x, w, logits, lse;  // w: [k, classes]
  Labels labels;
};

// x, w, bias, labels and class weight are the inputs from `first` on.
Linear linear(Body& body, std::size_t first) {
  const DType type = statistics_type(body.dtype(body.in[first]));
  Linear l{};
  l.x = body.cast(body.in[first], type);
  l.w = body.cast(body.in[first + 1], type);
  if (body.attrs().integer("axis", 1) == 0) l.w = body.transpose(l.w, {1, 0});
  l.logits = body.op("MatMul", {l.x, l.w});
  if (body.has(first + 2)) l.logits = body.op("Add", {l.logits, body.cast(body.in[first + 2], type)});
  l.labels = read_labels(body, body.in[first + 3], body.has(first + 4) ? body.in[first + 4] : kNone,
                         body.shape(l.logits)[1], type);
  l.lse = log_sum_exp(body, l.logits);
  return l;
}

ValueId linear_loss(Body& body, const Linear& l) {
  return cross_entropy_loss(body, l.logits, body.op("Squeeze", {l.lse, body.b.i64s({1})}), l.labels);
}

Result<Values> linear_cross_entropy(Body& body) { return Values{linear_loss(body, linear(body, 0))}; }

// dloss is input `first`; dw in the type of sums.
Values linear_gradients(Body& body, std::size_t first) {
  const Linear l = linear(body, first + 1);
  const DType type = body.dtype(l.x), given = body.dtype(body.in[first + 1]);
  const ValueId slope =
      body.op("Sub", {body.op("Exp", {body.op("Sub", {l.logits, l.lse})}), l.labels.one_hot});
  const ValueId d = body.op("Mul", {slope, upstream(body, body.in[first], l.labels, type)});
  ValueId dw = body.op("MatMul", {body.transpose(l.x, {1, 0}), d});
  if (body.attrs().integer("axis", 1) == 0) dw = body.transpose(dw, {1, 0});
  Values results = {linear_loss(body, l),
                    body.cast(body.op("MatMul", {d, body.transpose(l.w, {1, 0})}), given), dw};
  const DType gradient = body.attrs().integer("wide_gradients") != 0 ? type : given;
  if (body.has(first + 3)) results.push_back(body.cast(body.sum(d, {0}), gradient));
  return results;
}

Result<Values> linear_cross_entropy_grad(Body& body) {
  Values results = linear_gradients(body, 0);
  if (body.attrs().integer("wide_gradients") == 0) results[2] = body.cast(results[2], body.dtype(body.in[1]));
  return results;
}

// AccumulateLinearCrossEntropy(acc, micro, dloss, x, w, bias, labels, class weight)
Result<Values> accumulate_linear_cross_entropy(Body& body) {
  Values results = linear_gradients(body, 2);
  results[2] = body.accumulated(body.in[0], body.in[1], results[2]);
  return results;
}

}  // namespace

const Bodies& loss_bodies() {
  static const Bodies bodies = {
      {"SoftmaxCrossEntropyLoss", cross_entropy},
      {"SoftmaxCrossEntropyGrad", cross_entropy_grad},
      {"NegativeLogLikelihoodLoss", nll},
      {"NllLossGrad", nll_grad},
      {"LinearCrossEntropyLoss", linear_cross_entropy},
      {"LinearCrossEntropyGrad", linear_cross_entropy_grad},
      {"AccumulateLinearCrossEntropy", accumulate_linear_cross_entropy},
  };
  return bodies;
}

}  // namespace gradloom
