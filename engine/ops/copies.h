// Copies of tensors, dense and strided, and a tensor seen around one axis.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/op.h"
#include "kernels/launcher.h"

namespace gradloom {

// A strided copy of any rank: drops dims of size 1, merges dims, error when more than kEwMaxRank remain.
struct CopyPlan {
  std::vector<std::int64_t> dims, in_strides, out_strides;  // in elements
  std::int64_t in_offset = 0, out_offset = 0;               // first element
};
Result<kernels::StridedCopyArgs> strided_copy_args(const CopyPlan& plan, std::size_t element_bytes);
void run_copy(const kernels::Launcher& on, kernels::StridedCopyArgs args, const CopyPlan& plan,
              const void* in, void* out);
// `count` elements that lie dense; nothing where they are already.
void copy_elements(const kernels::Launcher& on, DType dtype, std::int64_t count, const void* from, void* to);
std::vector<std::int64_t> dense_strides(const Shape& shape);

// [outer, size, inner] around one axis.
struct AxisView {
  std::int64_t outer = 1, size = 1, inner = 1;
};
AxisView axis_view(const Shape& shape, std::int64_t axis);
// Around attribute axis; without one all elements are in a row.
Result<AxisView> optional_axis_view(const Attrs& attrs, const Shape& data);

}  // namespace gradloom
