// Batch normalization and its gradient on the GPU executor against the CPU kernels.
#include "kernels/gpu/batch_norm.h"

#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

struct Case {
  i64 n, c, spatial;
  bool training = true;
  std::size_t offset = 0;  // of the device buffers from their 16-byte boundary, in elements
  double low = -1.0, high = 3.0;
};

// The CPU's kernel, with the workspace that it wants.
template <class Args>
void on_cpu(void (*CpuKernels::*kernel)(const Args&), Args args) {
  std::vector<double> workspace(workspace_bytes(Target::cpu, args) / sizeof(double) + 1);
  args.workspace = workspace.data();
  (cpu().*kernel)(args);
}

template <class T, class P = T>
void check_forward(const Case& s) {
  using H = Host<T>;
  const std::size_t c = std::size_t(s.c);
  const auto x = numbers<T>(s.n * s.c * s.spatial, 1, s.low, s.high), scale = numbers<P>(s.c, 2),
             bias = numbers<P>(s.c, 3);
  const auto old_mean = numbers<P>(s.c, 4), old_var = numbers<P>(s.c, 5, 0.5, 2.0);
  std::vector<H> y(x.size()), running_mean(c), running_var(c), mean(c), inv_std(c);
  on_cpu(&CpuKernels::batch_norm,
         BatchNormArgs{cpu_dtype<T>(), s.training, s.n, s.c, s.spatial, 1e-5, 0.9, x.data(), scale.data(),
                       bias.data(), old_mean.data(), old_var.data(), y.data(), running_mean.data(),
                       running_var.data(), mean.data(), inv_std.data()});
  const Results gpu = on_device([&](Device& device) {
    P* const running[] = {device.inout<P>("running_mean", old_mean),
                          device.inout<P>("running_var", old_var)};  // in place
    BatchNormArgs args{gpu_dtype<T>(),
                       s.training,
                       s.n,
                       s.c,
                       s.spatial,
                       1e-5,
                       0.9,
                       device.in<T>(x, s.offset),
                       device.in<P>(scale),
                       device.in<P>(bias),
                       running[0],
                       running[1],
                       device.out<T>("y", y.size()),
                       running[0],
                       running[1],
                       device.out<Accum<T>>("mean", c),
                       device.out<Accum<T>>("inv_std", c)};
    args.parameters = gpu_dtype<P>();
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(batch_norm, args);
    args.x = args.y = device.inout<T>("in place", x);
    args.running_mean = device.in<P>(old_mean);
    args.running_var = device.in<P>(old_var);
    args.running_mean_out = args.running_var_out = args.saved_mean = args.saved_inv_std = nullptr;
    device.run(batch_norm, args);
  });
  const double size = std::max(std::abs(s.low), std::abs(s.high));
  const Tolerance close = tolerance<T>({2e-5, 5e-6 * size}), sums = tolerance<P>({1e-5, 1e-6});
  const Tolerance statistics = tolerance<Accum<T>>({1e-5, 1e-6});
  expect_close(gpu.get<T>("y"), widen(y), close, "y");
  expect_close(gpu.get<T>("in place"), widen(y), close, "y in place");
  expect_close(gpu.get<P>("running_mean"), widen(running_mean), sums, "running mean");
  expect_close(gpu.get<P>("running_var"), widen(running_var), sums, "running variance");
  expect_close(gpu.get<Accum<T>>("mean"), widen(mean), statistics, "mean");
  expect_close(gpu.get<Accum<T>>("inv_std"), widen(inv_std), statistics, "inv_std");
}

template <class T, class P = T>
void check_gradient(const Case& s) {
  using H = Host<T>;
  const std::size_t c = std::size_t(s.c);
  const auto dy = numbers<T>(s.n * s.c * s.spatial, 6), x = numbers<T>(s.n * s.c * s.spatial, 7),
             scale = numbers<P>(s.c, 8);
  const auto mean = numbers<Accum<T>>(s.c, 9, -0.5, 0.5), inv_std = numbers<Accum<T>>(s.c, 10, 0.5, 1.5);
  std::vector<H> dx(x.size()), dscale(c), dbias(c);
  on_cpu(&CpuKernels::batch_norm_grad,
         BatchNormGradArgs{cpu_dtype<T>(), s.training, s.n, s.c, s.spatial, dy.data(), x.data(), scale.data(),
                           mean.data(), inv_std.data(), dx.data(), dscale.data(), dbias.data()});
  const Results gpu = on_device([&](Device& device) {
    BatchNormGradArgs args{gpu_dtype<T>(),
                           s.training,
                           s.n,
                           s.c,
                           s.spatial,
                           device.in<T>(dy, s.offset),
                           device.in<T>(x),
                           device.in<P>(scale),
                           device.in<Accum<T>>(mean),
                           device.in<Accum<T>>(inv_std),
                           device.out<T>("dx", dx.size()),
                           device.out<P>("dscale", c),
                           device.out<P>("dbias", c)};
    args.parameters = gpu_dtype<P>();
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(batch_norm_grad, args);
    args.dy = args.dx = device.inout<T>("in place", dy);
    args.dscale = args.dbias = nullptr;
    device.run(batch_norm_grad, args);
  });
  const Tolerance close = tolerance<T>({5e-5, 1e-5});
  const Tolerance sums = tolerance<P>({2e-5, 3e-6 * std::sqrt(double(s.n * s.spatial))});
  expect_close(gpu.get<T>("dx"), widen(dx), close, "dx");
  expect_close(gpu.get<T>("in place"), widen(dx), close, "dx in place");
  expect_close(gpu.get<P>("dscale"), widen(dscale), sums, "dscale");
  expect_close(gpu.get<P>("dbias"), widen(dbias), sums, "dbias");
}

// Mean and variance alone, and the sums of the gradient alone, from nothing but what they need.
template <class T>
void check_sums(const Case& s) {
  SCOPED_TRACE(testing::Message() << "[" << s.n << ", " << s.c << ", " << s.spatial << "]");
  using H = Host<T>;
  const std::size_t c = std::size_t(s.c);
  const auto dy = numbers<T>(s.n * s.c * s.spatial, 6),
             x = numbers<T>(s.n * s.c * s.spatial, 7, s.low, s.high);
  const auto center = numbers<Accum<T>>(s.c, 9, -0.5, 0.5), inv_std = numbers<Accum<T>>(s.c, 10, 0.5, 1.5);
  std::vector<H> mean(c), var(c), dscale(c), dbias(c);
  BatchNormArgs moments{cpu_dtype<T>(), true, s.n, s.c, s.spatial};
  moments.x = x.data();
  moments.saved_mean = mean.data();
  moments.saved_inv_std = var.data();
  on_cpu(&CpuKernels::batch_norm, moments);
  BatchNormGradArgs sums{cpu_dtype<T>(), true, s.n, s.c, s.spatial};
  sums.dy = dy.data();
  sums.x = x.data();
  sums.saved_mean = center.data();
  sums.saved_inv_std = inv_std.data();
  sums.dscale = dscale.data();
  sums.dbias = dbias.data();
  on_cpu(&CpuKernels::batch_norm_grad, sums);
  const Results gpu = on_device([&](Device& device) {
    BatchNormArgs a = moments;
    a.dtype = gpu_dtype<T>();
    a.parameters = gpu_dtype<Accum<T>>();
    a.x = device.in<T>(x, s.offset);
    a.saved_mean = device.out<Accum<T>>("mean", c);
    a.saved_inv_std = device.out<Accum<T>>("var", c);
    a.workspace = device.workspace(workspace_bytes(Target::gpu, a));
    device.run(batch_norm, a);
    BatchNormGradArgs g = sums;
    g.dtype = gpu_dtype<T>();
    g.parameters = gpu_dtype<Accum<T>>();
    g.dy = device.in<T>(dy);
    g.x = device.in<T>(x);
    g.saved_mean = device.in<Accum<T>>(center);
    g.saved_inv_std = device.in<Accum<T>>(inv_std);
    g.dscale = device.out<Accum<T>>("dscale", c);
    g.dbias = device.out<Accum<T>>("dbias", c);
    g.workspace = device.workspace(workspace_bytes(Target::gpu, g));
    device.run(batch_norm_grad, g);
  });
  const Tolerance statistics = tolerance<Accum<T>>({1e-5, 1e-6});
  const Tolerance close = tolerance<Accum<T>>({2e-5, 3e-6 * std::sqrt(double(s.n * s.spatial))});
  expect_close(gpu.get<Accum<T>>("mean"), widen(mean), statistics, "mean");
  expect_close(gpu.get<Accum<T>>("var"), widen(var), statistics, "variance");
  expect_close(gpu.get<Accum<T>>("dscale"), widen(dscale), close, "dscale");
  expect_close(gpu.get<Accum<T>>("dbias"), widen(dbias), close, "dbias");
}

template <class T, class P = T>
void check(Case s) {
  for (const bool training : {true, false}) {
    s.training = training;
    SCOPED_TRACE(testing::Message() << "[" << s.n << ", " << s.c << ", " << s.spatial << "] training "
                                    << training << " offset " << s.offset);
    check_forward<T, P>(s);
    check_gradient<T, P>(s);
  }
}

template <class T>
class BatchNormOnGpu : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(BatchNormOnGpu, Types);

TYPED_TEST(BatchNormOnGpu, LongPlanes) {
  check<TypeParam>({2, 3, 16});
  check<TypeParam>({3, 5, 49});
  check<TypeParam>({2, 4, 64});
  check<TypeParam>({1, 1, 33});
  check<TypeParam>({5, 2, 3136});
  check<TypeParam>({1, 2, 20000});
  check<TypeParam>({7, 1, 2503});
}

TYPED_TEST(BatchNormOnGpu, ShortPlanes) {
  check<TypeParam>({64, 3, 1});
  check<TypeParam>({1, 5, 7});
  check<TypeParam>({33, 300, 1});
  check<TypeParam>({100, 6, 9});
  check<TypeParam>({3000, 2, 1});
}

TYPED_TEST(BatchNormOnGpu, MomentsAndSumsAlone) {
  check_sums<TypeParam>({2, 4, 64});
  check_sums<TypeParam>({3, 5, 49});
  check_sums<TypeParam>({1, 2, 20000});
  check_sums<TypeParam>({33, 300, 1});
  check_sums<TypeParam>({2, 3, 64, true, 1});
}

template <class T>
class BatchNormOnGpuWide : public testing::Test {};
TYPED_TEST_SUITE(BatchNormOnGpuWide, Halves);

TYPED_TEST(BatchNormOnGpuWide, ParametersOfMixedPrecision) {
  check<TypeParam, float>({2, 4, 64});
  check<TypeParam, float>({3, 5, 49});
  check<TypeParam, float>({33, 30, 1});
}

TYPED_TEST(BatchNormOnGpu, OffTheBoundary) { check<TypeParam>({2, 3, 64, true, 1}); }

TEST(BatchNormOnGpuAccuracy, LargeMean) {  // variance 1/3 at a mean of 1000: differences, not squares
  for (const Case& s : {Case{4, 2, 3136}, Case{700, 3, 1}, Case{8, 3, 49}}) {
    Case far = s;
    far.low = 999.0;
    far.high = 1001.0;
    SCOPED_TRACE(testing::Message() << s.n << " " << s.c << " " << s.spatial);
    check_forward<float>(far);
  }
}

TEST(BatchNormOnGpuAccuracy, FirstElementFarAway) {  // what the numbers are relative to may be an outlier
  constexpr i64 n = 4, spatial = 4096;
  auto x = numbers<float>(n * spatial, 1, -1.0, 1.0);
  x[0] = 1e4f;
  double mean = 0, var = 0;
  for (const float v : x) mean += double(v) / double(x.size());
  for (const float v : x) var += (double(v) - mean) * (double(v) - mean) / double(x.size());
  const Results gpu = on_device([&](Device& device) {
    BatchNormArgs args{DType::f32,
                       true,
                       n,
                       1,
                       spatial,
                       0.0,
                       0.0,
                       device.in<float>(x),
                       device.in<float>({1}),
                       device.in<float>({0}),
                       device.in<float>({0}),
                       device.in<float>({1}),
                       device.out<float>("y", x.size()),
                       device.out<float>("mean", 1),
                       device.out<float>("var", 1),
                       nullptr,
                       nullptr};
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(batch_norm, args);
  });
  expect_close(gpu.get<float>("mean"), {mean}, {0, 1e-6 * std::sqrt(var)}, "mean");
  expect_close(gpu.get<float>("var"), {var}, {1e-6, 0}, "variance");
}

TEST(BatchNormOnGpuSpecial, NanStaysInItsChannel) {
  auto x = numbers<float>(2 * 3 * 40, 1);
  x[45] = std::numeric_limits<float>::quiet_NaN();  // channel 1
  const Results gpu = on_device([&](Device& device) {
    BatchNormArgs args{DType::f32,
                       true,
                       2,
                       3,
                       40,
                       1e-5,
                       0.9,
                       device.in<float>(x),
                       device.in<float>({1, 1, 1}),
                       device.in<float>({0, 0, 0}),
                       device.in<float>({0, 0, 0}),
                       device.in<float>({1, 1, 1}),
                       device.out<float>("y", x.size()),
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(batch_norm, args);
  });
  const auto y = gpu.get<float>("y");
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 40 % 3 == 1) << i;
}

// Behind a library that gives mean and inv_std: the running statistics as the whole kernel makes them.
TEST(GpuBatchNormRunning, FromTheStatisticsOfTheBatch) {
  constexpr i64 kN = 37, kC = 300;
  const auto x = numbers<float>(kN * kC, 1, -1.0, 3.0), ones = numbers<float>(kC, 2);
  const auto old_mean = numbers<float>(kC, 4), old_var = numbers<float>(kC, 5, 0.5, 2.0);
  const Results gpu = on_device([&](Device& device) {
    BatchNormArgs args{};
    args.dtype = DType::f32;
    args.parameters = DType::f32;
    args.training = true;
    args.n = kN;
    args.c = kC;
    args.spatial = 1;
    args.epsilon = 1e-5;
    args.momentum = 0.7;
    args.x = device.in<float>(x);
    args.scale = args.bias = device.in<float>(ones);
    args.running_mean = device.in<float>(old_mean);
    args.running_var = device.in<float>(old_var);
    args.y = device.out<float>("y", x.size());
    args.running_mean_out = device.out<float>("mean", std::size_t(kC));
    args.running_var_out = device.out<float>("var", std::size_t(kC));
    args.saved_mean = device.out<float>("saved_mean", std::size_t(kC));
    args.saved_inv_std = device.out<float>("saved_inv_std", std::size_t(kC));
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(batch_norm, args);
    args.running_mean_out = device.inout<float>("mean after", old_mean);  // in place
    args.running_var_out = device.inout<float>("var after", old_var);
    args.running_mean = args.running_mean_out;
    args.running_var = args.running_var_out;
    device.run(batch_norm_running, args);
  });
  expect_close(gpu.get<float>("mean after"), widen(gpu.get<float>("mean")), {1e-6, 1e-6}, "running mean");
  expect_close(gpu.get<float>("var after"), widen(gpu.get<float>("var")), {1e-6, 1e-6}, "running variance");
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
