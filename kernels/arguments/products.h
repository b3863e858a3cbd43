// Arguments of matrix products and convolutions (conventions: kernels/arguments.h).
#pragma once

#include "kernels/types.h"

namespace gradloom::kernels {

// gelu_tanh_grad: times the slope of gelu_tanh at `aux`.
enum class Activation : std::uint8_t { none, relu, gelu_erf, gelu_tanh, gelu_tanh_grad };
enum class GemmOperand : std::uint8_t { none, a, b };
// C[b] = activation(alpha * A[b] B[b] + bias (+ C when accumulate) (+ addend)). Strides in elements; a batch stride of 0
// broadcasts. On the CPU f64 and relu only, without aux and sums: the other products are in prepared/.
struct GemmArgs {
  DType dtype;
  int batch_rank;
  std::int64_t batch_dims[kEwMaxRank], a_batch[kEwMaxRank], b_batch[kEwMaxRank], c_batch[kEwMaxRank];
  std::int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, c_col;
  double alpha;
  Activation activation;
  bool accumulate;
  const void *a, *b, *bias;
  void* c;  // bias: [n] or null
  void* workspace;
  std::size_t workspace_bytes;  // GPU libraries only; may be null and 0
  // Laid out as C. gelu_tanh: what the activation is applied to is written there (null:
  // it is not); gelu_tanh_grad: read.
  void* aux = nullptr;
  // sums: over k, of A ([m]) or of B ([n]), which is [k, m] or [k, n] dense in memory: the gradient of a bias
  // beside that of its weight. Not with batch dims.
  GemmOperand sums_of = GemmOperand::none;
  void* sums = nullptr;
  bool wide_c = false;  // GPU, half types: C is f32. Without bias, activation and sums
  // GPU only, laid out as C and of its type: is added to the product and stays as it is. Without activation, sums and accumulate.
  const void* addend = nullptr;
};

// Products of groups of rows: group g is the rows from where the one before ends to ends[g], where smaller ends count as the largest
// before them and larger ones as `rows` (JAX ragged_dot, torch grouped_mm).
//   columns: c[r, j] = sum over i of a[r, i] b[g][i, j] for the rows r of group g; rows of no group are 0.
//            a: [rows, m], b: groups of m x n elements, those of a group b_row and b_col apart, c: [rows, n]
//   rows:    c[g][i, j] = sum over the rows r of group g of a[r, i] b[r, j].
//            a: [rows, m], b: [rows, n], c: [groups, m, n]
enum class GroupedSum : std::uint8_t { columns, rows };
// GPU only: on the CPU each group is products of prepared/. Sums are f32 for f32 and half types, f64 for f64.
struct GroupedGemmArgs {
  DType dtype;
  GroupedSum sum;
  std::int64_t groups, rows, m, n, b_row, b_col;
  const void *a, *b;
  const std::int64_t* ends;
  void* c;
};

// Convolution. x: [n, c, d, h, w], w: [k, c / groups, t, r, s], bias: [k] or null, y: [n, k, od, oh, ow];
// 2-d: d = t = od = 1. (ONNX Conv)
struct ConvolutionDesc {
  DType dtype = DType::f32;
  std::int64_t n, c, h, w, k, r, s, oh, ow;
  std::int64_t stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1, groups = 1;
  bool bias = false;
  std::int64_t d = 1, t = 1, od = 1, stride_d = 1, pad_front = 0, pad_back = 0, dilation_d = 1;
  std::int64_t x_block = 1, y_block = 1;  // of channels: x: [n, c / x_block, d, h, w, x_block], y likewise
};
enum class ConvolutionKind : std::uint8_t { forward, backward_data, backward_weights };
// GPU only: the CPU's convolutions are in prepared/. Forward: a = x, b = w, bias, out = y;
// backward_data: a = dy, b = w, out = dx; backward_weights: a = dy, b = x, out = dw.
struct ConvolutionArgs {
  ConvolutionDesc shape;
  ConvolutionKind kind;
  const void *a, *b, *bias;
  void* out;
  void* workspace;
  std::size_t workspace_bytes = 0;  // GPU libraries only; may be 0
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_PRODUCT_KERNELS(K) \
  K(gemm, GemmArgs)
// clang-format on
