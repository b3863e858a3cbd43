// What the classification losses share: shapes, attributes, checks.
#pragma once

#include "engine/ir/op.h"
#include "kernels/launcher.h"

namespace gradloom {

// scores: [n, classes, d..], labels: [n, d..], weight: [classes] or omitted; seen as [outer, n, inner] = [n,
// classes, prod d].
struct LossLayout {
  kernels::LossReduction reduction = kernels::LossReduction::mean;
  std::int64_t outer = 0, n = 0, inner = 0;
  bool has_ignore = false;
  std::int64_t ignore_index = 0;
};
Result<kernels::LossReduction> loss_reduction(const Attrs& attrs);
// Types of the scores, labels and (if present) weight inputs; the weight is of the type of the losses.
Status check_loss_inputs(const InferContext& ctx, std::size_t scores, std::size_t labels, std::size_t weight,
                         DType losses);
// The same of scores that no input holds: labels [n, d..] for scores of shape [n, classes, d..].
Status check_labels(const InferContext& ctx, const Shape& scores, std::size_t labels, std::size_t weight,
                    DType losses);
// REQUIRES inference passed and static shapes.
Result<LossLayout> loss_layout(const Attrs& attrs, const Shape& scores);
Shape loss_shape(kernels::LossReduction reduction, const Shape& labels);
Attrs loss_attrs(const Attrs& forward);  // reduction and ignore_index, for a gradient node
// d loss / d weight [classes] of a loss of inputs scores, labels, weight: the losses l of unweighted rows and
// what their weights sum up to in output `total` make  none: sum of dy l;  sum: dy sum of l;  mean: dy sum of
// (l - loss) / total, each over the rows of a class.
Result<ValueId> class_weight_gradient(GradContext& ctx, int total);

}  // namespace gradloom
