// What operators that add up over the micro-batches of a step have in common: `micro`, the number of the
// micro-batch, i64[], an input; `count`, how many there are, an attribute.
#pragma once

#include <memory>

#include "engine/ops/inference.h"
#include "kernels/elementwise.h"

namespace gradloom {

// `micro` is input i, which may be left out.
inline Status check_micro(const InferContext& ctx, std::size_t i) {
  if (ctx.has(i) && ctx.in(i) != Type{DType::i64, {}}) return infer_error("micro must be i64[]");
  if (ctx.attrs.integer("count", 1) < 1) return infer_error("count must be positive");
  return {};
}

// acc, micro -> acc, or 0 in the first micro-batch, which the host of a GPU does not see. May write over acc.
inline std::shared_ptr<const kernels::EwProgram> accumulator_or_zero(const Type& acc) {
  using kernels::EwOp;
  kernels::EwProgram program;  // 0: acc, 1: micro, 2: i64 0, 3: 0
  program.rank = 1;
  program.dims[0] = element_count(acc.shape);
  program.inputs = {{acc.dtype, {1}}, {DType::i64, {}}};
  program.constants = {{DType::i64, 0}, {acc.dtype, 0}};
  program.code = {{EwOp::Equal, DType::i64, DType::boolean, {1, 2, -1}, 0},
                  {EwOp::Where, acc.dtype, acc.dtype, {4, 3, 0}, 0}};
  program.outputs = {{5, acc.dtype}};
  return std::make_shared<const kernels::EwProgram>(std::move(program));
}

}  // namespace gradloom
