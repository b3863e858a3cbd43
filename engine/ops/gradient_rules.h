// Pieces that gradient rules are built from.
#pragma once

#include <cstdint>

#include "engine/ir/op.h"

namespace gradloom {

ValueId shape_of(GradContext& ctx, ValueId value);  // i64 contents: a constant when static
ValueId reshaped_like(GradContext& ctx, ValueId value, ValueId like);
ValueId full_like(GradContext& ctx, ValueId value, double fill);  // Expand of a scalar
ValueId cast_to(GraphBuilder& b, ValueId value, DType dtype);     // the value itself where it has the type
// g / count in g's type. 16 bits may round a count, and f16 ends at 65504: then in the type of sums.
ValueId divided_by_count(GraphBuilder& b, ValueId g, double count);
ValueId divided_by_count(GraphBuilder& b, ValueId g, ValueId count);
// x + y, where either may be kNone.
ValueId sum_of(GraphBuilder& b, ValueId x, ValueId y);

// "the gradient needs every dim of [?1, 3, 8, 8] bound".
Status require_static(const GradContext& ctx, ValueId value);
// "no gradient through output 1" when the loss depends on another output than the first.
Status require_first_output_only(const GradContext& ctx);

// What the moments of x add to its gradient: mean = sum(x) / count and moment = sum((x - mean)^2) / count
// (mean kNone: of x itself), each over `count` elements of x and of a shape that broadcasts against it.
// dmean, dmoment: their gradients, or kNone. kNone: nothing.
ValueId moments_gradient(GradContext& ctx, ValueId x, ValueId mean, ValueId dmean, ValueId dmoment,
                         std::int64_t count);
// The gradient of a moment from that of inv_std = 1 / sqrt(moment + epsilon); kNone stays.
ValueId moment_gradient(GradContext& ctx, ValueId inv_std, ValueId dinv_std);

}  // namespace gradloom
