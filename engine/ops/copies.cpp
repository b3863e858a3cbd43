#include "engine/ops/copies.h"
#include "kernels/launcher.h"
#include "engine/ops/preparation.h"

#include <algorithm>

namespace gradloom {

std::vector<std::int64_t> dense_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Result<kernels::StridedCopyArgs> strided_copy_args(const CopyPlan& plan, std::size_t element_bytes) {
  std::vector<std::int64_t> dims, in, out;
  for (std::size_t d = 0; d < plan.dims.size(); ++d) {
    if (plan.dims[d] == 1) continue;
    if (!dims.empty() && in.back() == plan.in_strides[d] * plan.dims[d] &&
        out.back() == plan.out_strides[d] * plan.dims[d]) {
      dims.back() *= plan.dims[d];
      in.back() = plan.in_strides[d];
      out.back() = plan.out_strides[d];
      continue;
    }
    dims.push_back(plan.dims[d]);
    in.push_back(plan.in_strides[d]);
    out.push_back(plan.out_strides[d]);
  }
  if (dims.size() > static_cast<std::size_t>(kernels::kEwMaxRank))
    return no_kernel("a copy over " + std::to_string(dims.size()) + " separate dimensions; the kernel has " +
                     std::to_string(kernels::kEwMaxRank));
  kernels::StridedCopyArgs args{};
  args.element_bytes = element_bytes;
  args.rank = static_cast<int>(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    args.dims[d] = dims[d];
    args.in_strides[d] = in[d];
    args.out_strides[d] = out[d];
  }
  return args;
}

void copy_elements(const kernels::Launcher& on, DType dtype, std::int64_t count, const void* from, void* to) {
  if (count > 0 && from != to) on.strided_copy({dtype_bytes(dtype), 1, {count}, {1}, {1}, from, to});
}

void run_copy(const kernels::Launcher& on, kernels::StridedCopyArgs args, const CopyPlan& plan,
              const void* in, void* out) {
  const auto bytes = static_cast<std::int64_t>(args.element_bytes);
  for (int d = 0; d < args.rank; ++d)
    if (args.dims[d] == 0) return;
  args.in = static_cast<const char*>(in) + plan.in_offset * bytes;
  args.out = static_cast<char*>(out) + plan.out_offset * bytes;
  on.strided_copy(args);
}

AxisView axis_view(const Shape& shape, std::int64_t axis) {
  AxisView v;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto at = static_cast<std::int64_t>(d);
    (at < axis ? v.outer : at == axis ? v.size : v.inner) *= shape[d];
  }
  return v;
}

Result<AxisView> optional_axis_view(const Attrs& attrs, const Shape& data) {
  if (!attrs.has("axis")) return AxisView{1, element_count(data), 1};
  return axis_view(data, TRY(normalized_axis(attrs.integer("axis"), data.size())));
}

}  // namespace gradloom
