// Convolution, NCHW or NCDHW, or with channels in blocks of 4, 8, 16 or all of them (f64: any), through
// oneDNN (f32) or own loops (f64). Created once when planning.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/arguments.h"

namespace gradloom::kernels {

class Convolution {
 public:
  virtual ~Convolution() = default;
  static std::unique_ptr<Convolution> create(const ConvolutionDesc& desc, ConvolutionKind kind);
  virtual std::size_t workspace_bytes() const = 0;
  // a, b, out: as in ConvolutionArgs.
  // One run of an object at a time: it keeps oneDNN's argument objects.
  virtual void run(const void* a, const void* b, const void* bias, void* out, void* workspace) = 0;
  virtual std::string implementation() const = 0;
};

// What create makes for f64.
std::unique_ptr<Convolution> create_f64_convolution(const ConvolutionDesc& desc, ConvolutionKind kind);

}  // namespace gradloom::kernels
