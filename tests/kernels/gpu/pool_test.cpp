// Max and average pooling and their gradients on the GPU executor against the CPU kernels.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

struct Case {
  i64 planes, h, w, kh, kw, stride_h, stride_w, pad_top, pad_left, dilation_h = 1, dilation_w = 1;
  i64 d = 1, kd = 1, stride_d = 1, pad_front = 0, dilation_d = 1,
      beyond = 0;  // beyond: windows after the pads (ceil_mode)

  PoolShape shape() const {
    PoolShape s{};
    s.planes = planes;
    const i64 in[] = {d, h, w}, kernel[] = {kd, kh, kw}, stride[] = {stride_d, stride_h, stride_w},
              pad[] = {pad_front, pad_top, pad_left};
    const i64 dilation[] = {dilation_d, dilation_h, dilation_w};
    for (int i = 0; i < 3; ++i) {
      s.in[i] = in[i];
      s.kernel[i] = kernel[i];
      s.stride[i] = stride[i];
      s.pad_begin[i] = s.pad_end[i] = pad[i];
      s.dilation[i] = dilation[i];
      s.out[i] =
          (in[i] + 2 * pad[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1 + (i > 0 ? beyond : 0);
    }
    return s;
  }
  i64 ins() const { return planes * d * h * w; }
  i64 outs() const {
    const PoolShape s = shape();
    return planes * s.out[0] * s.out[1] * s.out[2];
  }
};

const Case kCases[] = {
    {3, 5, 7, 2, 3, 1, 2, 0, 1},   {1, 1, 1, 1, 1, 1, 1, 0, 0},   {40, 8, 8, 2, 2, 2, 2, 0, 0},
    {5, 13, 17, 3, 3, 2, 2, 1, 1}, {2, 33, 29, 5, 4, 3, 1, 2, 2}, {2, 7, 7, 7, 7, 1, 1, 0, 0},
    {3, 1, 300, 1, 3, 1, 2, 0, 1}, {1, 70, 70, 3, 3, 1, 1, 1, 1},  // in stripes
    {2, 5, 40, 2, 2, 4, 5, 0, 0},                                  // gaps between windows
    {9, 4, 4, 4, 4, 1, 1, 3, 3},                                   // windows with one element
};
const Case kDilated[] = {
    {2, 12, 11, 3, 2, 1, 1, 1, 1, 2, 3},
    {2, 20, 20, 3, 3, 2, 3, 2, 0, 4, 2},
    {3, 6, 7, 3, 2, 1, 2, 1, 0, 2, 1, 5, 2, 2, 1, 1},  // 3-d
    {2, 9, 12, 2, 3, 2, 1, 0, 1, 1, 2, 7, 3, 1, 2, 2},
    {4, 6, 6, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1},  // beyond the pads
};

std::string text(const Case& s) {
  std::string t;
  for (const i64 v : {s.planes, s.d, s.h, s.w, s.kd, s.kh, s.kw, s.stride_d, s.stride_h, s.stride_w,
                      s.pad_front, s.pad_top, s.pad_left, s.dilation_d, s.dilation_h, s.dilation_w})
    t += std::to_string(v) + " ";
  return t;
}

// Same elements in the same order: outputs of max are the CPU's exactly.
template <class T>
void check_max(const Case& s, const std::vector<Host<T>>& x) {
  SCOPED_TRACE(text(s));
  const std::size_t outs = std::size_t(s.outs());
  const PoolShape shape = s.shape();
  std::vector<Host<T>> y(outs);
  std::vector<i64> argmax(outs), indices(outs), columns(outs);
  cpu().max_pool({cpu_dtype<T>(), shape, x.data(), y.data(), argmax.data(), false, indices.data()});
  cpu().max_pool({cpu_dtype<T>(), shape, x.data(), y.data(), argmax.data(), true, columns.data()});
  const auto dy = numbers<T>(i64(outs), 2);
  std::vector<Host<T>> dx(x.size());
  const i64 h = shape.in[0] * shape.in[1], oh = shape.out[0] * shape.out[1];
  cpu().max_pool_grad(
      {cpu_dtype<T>(), s.planes, h, shape.in[2], oh, shape.out[2], dy.data(), argmax.data(), dx.data()});
  const Results gpu = on_device([&](Device& device) {
    MaxPoolArgs args{gpu_dtype<T>(),
                     shape,
                     device.in<T>(x, 1),
                     device.out<T>("y", outs),
                     device.out<i64>("argmax", outs),
                     false,
                     device.out<i64>("indices", outs)};
    device.run(max_pool, args);
    args.y = device.out<T>("y alone", outs);
    args.argmax = nullptr;
    args.column_major = true;
    args.indices = device.out<i64>("columns", outs);
    device.run(max_pool, args);
    device.run(max_pool_grad,
               MaxPoolGradArgs{gpu_dtype<T>(), s.planes, h, shape.in[2], oh, shape.out[2], device.in<T>(dy),
                               device.in<i64>(argmax), device.out<T>("dx", x.size())});
  });
  EXPECT_EQ(gpu.get<i64>("indices"), indices);
  EXPECT_EQ(gpu.get<i64>("columns"), columns);
  expect_close(gpu.get<T>("y"), widen(y), {}, "y");
  expect_close(gpu.get<T>("y alone"), widen(y), {}, "y alone");
  EXPECT_EQ(gpu.get<i64>("argmax"), argmax);
  if (kHalf<T>) {
    expect_close(gpu.get<T>("dx"), widen(dx), {kUnit<T>, 0}, "dx");  // one rounding
  } else {
    expect_close(gpu.get<T>("dx"), widen(dx), {}, "dx");
  }
}

template <class T>
void check_average(const Case& s, PoolDivisor divisor) {
  SCOPED_TRACE(text(s) + "divisor " + std::to_string(int(divisor)));
  const std::size_t ins = std::size_t(s.ins()), outs = std::size_t(s.outs());
  const auto x = numbers<T>(i64(ins), 3), dy = numbers<T>(i64(outs), 4);
  std::vector<Host<T>> y(outs), dx(ins);
  cpu().average_pool({cpu_dtype<T>(), s.shape(), divisor, x.data(), y.data()});
  cpu().average_pool_grad({cpu_dtype<T>(), s.shape(), divisor, dy.data(), dx.data()});
  const Results gpu = on_device([&](Device& device) {
    device.run(average_pool, AveragePoolArgs{gpu_dtype<T>(), s.shape(), divisor, device.in<T>(x, 1),
                                             device.out<T>("y", outs)});
    device.run(average_pool_grad, AveragePoolGradArgs{gpu_dtype<T>(), s.shape(), divisor, device.in<T>(dy),
                                                      device.out<T>("dx", ins)});
  });
  // The CPU adds along one axis after the other, the GPU window by window: sums of up to 35 terms below 2.
  expect_close(gpu.get<T>("y"), widen(y), tolerance<T>({2e-6, 1e-6}), "y");
  expect_close(gpu.get<T>("dx"), widen(dx), tolerance<T>({2e-6, 1e-6}), "dx");
}

template <class T>
class PoolOnGpu : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(PoolOnGpu, Types);

TYPED_TEST(PoolOnGpu, Max) {
  for (const Case& s : kCases) check_max<TypeParam>(s, numbers<TypeParam>(s.ins(), 1));
  for (const Case& s : kDilated) check_max<TypeParam>(s, numbers<TypeParam>(s.ins(), 1));
}

TYPED_TEST(PoolOnGpu, MaxOfEqualInfiniteAndNan) {
  using H = Host<TypeParam>;
  for (const Case& s : kCases) {
    std::vector<H> x(std::size_t(s.ins()));
    Random random(5);
    const H choices[] = {H(1),
                         H(1),
                         H(2),
                         -std::numeric_limits<H>::infinity(),
                         std::numeric_limits<H>::infinity(),
                         std::numeric_limits<H>::quiet_NaN()};
    for (H& v : x) v = choices[random.below(random.below(8) == 0 ? 6 : 4)];
    check_max<TypeParam>(s, x);
    check_max<TypeParam>(s, std::vector<H>(x.size(), -std::numeric_limits<H>::infinity()));
  }
}

TYPED_TEST(PoolOnGpu, LongAxes) {  // longer than there are buckets
  const Case wide{2, 1, 3001, 1, 3, 1, 2, 0, 1}, high{1, 2500, 3, 2, 2, 1, 1, 0, 0};
  for (const Case& s : {wide, high}) check_max<TypeParam>(s, numbers<TypeParam>(s.ins(), 1));
}

TYPED_TEST(PoolOnGpu, Average) {
  for (const PoolDivisor divisor : {PoolDivisor::inside, PoolDivisor::padded, PoolDivisor::one}) {
    for (const Case& s : kCases) check_average<TypeParam>(s, divisor);
    for (const Case& s : kDilated) check_average<TypeParam>(s, divisor);
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
    device.run(max_pool_grad, MaxPoolGradArgs{DType::f32, planes, h, w, oh, ow, device.in<float>(dy),
                                              device.in<i64>(argmax), device.out<float>("dx", dx.size())});
  });
  expect_close(gpu.get<float>("dx"), widen(dx), {}, "dx");
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
