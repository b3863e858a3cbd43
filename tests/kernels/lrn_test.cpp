// Local response normalization against the definition in double.
#include <algorithm>

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using i64 = std::int64_t;

template <class T>
void check(const LrnShape& s, double scale = 1) {
  const i64 count = s.n * s.c * s.inner;
  auto x = values<T>(count, 1);
  const auto dy = values<T>(count, 2);
  for (T& v : x) v = T(double(v) * scale);
  const i64 before = (s.size - 1) / 2, after = s.size - 1 - before;
  std::vector<double> y(x.size()), dx(x.size());
  const auto at = [&](i64 image, i64 c, i64 i) { return std::size_t((image * s.c + c) * s.inner + i); };
  for (i64 image = 0; image < s.n; ++image)
    for (i64 c = 0; c < s.c; ++c)
      for (i64 i = 0; i < s.inner; ++i) {
        const std::size_t own = at(image, c, i);
        const i64 begin = std::max<i64>(0, c - before), end = std::min(s.c, c + after + 1);
        double sum = 0;
        for (i64 k = begin; k < end; ++k) sum += double(x[at(image, k, i)]) * double(x[at(image, k, i)]);
        const double base = s.bias + s.alpha / double(s.size) * sum;
        y[own] = double(x[own]) * std::pow(base, -s.beta);
        dx[own] += double(dy[own]) * std::pow(base, -s.beta);
        const double q = double(dy[own]) * double(x[own]) * std::pow(base, -s.beta - 1);
        for (i64 k = begin; k < end; ++k)
          dx[at(image, k, i)] -= 2 * s.alpha * s.beta / double(s.size) * double(x[at(image, k, i)]) * q;
      }
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> result(x.size());
        k.lrn({dtype_of<T>(), s, x.data(), result.data()});
        return result;
      },
      y, reduction_tolerance<T>(), "lrn");
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> result(x.size());
        k.lrn_grad({dtype_of<T>(), s, dy.data(), x.data(), result.data()});
        return result;
      },
      dx, gradient_tolerance<T>(), "lrn gradient");
}

TEST(Lrn, IsItsDefinition) {
  for (const double beta : {0.5, 0.75, 0.6}) {
    for (const i64 size : {i64{1}, i64{2}, i64{5}, i64{8}, kLrnGradWindow}) {
      check<float>({2, 7, 70, size, 0.5, beta, 1.5});
      check<double>({2, 7, 70, size, 0.5, beta, 1.5});
      check<float>({1, 100, 9, size, 0.5, beta, 1});
    }
    check<float>({1, 6, 1100, 5, 1e-4, beta, 2});  // strips
    check<float>({8, 24, 600, 5, 1e-4, beta, 2});  // in parallel
    check<float>({1, 6, 40, 3, 0.5, beta, 1}, 1e-3);
    check<float>({1, 6, 40, 3, 0.5, beta, 1}, 1e3);
  }
}

// Sums of squares that Newton's method does not take, and those that have no power.
TEST(Lrn, TakesAnySum) {
  const std::vector<float> x = {1e-20f, 2e-20f, 3e16f, 1.f, INFINITY, 2.f, NAN, 0.f};
  for (const CpuKernels* k : levels()) {
    std::vector<float> y(x.size());
    k->lrn({DType::f32, {1, 1, i64(x.size()), 1, 1, 0.75, 0}, x.data(), y.data()});
    EXPECT_TRUE(std::isnan(y[0]) || std::isinf(y[0]));  // the square is no f32 number
    EXPECT_NEAR(y[2], 3e16 * std::pow(9e32, -0.75), 1e-13);
    EXPECT_EQ(y[3], 1.f);
    EXPECT_TRUE(std::isnan(y[4]));  // infinity / infinity
    EXPECT_NEAR(y[5], 2 / std::pow(4, 0.75), 1e-6);
    EXPECT_TRUE(std::isnan(y[6]));
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
