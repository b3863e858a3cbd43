// Sliding windows of convolution and pooling: kernel, strides, dilations, pads and auto_pad of ONNX turned
// into explicit numbers per spatial dim, and the output dims that follow.
//   out = floor_or_ceil((in + pad_begin + pad_end - ((kernel - 1) * dilation + 1)) / stride) + 1
//   auto_pad SAME_*: out = ceil(in / stride), pads chosen to fit; VALID: no pads.
// Source: ONNX operators Conv-11, MaxPool-12, AveragePool-19.
#pragma once

#include <vector>

#include "engine/ops/op.h"

namespace gradloom::nn {

struct Window {
  std::vector<std::int64_t> kernel, stride, dilation, pad_begin, pad_end, out;
  std::size_t rank() const { return kernel.size(); }
};

// `spatial`: input dims after batch and channels (symbolic ones give symbolic outputs). `kernel` empty:
// attribute kernel_shape.
Result<Window> resolve_window(const Attrs& attrs, const Shape& spatial,
                              std::vector<std::int64_t> kernel = {});

// The attributes with pads made explicit, for a gradient node: kernel_shape, strides, dilations, pads.
Attrs window_attrs(const Window& window);

// Window of a gradient node, whose output dims are those of dy.
Result<Window> explicit_window(const Attrs& attrs, const Shape& spatial_out);

// A window of one or two dims as a 3-d one of depth and height 1; error for ranks without a kernel. `spatial`
// gets the same treatment.
Result<Window> as_3d(Window window);
Shape spatial_3d(Shape spatial);  // {w}, {h, w} or {d, h, w} -> {d, h, w}

// What pooling kernels take; `x` is the shape that the windows go over.
Result<kernels::PoolShape> pool_shape(const Shape& x, Window window, std::int64_t block = 1);

// Dims after batch and channels, without those of a block.
Shape spatial_of(const Shape& shape, std::int64_t block = 1);

// Channels in blocks (ours, made by passes/block_channels.cpp): [n, c / block, spatial.., block], so that
// neighbours in memory are channels of one position. Attribute `name` of a row says the block of one of its
// tensors, of shape `shape`; 1 and absent: plain.
Result<std::int64_t> block_of(const Attrs& attrs, const char* name, const Shape& shape, const char* what);
Status require_layout(kernels::Target target, std::int64_t block);  // blocks are for the CPU
Shape plain_shape(Shape shape, std::int64_t block);                 // [n, c, spatial..]
Result<Shape> blocked_shape(Shape shape, std::int64_t block);  // and back; error when channels do not divide

}  // namespace gradloom::nn
