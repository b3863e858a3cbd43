#include "kernels/gpu/runtime/dnn_problem.h"

#include <algorithm>

namespace gradloom::kernels::gpu {
namespace {

DnnTensor dense(std::int64_t id, DnnSizes dims) {
  DnnSizes strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return {id, std::move(dims), std::move(strides)};
}

}  // namespace

ConvolutionProblem convolution_problem(const ConvolutionArgs& args) {
  const ConvolutionDesc& s = args.shape;
  const bool deep = s.d != 1 || s.t != 1 || s.od != 1 || s.pad_front != 0 || s.pad_back != 0;
  // Without depth its size of 1 goes: the first of three.
  const auto spatial = [&](std::int64_t depth, std::int64_t height, std::int64_t width) {
    return deep ? DnnSizes{depth, height, width} : DnnSizes{height, width};
  };
  const auto tensor = [&](std::int64_t id, std::int64_t outer, std::int64_t inner, DnnSizes sizes) {
    sizes.insert(sizes.begin(), {outer, inner});
    return dense(id, std::move(sizes));
  };
  ConvolutionProblem p;
  p.dtype = s.dtype;
  p.kind = args.kind;
  p.x = tensor('x', s.n, s.c, spatial(s.d, s.h, s.w));
  p.w = tensor('w', s.k, s.c / s.groups, spatial(s.t, s.r, s.s));
  p.y = tensor('y', s.n, s.k, spatial(s.od, s.oh, s.ow));
  p.stride = spatial(s.stride_d, s.stride_h, s.stride_w);
  p.pad_begin = spatial(s.pad_front, s.pad_top, s.pad_left);
  p.pad_end = spatial(s.pad_back, s.pad_bottom, s.pad_right);
  p.dilation = spatial(s.dilation_d, s.dilation_h, s.dilation_w);
  return p;
}

std::array<void*, 3> tensors_of(const ConvolutionArgs& args) {
  void *const a = const_cast<void*>(args.a), *const b = const_cast<void*>(args.b);
  switch (args.kind) {
    case ConvolutionKind::forward: return {a, b, args.out};
    case ConvolutionKind::backward_data: return {args.out, b, a};
    case ConvolutionKind::backward_weights: return {b, args.out, a};
  }
  return {};
}

bool aligned(const std::array<void*, 3>& tensors, std::uintptr_t bytes) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const void* at) {
    return at != nullptr && reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
  });
}

std::vector<std::int64_t> key_of(const ConvolutionArgs& args) {
  const ConvolutionDesc& s = args.shape;
  return {std::int64_t(s.dtype),
          std::int64_t(args.kind),
          std::int64_t(args.workspace_bytes),
          s.n,
          s.c,
          s.d,
          s.h,
          s.w,
          s.k,
          s.t,
          s.r,
          s.s,
          s.od,
          s.oh,
          s.ow,
          s.stride_d,
          s.stride_h,
          s.stride_w,
          s.pad_front,
          s.pad_top,
          s.pad_left,
          s.pad_back,
          s.pad_bottom,
          s.pad_right,
          s.dilation_d,
          s.dilation_h,
          s.dilation_w,
          s.groups};
}

}  // namespace gradloom::kernels::gpu
