// Arguments of losses (conventions: kernels/arguments.h).
#pragma once

#include "kernels/types.h"

namespace gradloom::kernels {

// log_prob: [outer, n, inner], labels: [outer, inner] (i32/i64). loss: scalar (mean or sum) or [outer, inner]
// (none). weight: [n] or null. Rows whose label is ignore_index (when has_ignore) add nothing; mean divides
// by the summed weight.
enum class LossReduction : std::uint8_t { none, sum, mean };
struct NllLossArgs {
  DType dtype, label_dtype;
  LossReduction reduction;
  std::int64_t outer, n, inner;
  bool has_ignore;
  std::int64_t ignore_index;
  const void *log_prob, *labels, *weight;
  void* loss;
  void* total_weight;  // total_weight: scalar, f32 where dtype is half, for the gradient
  void* workspace = nullptr;
};
struct NllLossGradArgs {
  DType dtype, label_dtype;
  LossReduction reduction;
  std::int64_t outer, n, inner;
  bool has_ignore;
  std::int64_t ignore_index;
  const void *dloss, *labels, *weight, *total_weight;
  void* dlog_prob;
};
// Softmax and cross-entropy in one pass: loss as above, log_sum_exp: [outer, inner] kept for the
// gradient, f32 where dtype is half. losses: the type of loss, its gradient and weight: dtype,
// or f32 where that is half.
struct SoftmaxCrossEntropyArgs {
  DType dtype, label_dtype;
  LossReduction reduction;
  std::int64_t outer, n, inner;
  bool has_ignore;
  std::int64_t ignore_index;
  const void *logits, *labels, *weight;
  void *loss, *log_sum_exp, *total_weight;  // total_weight: may be null with reduction none
  void* workspace;
  DType losses = dtype;
  std::int64_t pitch = 0;  // where inner is 1: elements from one row of the logits to the next; 0: n
  // [outer, inner], of the type of log_sum_exp: the logit at each label, 0 where that is none of the n classes; null: not wanted. The n may
  // be a part of the classes: with reduction none loss is null then.
  void* targets = nullptr;
  // Rows of inner 1 with reduction none, without targets: dlogits = (softmax - onehot) * weight[label] * dloss in the same
  // kernel; it may be logits. dloss: one number of type losses. Nobody may ask for total_weight then.
  const void* dloss = nullptr;
  void* dlogits = nullptr;
};
// dlogits = (softmax - onehot) * weight[label] * dloss / total_weight, from logits and log_sum_exp; dlogits
// may be logits.
struct SoftmaxCrossEntropyGradArgs {
  DType dtype, label_dtype;
  LossReduction reduction;
  std::int64_t outer, n, inner;
  bool has_ignore;
  std::int64_t ignore_index;
  const void *dloss, *logits, *labels, *weight, *log_sum_exp, *total_weight;
  void* dlogits;
  DType losses = dtype;
  std::int64_t pitch = 0;  // the same, of logits and dlogits
  // Of a part of the classes (reduction none, no weight, losses as log_sum_exp): the gradient of targets; dloss is that of log_sum_exp, and
  // dlogits = softmax * dloss + onehot * dtargets in every row, with a label among the n or without.
  const void* dtargets = nullptr;
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_LOSS_KERNELS(K) \
  K(nll_loss, NllLossArgs) K(nll_loss_grad, NllLossGradArgs) \
  K(softmax_cross_entropy, SoftmaxCrossEntropyArgs) \
  K(softmax_cross_entropy_grad, SoftmaxCrossEntropyGradArgs)
// clang-format on
