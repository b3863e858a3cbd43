// Matrix multiplication through oneDNN (f32; bf16 where the processor multiplies it, added in f32), the gemm
// kernel for f64, and for most f32 on processors without AVX-512. Created once when planning, run many times.
//   C[batch.., m, n] = epilogue(alpha * A[batch.., m, k] * B[batch.., k, n] + bias[n] (+ C when accumulate))
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/arguments.h"

namespace gradloom::kernels {

struct MatMulDesc {
  DType dtype = DType::f32;
  std::vector<std::int64_t> batch;  // common (broadcast) batch dims, may be empty
  std::int64_t m = 0, n = 0, k = 0;
  // Strides in elements for [batch.., row, col] of each operand; a batch stride of 0 broadcasts.
  std::vector<std::int64_t> a_strides, b_strides, c_strides;
  double alpha = 1.0;
  bool bias = false;        // one value per column
  bool accumulate = false;  // C += ...
  bool wide_c = false;      // C is f32 where A and B are bf16, on a GPU f16 too
  Activation activation = Activation::none;
  bool packed_b = false;  // B is what pack_b made of it: of one matrix that many runs share
};

// The same product as arguments without pointers, batch dims merged where their strides allow: for the
// gemm kernels. Throws std::runtime_error for more than kEwMaxRank batch dims.
GemmArgs gemm_args(const MatMulDesc& desc);

class MatMul {
 public:
  virtual ~MatMul() = default;
  // Throws std::runtime_error with oneDNN's message when the description cannot be prepared.
  static std::unique_ptr<MatMul> create(const MatMulDesc& desc);
  virtual std::size_t workspace_bytes() const = 0;
  // With packed_b: the bytes that pack_b writes; 0: runs take B as it is.
  virtual std::size_t packed_bytes() const { return 0; }
  virtual void pack_b(const void*, void*) {}
  // One run of an object at a time: it keeps oneDNN's argument objects.
  virtual void run(const void* a, const void* b, const void* bias, void* c, void* workspace) = 0;
  // Whether strides change no bit of what it computes: oneDNN chooses its kernels, and with them the order of sums, by them.
  virtual bool keeps_bits() const { return false; }
  // Whether this and `other`, the same product of operands that lie otherwise, compute the same bits. Where oneDNN has the same kernel for
  // both, nothing but a trial tells, since that kernel chooses by strides, too: their pieces multiply the same numbers here. That takes
  // the time of a few pieces, and memory. Not while either runs.
  virtual bool has_bits_of(MatMul& other) { return keeps_bits() && other.keeps_bits(); }
  virtual std::string implementation() const = 0;  // e.g. "brg:avx512_core", "f32 blocked"
};

}  // namespace gradloom::kernels
