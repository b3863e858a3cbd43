// The text form of a fused elementwise region, attribute `code` of the operators FusedElementwise and FusedRows:
//   "t0=Mul(i0,i1);t1=Cast:f32(t0);t2=Dropout#81985529216486895(t1,i2,i3);t3=Where(i4,t2,i0)"
//   "t0=Add(i0,i1);t1=RowMean(t0);t2=Sub(t0,t1)", of FusedRows alone
// iN is input N (broadcast to the region's shape), tN the result of statement N.
// Attribute `outputs`: statement numbers.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/ir/op.h"
#include "kernels/elementwise.h"

namespace gradloom {

struct FusedOperand {
  bool is_input = false;
  int index = 0;
};
struct FusedStatement {
  kernels::EwOp op{};
  DType cast_to = DType::f32;  // Cast only
  std::uint64_t key = 0;       // of Dropout, DropoutMask, Uniform; the mode of a Cast (EwInstruction::key)
  std::vector<FusedOperand> operands;
};

const char* ew_name(kernels::EwOp op);
int ew_arity(kernels::EwOp op);
// Of the reductions of FusedRows: "ReduceSum", ..; the dims of `x` that are a row by attribute row_dims.
const char* row_reduction(kernels::EwOp op);
std::vector<std::int64_t> row_axes(const Attrs& attrs, const Shape& x);
// Result type for operands of these types; error when the operator does not take them.
Result<DType> ew_result_type(kernels::EwOp op, const std::vector<DType>& operands, DType cast_to);

// The type of each statement over the node's inputs.
Result<std::vector<DType>> statement_types(const InferContext& ctx, const std::vector<FusedStatement>& code);

std::string print_fused(const std::vector<FusedStatement>& code);
Result<std::vector<FusedStatement>> parse_fused(const std::string& text);

}  // namespace gradloom
