// Arguments of kernels that work along one axis, or on matrices (conventions: kernels/arguments.h).
#pragma once

#include "kernels/types.h"

namespace gradloom::kernels {

enum class Reduction : std::uint8_t { sum, mean, max, min, prod, l1, l2, sum_square, log_sum_exp };
// in: [outer, n, inner] -> out: [outer, inner]. dtype f32, f64, i32, i64, on the CPU bf16 for sum and mean. Fixed summation order.
struct ReduceArgs {
  DType dtype;
  Reduction op;
  std::int64_t outer, n, inner;
  const void* in;
  void* out;
  void* workspace;
};

// y = softmax or log-softmax over n. in, out: [outer, n, inner].  (ONNX-13 Softmax)
// safe (softmax only): of n times -inf it is 0, else NaN. log_sum_exp (softmax of rows of f32 or f64, inner = 1): [outer],
// max + log(sum(exp(x - max))), -inf of n times -inf; null: it is not wanted.
struct SoftmaxArgs {
  DType dtype;
  bool log;
  std::int64_t outer, n, inner;
  const void* x;
  void* y;
  bool safe = false;
  void* log_sum_exp = nullptr;
};
// A log-sum-exp of f32 tells the softmax, as exp(x - log_sum_exp), to about the digits of f32 up to this size. Far from 0 it has the size
// of the largest x and no digit of their number; of a row of -inf it says nothing.
constexpr float kTellingLogSumExp = 256;
// The softmax of rows whose log-sum-exp is known: exp(x - log_sum_exp); of rows that it does not tell (kTellingLogSumExp), softmax(x),
// with `safe` as there. x, y: [rows, n] of f32 or f64, log_sum_exp: [rows] of that type. May be in place.
struct SoftmaxAgainArgs {
  DType dtype;
  std::int64_t rows, n;
  const void *x, *log_sum_exp;
  void* y;
  bool safe;
};
// softmax: dx = y * (dy - sum(dy * y));  log: dx = dy - exp(y) * sum(dy)
// known_sums (softmax of rows of f32 or f64, inner = 1): [outer], what sum(dy * y) is; null: it is added up.
struct SoftmaxGradArgs {
  DType dtype;
  bool log;
  std::int64_t outer, n, inner;
  const void *dy, *y;
  void* dx;
  const void* known_sums = nullptr;
};

// The first lengths[b] positions in time turned around, the rest copied. x, y: [batch, time, inner], or
// [time, batch, inner] with time_first.
struct ReverseSequenceArgs {
  std::size_t element_bytes;
  bool time_first;
  std::int64_t batch, time, inner;
  const void* x;
  const std::int64_t* lengths;
  void* y;
};

// Upper (column - row >= k) or lower (column - row <= k) triangles, zeros elsewhere. k: one number; null: 0.
struct TriluArgs {
  std::size_t element_bytes;
  bool upper;
  std::int64_t matrices, rows, cols;
  const void* x;
  const std::int64_t* k;
  void* y;
};

// Matrices one after the other (kernels/determinant.h). y: [matrices].
struct DeterminantArgs {
  DType dtype;
  std::int64_t matrices, n;  // n x n each
  const void* x;
  void *y, *workspace;
};
// dx = dy times the cofactors of x. dy: [matrices].
struct DeterminantGradArgs {
  DType dtype;
  std::int64_t matrices, n;
  const void *dy, *x;
  void *dx, *workspace;
};

// Running sums over n, of floats in f64. x, y: [outer, n, inner] of f32, f64 (on a GPU half types), i32, i64.
struct CumSumArgs {
  DType dtype;
  bool exclusive, reverse;
  std::int64_t outer, n, inner;
  const void* x;
  void* y;
};

// Index of the largest or smallest of n elements, the first or the last of equal ones; NaN wins. Any number
// type. y: [outer, inner].
struct ArgExtremeArgs {
  DType dtype;
  bool largest, last;
  std::int64_t outer, n, inner;
  const void* x;
  std::int64_t* y;
};

// The k largest or smallest of n elements in order, equal ones by index; NaN is the largest number. values,
// indices: [outer, k, inner].
struct TopKArgs {
  DType dtype;
  bool largest;
  std::int64_t outer, n, inner, k;
  const void* x;
  void* values;
  std::int64_t* indices;
  void* workspace;
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_ROW_KERNELS(K) \
  K(reduce, ReduceArgs) K(softmax, SoftmaxArgs) K(softmax_again, SoftmaxAgainArgs) \
  K(softmax_grad, SoftmaxGradArgs) K(reverse_sequence, ReverseSequenceArgs) K(trilu, TriluArgs) K(determinant, DeterminantArgs) \
  K(determinant_grad, DeterminantGradArgs) K(cum_sum, CumSumArgs) K(arg_extreme, ArgExtremeArgs) \
  K(top_k, TopKArgs)
// clang-format on
