// Determinants of square matrices and their gradient, the same text for every device. Computed in f64.
//   det(A)   elimination with exchanges of rows
//   cof(A)   the cofactors, d det(A) / dA, of singular matrices too: with exchanges of rows and columns P A Q = L U, and as the
//            adjugate of a product is that of its factors in reverse order, cof(A)' = adj(A) = det(P) det(Q) Q adj(U) inverse(L) P.
//            adj(U) grows by its leading blocks, without a division: adj([V b; 0 u]) = [u adj(V), -adj(V) b; 0, det(V)].
// Source: Golub and Van Loan, Matrix Computations, 3.4; Horn and Johnson, Matrix Analysis, 0.8.2.
#pragma once

#include "kernels/arguments.h"
#include "kernels/math.h"

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

// Matrix i uses slot i % kDeterminantSlots of the workspace, the matrices of a slot one after the other.
constexpr std::int64_t kDeterminantSlots = 4096;
GRADLOOM_HD std::int64_t determinant_slots(std::int64_t matrices) {
  return matrices < kDeterminantSlots ? matrices : kDeterminantSlots;
}
// Numbers (f64) of a slot: the matrix; for the gradient also the adjugate and where
// rows and columns came from.
GRADLOOM_HD std::int64_t determinant_slot(std::int64_t n) { return n * n; }
GRADLOOM_HD std::int64_t determinant_grad_slot(std::int64_t n) { return 2 * n * (n + 1); }

// Exchanges `count` numbers `step` apart.
GRADLOOM_HD void exchange(double* a, double* b, std::int64_t count, std::int64_t step) {
  for (std::int64_t i = 0; i < count * step; i += step) {
    const double kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
}

// Takes row k of a [n, n] from those below it; their factors stay in column k.
GRADLOOM_HD void eliminate(double* a, std::int64_t n, std::int64_t k) {
  for (std::int64_t i = k + 1; i < n; ++i) {
    const double factor = a[i * n + k] / a[k * n + k];
    a[i * n + k] = factor;
    for (std::int64_t j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
  }
}

// Of a [n, n], which is used up. 1 for n = 0.
GRADLOOM_HD double determinant_of(double* a, std::int64_t n) {
  double product = 1;
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t best = k;
    for (std::int64_t i = k + 1; i < n; ++i)
      if (abs(a[i * n + k]) > abs(a[best * n + k])) best = i;
    if (a[best * n + k] == 0) return 0;
    if (best != k) {
      exchange(a + k * n, a + best * n, n, 1);
      product = -product;
    }
    product *= a[k * n + k];
    eliminate(a, n, k);
  }
  return product;
}

// a -> L (unit diagonal) and U of the matrix whose rows and columns came from rows[i], columns[j].
// The value: det(P) det(Q).
GRADLOOM_HD double decompose(double* a, double* rows, double* columns, std::int64_t n) {
  double exchanges = 1;
  for (std::int64_t k = 0; k < n; ++k) rows[k] = columns[k] = double(k);
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t row = k, column = k;
    for (std::int64_t i = k; i < n; ++i)
      for (std::int64_t j = k; j < n; ++j)
        if (abs(a[i * n + j]) > abs(a[row * n + column])) {
          row = i;
          column = j;
        }
    if (row != k) {
      exchange(a + k * n, a + row * n, n, 1);
      exchange(rows + k, rows + row, 1, 1);
      exchanges = -exchanges;
    }
    if (column != k) {
      exchange(a + k, a + column, n, n);
      exchange(columns + k, columns + column, 1, 1);
      exchanges = -exchanges;
    }
    if (a[k * n + k] == 0) break;  // so is all that is left
    eliminate(a, n, k);
  }
  return exchanges;
}

// Of the upper triangle of a [n, n].
GRADLOOM_HD void adjugate_of_upper(const double* a, double* adjugate, std::int64_t n) {
  double product = 1;  // of the leading block of k rows
  for (std::int64_t k = 0; k < n; ++k) {
    for (std::int64_t i = 0; i < k; ++i) {
      double sum = 0;
      for (std::int64_t j = i; j < k; ++j) {
        sum += adjugate[i * n + j] * a[j * n + k];
        adjugate[i * n + j] *= a[k * n + k];
      }
      adjugate[i * n + k] = -sum;
      adjugate[k * n + i] = 0;
    }
    adjugate[k * n + k] = product;
    product *= a[k * n + k];
  }
}

// put(i, c) for each of the n^2 cofactors c of a, which is used up.
// work: what determinant_grad_slot has beside a.
template <class Put>
GRADLOOM_HD void cofactors(double* a, double* work, std::int64_t n, const Put& put) {
  double *const adjugate = work, *const rows = work + n * n, *const columns = rows + n;
  const double exchanges = decompose(a, rows, columns, n);
  adjugate_of_upper(a, adjugate, n);
  for (std::int64_t j = n - 2; j >= 0; --j)  // times inverse(L), column by column from the last
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = j + 1; k < n; ++k) adjugate[i * n + j] -= adjugate[i * n + k] * a[k * n + j];
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      put(std::int64_t(rows[j]) * n + std::int64_t(columns[i]), exchanges * adjugate[i * n + j]);
}

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
