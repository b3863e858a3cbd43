// Max and average pooling and their gradients on the GPU executor against the CPU kernels.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

struct Case {
  i64 planes, h, w, kh, kw, stride_h, stride_w, pad_top, pad_left, dilation_h = 1, dilation_w = 1;
  i64 oh() const { return (h + 2 * pad_top - dilation_h * (kh - 1) - 1) / stride_h + 1; }
  i64 ow() const { return (w + 2 * pad_left - dilation_w * (kw - 1) - 1) / stride_w + 1; }
};

const Case kCases[] = {
    {3, 5, 7, 2, 3, 1, 2, 0, 1},
    {1, 1, 1, 1, 1, 1, 1, 0, 0},
    {40, 8, 8, 2, 2, 2, 2, 0, 0},
    {5, 13, 17, 3, 3, 2, 2, 1, 1},
    {2, 33, 29, 5, 4, 3, 1, 2, 2},
    {2, 7, 7, 7, 7, 1, 1, 0, 0},
    {3, 1, 300, 1, 3, 1, 2, 0, 1},
    {1, 70, 70, 3, 3, 1, 1, 1, 1},   // in stripes
    {2, 5, 40, 2, 2, 4, 5, 0, 0},    // gaps between windows
    {9, 4, 4, 4, 4, 1, 1, 3, 3},     // windows with one element
};
const Case kDilated[] = {
    {2, 12, 11, 3, 2, 1, 1, 1, 1, 2, 3},
    {2, 20, 20, 3, 3, 2, 3, 2, 0, 4, 2},
};

std::string text(const Case& s) {
  std::string t;
  for (const i64 v : {s.planes, s.h, s.w, s.kh, s.kw, s.stride_h, s.stride_w, s.pad_top, s.pad_left, s.dilation_h, s.dilation_w})
    t += std::to_string(v) + " ";
  return t;
}

// Same elements in the same order: outputs of max are the CPU's exactly.
template <class T>
void check_max(const Case& s, const std::vector<Host<T>>& x) {
  SCOPED_TRACE(text(s));
  const std::size_t outs = std::size_t(s.planes * s.oh() * s.ow());
  std::vector<Host<T>> y(outs);
  std::vector<i64> argmax(outs);
  cpu().max_pool({cpu_dtype<T>(), s.planes, s.h, s.w, s.oh(), s.ow(), s.kh, s.kw, s.stride_h, s.stride_w, s.pad_top, s.pad_left,
                  s.dilation_h, s.dilation_w, x.data(), y.data(), argmax.data()});
  const auto dy = numbers<T>(i64(outs), 2);
  std::vector<Host<T>> dx(x.size());
  cpu().max_pool_grad({cpu_dtype<T>(), s.planes, s.h, s.w, s.oh(), s.ow(), dy.data(), argmax.data(), dx.data()});
  const Results gpu = on_device([&](Device& device) {
    MaxPoolArgs args{gpu_dtype<T>(), s.planes, s.h, s.w, s.oh(), s.ow(), s.kh, s.kw, s.stride_h, s.stride_w, s.pad_top, s.pad_left,
                     s.dilation_h, s.dilation_w, device.in<T>(x, 1), device.out<T>("y", outs), device.out<i64>("argmax", outs)};
    device.run(max_pool, args);
    args.y = device.out<T>("y alone", outs);
    args.argmax = nullptr;
    device.run(max_pool, args);
    device.run(max_pool_grad, MaxPoolGradArgs{gpu_dtype<T>(), s.planes, s.h, s.w, s.oh(), s.ow(), device.in<T>(dy),
                                              device.in<i64>(argmax), device.out<T>("dx", x.size())});
  });
  expect_close(gpu.get<T>("y"), widen(y), {}, "y");
  expect_close(gpu.get<T>("y alone"), widen(y), {}, "y alone");
  EXPECT_EQ(gpu.get<i64>("argmax"), argmax);
  if (std::is_same_v<T, bf16>) {
    expect_close(gpu.get<T>("dx"), widen(dx), {0x1p-8, 0}, "dx");   // one rounding
  } else {
    expect_close(gpu.get<T>("dx"), widen(dx), {}, "dx");
  }
}

template <class T>
void check_average(const Case& s, bool count_include_pad) {
  SCOPED_TRACE(text(s) + (count_include_pad ? "with padding" : ""));
  const std::size_t ins = std::size_t(s.planes * s.h * s.w), outs = std::size_t(s.planes * s.oh() * s.ow());
  const auto x = numbers<T>(i64(ins), 3), dy = numbers<T>(i64(outs), 4);
  std::vector<Host<T>> y(outs), dx(ins);
  cpu().average_pool({cpu_dtype<T>(), s.planes, s.h, s.w, s.oh(), s.ow(), s.kh, s.kw, s.stride_h, s.stride_w, s.pad_top, s.pad_left,
                      count_include_pad, x.data(), y.data()});
  cpu().average_pool_grad({cpu_dtype<T>(), s.planes, s.h, s.w, s.oh(), s.ow(), s.kh, s.kw, s.stride_h, s.stride_w, s.pad_top,
                           s.pad_left, count_include_pad, dy.data(), dx.data()});
  const Results gpu = on_device([&](Device& device) {
    device.run(average_pool, AveragePoolArgs{gpu_dtype<T>(), s.planes, s.h, s.w, s.oh(), s.ow(), s.kh, s.kw, s.stride_h, s.stride_w,
                                             s.pad_top, s.pad_left, count_include_pad, device.in<T>(x, 1), device.out<T>("y", outs)});
    device.run(average_pool_grad,
               AveragePoolGradArgs{gpu_dtype<T>(), s.planes, s.h, s.w, s.oh(), s.ow(), s.kh, s.kw, s.stride_h, s.stride_w, s.pad_top,
                                   s.pad_left, count_include_pad, device.in<T>(dy), device.out<T>("dx", ins)});
  });
  expect_close(gpu.get<T>("y"), widen(y), tolerance<T>({2e-6, 1e-6}), "y");
  expect_close(gpu.get<T>("dx"), widen(dx), tolerance<T>({1e-6, 1e-7}), "dx");
}

template <class T>
class PoolOnGpu : public testing::Test {};
using Types = testing::Types<float, bf16, double>;
TYPED_TEST_SUITE(PoolOnGpu, Types);

TYPED_TEST(PoolOnGpu, Max) {
  for (const Case& s : kCases) check_max<TypeParam>(s, numbers<TypeParam>(s.planes * s.h * s.w, 1));
  for (const Case& s : kDilated) check_max<TypeParam>(s, numbers<TypeParam>(s.planes * s.h * s.w, 1));
}

TYPED_TEST(PoolOnGpu, MaxOfEqualInfiniteAndNan) {
  using H = Host<TypeParam>;
  for (const Case& s : kCases) {
    std::vector<H> x(std::size_t(s.planes * s.h * s.w));
    Random random(5);
    const H choices[] = {H(1), H(1), H(2), -std::numeric_limits<H>::infinity(), std::numeric_limits<H>::infinity(),
                         std::numeric_limits<H>::quiet_NaN()};
    for (H& v : x) v = choices[random.below(random.below(8) == 0 ? 6 : 4)];
    check_max<TypeParam>(s, x);
    check_max<TypeParam>(s, std::vector<H>(x.size(), -std::numeric_limits<H>::infinity()));
  }
}

TYPED_TEST(PoolOnGpu, LongAxes) {   // longer than there are buckets
  const Case wide{2, 1, 3001, 1, 3, 1, 2, 0, 1}, high{1, 2500, 3, 2, 2, 1, 1, 0, 0};
  for (const Case& s : {wide, high}) check_max<TypeParam>(s, numbers<TypeParam>(s.planes * s.h * s.w, 1));
}

TYPED_TEST(PoolOnGpu, Average) {
  for (const Case& s : kCases) {
    check_average<TypeParam>(s, false);
    check_average<TypeParam>(s, true);
  }
}

// Positions from anywhere, outside and none: what no pooling gives, the gradient must bear.
TEST(PoolOnGpuSpecial, AnyPositions) {
  constexpr i64 h = 9, w = 11, oh = 6, ow = 5, planes = 3;
  Random random(3);
  std::vector<i64> argmax;
  for (i64 i = 0; i < planes * oh * ow; ++i) argmax.push_back(random.below(h * w + 4) - 2);
  const auto dy = numbers<float>(planes * oh * ow, 1);
  std::vector<float> dx(std::size_t(planes * h * w));
  cpu().max_pool_grad({DType::f32, planes, h, w, oh, ow, dy.data(), argmax.data(), dx.data()});
  const Results gpu = on_device([&](Device& device) {
    device.run(max_pool_grad, MaxPoolGradArgs{DType::f32, planes, h, w, oh, ow, device.in<float>(dy), device.in<i64>(argmax),
                                              device.out<float>("dx", dx.size())});
  });
  expect_close(gpu.get<float>("dx"), widen(dx), {}, "dx");
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
