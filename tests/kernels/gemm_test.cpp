// The matrix product of every x86-64 level, in f32 and f64, against loops: the four layouts, edges of tiles and of
// panels, the epilogues (more of them: matmul_test.cpp).
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

template <class T>
class Gemm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Types);

template <class T>
void check_product(GemmArgs args, std::int64_t c_column = 1) {
  const std::int64_t m = args.m, n = args.n, k = args.k;
  const auto a = values<T>(m * k, 1, -1, 1), b = values<T>(k * n, 2, -1, 1), bias = values<T>(n, 3),
             before = values<T>(m * n, 4);
  args.dtype = dtype_of<T>();
  args.alpha = 0.5;
  args.c_row = c_column == 1 ? n : 1;
  args.c_col = c_column;
  args.a = a.data();
  args.b = b.data();
  args.bias = bias.data();
  std::vector<double> expected(before.begin(), before.end());
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double total = 0;
      for (std::int64_t l = 0; l < k; ++l)
        total += double(a[std::size_t(i * args.a_row + l * args.a_col)]) *
                 double(b[std::size_t(l * args.b_row + j * args.b_col)]);
      double& value = expected[std::size_t(i * args.c_row + j * args.c_col)];
      value = 0.5 * total + double(bias[std::size_t(j)]) + (args.accumulate ? value : 0.0);
      if (args.activation == Activation::relu) value = std::max(0.0, value);
    }
  }
  expect_on_every_level(
      [&](const CpuKernels& kernels) {
        std::vector<T> c = before;
        args.c = c.data();
        kernels.gemm(args);
        return c;
      },
      expected, reduction_tolerance<T>());
}

TYPED_TEST(Gemm, EveryLevelAndLayout) {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size s : {Size{1, 1, 1}, Size{97, 193, 300}, Size{200, 70, 513}, Size{5, 400, 3},
                       Size{64, 64, 0}, Size{400, 530, 19}, Size{12, 32, 257}}) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k << ", A transposed "
                                        << a_transposed << ", B transposed " << b_transposed);
        GemmArgs args{};
        args.m = s.m;
        args.n = s.n;
        args.k = s.k;
        args.a_row = a_transposed ? 1 : s.k;
        args.a_col = a_transposed ? s.m : 1;
        args.b_row = b_transposed ? 1 : s.n;
        args.b_col = b_transposed ? s.k : 1;
        args.activation = Activation::relu;
        check_product<TypeParam>(args);
        args.activation = Activation::none;
        args.accumulate = true;
        check_product<TypeParam>(args);
        if (a_transposed && b_transposed) check_product<TypeParam>(args, s.m);  // C by columns
      }
    }
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
