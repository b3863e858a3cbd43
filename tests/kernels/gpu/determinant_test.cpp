// Determinants and their gradients on the executor against the CPU's kernels.
#include "kernels/determinant.h"

#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

template <class T>
class GpuDeterminant : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuDeterminant, Types);

TYPED_TEST(GpuDeterminant, AsOnTheCpu) {
  using T = TypeParam;
  for (const auto& [matrices, n] : {std::pair<i64, i64>{3, 5}, {130, 2}, {1, 9}, {0, 3}, {4, 0}}) {
    const auto x = numbers<T>(matrices * n * n, 1), dy = numbers<T>(matrices, 2);
    DeterminantArgs args{cpu_dtype<T>(), matrices, n, x.data(), nullptr, nullptr};
    DeterminantGradArgs grad{cpu_dtype<T>(), matrices, n, dy.data(), x.data(), nullptr, nullptr};
    std::vector<Host<T>> y(std::size_t(matrices), Host<T>(0)), dx(x.size());
    std::vector<char> workspace(
        std::max(workspace_bytes(Target::cpu, args), workspace_bytes(Target::cpu, grad)));
    args.y = y.data();
    grad.dx = dx.data();
    args.workspace = grad.workspace = workspace.data();
    cpu().determinant(args);
    cpu().determinant_grad(grad);
    const Results gpu = on_device([&, matrices = matrices, n = n](Device& device) {
      DeterminantArgs a{gpu_dtype<T>(), matrices, n, device.in<T>(x), device.out<T>("y", y.size()), nullptr};
      a.workspace = device.workspace(workspace_bytes(Target::gpu, a));
      device.run(determinant, a);
      DeterminantGradArgs g{gpu_dtype<T>(),   matrices,        n,
                            device.in<T>(dy), device.in<T>(x), device.out<T>("dx", dx.size()),
                            nullptr};
      g.workspace = device.workspace(workspace_bytes(Target::gpu, g));
      device.run(determinant_grad, g);
    });
    expect_close(gpu.get<T>("y"), widen(y), tolerance<T>({1e-6, 1e-6}), "y");
    expect_close(gpu.get<T>("dx"), widen(dx), tolerance<T>({1e-6, 1e-6}), "dx");
  }
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
