// Group normalization and its gradient on the GPU executor against the CPU kernels.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

struct Case {
  i64 n, groups, channels, spatial;
  i64 count() const { return n * groups * channels * spatial; }
  i64 all_channels() const { return groups * channels; }
};

template <class T, class P = T>
void check(const Case& s) {
  SCOPED_TRACE(testing::Message() << s.n << " images, " << s.groups << " groups of " << s.channels
                                  << " channels of " << s.spatial);
  using H = Host<T>;
  const auto x = numbers<T>(s.count(), 1, -2, 3), dy = numbers<T>(s.count(), 4);
  const auto scale = numbers<P>(s.all_channels(), 2), bias = numbers<P>(s.all_channels(), 3);
  const auto saved_mean = numbers<Accum<T>>(s.n * s.groups, 5, -0.5, 0.5),
             saved_inv_std = numbers<Accum<T>>(s.n * s.groups, 6, 0.5, 1.5);
  std::vector<H> y(x.size()), mean(std::size_t(s.n * s.groups)), inv_std(mean.size()), dx(x.size()),
      dscale(scale.size()), dbias(scale.size());
  cpu().group_norm({cpu_dtype<T>(), s.n, s.groups, s.channels, s.spatial, 1e-5, x.data(), scale.data(),
                    bias.data(), y.data(), mean.data(), inv_std.data()});
  GroupNormGradArgs cpu_args{
      cpu_dtype<T>(), s.n,          s.groups,          s.channels,           s.spatial, dy.data(),
      x.data(),       scale.data(), saved_mean.data(), saved_inv_std.data(), dx.data(), dscale.data(),
      dbias.data(),   nullptr};
  std::vector<double> space(workspace_bytes(Target::cpu, cpu_args) / 8 + 1);
  cpu_args.workspace = space.data();
  cpu().group_norm_grad(cpu_args);
  const Results gpu = on_device([&](Device& device) {
    GroupNormArgs args{gpu_dtype<T>(),
                       s.n,
                       s.groups,
                       s.channels,
                       s.spatial,
                       1e-5,
                       device.in<T>(x, 1),
                       device.in<P>(scale),
                       device.in<P>(bias),
                       device.out<T>("y", y.size()),
                       device.out<Accum<T>>("mean", mean.size()),
                       device.out<Accum<T>>("inv_std", mean.size())};
    args.parameters = gpu_dtype<P>();
    device.run(group_norm, args);
    args.x = args.y = device.inout<T>("in place", x);
    device.run(group_norm, args);
    GroupNormGradArgs grad{gpu_dtype<T>(),
                           s.n,
                           s.groups,
                           s.channels,
                           s.spatial,
                           device.in<T>(dy),
                           device.in<T>(x),
                           device.in<P>(scale),
                           device.in<Accum<T>>(saved_mean),
                           device.in<Accum<T>>(saved_inv_std),
                           device.out<T>("dx", dx.size()),
                           device.out<P>("dscale", dscale.size()),
                           device.out<P>("dbias", dbias.size()),
                           nullptr};
    grad.parameters = gpu_dtype<P>();
    grad.workspace = device.workspace(workspace_bytes(Target::gpu, grad));
    device.run(group_norm_grad, grad);
    grad.dy = grad.dx = device.inout<T>("dx in place", dy);
    grad.dscale = grad.dbias = nullptr;
    device.run(group_norm_grad, grad);
  });
  const Tolerance close = tolerance<T>({2e-5, 1e-5}), statistics = tolerance<Accum<T>>({2e-5, 1e-5});
  const Tolerance sums = tolerance<P>({2e-5, 3e-6 * std::sqrt(double(s.n * s.spatial))});
  expect_close(gpu.get<T>("y"), widen(y), close, "y");
  expect_close(gpu.get<T>("in place"), widen(y), close, "y in place");
  expect_close(gpu.get<Accum<T>>("mean"), widen(mean), statistics, "mean");
  expect_close(gpu.get<Accum<T>>("inv_std"), widen(inv_std), statistics, "inv_std");
  expect_close(gpu.get<T>("dx"), widen(dx), tolerance<T>({5e-5, 1e-5}), "dx");
  expect_close(gpu.get<T>("dx in place"), widen(dx), tolerance<T>({5e-5, 1e-5}), "dx in place");
  expect_close(gpu.get<P>("dscale"), widen(dscale), sums, "dscale");
  expect_close(gpu.get<P>("dbias"), widen(dbias), sums, "dbias");
}

template <class T>
class GroupNormOnGpu : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GroupNormOnGpu, Types);

TYPED_TEST(GroupNormOnGpu, Shapes) {
  check<TypeParam>({2, 3, 4, 20});
  check<TypeParam>({1, 1, 1, 2});
  check<TypeParam>({3, 2, 1, 300});
  check<TypeParam>({2, 2, 300, 1});
  check<TypeParam>({1, 300, 1, 3});
}

template <class T>
class GroupNormOnGpuWide : public testing::Test {};
TYPED_TEST_SUITE(GroupNormOnGpuWide, Halves);

TYPED_TEST(GroupNormOnGpuWide, ParametersOfMixedPrecision) {
  check<TypeParam, float>({2, 3, 4, 20});
  check<TypeParam, float>({3, 2, 1, 300});
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
