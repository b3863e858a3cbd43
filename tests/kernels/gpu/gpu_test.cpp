// The half types of device code against IEEE 754, every number of them.
#include <cmath>
#include <limits>

#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
T of_bits(unsigned bits) {
  return {static_cast<unsigned short>(bits)};
}

template <class T>
class HalfOnGpu : public testing::Test {};
TYPED_TEST_SUITE(HalfOnGpu, Halves);

TYPED_TEST(HalfOnGpu, EveryNumberComesBack) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float value = to_accum(of_bits<TypeParam>(bits));
    const TypeParam back = from_accum<TypeParam>(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_accum(back))) << bits;
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

// Between neighbours, subnormals too: the nearer one, and of two equally near that with the last bit 0.
TYPED_TEST(HalfOnGpu, RoundsToNearestEven) {
  for (unsigned bits = 0; !std::isinf(to_accum(of_bits<TypeParam>(bits + 1))); ++bits) {
    const double low = to_accum(of_bits<TypeParam>(bits)), high = to_accum(of_bits<TypeParam>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const auto rounded = [](float v) { return unsigned(from_accum<TypeParam>(v).bits); };
    ASSERT_EQ(rounded(middle), bits + bits % 2) << middle;
    ASSERT_EQ(rounded(-middle), 0x8000u + bits + bits % 2) << middle;
    ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), bits) << middle;
    ASSERT_EQ(rounded(std::nextafter(middle, kInfinity)), bits + 1) << middle;
  }
}

TEST(F16OnGpu, IsBinary16) {
  EXPECT_EQ(to_f16(1.0f).bits, 0x3c00);
  EXPECT_EQ(to_f16(-2.0f).bits, 0xc000);
  EXPECT_EQ(to_float(f16{0x7bff}), 65504.0f);
  EXPECT_EQ(to_float(f16{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(f16{0x03ff}), 0x1p-14f - 0x1p-24f) << "the largest subnormal";
}

TEST(F16OnGpu, WhatIsTooLargeIsInfinite) {
  EXPECT_EQ(to_f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_f16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(to_f16(kInfinity).bits, 0x7c00);
  EXPECT_EQ(to_f16(0x1p-25f).bits, 0);
  EXPECT_EQ(to_f16(-0x1p-25f).bits, 0x8000);
}

// By way of float this would be a tie, and go down.
TEST(F16OnGpu, DoublesAreRoundedOnce) {
  EXPECT_EQ(to_f16(1.0 + 0x1p-11 + 0x1p-40).bits, 0x3c01);
  EXPECT_EQ(to_f16(1.0 + 0x1p-11).bits, 0x3c00);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
