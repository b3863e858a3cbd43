// Division by multiplication against plain division: all small numbers, and the edges of what the
// multiplication may be used for.
#include "kernels/gpu/divider.h"

#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr long long kLimit = (1ll << 31) - 1;

TEST(Divider, EqualsDivisionOfSmallNumbers) {
  for (long long d = 1; d < 130; ++d) {
    const Divider by(d, 5000);
    ASSERT_TRUE(by.small);
    for (long long n = 0; n <= 5000; ++n) ASSERT_EQ(by(n), n / d) << n << " / " << d;
  }
}

TEST(Divider, EqualsDivisionUpToTheLimit) {
  std::vector<long long> divisors = {
      1, 2, 3, 5, 7, 641, 65535, 65536, 65537, kLimit / 2, kLimit / 2 + 1, kLimit - 1, kLimit};
  Random random(1);
  for (int i = 0; i < 200; ++i) divisors.push_back(1 + random.below(i % 2 == 0 ? kLimit : 1000));
  for (const long long d : divisors) {
    const Divider by(d, kLimit);
    ASSERT_TRUE(by.small);
    for (int i = 0; i < 200; ++i) {
      const long long multiple = random.below(kLimit / d + 1) * d;
      const long long any = random.below(kLimit);
      for (const long long n : {multiple, multiple - 1, multiple + d - 1, any, kLimit}) {
        if (n >= 0 && n <= kLimit) {
          ASSERT_EQ(by(n), n / d) << n << " / " << d;
        }
      }
    }
  }
}

TEST(Divider, DividesLargeNumbersPlainly) {
  const Divider large_dividend(3, 1ll << 40), large_divisor(1ll << 31, kLimit);
  EXPECT_FALSE(large_dividend.small);
  EXPECT_FALSE(large_divisor.small);
  EXPECT_EQ(large_dividend((1ll << 40) - 1), ((1ll << 40) - 1) / 3);
  EXPECT_EQ(large_divisor(kLimit), 0);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
