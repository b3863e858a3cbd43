// A GemmArgs as the vendors' libraries want it: column-major matrices with leading dimensions and one batch
// stride. Plain C++.
#pragma once

#include "kernels/arguments.h"

namespace gradloom::kernels::gpu {

// D (rows x cols, column-major) = op(X) (rows x inner) op(Y) (inner x cols). Row-major C = A B is
// column-major C^T = B^T A^T, so X is b, Y is a, rows is n and cols is m: a bias of n elements is one per row
// of D, as libraries add it. A C that is written by columns is D itself: then X is a and Y is b (by_columns).
struct ColumnMajor {
  bool by_columns;
  std::int64_t rows, cols, inner;
  bool x_transposed, y_transposed;                // op: stored as its transpose
  std::int64_t x_ld, y_ld, d_ld;                  // elements between columns as stored
  std::int64_t batch, x_batch, y_batch, d_batch;  // number of products, elements between them

  const void* x(const GemmArgs& args) const { return by_columns ? args.a : args.b; }
  const void* y(const GemmArgs& args) const { return by_columns ? args.b : args.a; }
};

// False when strides have no such form: neither stride 1, overlapping results, or batch dims that do not
// merge into one.
bool column_major(const GemmArgs& args, ColumnMajor* product);

}  // namespace gradloom::kernels::gpu
