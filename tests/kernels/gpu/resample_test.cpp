// A sparse matrix times an axis on the executor against the CPU's kernel.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

template <class T>
void check(i64 outer, i64 in, i64 out, i64 inner) {
  Random random(7);
  std::vector<std::int32_t> begin = {0}, index;
  std::vector<double> weight;
  for (i64 j = 0; j < out; ++j) {
    for (i64 e = 0; e < j % 6; ++e) {
      index.push_back(std::int32_t(random.below(in)));
      weight.push_back(random.uniform(-1, 1));
    }
    begin.push_back(std::int32_t(index.size()));
  }
  const auto x = numbers<T>(outer * in * inner, 1);
  std::vector<Host<T>> expected(std::size_t(outer * out * inner));
  cpu().resample({cpu_dtype<T>(), outer, in, out, inner, begin.data(), index.data(), weight.data(), x.data(),
                  expected.data()});
  const Results gpu = on_device([&](Device& device) {
    device.run(resample, ResampleArgs{gpu_dtype<T>(), outer, in, out, inner, device.in<std::int32_t>(begin),
                                      device.in<std::int32_t>(index), device.in<double>(weight),
                                      device.in<T>(x), device.out<T>("y", expected.size())});
  });
  expect_close(gpu.get<T>("y"), widen(expected), tolerance<T>({1e-5, 1e-5}), "y");
}

template <class T>
class GpuResample : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuResample, Floats);

TYPED_TEST(GpuResample, IsTheCpus) {
  check<TypeParam>(3, 7, 13, 5);
  check<TypeParam>(4, 9, 50, 1);
  check<TypeParam>(1, 1, 7, 30);
  check<TypeParam>(0, 3, 7, 2);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
