// GridSample and its gradients on the executor against the CPU's kernels.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

i64 area(const std::int64_t* sizes) { return sizes[0] * sizes[1] * sizes[2]; }

template <class T>
void check(GridMode mode, GridPadding padding, bool align, int rank) {
  GridSampleArgs s{};
  s.dtype = cpu_dtype<T>();
  s.mode = mode;
  s.padding = padding;
  s.align_corners = align;
  s.rank = rank;
  s.n = 2;
  s.c = 5;
  const i64 in[] = {rank == 3 ? 3 : 1, 4, 5}, out[] = {rank == 3 ? 2 : 1, 3, 7};
  for (int a = 0; a < kGridRank; ++a) {
    s.in[a] = in[a];
    s.out[a] = out[a];
  }
  const auto x = numbers<T>(s.n * s.c * area(s.in), 1),
             grid = numbers<T>(s.n * area(s.out) * rank, 2, -1.9, 1.9);
  const auto dy = numbers<T>(s.n * s.c * area(s.out), 3);
  std::vector<Host<T>> y(dy.size()), dx(x.size()), dgrid(grid.size());
  GridSampleArgs call = s;
  call.x = x.data();
  call.grid = grid.data();
  call.y = y.data();
  GridSampleGradArgs call_back{call, dy.data(), dx.data(), dgrid.data(), nullptr};
  std::vector<double> workspace(kernels::workspace_bytes(Target::cpu, call_back) / sizeof(double) + 1);
  call.workspace = call_back.workspace = workspace.data();
  cpu().grid_sample(call);
  cpu().grid_sample_grad(call_back);
  const Results gpu = on_device([&](Device& device) {
    GridSampleArgs forward = s;
    forward.dtype = gpu_dtype<T>();
    forward.x = device.in<T>(x);
    forward.grid = device.in<T>(grid);
    forward.y = device.out<T>("y", y.size());
    device.run(grid_sample, forward);
    GridSampleGradArgs back{forward, device.in<T>(dy), device.out<T>("dx", dx.size()),
                            device.out<T>("dgrid", dgrid.size()), nullptr};
    back.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, back));
    device.run(grid_sample_grad, back);
  });
  expect_close(gpu.get<T>("y"), widen(y), tolerance<T>({1e-5, 1e-5}), "y");
  expect_close(gpu.get<T>("dx"), widen(dx), tolerance<T>({1e-5, 2e-5}), "dx");
  expect_close(gpu.get<T>("dgrid"), widen(dgrid), tolerance<T>({1e-4, 1e-4}), "dgrid");
}

template <class T>
class GpuGridSample : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuGridSample, Floats);

TYPED_TEST(GpuGridSample, IsTheCpus) {
  for (const auto mode : {GridMode::linear, GridMode::nearest, GridMode::cubic})
    for (const auto padding : {GridPadding::zeros, GridPadding::border, GridPadding::reflection}) {
      check<TypeParam>(mode, padding, padding == GridPadding::border, 2);
      check<TypeParam>(mode, padding, padding != GridPadding::border, mode == GridMode::cubic ? 2 : 3);
    }
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
