// Triangles, running sums, the index of the extreme, the k largest: against plain loops and sorting.
#include <algorithm>
#include <numeric>

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using i64 = std::int64_t;

TEST(ScanKernels, KeepTriangles) {
  const i64 matrices = 2, rows = 4, cols = 3;
  const auto x = values<std::int32_t>(matrices * rows * cols, 1, 1, 99);
  for (const bool upper : {true, false})
    for (const i64 k : {-9, -1, 0, 2, 9})
      for (const CpuKernels* level : levels()) {
        std::vector<std::int32_t> y(x.size(), 7);
        level->trilu({4, upper, matrices, rows, cols, x.data(), &k, y.data()});
        for (i64 i = 0; i < i64(x.size()); ++i) {
          const i64 r = i / cols % rows, c = i % cols;
          const bool kept = upper ? c - r >= k : c - r <= k;
          EXPECT_EQ(y[std::size_t(i)], kept ? x[std::size_t(i)] : 0) << "k " << k << " at " << i;
        }
      }
}

template <class T>
void check_sum(i64 outer, i64 n, i64 inner, bool exclusive, bool reverse) {
  const auto x = values<T>(outer * n * inner, 1, -9, 9);
  std::vector<double> expected(x.size());
  for (i64 o = 0; o < outer; ++o)
    for (i64 i = 0; i < inner; ++i) {
      double sum = 0;
      for (i64 k = 0; k < n; ++k) {
        const auto at = std::size_t((o * n + (reverse ? n - 1 - k : k)) * inner + i);
        expected[at] = exclusive ? sum : sum + double(x[at]);
        sum += double(x[at]);
      }
    }
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> y(x.size(), T(7));
        k.cum_sum({dtype_of<T>(), exclusive, reverse, outer, n, inner, x.data(), y.data()});
        return y;
      },
      expected, std::is_integral_v<T> ? Tolerance{0, 0} : reduction_tolerance<T>());
}

TEST(ScanKernels, SumUp) {
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      check_sum<float>(3, 50, 7, exclusive, reverse);
      check_sum<double>(2, 9, 1, exclusive, reverse);
      check_sum<std::int64_t>(1, 20, 3, exclusive, reverse);
      check_sum<std::int32_t>(1, 20, 300, exclusive, reverse);
    }
  check_sum<float>(40, 100, 600, false, false);  // in parallel
}

template <class T>
void check_extreme(i64 outer, i64 n, i64 inner) {
  const auto x = values<T>(outer * n * inner, 1, 0, 5);  // integers: many are equal
  for (const bool largest : {true, false})
    for (const bool last : {true, false}) {
      std::vector<i64> expected;
      for (i64 o = 0; o < outer; ++o)
        for (i64 i = 0; i < inner; ++i) {
          i64 best = 0;
          const auto v = [&](i64 k) { return x[std::size_t((o * n + k) * inner + i)]; };
          for (i64 k = 1; k < n; ++k)
            if ((largest ? v(k) > v(best) : v(k) < v(best)) || (last && v(k) == v(best))) best = k;
          expected.push_back(best);
        }
      on_every_level(
          [&](const CpuKernels& k) {
            std::vector<i64> y(expected.size(), -1);
            k.arg_extreme({dtype_of<T>(), largest, last, outer, n, inner, x.data(), y.data()});
            return y;
          },
          [&](const std::vector<i64>& y, const std::string& level) { EXPECT_EQ(y, expected) << level; });
    }
}

TEST(ScanKernels, FindTheExtreme) {
  check_extreme<float>(3, 40, 5);
  check_extreme<double>(20, 300, 1);
  check_extreme<std::int32_t>(1, 9, 700);
  check_extreme<std::int64_t>(2, 1, 3);
  check_extreme<std::uint8_t>(2, 90, 2);
}

TEST(ScanKernels, NanIsAnExtreme) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {1, nan, 5, nan, -3};
  for (const CpuKernels* k : levels())
    for (const bool largest : {true, false})
      for (const bool last : {true, false}) {
        i64 y = -1;
        k->arg_extreme({DType::f32, largest, last, 1, 5, 1, x.data(), &y});
        EXPECT_EQ(y, last ? 3 : 1);
      }
}

template <class T>
void check_top(i64 outer, i64 n, i64 inner, i64 count, bool largest, std::vector<T> x) {
  std::vector<T> values(std::size_t(outer * count * inner));
  std::vector<i64> indices(values.size());
  for (i64 o = 0; o < outer; ++o)
    for (i64 i = 0; i < inner; ++i) {
      const auto v = [&](i64 k) { return x[std::size_t((o * n + k) * inner + i)]; };
      std::vector<i64> order(static_cast<std::size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](i64 a, i64 b) {
        if (std::isnan(double(v(a))) || std::isnan(double(v(b))))
          return largest ? !std::isnan(double(v(b))) : !std::isnan(double(v(a))) && std::isnan(double(v(b)));
        return largest ? v(a) > v(b) : v(a) < v(b);
      });
      for (i64 k = 0; k < count; ++k) {
        values[std::size_t((o * count + k) * inner + i)] = v(order[std::size_t(k)]);
        indices[std::size_t((o * count + k) * inner + i)] = order[std::size_t(k)];
      }
    }
  on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> found(values.size());
        std::vector<i64> where(values.size(), -1);
        k.top_k(
            {dtype_of<T>(), largest, outer, n, inner, count, x.data(), found.data(), where.data(), nullptr});
        EXPECT_TRUE(same_bits(found, values)) << k.isa;
        return where;
      },
      [&](const std::vector<i64>& where, const std::string& level) { EXPECT_EQ(where, indices) << level; });
}

TEST(ScanKernels, SelectTheBest) {
  for (const bool largest : {true, false}) {
    check_top<float>(3, 50, 2, 7, largest, values<float>(300, 1));
    check_top<double>(1, 30, 1, 30, largest, values<double>(30, 2));
    check_top<std::int32_t>(2, 200, 1, 50, largest, values<std::int32_t>(400, 3, 0, 9));  // many are equal
    check_top<std::int64_t>(1, 5, 40, 1, largest, values<std::int64_t>(200, 4, -9, 9));
    check_top<float>(200, 500, 1, 20, largest, values<float>(100000, 5));  // in parallel
  }
}

TEST(ScanKernels, NanIsTheLargestNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {1, nan, 5, -3, 2};
  for (const CpuKernels* k : levels())
    for (const bool largest : {true, false}) {
      std::vector<float> found(5);
      std::vector<i64> where(5);
      k->top_k({DType::f32, largest, 1, 5, 1, 5, x.data(), found.data(), where.data(), nullptr});
      EXPECT_EQ(where, largest ? (std::vector<i64>{1, 2, 4, 0, 3}) : (std::vector<i64>{3, 0, 4, 2, 1}));
    }
}

}  // namespace
}  // namespace gradloom::kernels::test
