#include "engine/ranks/agreement.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/engine/ranks/tcp_worlds.h"
#include "tests/engine/ranks/thread_transport.h"

namespace gradloom {
namespace {

using AgreeingRanks = void (*)(int, const std::function<void(World&)>&);

class Agreement : public testing::TestWithParam<AgreeingRanks> {
 protected:
  void SetUp() override {
    if (GetParam() == tcp_worlds::on_ranks && !tcp_worlds::are_here()) GTEST_SKIP() << "built without Asio";
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Agreement, testing::Values(thread_transport::on_ranks, tcp_worlds::on_ranks));

// Every rank finds the same, whoever is asked.
TEST_P(Agreement, TheLowestRankWithAnotherTextIsNamedWithBothTexts) {
  for (const int size : {1, 2, 4})
    for (int odd = 0; odd <= size; ++odd)
      GetParam()(size, [&](World& world) {
        const bool is_odd = world.rank() == odd || (odd == 1 && world.rank() == 3);
        const std::string text = is_odd ? "a longer text of rank " + std::to_string(world.rank()) : "";
        const auto found = other_text(world, text);
        ASSERT_TRUE(found.ok()) << found.error().message;
        if (odd == size || size == 1) {
          EXPECT_FALSE(found->has_value());
          return;
        }
        ASSERT_TRUE(found->has_value());
        EXPECT_EQ((*found)->rank, odd == 0 ? 1 : odd);
        EXPECT_EQ((*found)->first, odd == 0 ? "a longer text of rank 0" : "");
        EXPECT_EQ((*found)->theirs, odd == 0 ? "" : "a longer text of rank " + std::to_string(odd));
      });
}

}  // namespace
}  // namespace gradloom
