#include "sessions/permutation.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace gradloom {
namespace {

std::vector<std::int64_t> all(std::int64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < n; ++i) order.push_back(permutation(i));
  return order;
}

TEST(Permutation, HasEveryElementOnce) {
  for (const std::int64_t n : {1, 2, 3, 5, 16, 17, 1000, 4096, 4097}) {
    const std::vector<std::int64_t> order = all(n, 7, 3);
    const std::set<std::int64_t> seen(order.begin(), order.end());
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), n);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
}

TEST(Permutation, IsAFunctionOfSeedAndEpoch) {
  EXPECT_EQ(all(1000, 7, 3), all(1000, 7, 3));
  EXPECT_NE(all(1000, 7, 3), all(1000, 7, 4));
  EXPECT_NE(all(1000, 7, 3), all(1000, 8, 3));
}

// Of 3! orders none is missing, each about as often.
TEST(Permutation, OrdersAreEquallyLikely) {
  std::map<std::vector<std::int64_t>, int> counts;
  constexpr int kTries = 6000;
  for (std::uint64_t epoch = 0; epoch < kTries; ++epoch) ++counts[all(3, 1, epoch)];
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts)
    EXPECT_NEAR(count, kTries / 6, 5 * 29) << "five standard deviations";
}

TEST(Permutation, LargeOnesTakeNoMemory) {
  const std::int64_t n = std::int64_t{1} << 40;
  const Permutation permutation(n, 1, 0);
  for (const std::int64_t i : {std::int64_t{0}, n / 2, n - 1}) {
    EXPECT_GE(permutation(i), 0);
    EXPECT_LT(permutation(i), n);
  }
}

}  // namespace
}  // namespace gradloom
