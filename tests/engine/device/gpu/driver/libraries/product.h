// A product as cuBLASLt has it, computed on the host: D = epilogue(alpha op(A) op(B) + beta C), matrices by columns. Sums are f32, or f64
// of f64 numbers, in the order of k; a product that is cut adds its slices up in the workspace.
#pragma once

#include "tests/engine/device/gpu/driver/libraries/numbers.h"

namespace gradloom::strict {

struct Matrix {
  cudaDataType_t type;
  std::int64_t rows, cols, ld;
  std::int64_t batch = 1, stride = 0;

  std::size_t width() const {
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : is_code(type) ? 1 : 2;
  }
  // From its first element to behind its last one.
  std::size_t bytes() const { return std::size_t((batch - 1) * stride + (cols - 1) * ld + rows) * width(); }
};

struct Product {
  Matrix a, b, c, d;
  bool transpose_a, transpose_b;
  bool tf32;  // operands are rounded to it
  kernels::gpu::cublasLtEpilogue_t epilogue;
  double alpha, beta;
  const void *a_at, *b_at, *c_at;
  void *d_at, *bias, *aux;  // bias, aux: null where the epilogue has none; of D's type
  std::int64_t aux_ld;
  int slices;                      // of k
  bool last_first;                 // in which order the slices are added
  const float *a_scale, *b_scale;  // in the device's memory; null: 1
  void* workspace;                 // slice_bytes() where there is more than one

  std::int64_t inner() const { return transpose_a ? a.rows : a.cols; }
  std::size_t slice_bytes() const {
    return std::size_t(slices) * std::size_t(d.rows * d.cols) * (d.type == CUDA_R_64F ? 8 : 4);
  }
};

// What an epilogue is made of: bits of cublasLtEpilogue_t.
constexpr int kRelu = 2, kBias = 4, kGelu = 32, kAux = 128, kSlope = 64, kSumsOfA = 256, kSumsOfB = 512;

void run(const Product& product);

}  // namespace gradloom::strict
