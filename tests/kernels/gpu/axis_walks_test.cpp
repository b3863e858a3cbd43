// Triangles, running sums, extremes and the k largest on the executor against the CPU's kernels.
#include <cmath>
#include <limits>

#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

template <class T>
class GpuScan : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(GpuScan, Types);

TYPED_TEST(GpuScan, KeepsTriangles) {
  using T = TypeParam;
  const auto x = numbers<T>(2 * 40 * 17, 1);
  for (const bool upper : {true, false})
    for (const std::int64_t k : {-99, -3, 0, 5}) {
      std::vector<Host<T>> expected(x.size());
      cpu().trilu({sizeof(Host<T>), upper, 2, 40, 17, x.data(), &k, expected.data()});
      const Results gpu = on_device([&](Device& device) {
        device.run(trilu, TriluArgs{sizeof(T), upper, 2, 40, 17, device.in<T>(x),
                                    device.in<std::int64_t>({k}), device.out<T>("y", x.size())});
      });
      EXPECT_EQ(gpu.get<T>("y"), expected);
    }
}

template <class T>
void check_sum(i64 outer, i64 n, i64 inner) {
  const auto x = numbers<T>(outer * n * inner, 1);
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      std::vector<Host<T>> expected(x.size());
      cpu().cum_sum({cpu_dtype<T>(), exclusive, reverse, outer, n, inner, x.data(), expected.data()});
      const Results gpu = on_device([&](Device& device) {
        device.run(cum_sum, CumSumArgs{gpu_dtype<T>(), exclusive, reverse, outer, n, inner, device.in<T>(x),
                                       device.out<T>("y", x.size())});
      });
      expect_close(gpu.get<T>("y"), widen(expected),
                   std::is_integral_v<T> ? Tolerance{0, 0} : tolerance<T>({1e-6, 1e-6}), "y");
    }
}
TYPED_TEST(GpuScan, SumsUp) {
  check_sum<TypeParam>(3, 9, 1);
  check_sum<TypeParam>(2, 700, 1);  // tiles
  check_sum<TypeParam>(2, 70, 5);
  check_sum<TypeParam>(0, 70, 5);
}

template <class T>
void check_extreme(i64 outer, i64 n, i64 inner, std::vector<Host<T>> x) {
  for (const bool largest : {true, false})
    for (const bool last : {true, false}) {
      std::vector<std::int64_t> expected(std::size_t(outer * inner));
      cpu().arg_extreme({cpu_dtype<T>(), largest, last, outer, n, inner, x.data(), expected.data()});
      const Results gpu = on_device([&](Device& device) {
        device.run(arg_extreme,
                   ArgExtremeArgs{gpu_dtype<T>(), largest, last, outer, n, inner, device.in<T>(x),
                                  device.out<std::int64_t>("y", expected.size())});
      });
      EXPECT_EQ(gpu.get<std::int64_t>("y"), expected);
    }
}
template <class T>
std::vector<Host<T>> few_numbers(i64 n) {  // whole numbers, many equal, both signs
  auto x = numbers<T>(n, 1, -4, 4);
  for (auto& v : x) v = Host<T>(std::round(double(v)));
  return x;
}
TYPED_TEST(GpuScan, FindsTheExtreme) {
  check_extreme<TypeParam>(3, 300, 1, few_numbers<TypeParam>(900));
  check_extreme<TypeParam>(2, 20, 1, few_numbers<TypeParam>(40));
  check_extreme<TypeParam>(2, 70, 3, few_numbers<TypeParam>(420));
}

template <class T>
void check_top(i64 outer, i64 n, i64 inner, i64 k, std::vector<Host<T>> x) {
  for (const bool largest : {true, false}) {
    std::vector<Host<T>> values(std::size_t(outer * k * inner));
    std::vector<std::int64_t> indices(values.size());
    cpu().top_k(
        {cpu_dtype<T>(), largest, outer, n, inner, k, x.data(), values.data(), indices.data(), nullptr});
    const Results gpu = on_device([&](Device& device) {
      TopKArgs args{gpu_dtype<T>(),
                    largest,
                    outer,
                    n,
                    inner,
                    k,
                    device.in<T>(x),
                    device.out<T>("values", values.size()),
                    device.out<std::int64_t>("indices", values.size()),
                    nullptr};
      args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
      device.run(top_k, args);
    });
    EXPECT_EQ(gpu.get<std::int64_t>("indices"), indices);
    expect_close(gpu.get<T>("values"), widen(values), {0, 0}, "values");
  }
}
TYPED_TEST(GpuScan, SelectsTheBest) {
  check_top<TypeParam>(2, 30, 1, 7, numbers<TypeParam>(60, 1, -99, 99));
  check_top<TypeParam>(1, 600, 1, 300, few_numbers<TypeParam>(600));
  check_top<TypeParam>(1, 9, 3, 9, few_numbers<TypeParam>(27));
}

TEST(GpuScanOfNan, IsTheCpus) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = numbers<float>(80, 1);
  x[3] = x[50] = nan;
  x[7] = -0.0f;
  x[8] = 0.0f;
  check_extreme<float>(1, 80, 1, x);
  check_extreme<float>(4, 20, 1, x);
  check_top<float>(1, 80, 1, 80, x);
  check_top<float>(1, 80, 1, 1, x);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
