#include "viz/model/step_sums.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gradloom {
namespace {

KernelRow kernel(const char* node, const char* op, const char* phase, double ns, std::int64_t bytes) {
  KernelRow row;
  row.info.node = node;
  row.info.op = op;
  row.info.phase = phase;
  row.info.bytes_read = bytes;
  row.step_ns = std::isnan(ns) ? 0 : static_cast<std::int64_t>(ns);
  row.samples = std::isnan(ns) ? 0 : 1;
  return row;
}

std::vector<std::string> names_of(const std::vector<KernelLine>& lines) {
  std::vector<std::string> names;
  for (const KernelLine& line : lines) names.push_back(line.name);
  return names;
}

std::vector<KernelRow> rows(bool timed) {
  const auto ns = [&](double v) { return timed ? v : std::nan(""); };
  return {kernel("a", "MatMul", "forward", ns(100), 10), kernel("b", "Gelu", "forward", ns(300), 1),
          kernel("c", "MatMul", "backward", ns(500), 10), kernel("d", "Gelu", "backward", ns(50), 1),
          kernel("e", "Optimizer", "optimizer", ns(50), 50)};
}

TEST(StepSums, PhasesStandInTheirOrderAndOperatorsByTime) {
  const StepSums sums = step_sums(rows(true));
  EXPECT_TRUE(sums.timed);
  EXPECT_EQ(sums.kernels, 5);
  EXPECT_EQ(sums.time_ns, 1000);
  EXPECT_EQ(names_of(sums.phases), (std::vector<std::string>{"forward", "backward", "optimizer"}));
  EXPECT_EQ(sums.phases[1].time_ns, 550);
  EXPECT_EQ(sums.phases[1].share, 0.55);
  EXPECT_EQ(names_of(sums.operators), (std::vector<std::string>{"MatMul", "Gelu", "Optimizer"}));
  EXPECT_EQ(sums.operators[0].count, 2);
  EXPECT_EQ(sums.operators[0].time_ns, 600);
  EXPECT_EQ(names_of(sums.longest), (std::vector<std::string>{"c", "b", "a"}));
}

TEST(StepSums, WithoutTimesBytesDecideAndNoKernelIsTheLongest) {
  const StepSums sums = step_sums(rows(false));
  EXPECT_FALSE(sums.timed);
  EXPECT_EQ(sums.kernels, 5);
  EXPECT_EQ(names_of(sums.operators), (std::vector<std::string>{"Optimizer", "MatMul", "Gelu"}));
  EXPECT_TRUE(sums.longest.empty());
}

TEST(StepSums, OfNoKernelsTheyAreNothing) {
  const StepSums sums = step_sums({});
  EXPECT_FALSE(sums.timed);
  EXPECT_EQ(sums.kernels, 0);
  EXPECT_TRUE(sums.phases.empty() && sums.operators.empty() && sums.longest.empty());
}

}  // namespace
}  // namespace gradloom
