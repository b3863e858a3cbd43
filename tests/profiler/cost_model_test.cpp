#include "profiler/cost_model.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

KernelInfo kernel(const std::string& name, const std::string& op, double flops, double read, double written) {
  KernelInfo info;
  info.kernel = name;
  info.op = op;
  info.flops = flops;
  info.bytes_read = read;
  info.bytes_written = written;
  return info;
}

KernelSample sample(std::int32_t plan_step, std::int64_t ns) { return {plan_step, 0, 0, ns}; }

// 4 FLOP/ns and 10 B/ns are the most that these reach.
const std::vector<KernelInfo> kMeasured = {
    kernel("product", "MatMul", 4000, 100, 100), kernel("product", "MatMul", 2000, 60, 60),
    kernel("elementwise", "Add", 100, 2000, 1000), kernel("sums", "ReduceSum", 100, 1000, 0)};

CostModel model() {
  CostModel m;
  m.add(kMeasured,
        {sample(0, 1000), sample(0, 1000), sample(0, 9000), sample(1, 1000), sample(2, 300), sample(3, 200)});
  return m;
}

TEST(CostModel, MeasuredKernelsTakeTheMedianOfWhatTheyTook) {
  const CostModel::Prediction whole = model().predict(kMeasured);
  EXPECT_DOUBLE_EQ(whole.ns, 1000 + 1000 + 300 + 200);
  EXPECT_DOUBLE_EQ(whole.known, 1);
  const CostModel::Prediction twice = model().predict({kMeasured[2], kMeasured[2]});
  EXPECT_DOUBLE_EQ(twice.ns, 600);
}

TEST(CostModel, OtherSizesReachTheEfficiencyOfTheirKernel) {
  // Products of the two sizes reach 1 and 0.5 of the roofline: the upper median is 1.
  EXPECT_DOUBLE_EQ(model().predict({kernel("product", "MatMul", 8000, 100, 100)}).ns, 2000);
  // Bound by bytes: 3000 at 10 B/ns, as efficient as the measured one.
  EXPECT_DOUBLE_EQ(model().predict({kernel("elementwise", "Add", 10, 4000, 2000)}).ns, 600);
  EXPECT_DOUBLE_EQ(model().predict({kernel("elementwise", "Add", 10, 4000, 2000)}).known, 0);
}

TEST(CostModel, OtherKernelsReachThatOfTheirOperatorElseOfAll) {
  EXPECT_DOUBLE_EQ(model().predict({kernel("sums by rows", "ReduceSum", 0, 2000, 0)}).ns, 400);
  EXPECT_DOUBLE_EQ(model().predict({kernel("copy", "Identity", 0, 1000, 1000)}).ns, 200);  // median of all: 1
}

// Products reach 0.25 of the roofline, three loops over elements all of it.
TEST(CostModel, OtherOperatorsReachThatOfTheirArithmetic) {
  CostModel m;
  m.add({kernel("best", "Conv", 4000, 100, 100), kernel("fused product", "FusedMatMul", 1000, 100, 100),
         kernel("sum", "Add", 0, 1000, 1000), kernel("product of elements", "Mul", 0, 1000, 1000),
         kernel("copy", "Identity", 0, 1000, 1000)},
        std::vector<double>{1000, 1000, 200, 200, 200});
  EXPECT_DOUBLE_EQ(m.ns(kernel("product", "MatMul", 8000, 100, 100)), 8000);
  EXPECT_DOUBLE_EQ(m.ns(kernel("difference", "Sub", 0, 2000, 2000)), 400);
  EXPECT_DOUBLE_EQ(m.ns(kernel("attention", "FusedAttention", 8000, 100, 100)), 2000);  // of all
}

TEST(CostModel, ResultsOfOtherTypesAreOtherKernels) {
  std::vector<KernelInfo> two(2, kernel("sums", "ReduceSum", 100, 1000, 100));
  two[0].types = "f32[5, 5]";
  two[1].types = "f32[25]";
  CostModel m;
  m.add(two, std::vector<double>{100, 300});
  EXPECT_DOUBLE_EQ(m.ns(two[0]), 100);
  EXPECT_DOUBLE_EQ(m.ns(two[1]), 300);
  KernelInfo other = two[0];
  other.types = "f32[5, 1, 5]";
  EXPECT_TRUE(m.knows(two[0]));
  EXPECT_FALSE(m.knows(other));
  EXPECT_GT(m.ns(other), 0);
}

TEST(CostModel, ItsTimesAreAllOfIt) {
  CostModel first = model();
  KernelInfo wide = kernel("adam", "Optimizer", 10, 4000, 4000);
  for (int i = 0; i < 100; ++i) wide.types += " f32[" + std::to_string(i) + "]";
  first.add({wide, kernel("never", "Run", 1, 1, 1)}, std::vector<double>{700, 0});
  const std::vector<KernelTime> times = first.times();
  EXPECT_EQ(times.size(), kMeasured.size() + 1);
  const CostModel second(times);
  EXPECT_EQ(second.times(), times);
  EXPECT_TRUE(second.knows(wide));
  std::vector<KernelInfo> others = kMeasured;
  others.push_back(wide);
  others.push_back(kernel("product", "MatMul", 8000, 100, 100));
  others.push_back(kernel("copy", "Identity", 0, 1000, 1000));
  for (const KernelInfo& k : others) EXPECT_DOUBLE_EQ(second.ns(k), first.ns(k)) << k.kernel;
}

TEST(CostModel, WithoutMeasurementsItSaysNothing) {
  EXPECT_TRUE(CostModel().empty());
  EXPECT_EQ(CostModel().predict(kMeasured).ns, 0);
  EXPECT_EQ(CostModel().predict(kMeasured).known, 0);
}

}  // namespace
}  // namespace gradloom
