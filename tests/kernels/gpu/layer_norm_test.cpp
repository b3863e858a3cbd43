// Layer normalization and its gradient on the GPU executor against the CPU kernels.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

struct Case {
  i64 rows, cols;
  bool bias = true;
  std::size_t offset = 0;  // of the device buffers from their 16-byte boundary, in elements
  bool centered = true;
};

template <class T, class P = T>
void check_forward(const Case& s, double low = -2.0, double high = 3.0, double absolute = 1e-5) {
  using H = Host<T>;
  const auto x = numbers<T>(s.rows * s.cols, 1, low, high), scale = numbers<P>(s.cols, 2),
             bias = numbers<P>(s.cols, 3);
  std::vector<H> y(x.size()), mean(std::size_t(s.rows)), inv_std(std::size_t(s.rows));
  cpu().layer_norm({cpu_dtype<T>(), s.rows, s.cols, 1e-5, x.data(), scale.data(),
                    s.bias ? bias.data() : nullptr, y.data(), mean.data(), inv_std.data(), s.centered});
  const Results gpu = on_device([&](Device& device) {
    LayerNormArgs args{gpu_dtype<T>(),
                       s.rows,
                       s.cols,
                       1e-5,
                       device.in<T>(x, s.offset),
                       device.in<P>(scale),
                       s.bias ? device.in<P>(bias) : nullptr,
                       device.out<T>("y", y.size()),
                       s.centered ? device.out<Accum<T>>("mean", mean.size()) : nullptr,
                       device.out<Accum<T>>("inv_std", mean.size()),
                       s.centered};
    args.parameters = gpu_dtype<P>();
    device.run(layer_norm, args);
    args.x = args.y = device.inout<T>("in place", x);
    args.mean = args.inv_std = nullptr;
    device.run(layer_norm, args);
  });
  const Tolerance close = tolerance<T>({2e-5, absolute});
  expect_close(gpu.get<T>("y"), widen(y), close, "y");
  expect_close(gpu.get<T>("in place"), widen(y), close, "y in place");
  if (s.centered)
    expect_close(gpu.get<Accum<T>>("mean"), widen(mean), tolerance<Accum<T>>({1e-5, 1e-6}), "mean");
  expect_close(gpu.get<Accum<T>>("inv_std"), widen(inv_std), tolerance<Accum<T>>({1e-5, 1e-6}), "inv_std");
}

struct Wanted {
  bool dx = true, dscale = true, dbias = true;
};

template <class T, class P = T>
void check_gradient(const Case& s, const Wanted& wanted = {}) {
  using H = Host<T>;
  const auto dy = numbers<T>(s.rows * s.cols, 4), x = numbers<T>(s.rows * s.cols, 5),
             scale = numbers<P>(s.cols, 6);
  const auto added = numbers<T>(s.rows * s.cols, 9);
  const auto mean = numbers<Accum<T>>(s.rows, 7, -0.5, 0.5), inv_std = numbers<Accum<T>>(s.rows, 8, 0.5, 1.5);
  std::vector<H> dx(x.size()), dscale(scale.size()), dbias(scale.size());
  LayerNormGradArgs cpu_args{cpu_dtype<T>(), s.rows,      s.cols,         dy.data(), x.data(),
                             scale.data(),   mean.data(), inv_std.data(), dx.data(), dscale.data(),
                             dbias.data(),   nullptr,     s.centered};
  std::vector<double> space(workspace_bytes(Target::cpu, cpu_args) / 8 + 1);
  cpu_args.workspace = space.data();
  cpu().layer_norm_grad(cpu_args);
  const Results gpu = on_device([&](Device& device) {
    LayerNormGradArgs args{gpu_dtype<T>(),
                           s.rows,
                           s.cols,
                           device.in<T>(dy, s.offset),
                           device.in<T>(x),
                           device.in<P>(scale),
                           device.in<Accum<T>>(mean),
                           device.in<Accum<T>>(inv_std),
                           wanted.dx ? device.out<T>("dx", dx.size()) : nullptr,
                           wanted.dscale ? device.out<P>("dscale", dscale.size()) : nullptr,
                           wanted.dbias ? device.out<P>("dbias", dbias.size()) : nullptr,
                           nullptr,
                           s.centered};
    args.parameters = gpu_dtype<P>();
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(layer_norm_grad, args);
    if (!wanted.dx) return;
    args.added = device.in<T>(added, s.offset);
    args.dx = device.out<T>("dx and more", dx.size());
    device.run(layer_norm_grad, args);
    args.added = nullptr;
    args.dy = args.dx = device.inout<T>("in place", dy);
    device.run(layer_norm_grad, args);
  });
  const Tolerance sums = tolerance<P>({2e-5, 3e-6 * std::sqrt(double(s.rows))});
  if (wanted.dx) {
    expect_close(gpu.get<T>("dx"), widen(dx), tolerance<T>({5e-5, 1e-5}), "dx");
    expect_close(gpu.get<T>("in place"), widen(dx), tolerance<T>({5e-5, 1e-5}), "dx in place");
    std::vector<double> more = widen(dx);
    for (std::size_t i = 0; i < more.size(); ++i) more[i] += double(added[i]);
    expect_close(gpu.get<T>("dx and more"), more, tolerance<T>({5e-5, 1e-5}), "dx and what is added");
  }
  if (wanted.dscale) expect_close(gpu.get<P>("dscale"), widen(dscale), sums, "dscale");
  if (wanted.dbias) expect_close(gpu.get<P>("dbias"), widen(dbias), sums, "dbias");
}

template <class T, class P = T>
void check(const Case& s) {
  SCOPED_TRACE(testing::Message() << s.rows << " rows of " << s.cols << ", bias " << s.bias << ", offset "
                                  << s.offset);
  check_forward<T, P>(s);
  check_gradient<T, P>(s);
}

template <class T>
class LayerNormOnGpu : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(LayerNormOnGpu, Types);

TYPED_TEST(LayerNormOnGpu, Shapes) {
  for (const i64 cols : {2, 7, 16, 33, 128, 512, 520, 768, 1000, 1024}) check<TypeParam>({5, cols});
  check<TypeParam>({1, 1});
  check<TypeParam>({300, 8});
  check<TypeParam>({130, 40, false});
  check<TypeParam>({50, 600});
  check<TypeParam>({3, 5000});
  check<TypeParam>({2, 8192});
  check<TypeParam>({17, 8200});
  check<TypeParam>({2, 9001, false});
}

TYPED_TEST(LayerNormOnGpu, NotCentered) {
  for (const i64 cols : {1, 33, 512, 1000, 8200}) check<TypeParam>({5, cols, false, 0, false});
}

template <class T>
class LayerNormOnGpuWide : public testing::Test {};
TYPED_TEST_SUITE(LayerNormOnGpuWide, Halves);

TYPED_TEST(LayerNormOnGpuWide, ParametersOfMixedPrecision) {
  for (const i64 cols : {4, 33, 520, 1024, 8208}) check<TypeParam, float>({5, cols});
  check<TypeParam, float>({9, 64, false, 0, false});
  check<TypeParam, float>({5, 1024, true, 1});
}

TYPED_TEST(LayerNormOnGpu, OffTheBoundary) {
  check<TypeParam>({5, 64, true, 1});
  check<TypeParam>({5, 1024, true, 1});
  check<TypeParam>({2, 8200, true, 1});
}

TYPED_TEST(LayerNormOnGpu, OnlyWhatIsWanted) {
  for (const i64 cols : {48, 8208}) {
    check_gradient<TypeParam>({9, cols}, {true, false, false});
    check_gradient<TypeParam>({9, cols}, {false, true, true});
    check_gradient<TypeParam>({9, cols}, {true, false, true});
  }
}

// The variance is that of differences, not a difference of squares: what is left are the roundings of the
// mean itself (both sides').
TEST(LayerNormOnGpuAccuracy, LargeMean) {
  check_forward<float>({4, 768}, 999.0, 1001.0, 4e-4);
  check_forward<float>({2, 9000}, 99.0, 101.0, 4e-5);
}

TEST(LayerNormOnGpuEmpty, NoRowsGiveZeroSums) {
  const Results gpu = on_device([&](Device& device) {
    LayerNormGradArgs args{DType::f32,
                           0,
                           5,
                           nullptr,
                           nullptr,
                           device.in<float>({1, 2, 3, 4, 5}),
                           nullptr,
                           nullptr,
                           nullptr,
                           device.out<float>("dscale", 5),
                           device.out<float>("dbias", 5),
                           nullptr};
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(layer_norm_grad, args);
  });
  expect_close(gpu.get<float>("dscale"), std::vector<double>(5, 0.0), {}, "dscale");
  expect_close(gpu.get<float>("dbias"), std::vector<double>(5, 0.0), {}, "dbias");
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
