// What operators that add up over the micro-batches of a step have in common: `micro`, the number of the
// micro-batch, i64[], an input; `count`, how many there are, an attribute.
#pragma once

#include "engine/ops/inference.h"

namespace gradloom {

// `micro` is input i, which may be left out.
inline Status check_micro(const InferContext& ctx, std::size_t i) {
  if (ctx.has(i) && ctx.in(i) != Type{DType::i64, {}}) return infer_error("micro must be i64[]");
  if (ctx.attrs.integer("count", 1) < 1) return infer_error("count must be positive");
  return {};
}

}  // namespace gradloom
