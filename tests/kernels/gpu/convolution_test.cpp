// Convolution and both gradients on the executor against the CPU's.
#include "kernels/gpu/workspace.h"
#include "kernels/prepared/convolution.h"
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

ConvolutionDesc square(i64 n, i64 c, i64 h, i64 w, i64 k, i64 r, i64 s, i64 stride, i64 pad, i64 dilation,
                       i64 groups) {
  ConvolutionDesc d{};
  d.n = n;
  d.c = c;
  d.h = h;
  d.w = w;
  d.k = k;
  d.r = r;
  d.s = s;
  d.stride_h = d.stride_w = stride;
  d.pad_top = d.pad_left = d.pad_bottom = d.pad_right = pad;
  d.dilation_h = d.dilation_w = dilation;
  d.groups = groups;
  d.oh = (h + 2 * pad - (r - 1) * dilation - 1) / stride + 1;
  d.ow = (w + 2 * pad - (s - 1) * dilation - 1) / stride + 1;
  return d;
}

i64 count_x(const ConvolutionDesc& d) { return d.n * d.c * d.d * d.h * d.w; }
i64 count_w(const ConvolutionDesc& d) { return d.k * (d.c / d.groups) * d.t * d.r * d.s; }
i64 count_y(const ConvolutionDesc& d) { return d.n * d.k * d.od * d.oh * d.ow; }

template <class T>
void check(ConvolutionDesc d, ConvolutionKind kind) {
  d.bias = d.bias && kind == ConvolutionKind::forward;
  const bool forward = kind == ConvolutionKind::forward, data = kind == ConvolutionKind::backward_data;
  const auto a = numbers<T>(forward ? count_x(d) : count_y(d), 1, -1, 1);
  const auto b = numbers<T>(kind == ConvolutionKind::backward_weights ? count_x(d) : count_w(d), 2, -1, 1),
             bias = numbers<T>(d.k, 3);
  std::vector<Host<T>> expected(std::size_t(forward ? count_y(d) : data ? count_x(d) : count_w(d)));
  d.dtype = cpu_dtype<T>();
  const auto convolution_cpu = Convolution::create(d, kind);
  std::vector<std::uint8_t> workspace(convolution_cpu->workspace_bytes() + 64);
  convolution_cpu->run(a.data(), b.data(), d.bias ? bias.data() : nullptr, expected.data(), workspace.data());
  d.dtype = gpu_dtype<T>();
  const Results gpu = on_device([&](Device& device) {
    ConvolutionArgs args{d,
                         kind,
                         device.in<T>(a),
                         device.in<T>(b),
                         d.bias ? device.in<T>(bias) : nullptr,
                         device.out<T>("out", expected.size()),
                         nullptr};
    args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
    device.run(convolution, args);
  });
  const ConvolutionProduct p = convolution_product({d, kind, nullptr, nullptr, nullptr, nullptr, nullptr});
  Tolerance close = tolerance<T>({1e-5, 1e-5});
  close.absolute *= std::sqrt(std::max(1.0, double(p.depth) / 64));
  expect_close(gpu.get<T>("out"), widen(expected), close,
               "kind " + std::to_string(int(kind)) + " of " + std::to_string(d.n) + "x" +
                   std::to_string(d.c) + "x" + std::to_string(d.h) + "x" + std::to_string(d.w));
}

template <class T>
void check_all(ConvolutionDesc d) {
  for (const bool bias : {false, true}) {
    d.bias = bias;
    check<T>(d, ConvolutionKind::forward);
  }
  check<T>(d, ConvolutionKind::backward_data);
  check<T>(d, ConvolutionKind::backward_weights);
}

template <class T>
class GpuConvolution : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuConvolution, Floats);

TYPED_TEST(GpuConvolution, Windows) {
  check_all<TypeParam>(square(1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1));
  check_all<TypeParam>(square(2, 5, 7, 7, 3, 1, 1, 1, 0, 1, 1));
  check_all<TypeParam>(square(2, 4, 9, 8, 6, 3, 3, 1, 1, 1, 1));
  check_all<TypeParam>(square(3, 1, 12, 12, 6, 5, 5, 1, 2, 1, 1));
  check_all<TypeParam>(square(1, 3, 8, 9, 2, 2, 5, 1, 0, 1, 1));
  check_all<TypeParam>(square(1, 70, 5, 5, 67, 3, 3, 1, 1, 1, 1));  // more than one tile of channels
}

TYPED_TEST(GpuConvolution, StridesAndDilations) {
  check_all<TypeParam>(square(2, 3, 17, 15, 8, 7, 7, 2, 3, 1, 1));
  check_all<TypeParam>(square(2, 4, 9, 9, 4, 3, 3, 1, 2, 2, 1));
  check_all<TypeParam>(square(1, 2, 11, 13, 3, 3, 3, 3, 1, 2, 1));
  check_all<TypeParam>(square(1, 2, 10, 10, 3, 1, 1, 2, 0, 1, 1));  // most of the input is not seen
  ConvolutionDesc d = square(2, 3, 12, 9, 4, 3, 2, 1, 0, 1, 1);
  d.stride_h = 2;
  d.stride_w = 3;
  d.dilation_w = 2;
  d.pad_top = 1;
  d.pad_right = 2;
  d.oh = (12 + 1 - 3) / 2 + 1;
  d.ow = (9 + 2 - 3) / 3 + 1;
  check_all<TypeParam>(d);
}

TYPED_TEST(GpuConvolution, ThreeDims) {
  ConvolutionDesc d = square(2, 4, 6, 7, 6, 3, 2, 2, 1, 1, 2);
  d.d = 5;
  d.t = 3;
  d.pad_front = 1;
  d.dilation_d = 2;
  d.stride_d = 1;
  d.od = 5 + 1 - 5 + 1;
  check_all<TypeParam>(d);
  d = square(1, 3, 4, 5, 2, 2, 3, 1, 0, 1, 1);
  d.d = 9;
  d.t = 2;
  d.stride_d = 3;
  d.od = 3;
  check_all<TypeParam>(d);
  d = square(1, 2, 1, 1, 3, 1, 1, 1, 0, 1, 1);
  d.d = 7;
  d.t = 3;
  d.od = 5;
  check_all<TypeParam>(d);
}

TYPED_TEST(GpuConvolution, Groups) {
  check_all<TypeParam>(square(2, 12, 6, 6, 18, 3, 3, 2, 1, 1, 3));
  check_all<TypeParam>(square(2, 8, 7, 7, 8, 3, 3, 1, 1, 1, 8));
  check_all<TypeParam>(square(1, 4, 6, 6, 12, 3, 3, 1, 1, 1, 4));
}

TYPED_TEST(GpuConvolution, Depthwise) {
  const auto check_depthwise = [](const ConvolutionDesc& d) {
    for (const auto kind :
         {ConvolutionKind::forward, ConvolutionKind::backward_data, ConvolutionKind::backward_weights}) {
      const ConvolutionArgs args{d, kind, nullptr, nullptr, nullptr, nullptr, nullptr};
      EXPECT_TRUE(is_depthwise(args));
      EXPECT_EQ(kernels::workspace_bytes(Target::gpu, args), 0u);
    }
    check_all<TypeParam>(d);
  };
  check_depthwise(square(2, 5, 19, 23, 5, 3, 3, 1, 1, 1, 5));
  check_depthwise(square(2, 3, 16, 15, 6, 5, 4, 2, 2, 1, 3));  // two filters per channel
  check_depthwise(square(1, 4, 13, 9, 4, 3, 3, 1, 2, 2, 4));
  ConvolutionDesc d = square(2, 3, 6, 7, 3, 3, 2, 2, 1, 1, 3);
  d.d = 5;
  d.t = 3;
  d.pad_front = 1;
  d.od = 5 + 1 - 3 + 1;
  check_depthwise(d);
}

TYPED_TEST(GpuConvolution, UnevenPadding) {
  ConvolutionDesc d = square(2, 3, 12, 12, 4, 3, 3, 2, 0, 1, 1);
  d.pad_bottom = d.pad_right = 1;  // SAME_UPPER
  d.oh = d.ow = 6;
  check_all<TypeParam>(d);
}

TYPED_TEST(GpuConvolution, LongSumsInSlices) {
  const ConvolutionDesc weights = square(4, 3, 20, 20, 5, 3, 3, 1, 1, 1, 1),
                        data = square(1, 64, 4, 4, 60, 3, 3, 1, 1, 1, 1);
  for (const auto& [d, kind] :
       {std::pair{weights, ConvolutionKind::backward_weights}, std::pair{data, ConvolutionKind::forward},
        std::pair{data, ConvolutionKind::backward_data}}) {
    const ConvolutionProduct p = convolution_product({d, kind, nullptr, nullptr, nullptr, nullptr, nullptr});
    ASSERT_GT(product_cut(1, p.rows, p.cols, p.depth, gpu_dtype<TypeParam>()).slices, 1);
  }
  check<TypeParam>(weights, ConvolutionKind::backward_weights);
  ConvolutionDesc with_bias = data;
  with_bias.bias = true;
  check<TypeParam>(with_bias, ConvolutionKind::forward);
  check<TypeParam>(data, ConvolutionKind::backward_data);
}

TYPED_TEST(GpuConvolution, LargeTiles) {
  const ConvolutionDesc d = square(3, 2, 64, 64, 128, 1, 3, 1, 1, 1, 1);
  const ConvolutionProduct p =
      convolution_product({d, ConvolutionKind::forward, nullptr, nullptr, nullptr, nullptr, nullptr});
  EXPECT_EQ(product_cut(1, p.rows, p.cols, p.depth, gpu_dtype<TypeParam>()).large_tiles,
            sizeof(TypeParam) < 8);
  check<TypeParam>(d, ConvolutionKind::forward);
}

// What is left to do behind a library.
TYPED_TEST(GpuConvolution, BiasAlone) {
  ConvolutionDesc d = square(2, 3, 7, 5, 4, 3, 3, 1, 1, 1, 1);
  d.bias = true;
  const auto y = numbers<TypeParam>(count_y(d), 1), bias = numbers<TypeParam>(d.k, 2);
  for (const bool given : {true, false}) {
    std::vector<double> expected;
    for (std::size_t i = 0; i < y.size(); ++i)
      expected.push_back(double(y[i]) +
                         (given ? double(bias[i / std::size_t(d.oh * d.ow) % std::size_t(d.k)]) : 0));
    const Results gpu = on_device([&](Device& device) {
      ConvolutionArgs args{d,
                           ConvolutionKind::forward,
                           nullptr,
                           nullptr,
                           given ? device.in<TypeParam>(bias) : nullptr,
                           device.inout<TypeParam>("y", y),
                           nullptr};
      args.shape.dtype = gpu_dtype<TypeParam>();
      device.run(convolution_bias, args);
    });
    expect_close(gpu.get<TypeParam>("y"), expected, tolerance<TypeParam>({1e-6, 1e-6}), "y");
  }
}

TYPED_TEST(GpuConvolution, NoImages) {  // the gradient of the weights is a sum over none
  const ConvolutionDesc d = square(0, 2, 4, 4, 3, 3, 3, 1, 1, 1, 1);
  const Results gpu = on_device([&](Device& device) {
    ConvolutionArgs args{d,       ConvolutionKind::backward_weights,
                         nullptr, nullptr,
                         nullptr, device.out<TypeParam>("dw", std::size_t(count_w(d))),
                         nullptr};
    args.shape.dtype = gpu_dtype<TypeParam>();
    args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
    device.run(convolution, args);
  });
  EXPECT_EQ(gpu.get<TypeParam>("dw"), std::vector<Host<TypeParam>>(std::size_t(count_w(d)), 0));
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
