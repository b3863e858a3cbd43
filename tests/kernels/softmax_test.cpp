// Softmax, log-softmax and their gradients against loops in double.
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

template <class T>
void check(bool log_form, std::int64_t outer, std::int64_t n, std::int64_t inner) {
  const auto x = values<T>(outer * n * inner, 1, -9, 9), dy = values<T>(outer * n * inner, 2);
  std::vector<double> y(x.size()), dx(x.size());
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i) {
      const auto at = [&](std::int64_t j) { return std::size_t((o * n + j) * inner + i); };
      double peak = -INFINITY, total = 0, dot = 0;
      for (std::int64_t j = 0; j < n; ++j) peak = std::max(peak, double(x[at(j)]));
      for (std::int64_t j = 0; j < n; ++j) total += std::exp(double(x[at(j)]) - peak);
      for (std::int64_t j = 0; j < n; ++j) {
        y[at(j)] = double(x[at(j)]) - peak - std::log(total);
        if (!log_form) y[at(j)] = std::exp(y[at(j)]);
      }
      for (std::int64_t j = 0; j < n; ++j) dot += double(dy[at(j)]) * (log_form ? 1.0 : double(T(y[at(j)])));
      for (std::int64_t j = 0; j < n; ++j) {
        const double out = double(T(y[at(j)])), g = double(dy[at(j)]);
        dx[at(j)] = log_form ? g - std::exp(out) * dot : out * (g - dot);
      }
    }
  }
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(x.size());
        k.softmax({dtype_of<T>(), log_form, outer, n, inner, x.data(), out.data()});
        return out;
      },
      y, reduction_tolerance<T>(), "forward");
  const std::vector<T> y_kept(y.begin(), y.end());
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(x.size());
        k.softmax_grad({dtype_of<T>(), log_form, outer, n, inner, dy.data(), y_kept.data(), out.data()});
        return out;
      },
      dx, gradient_tolerance<T>(), "gradient");
}

TEST(Softmax, MatchesTheReference) {
  for (const bool log_form : {false, true}) {
    check<float>(log_form, 0, 3, 1);
    check<float>(log_form, 1, 1, 1);
    check<float>(log_form, 512, 128, 1);
    check<float>(log_form, 37, 1009, 1);
    check<float>(log_form, 101, 77, 1);  // some rows at a time
    check<float>(log_form, 3, 7, 150);
    check<double>(log_form, 61, 67, 1);
    check<double>(log_form, 4, 300, 33);
  }
}

// Rows in bf16: what the f32 kernels make of the same numbers, rounded once.
TEST(Softmax, RowsInBf16) {
  for (const bool log_form : {false, true}) {
    for (const auto& [outer, n] : {std::pair<std::int64_t, std::int64_t>{512, 128},
                                   {37, 1009},
                                   {101, 77},
                                   {3, 9001},
                                   {5, 1},
                                   {0, 3}}) {
      const auto x = values<Bf16>(outer * n, 1, -9, 9), dy = values<Bf16>(outer * n, 2);
      const std::vector<float> wide(x.begin(), x.end()), wide_dy(dy.begin(), dy.end());
      const auto rounded = [](const std::vector<float>& v) { return std::vector<Bf16>(v.begin(), v.end()); };
      for (const CpuKernels* k : levels()) {
        std::vector<Bf16> y = x, dx = dy;  // in place
        std::vector<float> wide_y(wide.size()), wide_dx(wide.size());
        k->softmax({DType::bf16, log_form, outer, n, 1, y.data(), y.data()});
        k->softmax({DType::f32, log_form, outer, n, 1, wide.data(), wide_y.data()});
        EXPECT_TRUE(same_bits(y, rounded(wide_y))) << k->isa << " " << n;
        wide_y.assign(y.begin(), y.end());
        k->softmax_grad({DType::bf16, log_form, outer, n, 1, dx.data(), y.data(), dx.data()});
        k->softmax_grad({DType::f32, log_form, outer, n, 1, wide_dy.data(), wide_y.data(), wide_dx.data()});
        EXPECT_TRUE(same_bits(dx, rounded(wide_dx))) << k->isa << " gradient " << n;
      }
    }
  }
}

TEST(Softmax, InPlaceAndMasked) {
  std::vector<float> x = {1, -INFINITY, 2, 800, 799, -INFINITY};
  for (const CpuKernels* k : levels()) {
    std::vector<float> y = x;
    k->softmax({DType::f32, false, 2, 3, 1, y.data(), y.data()});
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_FLOAT_EQ(y[0], 1.0f / (1.0f + std::exp(1.0f)));
    EXPECT_FLOAT_EQ(y[3], 1.0f / (1.0f + std::exp(-1.0f)));
    EXPECT_EQ(y[5], 0.0f);
  }
}

// Rows of nothing but -inf are NaN, and zeros where the softmax is safe: short rows, rows in parts, columns.
template <class T>
void check_safe(DType dtype, T nothing, T number, std::int64_t n, std::int64_t inner) {
  SCOPED_TRACE(testing::Message() << "n " << n << " inner " << inner << " bytes " << sizeof(T));
  std::vector<T> x(std::size_t(2 * n * inner), number), y(x.size());
  for (std::int64_t i = 0; i < n; ++i) x[std::size_t(i * inner)] = nothing;
  for (const CpuKernels* k : levels()) {
    for (const bool safe : {false, true}) {
      k->softmax({dtype, false, 2, n, inner, x.data(), y.data(), safe});
      for (std::int64_t i = 0; i < n; ++i) {
        const double empty = double(y[std::size_t(i * inner)]);
        EXPECT_TRUE(safe ? empty == 0 : std::isnan(empty));
        EXPECT_NEAR(double(y[std::size_t((n + i) * inner)]), 1.0 / double(n), 4e-3 / double(n));
      }
    }
  }
}

TEST(Softmax, SafeRowsThatSeeNothing) {
  for (const std::int64_t n : {3, 40, 5000}) {
    for (const std::int64_t inner : {1, 3}) {
      check_safe<float>(DType::f32, -INFINITY, 0.5f, n, inner);
      check_safe<double>(DType::f64, -INFINITY, 0.5, n, inner);
    }
    check_safe<Bf16>(DType::bf16, Bf16(-INFINITY), Bf16(0.5f), n, 1);
  }
}

// Rows and their log-sum-exp, from which they are computed again: where it tells them, and where it does not.
template <class T>
void check_again(std::int64_t rows, std::int64_t n) {
  SCOPED_TRACE(testing::Message() << rows << " rows of " << n << ", bytes " << sizeof(T));
  auto x = values<T>(rows * n, 1, -9, 9);
  const auto at = [&](std::int64_t row, std::int64_t i) -> T& { return x[std::size_t(row * n + i)]; };
  for (std::int64_t i = 0; i < n; ++i) {
    at(0, i) = i % 3 == 0 ? T(-1e30) : T(-2e30);  // the log-sum-exp is that of one
    at(1, i) = -INFINITY;
    at(2, i) += T(1000);
  }
  for (const CpuKernels* k : levels()) {
    for (const bool safe : {false, true}) {
      std::vector<T> y(x.size()), same(x.size()), again = x, sums(static_cast<std::size_t>(rows), T(-1));
      k->softmax({dtype_of<T>(), false, rows, n, 1, x.data(), same.data(), safe});
      k->softmax({dtype_of<T>(), false, rows, n, 1, x.data(), y.data(), safe, sums.data()});
      EXPECT_TRUE(same_bits(y, same)) << k->isa;
      for (std::int64_t row = 0; row < rows; ++row) {
        double peak = -INFINITY, total = 0;
        for (std::int64_t i = 0; i < n; ++i) peak = std::max(peak, double(at(row, i)));
        for (std::int64_t i = 0; i < n; ++i) total += std::exp(double(at(row, i)) - peak);
        const double got = double(sums[std::size_t(row)]), want = peak + std::log(total);
        if (row == 1)
          EXPECT_TRUE(safe ? got == -INFINITY : std::isnan(got)) << got;
        else
          EXPECT_NEAR(got, want, 3e-7 * (1 + std::abs(want))) << row;
      }
      k->softmax_again({dtype_of<T>(), rows, n, again.data(), sums.data(), again.data(), safe});
      for (std::int64_t i = 0; i < rows * n; ++i) {
        const double got = double(again[std::size_t(i)]), want = double(y[std::size_t(i)]);
        if (i / n < 3)  // not told: as before
          EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << i;
        else
          EXPECT_NEAR(got, want, 4e-6 * want) << i;
      }
    }
  }
}

TEST(Softmax, AgainFromTheLogarithmsOfItsSums) {
  for (const std::int64_t n : {3, 40, 1009, 5000}) {
    check_again<float>(9, n);
    check_again<double>(9, n);
  }
  for (const CpuKernels* k : levels()) k->softmax_again({DType::f32, 0, 3, nullptr, nullptr, nullptr, false});
}

// Sums of dy * y that are given are not added up.
TEST(Softmax, GradientOfKnownSums) {
  const std::vector<float> y = {0.25f, 0.75f, 0.5f, 0.5f}, dy = {1, 2, 3, 4}, sums = {2, 5};
  for (const CpuKernels* k : levels()) {
    std::vector<float> dx(4);
    k->softmax_grad({DType::f32, false, 2, 2, 1, dy.data(), y.data(), dx.data(), sums.data()});
    EXPECT_EQ(dx, (std::vector<float>{-0.25f, 0, -1, -0.5f})) << k->isa;
  }
}

TEST(Softmax, NanFillsItsRowOnly) {
  std::vector<float> x(2 * 40, 0.5f), y(2 * 40);
  x[3] = NAN;
  for (const CpuKernels* k : levels()) {
    k->softmax({DType::f32, false, 2, 40, 1, x.data(), y.data()});
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_TRUE(std::isnan(y[39]));
    EXPECT_FLOAT_EQ(y[40], 1.0f / 40);
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
