// 2-d convolution, NCHW, through oneDNN (f32) or own loops (f64). Created once when planning.
// x: [n, c, h, w], w: [k, c / groups, r, s], bias: [k] or null, y: [n, k, oh, ow]
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/types.h"

namespace gradloom::kernels {

struct ConvolutionDesc {
  DType dtype = DType::f32;
  std::int64_t n, c, h, w, k, r, s, oh, ow;
  std::int64_t stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1, groups = 1;
  bool bias = false;
};

enum class ConvolutionKind : std::uint8_t { forward, backward_data, backward_weights };

class Convolution {
 public:
  virtual ~Convolution() = default;
  static std::unique_ptr<Convolution> create(const ConvolutionDesc& desc, ConvolutionKind kind);
  virtual std::size_t workspace_bytes() const = 0;
  // forward: a = x, b = w, bias, out = y.  backward_data: a = dy, b = w, out = dx.  backward_weights: a = dy, b = x, out = dw.
  virtual void run(const void* a, const void* b, const void* bias, void* out, void* workspace) const = 0;
  virtual std::string implementation() const = 0;
};

}  // namespace gradloom::kernels
