// Scores of rows of which ranks have the logits of a part of the classes each (part_scores.cpp).
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

// [parts + 1, of labels], f32 where the logits are 16 bits. Errors: labels that are no integers, no parts.
Result<Type> part_scores_type(const Attrs& attrs, DType logits, const Type& labels);
// Of the `size` classes that each rank's logits have those that are classes at this one: where attribute classes says how many there are of all, the last part
// may have fewer, and zeros behind them. Errors: no such part.
Result<std::int64_t> own_classes(const Attrs& attrs, std::int64_t size);

}  // namespace gradloom
