// Softmax, log-softmax and their gradients on the GPU executor against the CPU kernels.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  i64 outer, n, inner;
  bool log;
  std::size_t offset = 0;  // of the device buffers from their 16-byte boundary, in elements
  bool safe = false;
};

template <class T>
void check_forward(const Case& s, const std::vector<Host<T>>& x) {
  std::vector<Host<T>> y(x.size());
  cpu().softmax({cpu_dtype<T>(), s.log, s.outer, s.n, s.inner, x.data(), y.data(), s.safe});
  const Results gpu = on_device([&](Device& device) {
    device.run(softmax, SoftmaxArgs{gpu_dtype<T>(), s.log, s.outer, s.n, s.inner, device.in<T>(x, s.offset),
                                    device.out<T>("y", y.size(), s.offset), s.safe});
    T* const in_place = device.inout<T>("in place", x);
    device.run(softmax,
               SoftmaxArgs{gpu_dtype<T>(), s.log, s.outer, s.n, s.inner, in_place, in_place, s.safe});
  });
  const Tolerance close = tolerance<T>({1e-5, 1e-6});
  expect_close(gpu.get<T>("y"), widen(y), close, "y");
  expect_close(gpu.get<T>("in place"), widen(y), close, "y in place");
}

template <class T>
void check_gradient(const Case& s) {
  const auto dy = numbers<T>(s.outer * s.n * s.inner, 2),
             y = numbers<T>(s.outer * s.n * s.inner, 3, s.log ? -4.0 : 0.0, 1.0 / double(s.n));
  std::vector<Host<T>> dx(dy.size());
  cpu().softmax_grad({cpu_dtype<T>(), s.log, s.outer, s.n, s.inner, dy.data(), y.data(), dx.data()});
  const Results gpu = on_device([&](Device& device) {
    device.run(softmax_grad,
               SoftmaxGradArgs{gpu_dtype<T>(), s.log, s.outer, s.n, s.inner, device.in<T>(dy, s.offset),
                               device.in<T>(y), device.out<T>("dx", dx.size())});
    T* const in_place = device.inout<T>("in place", dy);
    device.run(softmax_grad, SoftmaxGradArgs{gpu_dtype<T>(), s.log, s.outer, s.n, s.inner, in_place,
                                             device.in<T>(y), in_place});
  });
  // Sums of n numbers of either sign: the absolute error grows with their number.
  const Tolerance close = tolerance<T>({2e-5, 2e-6 * std::sqrt(double(s.n))});
  expect_close(gpu.get<T>("dx"), widen(dx), close, "dx");
  expect_close(gpu.get<T>("in place"), widen(dx), close, "dx in place");
}

template <class T>
void check(const Case& s) {
  SCOPED_TRACE(testing::Message() << "[" << s.outer << ", " << s.n << ", " << s.inner << "] log " << s.log
                                  << " offset " << s.offset);
  check_forward<T>(s, numbers<T>(s.outer * s.n * s.inner, 1, -8.0, 8.0));
  check_gradient<T>(s);
}

template <class T>
class SoftmaxOnGpu : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(SoftmaxOnGpu, Types);

TYPED_TEST(SoftmaxOnGpu, Rows) {
  for (const bool log : {false, true}) {
    for (const i64 n : {1, 2, 7, 16, 33, 128, 512, 513, 1000, 1024}) check<TypeParam>({5, n, 1, log});
    check<TypeParam>({70, 8, 1, log});
    check<TypeParam>({2, 5000, 1, log});
    check<TypeParam>({2, 8192, 1, log});
    check<TypeParam>({1, 8193, 1, log});
    check<TypeParam>({2, 20000, 1, log});
  }
}

TYPED_TEST(SoftmaxOnGpu, RowsOffTheBoundary) {
  check<TypeParam>({3, 64, 1, false, 1});
  check<TypeParam>({3, 1024, 1, true, 1});
  check<TypeParam>({1, 9000, 1, false, 1});
}

TYPED_TEST(SoftmaxOnGpu, Columns) {
  for (const bool log : {false, true}) {
    check<TypeParam>({3, 5, 3, log});
    check<TypeParam>({2, 1, 40, log});
    check<TypeParam>({2, 100, 7, log});
    check<TypeParam>({1, 33, 300, log});
    check<TypeParam>({1, 3000, 2, log});
  }
}

TYPED_TEST(SoftmaxOnGpu, InfinitiesAndNan) {
  using H = Host<TypeParam>;
  for (const Case s :
       {Case{6, 40, 1, false}, Case{6, 40, 1, true}, Case{6, 9000, 1, false}, Case{6, 40, 5, false},
        Case{6, 40, 5, true}, Case{6, 600, 1, true}, Case{6, 40, 1, false, 0, true},
        Case{6, 9000, 1, false, 0, true}, Case{6, 40, 5, false, 0, true}}) {
    SCOPED_TRACE(testing::Message() << "n " << s.n << " inner " << s.inner << " log " << s.log << " safe "
                                    << s.safe);
    auto x = numbers<TypeParam>(s.outer * s.n * s.inner, 1);
    const auto at = [&](i64 row, i64 k) -> H& { return x[std::size_t((row * s.n + k) * s.inner)]; };
    for (i64 k = 0; k < s.n; ++k) at(0, k) = H(-kInf);      // all masked: NaN, or 0
    for (i64 k = 0; k < s.n - 1; ++k) at(1, k) = H(-kInf);  // one left
    for (i64 k = 1; k < s.n; k += 2) at(2, k) = H(-kInf);
    at(3, s.n / 2) = H(kNan);
    at(4, 3) = H(kInf);
    check_forward<TypeParam>(s, x);
  }
}

// Log-sum-exp, the softmax again from it, also of rows that it does not tell, and the gradient of known sums.
template <class T>
void check_again(i64 rows, i64 n, bool safe) {
  SCOPED_TRACE(testing::Message() << rows << " rows of " << n << " safe " << safe);
  auto x = numbers<T>(rows * n, 1, -8.0, 8.0);
  const auto dy = numbers<T>(rows * n, 2), row_sums = numbers<T>(rows, 3);
  for (i64 i = 0; i < n; ++i) {
    x[std::size_t(i)] = i % 3 == 0 ? T(-1e30) : T(-2e30);
    x[std::size_t(2 * n + i)] = T(-kInf);
  }
  const std::size_t count = x.size();
  std::vector<T> y(count), sums(std::size_t(rows), T(0)), dx(count);
  cpu().softmax({cpu_dtype<T>(), false, rows, n, 1, x.data(), y.data(), safe, sums.data()});
  cpu().softmax_grad({cpu_dtype<T>(), false, rows, n, 1, dy.data(), y.data(), dx.data(), row_sums.data()});
  const Results gpu = on_device([&](Device& device) {
    device.run(softmax, SoftmaxArgs{gpu_dtype<T>(), false, rows, n, 1, device.in<T>(x),
                                    device.out<T>("y", count), safe, device.out<T>("sums", sums.size())});
    T* const again = device.inout<T>("again", x);
    device.run(softmax_again,
               SoftmaxAgainArgs{gpu_dtype<T>(), rows, n, again, device.in<T>(sums), again, safe});
    device.run(softmax_grad,
               SoftmaxGradArgs{gpu_dtype<T>(), false, rows, n, 1, device.in<T>(dy), device.in<T>(y),
                               device.out<T>("dx", count), device.in<T>(row_sums)});
  });
  expect_close(gpu.get<T>("y"), widen(y), {1e-5, 1e-6}, "y");
  expect_close(gpu.get<T>("sums"), widen(sums), {1e-6, 1e-6}, "sums");
  expect_close(gpu.get<T>("again"), widen(y), {1e-5, 1e-6}, "again");
  expect_close(gpu.get<T>("dx"), widen(dx), {1e-6, 1e-6}, "dx");
}

TEST(SoftmaxAgainOnGpu, FromTheLogarithmsOfItsSums) {
  for (const bool safe : {false, true})
    for (const i64 n : {3, 64, 700, 9000}) {
      check_again<float>(7, n, safe);
      check_again<double>(7, n, safe);
    }
}

TEST(SoftmaxOnGpuEmpty, LaunchesNothing) {
  Device device({host::ThreadOrder::ascending});
  device.run(softmax_again, SoftmaxAgainArgs{DType::f32, 0, 5, nullptr, nullptr, nullptr, false});
  device.run(softmax, SoftmaxArgs{DType::f32, false, 0, 5, 1, nullptr, nullptr});
  device.run(softmax_grad, SoftmaxGradArgs{DType::f32, false, 4, 5, 0, nullptr, nullptr, nullptr});
  EXPECT_EQ(device.launches(), 0u);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
