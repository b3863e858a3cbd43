// The double matrix product of every x86-64 level against loops (layouts and epilogues: matmul_test.cpp).
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

TEST(GemmF64, EveryLevel) {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size s :
       {Size{1, 1, 1}, Size{97, 193, 300}, Size{200, 70, 513}, Size{5, 400, 3}, Size{64, 64, 0}}) {
    const auto a = values<double>(s.m * s.k, 1), b = values<double>(s.k * s.n, 2),
               bias = values<double>(s.n, 3);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t j = 0; j < s.n; ++j) {
        double total = 0;
        for (std::int64_t k = 0; k < s.k; ++k)
          total += a[std::size_t(i * s.k + k)] * b[std::size_t(k * s.n + j)];
        expected.push_back(std::max(0.0, 2.0 * total + bias[std::size_t(j)]));
      }
    }
    expect_on_every_level(
        [&](const CpuKernels& kernels) {
          std::vector<double> c(expected.size(), NAN);
          GemmArgs args{};
          args.m = s.m;
          args.n = s.n;
          args.k = s.k;
          args.a_row = s.k;
          args.a_col = 1;
          args.b_row = s.n;
          args.b_col = 1;
          args.c_row = s.n;
          args.c_col = 1;
          args.alpha = 2.0;
          args.activation = Activation::relu;
          args.a = a.data();
          args.b = b.data();
          args.bias = bias.data();
          args.c = c.data();
          kernels.gemm(args);
          return c;
        },
        expected, reduction_tolerance<double>());
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
