// Scores of rows of which ranks have the logits of a part of the classes each (part_scores.cpp).
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

// [parts + 1, of labels], f32 where the logits are 16 bits. Errors: labels that are no integers, no parts.
Result<Type> part_scores_type(const Attrs& attrs, DType logits, const Type& labels);

}  // namespace gradloom
