// Gradient of Gather on the executor against the CPU's. Sums of whole numbers are exact in any order; others
// agree within rounding.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

enum class Indices { random, one_row, two_rows, ascending, out_of_range };

template <class Index>
std::vector<Index> indices_of(Indices kind, i64 axis, i64 count) {
  Random random(2);
  std::vector<Index> indices;
  for (i64 k = 0; k < count; ++k) {
    switch (kind) {
      case Indices::random: indices.push_back(Index(random.below(2 * axis) - axis)); break;
      case Indices::one_row: indices.push_back(Index(axis / 2)); break;
      case Indices::two_rows: indices.push_back(Index(k * 3 % 5 < 2 ? 0 : axis - 1)); break;
      case Indices::ascending: indices.push_back(Index(k % axis)); break;
      case Indices::out_of_range:
        indices.push_back(Index(k % 3 == 0 ? random.below(axis) : k % 3 == 1 ? axis + k : -axis - 1));
        break;
    }
  }
  return indices;
}

struct Shape {
  i64 outer, axis, inner, count;
};

template <class T, class Index>
void check(const Shape& s, Indices kind = Indices::random, bool whole_numbers = false, std::size_t offset = 0,
           bool adds = false) {
  auto dy = numbers<T>(s.outer * s.count * s.inner, 1);
  if (whole_numbers) {
    for (auto& v : dy) v = std::round(v);
  }
  const auto indices = indices_of<Index>(kind, s.axis, s.count);
  constexpr DType kIndex = sizeof(Index) == 8 ? DType::i64 : DType::i32;
  std::vector<Host<T>> expected(std::size_t(s.outer * s.axis * s.inner));
  if (adds) expected = numbers<T>(s.outer * s.axis * s.inner, 7);
  const std::vector<Host<T>> base = expected;
  GatherGradArgs args{cpu_dtype<T>(), kIndex,    s.outer,        s.axis,          s.inner,
                      s.count,        dy.data(), indices.data(), expected.data(), nullptr};
  std::vector<std::uint8_t> workspace(kernels::workspace_bytes(Target::cpu, args) + 1);
  args.workspace = workspace.data();
  args.adds = adds;
  args.divisor = adds ? 4 : 1;
  cpu().gather_grad(args);
  const Results gpu = on_device([&](Device& device) {
    GatherGradArgs call = args;
    call.dtype = gpu_dtype<T>();
    call.dy = device.in<T>(dy, offset);
    call.indices = device.in<Index>(indices);
    call.ddata =
        adds ? device.inout<T>("ddata", base, offset) : device.out<T>("ddata", expected.size(), offset);
    call.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, call));
    device.run(gather_grad, call);
  });
  const Tolerance close = whole_numbers && sizeof(T) >= 4 ? Tolerance{0, 0} : tolerance<T>({1e-5, 2e-5});
  expect_close(gpu.get<T>("ddata"), widen(expected), close,
               std::to_string(s.count) + " indices of " + std::to_string(s.axis) + ", kind " +
                   std::to_string(int(kind)));
}

template <class T>
class GpuGatherGrad : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuGatherGrad, Floats);

TYPED_TEST(GpuGatherGrad, FewIndices) {
  check<TypeParam, std::int64_t>({1, 1, 1, 1});
  check<TypeParam, std::int64_t>({1, 5, 3, 0});  // all rows are zero
  check<TypeParam, std::int32_t>({1, 40, 16, 30});
  check<TypeParam, std::int64_t>({3, 7, 5, 50});
  check<TypeParam, std::int32_t>({1, 40, 16, 30}, Indices::random, false, 1);
  check<TypeParam, std::int32_t>({0, 4, 3, 2});
}

TYPED_TEST(GpuGatherGrad, RowsThatGoOverChunks) {
  check<TypeParam, std::int32_t>({1, 9, 24, 700});
  check<TypeParam, std::int64_t>({2, 11, 3, 700});
  check<TypeParam, std::int64_t>({1, 64, 7, 500}, Indices::one_row);
  check<TypeParam, std::int64_t>({1, 64, 8, 64}, Indices::one_row);
  check<TypeParam, std::int64_t>({1, 64, 8, 128}, Indices::one_row);
  check<TypeParam, std::int32_t>({2, 3, 9, 321}, Indices::two_rows);
}

TYPED_TEST(GpuGatherGrad, SortsInSeveralPasses) {
  check<TypeParam, std::int64_t>({1, 255, 2, 600});
  check<TypeParam, std::int64_t>({1, 256, 2, 600});
  check<TypeParam, std::int32_t>({1, 1000, 4, 5000});
  check<TypeParam, std::int64_t>({1, 70000, 1, 4097});  // three passes
  check<TypeParam, std::int32_t>({1, 3000, 3, 3000}, Indices::ascending);
}

TYPED_TEST(GpuGatherGrad, WholeNumbersAreExact) {
  check<TypeParam, std::int64_t>({2, 300, 5, 2500}, Indices::random, true);
  check<TypeParam, std::int32_t>({1, 2, 33, 1000}, Indices::two_rows, true);
}

TYPED_TEST(GpuGatherGrad, IgnoresIndicesOutOfRange) {
  check<TypeParam, std::int64_t>({1, 20, 8, 300}, Indices::out_of_range);
  check<TypeParam, std::int32_t>({2, 256, 3, 200}, Indices::out_of_range);
}

TYPED_TEST(GpuGatherGrad, AddsToWhatIsThere) {
  check<TypeParam, std::int64_t>({1, 5, 3, 0}, Indices::random, false, 0, true);
  check<TypeParam, std::int32_t>({1, 40, 16, 30}, Indices::random, false, 1, true);
  check<TypeParam, std::int32_t>({2, 9, 24, 700}, Indices::random, false, 0, true);
  check<TypeParam, std::int64_t>({1, 64, 7, 500}, Indices::one_row, false, 0, true);
  check<TypeParam, std::int64_t>({1, 20, 8, 300}, Indices::out_of_range, false, 0, true);
}

// Within a chunk the order is that of k: 1e8 + 1 - 1e8 is 0 in float, in other orders 1.
TEST(GpuGatherGradOrder, IsThatOfK) {
  const std::vector<float> dy = {1e8f, 5, 1, 7, -1e8f};
  const std::vector<std::int64_t> indices = {1, 0, 1, 2, 1};
  const Results gpu = on_device([&](Device& device) {
    GatherGradArgs args{DType::f32,
                        DType::i64,
                        1,
                        3,
                        1,
                        5,
                        device.in<float>(dy),
                        device.in<std::int64_t>(indices),
                        device.out<float>("ddata", 3),
                        nullptr};
    args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
    device.run(gather_grad, args);
  });
  EXPECT_EQ(gpu.get<float>("ddata"), (std::vector<float>{5, 0, 7}));
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
