#include "tests/engine/device/gpu/driver/libraries/product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace gradloom::strict {
namespace {

// TF32 has 10 of the 23 bits; ties to even.
float tf32(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits += 0xfffu + ((bits >> 13) & 1u);
  bits &= ~0x1fffu;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
double tf32(double x) { return x; }

// Matrix `batch` of m, or its transpose, dense and by columns.
template <class Sum>
std::vector<Sum> packed(const Matrix& m, const void* at, bool transpose, bool round, std::int64_t batch) {
  std::vector<Sum> all(std::size_t(m.rows * m.cols));
  for (std::int64_t j = 0; j < m.cols; ++j) {
    for (std::int64_t i = 0; i < m.rows; ++i) {
      const Sum x = load<Sum>(m.type, at, batch * m.stride + j * m.ld + i);
      all[std::size_t(transpose ? i * m.cols + j : j * m.rows + i)] = round ? tf32(x) : x;
    }
  }
  return all;
}

// The derivative of GELU's tanh form, and the form itself (Hendrycks and Gimpel 2016).
template <class Sum>
Sum gelu(Sum x) {
  const Sum inner = Sum(0.7978845608028654) * (x + Sum(0.044715) * x * x * x);
  return Sum(0.5) * x * (1 + std::tanh(inner));
}
template <class Sum>
Sum gelu_slope(Sum x) {
  const Sum c = Sum(0.7978845608028654), t = std::tanh(c * (x + Sum(0.044715) * x * x * x));
  return Sum(0.5) * (1 + t) + Sum(0.5) * x * (1 - t * t) * c * (1 + 3 * Sum(0.044715) * x * x);
}

// to[m, n] = a[m, from .. until] b[from .. until, n].
template <class Sum>
void multiply(const Sum* a, const Sum* b, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t from,
              std::int64_t until, Sum* to) {
  for (std::int64_t j = 0; j < n; ++j) {
    Sum* const column = to + j * m;
    std::fill_n(column, m, Sum(0));
    for (std::int64_t p = from; p < until; ++p) {
      const Sum factor = b[j * k + p];
      const Sum* const of_a = a + p * m;
      for (std::int64_t i = 0; i < m; ++i) column[i] += of_a[i] * factor;
    }
  }
}

template <class Sum>
std::vector<Sum> sums_of_slices(const Product& p, const Sum* a, const Sum* b) {
  const std::int64_t m = p.d.rows, n = p.d.cols, k = p.inner(), step = (k + p.slices - 1) / p.slices;
  std::vector<Sum> sum(std::size_t(m * n));
  if (p.slices == 1) {
    multiply(a, b, m, n, k, 0, k, sum.data());
    return sum;
  }
  Sum* const parts = static_cast<Sum*>(p.workspace);
  for (int s = 0; s < p.slices; ++s)
    multiply(a, b, m, n, k, s * step, std::min(k, (s + 1) * step), parts + s * m * n);
  for (int s = 0; s < p.slices; ++s) {
    const Sum* const part = parts + (p.last_first ? p.slices - 1 - s : s) * m * n;
    for (std::int64_t i = 0; i < m * n; ++i) sum[std::size_t(i)] += part[i];
  }
  return sum;
}

template <class Sum>
Sum finished(const Product& p, Sum x, std::int64_t i, std::int64_t j) {
  const int what = int(p.epilogue), no_sums = what & ~(kSumsOfA | kSumsOfB);
  if ((no_sums & kBias) != 0) x += load<Sum>(p.d.type, p.bias, i);
  if ((no_sums & kSlope) != 0) return x * gelu_slope(load<Sum>(p.d.type, p.aux, j * p.aux_ld + i));
  if ((no_sums & kAux) != 0) store(p.d.type, p.aux, j * p.aux_ld + i, x);
  if ((no_sums & kGelu) != 0) return gelu(x);
  if ((no_sums & kRelu) != 0) return x > 0 || std::isnan(x) ? x : Sum(0);
  return x;
}

// Over k: of A one for each row of D, of B for each column.
template <class Sum>
void add_up(const Product& p, const Sum* a, const Sum* b) {
  const std::int64_t m = p.d.rows, n = p.d.cols, k = p.inner();
  const bool of_a = (int(p.epilogue) & kSumsOfA) != 0;
  for (std::int64_t i = 0; i < (of_a ? m : n); ++i) {
    Sum sum = 0;
    for (std::int64_t l = 0; l < k; ++l) sum += of_a ? a[l * m + i] : b[i * k + l];
    store(p.d.type, p.bias, i, sum);
  }
}

template <class Sum>
void run_in(const Product& p) {
  const Sum scale =
      (p.a_scale != nullptr ? Sum(*p.a_scale) : Sum(1)) * (p.b_scale != nullptr ? Sum(*p.b_scale) : Sum(1));
  for (std::int64_t batch = 0; batch < p.d.batch; ++batch) {
    const auto a = packed<Sum>(p.a, p.a_at, p.transpose_a, p.tf32, batch),
               b = packed<Sum>(p.b, p.b_at, p.transpose_b, p.tf32, batch),
               sum = sums_of_slices(p, a.data(), b.data());
    if ((int(p.epilogue) & (kSumsOfA | kSumsOfB)) != 0) add_up(p, a.data(), b.data());
    for (std::int64_t j = 0; j < p.d.cols; ++j) {
      for (std::int64_t i = 0; i < p.d.rows; ++i) {
        Sum x = Sum(p.alpha) * scale * sum[std::size_t(j * p.d.rows + i)];
        if (p.beta != 0) x += Sum(p.beta) * load<Sum>(p.c.type, p.c_at, batch * p.c.stride + j * p.c.ld + i);
        store(p.d.type, p.d_at, batch * p.d.stride + j * p.d.ld + i, finished(p, x, i, j));
      }
    }
  }
}

}  // namespace

void run(const Product& product) {
  if (product.d.type == CUDA_R_64F)
    run_in<double>(product);
  else
    run_in<float>(product);
}

}  // namespace gradloom::strict
