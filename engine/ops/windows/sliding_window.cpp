// Sliding windows of convolution and pooling; see sliding_window.h.
#include "engine/ops/windows/sliding_window.h"

#include <algorithm>

#include "engine/ops/dims.h"
#include "engine/ops/preparation.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

constexpr std::int64_t kLargestAttribute = std::int64_t{1} << 31;  // keeps every product below 2^63

Result<std::vector<std::int64_t>> numbers(const Attrs& attrs, const char* name, std::size_t count,
                                          std::int64_t fallback, std::int64_t low) {
  std::vector<std::int64_t> values = attrs.integers(name);
  if (values.empty()) values.assign(count, fallback);
  if (values.size() != count)
    return infer_error(std::string(name) + " has " + std::to_string(values.size()) + " entries, expected " +
                       std::to_string(count));
  for (std::int64_t v : values)
    if (v < low || v > kLargestAttribute)
      return infer_error(std::string(name) + " entry " + std::to_string(v) + " is out of range");
  return values;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Output dim i and, for auto_pad, its pads.
Status resolve_dim(SlidingWindow& w, std::size_t i, std::int64_t in, const std::string& auto_pad, bool ceil) {
  const std::int64_t extent = (w.kernel[i] - 1) * w.dilation[i] + 1, stride = w.stride[i];
  if (auto_pad == "VALID") w.pad_begin[i] = w.pad_end[i] = 0;
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    if (in < 0 && stride != 1) {
      w.out[i] = derived_dim("ceil " + std::to_string(in) + "/" + std::to_string(stride));
      return {};
    }
    w.out[i] = in < 0 ? in : ceil_div(in, stride);
    const std::int64_t total =
        in < 0 ? extent - 1 : std::max<std::int64_t>(0, (w.out[i] - 1) * stride + extent - in);
    w.pad_begin[i] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.pad_end[i] = total - w.pad_begin[i];
    return {};
  }
  const std::int64_t slack = w.pad_begin[i] + w.pad_end[i] - extent;
  if (in < 0) {
    w.out[i] = stride == 1 && slack == -1
                   ? in
                   : derived_dim("window " + std::to_string(in) + "+" + std::to_string(slack) + "/" +
                                 std::to_string(stride) + (ceil ? " ceil" : ""));
    return {};
  }
  // By ceil, a window that ends beyond the padded input is one where less than a stride is missing.
  if (in + slack <= (ceil ? -stride : -1))
    return infer_error("a window of " + std::to_string(extent) + " does not fit the padded input of " +
                       std::to_string(in + w.pad_begin[i] + w.pad_end[i]));
  w.out[i] = (ceil ? ceil_div(in + slack, stride) : (in + slack) / stride) + 1;
  // A window that would start beyond the input and its left padding sees nothing: it is dropped.
  if (ceil && (w.out[i] - 1) * stride >= in + w.pad_begin[i]) --w.out[i];
  return {};
}

}  // namespace

Result<SlidingWindow> resolve_window(const Attrs& attrs, const Shape& spatial,
                                     std::vector<std::int64_t> kernel) {
  const std::size_t rank = spatial.size();
  SlidingWindow w;
  w.kernel = std::move(kernel);
  if (w.kernel.empty()) {
    if (attrs.integers("kernel_shape").empty()) return infer_error("attribute kernel_shape is missing");
    w.kernel = TRY(numbers(attrs, "kernel_shape", rank, 1, 1));
  }
  for (std::int64_t k : w.kernel)
    if (k < 1 || k > kLargestAttribute)
      return infer_error("kernel dim " + std::to_string(k) + " is out of range");
  w.stride = TRY(numbers(attrs, "strides", rank, 1, 1));
  w.dilation = TRY(numbers(attrs, "dilations", rank, 1, 1));
  const std::vector<std::int64_t> pads = TRY(numbers(attrs, "pads", 2 * rank, 0, 0));
  w.pad_begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(rank));
  w.pad_end.assign(pads.begin() + static_cast<std::ptrdiff_t>(rank), pads.end());
  w.out.resize(rank);
  const std::string auto_pad = attrs.text("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID" && auto_pad != "SAME_UPPER" && auto_pad != "SAME_LOWER")
    return infer_error("auto_pad '" + auto_pad + "' is unknown");
  for (std::size_t i = 0; i < rank; ++i)
    TRY(resolve_dim(w, i, spatial[i], auto_pad, attrs.integer("ceil_mode") != 0));
  return w;
}

Result<SlidingWindow> resolve_pooling_window(const Attrs& attrs, const Shape& spatial) {
  SlidingWindow w = TRY(resolve_window(attrs, spatial));
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t extent = (w.kernel[i] - 1) * w.dilation[i] + 1;
    if (w.pad_begin[i] >= extent || w.pad_end[i] >= extent)
      return infer_error("pads of " + std::to_string(std::max(w.pad_begin[i], w.pad_end[i])) +
                         " hold a whole window of " + std::to_string(extent));
  }
  return w;
}

Attrs window_attrs(const SlidingWindow& window) {
  std::vector<std::int64_t> pads = window.pad_begin;
  pads.insert(pads.end(), window.pad_end.begin(), window.pad_end.end());
  return {{"kernel_shape", window.kernel},
          {"strides", window.stride},
          {"dilations", window.dilation},
          {"pads", pads}};
}

Result<SlidingWindow> explicit_window(const Attrs& attrs, const Shape& spatial_out) {
  const std::size_t rank = spatial_out.size();
  SlidingWindow w;
  w.kernel = TRY(numbers(attrs, "kernel_shape", rank, 1, 1));
  w.stride = TRY(numbers(attrs, "strides", rank, 1, 1));
  w.dilation = TRY(numbers(attrs, "dilations", rank, 1, 1));
  const std::vector<std::int64_t> pads = TRY(numbers(attrs, "pads", 2 * rank, 0, 0));
  w.pad_begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(rank));
  w.pad_end.assign(pads.begin() + static_cast<std::ptrdiff_t>(rank), pads.end());
  w.out = spatial_out;
  return w;
}

Result<SlidingWindow> as_3d(SlidingWindow window) {
  if (window.rank() < 1 || window.rank() > 3)
    return no_kernel("no kernel for " + std::to_string(window.rank()) + "-d windows");
  const std::size_t missing = 3 - window.rank();
  for (auto* v : {&window.kernel, &window.stride, &window.dilation, &window.out})
    v->insert(v->begin(), missing, 1);
  for (auto* v : {&window.pad_begin, &window.pad_end}) v->insert(v->begin(), missing, 0);
  return window;
}

Shape spatial_3d(Shape spatial) {
  while (spatial.size() < 3) spatial.insert(spatial.begin(), 1);
  return spatial;
}

Result<kernels::PoolShape> pool_shape(const Shape& x, SlidingWindow window, std::int64_t block) {
  window = TRY(as_3d(std::move(window)));
  const Shape in = spatial_3d(spatial_of(x, block));
  kernels::PoolShape s{};
  s.planes = x[0] * x[1];
  s.block = block;
  for (std::size_t d = 0; d < 3; ++d) {
    s.in[d] = in[d];
    s.out[d] = window.out[d];
    s.kernel[d] = window.kernel[d];
    s.stride[d] = window.stride[d];
    s.pad_begin[d] = window.pad_begin[d];
    s.pad_end[d] = window.pad_end[d];
    s.dilation[d] = window.dilation[d];
  }
  return s;
}

}  // namespace gradloom
