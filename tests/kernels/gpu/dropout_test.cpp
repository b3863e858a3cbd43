// Dropout of rows on the executor against the CPU's kernel.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

template <class T>
void check(i64 batch, i64 rows, i64 columns, i64 first, i64 row_step) {
  const auto x = numbers<T>(batch * rows * columns, 1);
  const RandomState state{0x123456789abcdef0ull, 7};
  const i64 batch_step = 3 * rows * row_step;
  std::vector<Host<T>> expected(x.size());
  cpu().dropout({cpu_dtype<T>(), batch, rows, columns, first, batch_step, row_step, 0.3, 5, x.data(),
                 expected.data(), &state});
  const Results gpu = on_device([&](Device& device) {
    device.run(dropout, DropoutArgs{gpu_dtype<T>(), batch, rows, columns, first, batch_step, row_step, 0.3, 5,
                                    device.in<T>(x), device.out<T>("y", expected.size()),
                                    device.in<RandomState>(std::vector<RandomState>{state})});
  });
  expect_close(gpu.get<T>("y"), widen(expected), tolerance<T>({0, 0}), "y");
}

template <class T>
class GpuDropout : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuDropout, Floats);

TYPED_TEST(GpuDropout, IsTheCpus) {
  check<TypeParam>(2, 3, 64, 0, 64);
  check<TypeParam>(3, 5, 13, 7, 17);
  check<TypeParam>(1, 4, 1, 3, 5);
  check<TypeParam>(2, 2, 501, 1002, 777);
  check<TypeParam>(2, 0, 5, 0, 5);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
