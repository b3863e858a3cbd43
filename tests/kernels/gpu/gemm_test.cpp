// The tiled product on the executor against the CPU's products: layouts, batches, epilogues, both tiles,
// slices of k.
#include "kernels/gpu/workspace.h"
#include "kernels/prepared/matmul.h"
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

using Dims = std::vector<i64>;

// Elements that a strided operand reaches.
i64 extent(Dims dims, i64 rows, i64 cols, const Dims& strides) {
  dims.push_back(rows);
  dims.push_back(cols);
  i64 last = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) last += std::max<i64>(dims[d] - 1, 0) * strides[d];
  return last + 1;
}

// with_workspace: a plan may leave it out. offset: of A and B from their boundary, in elements.
template <class T>
void check(MatMulDesc d, bool with_workspace = true, std::size_t offset = 0) {
  d.dtype = cpu_dtype<T>();
  const auto a = numbers<T>(extent(d.batch, d.m, d.k, d.a_strides), 1, -1, 1);
  const auto b = numbers<T>(extent(d.batch, d.k, d.n, d.b_strides), 2, -1, 1);
  const auto c = numbers<T>(extent(d.batch, d.m, d.n, d.c_strides), 3), bias = numbers<T>(d.n, 4);
  auto expected = c;
  const auto matmul = MatMul::create(d);
  std::vector<std::uint8_t> cpu_workspace(matmul->workspace_bytes() + 64);
  matmul->run(a.data(), b.data(), d.bias ? bias.data() : nullptr, expected.data(), cpu_workspace.data());
  const Results gpu = on_device([&](Device& device) {
    GemmArgs args = gemm_args(d);
    args.dtype = gpu_dtype<T>();
    args.workspace_bytes = with_workspace ? kernels::workspace_bytes(Target::gpu, args) : 0;
    args.workspace = device.workspace(args.workspace_bytes);
    args.a = device.in<T>(a, offset);
    args.b = device.in<T>(b, offset);
    args.bias = d.bias ? device.in<T>(bias) : nullptr;
    args.c = device.inout<T>("c", c);
    device.run(gemm, args);
    // What is added lies elsewhere.
    if (!d.accumulate) return;
    args.accumulate = false;
    args.addend = device.in<T>(c);
    args.c = device.out<T>("of addend", c.size());
    device.run(gemm, args);
  });
  Tolerance close = tolerance<T>({1e-5, 1e-5});
  close.absolute *= std::sqrt(std::max(1.0, double(d.k) / 256));
  const std::string shape = std::to_string(d.m) + "x" + std::to_string(d.n) + "x" + std::to_string(d.k);
  expect_close(gpu.get<T>("c"), widen(expected), close, shape);
  if (d.accumulate) {
    EXPECT_EQ(gpu.get<T>("of addend"), gpu.get<T>("c")) << shape;
  }
}

MatMulDesc plain(i64 m, i64 n, i64 k, bool a_turned = false, bool b_turned = false) {
  MatMulDesc d;
  d.m = m;
  d.n = n;
  d.k = k;
  d.a_strides = a_turned ? Dims{1, m} : Dims{k, 1};
  d.b_strides = b_turned ? Dims{1, k} : Dims{n, 1};
  d.c_strides = {n, 1};
  return d;
}

MatMulDesc batched(const Dims& batch, i64 m, i64 n, i64 k, bool a_turned = false, bool b_turned = false) {
  MatMulDesc d = plain(m, n, k, a_turned, b_turned);
  d.batch = batch;
  i64 a = m * k, b = n * k, c = m * n;
  for (std::size_t i = batch.size(); i-- > 0;) {
    d.a_strides.insert(d.a_strides.begin(), a);
    d.b_strides.insert(d.b_strides.begin(), b);
    d.c_strides.insert(d.c_strides.begin(), c);
    a *= batch[i];
    b *= batch[i];
    c *= batch[i];
  }
  return d;
}

ProductCut cut_of(const MatMulDesc& d, DType dtype) {
  i64 batches = 1;
  for (const i64 size : d.batch) batches *= size;
  return product_cut(batches, d.m, d.n, d.k, dtype);
}

template <class T>
class GpuGemm : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuGemm, Floats);

TYPED_TEST(GpuGemm, Layouts) {
  for (const bool a_turned : {false, true}) {
    for (const bool b_turned : {false, true}) {
      check<TypeParam>(plain(64, 64, 32, a_turned, b_turned));
      check<TypeParam>(plain(67, 131, 37, a_turned, b_turned));
      check<TypeParam>(plain(1, 70, 20, a_turned, b_turned));
      check<TypeParam>(plain(70, 1, 20, a_turned, b_turned));
      check<TypeParam>(plain(33, 17, 1, a_turned, b_turned));
      check<TypeParam>(plain(1, 1, 1, a_turned, b_turned));
    }
  }
}

// Tiles of 64 x 64 and 64 values along the sums: one more, one less, and rows that are packs or begin off their boundary.
TYPED_TEST(GpuGemm, EdgesOfTiles) {
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true}) {
      check<TypeParam>(plain(65, 63, 65, a_turned, b_turned));
      check<TypeParam>(plain(128, 72, 136, a_turned, b_turned));
      check<TypeParam>(plain(72, 64, 128, a_turned, b_turned), true, 1);
      check<TypeParam>(batched({3}, 24, 40, 17, a_turned, b_turned));
    }
}

TYPED_TEST(GpuGemm, LongSumsInSlices) {
  for (const MatMulDesc& d :
       {plain(3, 5, 2048), plain(65, 30, 1003, true, false), batched({2}, 20, 64, 517)}) {
    ASSERT_GT(cut_of(d, gpu_dtype<TypeParam>()).slices, 1);
    check<TypeParam>(d);
    check<TypeParam>(d, false);
  }
  MatMulDesc d = plain(3, 65, 1024, true, true);
  d.bias = d.accumulate = true;
  d.alpha = 0.5;
  d.activation = Activation::gelu_erf;
  check<TypeParam>(d);
}

TYPED_TEST(GpuGemm, LargeTiles) {
  for (const bool a_turned : {false, true}) {
    for (const bool b_turned : {false, true}) {
      const MatMulDesc d = batched({16}, 250, 260, 11, a_turned, b_turned);
      EXPECT_EQ(cut_of(d, gpu_dtype<TypeParam>()).large_tiles, sizeof(TypeParam) < 8);
      check<TypeParam>(d);
    }
  }
  MatMulDesc d = batched({96}, 128, 128, 8);
  d.bias = true;
  d.activation = Activation::relu;
  check<TypeParam>(d);
}

TYPED_TEST(GpuGemm, Batches) {
  check<TypeParam>(batched({6}, 32, 40, 24));
  check<TypeParam>(batched({2, 3}, 32, 40, 24, false, true));
  check<TypeParam>(batched({2, 1, 3}, 7, 5, 3, true, true));
  MatMulDesc shared = batched({8}, 16, 24, 32);
  shared.b_strides[0] = 0;
  check<TypeParam>(shared);
  MatMulDesc mixed = batched({3, 5}, 9, 8, 7);
  mixed.a_strides[0] = 0;
  mixed.a_strides[1] = 63;
  mixed.b_strides[1] = 0;
  check<TypeParam>(mixed);
}

// [b, t, h, d] tensors seen as [b, h, t, d]: attention without a transpose.
TYPED_TEST(GpuGemm, AttentionStrides) {
  const i64 b = 2, h = 3, t = 40, d = 16;
  MatMulDesc scores;
  scores.batch = {b, h};
  scores.m = scores.n = t;
  scores.k = d;
  scores.a_strides = {t * h * d, d, h * d, 1};
  scores.b_strides = {t * h * d, d, 1, h * d};
  scores.c_strides = {h * t * t, t * t, t, 1};
  scores.alpha = 0.25;
  check<TypeParam>(scores);
  MatMulDesc context;
  context.batch = {b, h};
  context.m = context.k = t;
  context.n = d;
  context.a_strides = {h * t * t, t * t, t, 1};
  context.b_strides = context.c_strides = {t * h * d, d, h * d, 1};
  check<TypeParam>(context);
}

TYPED_TEST(GpuGemm, Epilogues) {
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu_erf, Activation::gelu_tanh}) {
    for (const bool bias : {false, true}) {
      for (const bool accumulate : {false, true}) {
        MatMulDesc d = plain(37, 64, 19);
        d.activation = activation;
        d.bias = bias;
        d.accumulate = accumulate;
        d.alpha = accumulate ? -0.5 : 1.0;
        check<TypeParam>(d);
      }
    }
  }
}

// What a step's plan has besides plain products: a value kept before the activation, the slope of one, sums
// of an operand. `library`: the product is in C already, the rest comes after it.
template <class T>
void check_training(MatMulDesc d, GemmOperand sums_of, bool library) {
  SCOPED_TRACE(std::to_string(d.m) + "x" + std::to_string(d.n) + "x" + std::to_string(d.k) + ", activation " +
               std::to_string(int(d.activation)) + (library ? ", behind a library" : ""));
  const bool slope = d.activation == Activation::gelu_tanh_grad;
  const auto a = numbers<T>(d.m * d.k, 1, -1, 1), b = numbers<T>(d.k * d.n, 2, -1, 1),
             bias = numbers<T>(d.n, 4), kept = numbers<T>(d.m * d.n, 5, -3, 3);
  MatMulDesc linear = d;
  linear.dtype = cpu_dtype<T>();
  linear.activation = Activation::none;
  std::vector<Host<T>> before(std::size_t(d.m * d.n)), product = before;
  const auto multiply = [&](bool with_bias, std::vector<Host<T>>& out) {
    linear.bias = with_bias;
    const auto matmul = MatMul::create(linear);
    std::vector<std::uint8_t> workspace(matmul->workspace_bytes() + 64);
    matmul->run(a.data(), b.data(), with_bias ? bias.data() : nullptr, out.data(), workspace.data());
  };
  multiply(d.bias, before);
  multiply(false, product);
  if (library) {  // it has rounded the product once
    for (std::size_t i = 0; i < product.size(); ++i) {
      product[i] = to_host<T>(to_device<T>(product[i]));
      before[i] = product[i] + (d.bias ? bias[i % std::size_t(d.n)] : Host<T>(0));
    }
  }
  std::vector<double> expected;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double x = double(before[i]), u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    expected.push_back(slope ? x * portable::gelu_tanh_slope(double(kept[i]))
                       : d.activation == Activation::gelu_tanh ? 0.5 * x * (1 + std::tanh(u))
                                                               : x);
  }
  const i64 width = sums_of == GemmOperand::a ? d.m : d.n;
  const auto& summed = sums_of == GemmOperand::a ? a : b;
  std::vector<double> sums(sums_of == GemmOperand::none ? 0 : std::size_t(width));
  for (std::size_t i = 0; i < sums.size() * std::size_t(d.k); ++i) sums[i % sums.size()] += double(summed[i]);
  const Results gpu = on_device([&](Device& device) {
    GemmArgs args = gemm_args(d);
    args.dtype = gpu_dtype<T>();
    args.sums_of = sums_of;
    args.workspace_bytes = kernels::workspace_bytes(Target::gpu, args);
    args.workspace = device.workspace(args.workspace_bytes);
    args.a = device.in<T>(a);
    args.b = device.in<T>(b);
    args.bias = d.bias ? device.in<T>(bias) : nullptr;
    args.c = library ? device.inout<T>("c", product) : device.out<T>("c", product.size());
    if (slope) args.aux = const_cast<T*>(device.in<T>(kept));
    if (d.activation == Activation::gelu_tanh) args.aux = device.out<T>("aux", before.size());
    if (!sums.empty()) args.sums = device.out<T>("sums", sums.size());
    device.run(library ? gemm_epilogue : gemm, args);
  });
  Tolerance close = tolerance<T>({1e-5, 2e-5});
  close.absolute *= std::sqrt(std::max(1.0, double(d.k) / 256));
  expect_close(gpu.get<T>("c"), expected, close, "c");
  if (d.activation == Activation::gelu_tanh) expect_close(gpu.get<T>("aux"), widen(before), close, "aux");
  if (!sums.empty()) expect_close(gpu.get<T>("sums"), sums, close, "sums");
}

TYPED_TEST(GpuGemm, KeepsWhatTheActivationIsAppliedTo) {
  for (const bool library : {false, true}) {
    for (const bool bias : {false, true}) {
      for (MatMulDesc d : {plain(37, 64, 19), plain(3, 16, 700, false, true), plain(250, 8, 33, true)}) {
        d.activation = Activation::gelu_tanh;
        d.bias = bias;
        check_training<TypeParam>(d, GemmOperand::none, library);
      }
    }
  }
}

TYPED_TEST(GpuGemm, SlopeOfAnActivation) {
  for (const bool library : {false, true}) {
    for (MatMulDesc d : {plain(37, 64, 19), plain(3, 16, 700, false, true)}) {
      d.activation = Activation::gelu_tanh_grad;
      check_training<TypeParam>(d, GemmOperand::none, library);
      d.alpha = 0.5;
      if (!library) check_training<TypeParam>(d, GemmOperand::b, library);
    }
  }
}

// A turned: the product sums over the first dim of what is summed.
TYPED_TEST(GpuGemm, SumsOfAnOperand) {
  for (const bool library : {false, true}) {
    for (const GemmOperand of : {GemmOperand::a, GemmOperand::b}) {
      for (const MatMulDesc& d : {plain(37, 64, 19, true), plain(5, 3, 2100, true), plain(1, 1, 70, true)})
        check_training<TypeParam>(d, of, library);
      MatMulDesc turned = plain(12, 20, 40, true);
      turned.c_strides = {1, 12};
      if (!library) check_training<TypeParam>(turned, of, library);
    }
  }
}

TYPED_TEST(GpuGemm, OddStrides) {
  MatMulDesc d = plain(20, 24, 28);
  d.a_strides = {56, 2};
  check<TypeParam>(d);
  d = plain(20, 24, 28);
  d.c_strides = {1, 20};
  d.accumulate = true;
  check<TypeParam>(d);
  d = batched({4}, 20, 24, 28);
  d.b_strides = {3, 24 * 13, 13};
  d.c_strides = {2, 24 * 9, 9};
  check<TypeParam>(d);
  d = plain(20, 24, 28);
  d.a_strides = {0, 1};  // all rows the same
  check<TypeParam>(d);
}

TYPED_TEST(GpuGemm, Empty) {
  for (MatMulDesc d : {plain(0, 4, 5), plain(4, 0, 5), plain(4, 5, 0), batched({0}, 3, 4, 5)}) {
    check<TypeParam>(d);
    d.bias = true;
    d.activation = Activation::relu;
    check<TypeParam>(d);
  }
}

TYPED_TEST(GpuGemm, NanReachesTheResult) {
  std::vector<Host<TypeParam>> a(4 * 8, 1), b(8 * 16, 1), c(4 * 16, 0);
  a[9] = Host<TypeParam>(NAN);
  const Results gpu = on_device([&](Device& device) {
    MatMulDesc d = plain(4, 16, 8);
    d.activation = Activation::relu;
    GemmArgs args = gemm_args(d);
    args.dtype = gpu_dtype<TypeParam>();
    args.a = device.in<TypeParam>(a);
    args.b = device.in<TypeParam>(b);
    args.c = device.out<TypeParam>("c", 64);
    device.run(gemm, args);
  });
  const auto out = gpu.get<TypeParam>("c");
  EXPECT_EQ(out[0], 8);
  EXPECT_TRUE(std::isnan(out[16]));
  EXPECT_TRUE(std::isnan(out[31]));
  EXPECT_EQ(out[32], 8);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
