// Embedding gradient: sums in the order of the indices, whatever the number of threads.
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

template <class T, class Index>
void check(std::int64_t outer, std::int64_t axis, std::int64_t inner, std::int64_t count,
           bool same_index = false) {
  const auto dy = values<T>(outer * count * inner, 1);
  Random random(2);
  std::vector<Index> indices;
  for (std::int64_t k = 0; k < count; ++k) {
    indices.push_back(same_index ? Index(axis / 2) : Index(random.below(2 * axis) - axis));
  }
  // In T and in order: the kernel promises these bits.
  std::vector<T> expected(std::size_t(outer * axis * inner), T(0));
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t row =
          indices[std::size_t(k)] < 0 ? indices[std::size_t(k)] + axis : indices[std::size_t(k)];
      for (std::int64_t i = 0; i < inner; ++i) {
        expected[std::size_t((o * axis + row) * inner + i)] += dy[std::size_t((o * count + k) * inner + i)];
      }
    }
  }
  on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(expected.size(), T(9));
        GatherGradArgs args{dtype_of<T>(), dtype_of<Index>(), outer,          axis,       inner,
                            count,         dy.data(),         indices.data(), out.data(), nullptr};
        std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
        args.workspace = workspace.data();
        k.gather_grad(args);
        return out;
      },
      [&](const std::vector<T>& out, const std::string& level) {
        EXPECT_TRUE(same_bits(out, expected)) << level;
      });
}

TEST(GatherGrad, AddsInOrder) {
  check<float, std::int64_t>(1, 256, 128, 512);
  check<float, std::int32_t>(1, 1000, 768, 2048);
  check<double, std::int64_t>(3, 7, 5, 200);
  check<float, std::int32_t>(2, 11, 1, 999);
  check<float, std::int64_t>(1, 64, 2000, 300, true);
  check<float, std::int64_t>(1, 5, 3, 0);
  check<double, std::int64_t>(1, 1, 1, 1);
}

TEST(GatherGrad, IgnoresIndicesOutOfRange) {
  const std::vector<float> dy = {1, 2, 4};
  const std::vector<std::int64_t> indices = {0, 5, -9};
  for (const CpuKernels* k : levels()) {
    std::vector<float> out(3, 9.0f);
    std::vector<std::int64_t> workspace(16);
    k->gather_grad(
        {DType::f32, DType::i64, 1, 3, 1, 3, dy.data(), indices.data(), out.data(), workspace.data()});
    EXPECT_EQ(out, (std::vector<float>{1, 0, 0}));
  }
}

// The sum of a row's sources is added to what is there; other rows are not touched.
TEST(GatherGrad, AddsToWhatIsThere) {
  const std::vector<float> dy = {1, 2, 4, 8}, base = {10, 20, -0.0f, 40};
  const std::vector<std::int64_t> indices = {0, 3, -4, 9};
  for (const CpuKernels* k : levels()) {
    std::vector<float> out = base;
    std::vector<std::int64_t> workspace(16);
    GatherGradArgs args{DType::f32, DType::i64,      1, 4, 1, 4, dy.data(), indices.data(),
                        out.data(), workspace.data()};
    args.adds = true;
    args.divisor = 2;
    k->gather_grad(args);
    EXPECT_TRUE(same_bits(out, {12.5f, 20, -0.0f, 41}));
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
