#include "engine/device/gpu/runtime/algorithms.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gradloom::kernels::gpu {
namespace {

GpuAlgorithm algorithm(const std::string& problem, std::uint8_t byte, std::int32_t size = 1) {
  GpuAlgorithm a{};
  std::memcpy(a.problem, problem.data(), std::min(problem.size(), sizeof a.problem));
  a.bytes[0] = byte;
  a.size = size;
  return a;
}

TEST(Algorithms, WhatIsGivenIsNotYetInUse) {
  AlgorithmTable table;
  EXPECT_TRUE(table.give(algorithm("p", 1)));
  EXPECT_TRUE(table.give(algorithm("p", 2)));  // the later one
  ASSERT_NE(table.given("p"), nullptr);
  EXPECT_EQ(table.given("p")->bytes[0], 2);
  EXPECT_EQ(table.given("q"), nullptr);
  EXPECT_EQ(table.list(nullptr, 0), 0);
}

TEST(Algorithms, ForeignOnesAreRefused) {
  AlgorithmTable table;
  EXPECT_FALSE(table.give(algorithm("", 1)));
  EXPECT_FALSE(table.give(algorithm("p", 1, 0)));
  EXPECT_FALSE(table.give(algorithm("p", 1, -5)));
  EXPECT_FALSE(table.give(algorithm("p", 1, GPU_ALGORITHM_BYTES + 1)));
  EXPECT_TRUE(table.give(algorithm("p", 1, GPU_ALGORITHM_BYTES)));
  EXPECT_FALSE(table.give(algorithm(std::string(sizeof(GpuAlgorithm::problem), 'x'), 1))) << "no end of text";
}

TEST(Algorithms, ChosenOnesAreListed) {
  AlgorithmTable table;
  const std::uint8_t one[] = {1, 2, 3}, two[] = {9};
  table.choose("b", one, sizeof one, 700);
  table.choose("a", two, sizeof two, 0);
  table.choose("a", one, sizeof one, 5);
  table.choose(std::string(sizeof(GpuAlgorithm::problem), 'x'), one, sizeof one, 1);
  GpuAlgorithm rows[3] = {};
  EXPECT_EQ(table.list(rows, 1), 2) << "the number is told, not more is written";
  EXPECT_STREQ(rows[1].problem, "");
  EXPECT_EQ(table.list(rows, 3), 2);
  EXPECT_STREQ(rows[0].problem, "a");
  EXPECT_STREQ(rows[1].problem, "b");
  EXPECT_EQ(rows[0].size, 3);
  EXPECT_EQ(rows[0].time_ns, 5);
  EXPECT_EQ(std::memcmp(rows[1].bytes, one, 3), 0);
}

}  // namespace
}  // namespace gradloom::kernels::gpu
