// Philox4x32-10: the known answers of the authors' Random123 (kat_vectors), and how dropout uses the words.
#include "kernels/elementwise.h"
#include "kernels/philox.h"

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using portable::philox4x32_10;

TEST(Philox, KnownAnswers) {
  const auto zero = philox4x32_10(0, 0, 0, 0, 0, 0);
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
  const unsigned ones = 0xffffffffu;
  const auto full = philox4x32_10(ones, ones, ones, ones, ones, ones);
  EXPECT_EQ(full.word[0], 0x408f276du);
  EXPECT_EQ(full.word[1], 0x41c83b0eu);
  EXPECT_EQ(full.word[2], 0xa20bc7c6u);
  EXPECT_EQ(full.word[3], 0x6d5451fdu);
  const auto pi = philox4x32_10(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0);
  EXPECT_EQ(pi.word[0], 0xd16cfe09u);
  EXPECT_EQ(pi.word[1], 0x94fdccebu);
  EXPECT_EQ(pi.word[2], 0x5001e420u);
  EXPECT_EQ(pi.word[3], 0x24126ea1u);
}

constexpr std::uint64_t kSeed = 0x123456789abcdef0ull, kKey = 0x0fedcba987654321ull,
                        kStep = 0x1234500000007ull;

bool kept(std::int64_t i, double ratio) {
  const std::uint64_t block = std::uint64_t(i) / 4, stream = kSeed ^ kKey;
  const auto words = philox4x32_10(unsigned(block), unsigned(block >> 32), unsigned(kStep),
                                   unsigned(kStep >> 32), unsigned(stream), unsigned(stream >> 32));
  return double(words.word[i % 4] >> 8) * 0x1p-24 >= ratio;
}

template <class T>
void check_dropout(std::int64_t n, double ratio, bool training) {
  EwProgram program;
  program.rank = 1;
  program.dims[0] = n;
  EwInput x{dtype_of<T>(), {}};
  x.strides[0] = 1;
  program.inputs = {x};
  program.constants = {{dtype_of<T>(), ratio}, {DType::boolean, training ? 1.0 : 0.0}};
  program.code = {{EwOp::Dropout, dtype_of<T>(), dtype_of<T>(), {0, 1, 2}, kKey},
                  {EwOp::DropoutMask, dtype_of<T>(), DType::boolean, {1, 2, -1}, kKey}};
  program.outputs = {{3, dtype_of<T>()}, {4, DType::boolean}};
  const auto input = values<T>(n, 5);
  for (const CpuKernels* k : levels()) {
    for (const int team : {1, 2}) {
      set_threads(team);
      std::vector<T> out(input.size());
      std::vector<std::uint8_t> mask(input.size());
      const void* inputs[] = {input.data()};
      void* outputs[] = {out.data(), mask.data()};
      const RandomState random{kSeed, kStep};
      k->elementwise({&program, inputs, outputs, &random});
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = std::size_t(i);
        const bool keep = !training || kept(i, double(T(ratio)));
        const T expected = !training ? input[at] : (keep ? input[at] * (T(1) / (T(1) - T(ratio))) : T(0));
        ASSERT_EQ(mask[at], keep ? 1 : 0) << k->isa << " element " << i;
        ASSERT_EQ(out[at], expected) << k->isa << " element " << i;
      }
    }
  }
}

TEST(Philox, DropoutFollowsTheWords) {
  for (const std::int64_t n : {1, 3, 4, 257, 1023, 50021}) {
    check_dropout<float>(n, 0.1, true);
    check_dropout<double>(n, 0.5, true);
  }
  check_dropout<float>(1000, 0.5, false);
  check_dropout<float>(1000, 0.0, true);
}

TEST(Philox, KeepsTheRightShare) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < 100000; ++i) count += kept(i, 0.25) ? 1 : 0;
  EXPECT_NEAR(double(count) / 100000, 0.75, 0.006);  // over 4 standard deviations
}

}  // namespace
}  // namespace gradloom::kernels::test
