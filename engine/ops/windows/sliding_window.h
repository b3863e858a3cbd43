// Sliding windows of convolution and pooling: kernel, strides, dilations, pads and auto_pad of ONNX turned
// into explicit numbers per spatial dim, and the output dims that follow.
//   out = floor_or_ceil((in + pad_begin + pad_end - ((kernel - 1) * dilation + 1)) / stride) + 1
//   auto_pad SAME_*: out = ceil(in / stride), pads chosen to fit; VALID: no pads.
// Source: ONNX operators Conv-11, MaxPool-12, AveragePool-19.
#pragma once

#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/channel_blocks.h"
#include "kernels/launcher.h"

namespace gradloom {

struct SlidingWindow {
  std::vector<std::int64_t> kernel, stride, dilation, pad_begin, pad_end, out;
  std::size_t rank() const { return kernel.size(); }
};

// `spatial`: input dims after batch and channels (symbolic ones give symbolic outputs).
// `kernel` empty: attribute kernel_shape.
Result<SlidingWindow> resolve_window(const Attrs& attrs, const Shape& spatial,
                                     std::vector<std::int64_t> kernel = {});
// The same for pooling, where every window must see an element: pads are smaller than the window.
Result<SlidingWindow> resolve_pooling_window(const Attrs& attrs, const Shape& spatial);

// The attributes with pads made explicit, for a gradient node: kernel_shape, strides, dilations, pads.
Attrs window_attrs(const SlidingWindow& window);

// The window of a gradient node, whose output dims are those of dy.
Result<SlidingWindow> explicit_window(const Attrs& attrs, const Shape& spatial_out);

// A window of one or two dims as a 3-d one of depth and height 1; error for ranks without a kernel. `spatial`
// gets the same treatment.
Result<SlidingWindow> as_3d(SlidingWindow window);
Shape spatial_3d(Shape spatial);  // {w}, {h, w} or {d, h, w} -> {d, h, w}

// What pooling kernels take; `x` is the shape that the windows go over.
Result<kernels::PoolShape> pool_shape(const Shape& x, SlidingWindow window, std::int64_t block = 1);

}  // namespace gradloom
