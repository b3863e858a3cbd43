// The generic suite over every sample of every operator row: kernels write exactly what inference says, f32
// agrees with f64, and the same bits come out for any number of threads. Gradients:
// every_op_gradient_test.cpp.
#include "tests/engine/every_op.h"

#include "engine/ops/elementwise/fused.h"
#include "kernels/launcher.h"

namespace gradloom::every_op {
namespace {

class EveryOp : public RowTest {};

void check_writes(const OpDef* op, const Sample& sample) {
  for (DType type : {DType::f32, DType::f64}) {
    auto built = build(*op, sample, type);
    ASSERT_OK(built);
    auto runner = reference::Runner::create(built->graph);
    ASSERT_OK(runner);
    // Two fills of the outputs' memory: a byte that the kernel leaves out differs between them.
    auto first = runner->run(built->feeds, kSeed, kStep, 0xcd),
         second = runner->run(built->feeds, kSeed, kStep, 0x31);
    ASSERT_OK(first);
    ASSERT_OK(second);
    for (ValueId out : built->outputs)
      EXPECT_TRUE(bit_equal((*first)[out], (*second)[out])) << "not every element was written";
    EXPECT_TRUE(verify(built->graph).ok());
  }
}

void check_precision(const OpDef* op, const Sample& sample) {
  auto single = build(*op, sample, DType::f32), wide = build(*op, sample, DType::f64);
  ASSERT_OK(single);
  ASSERT_OK(wide);
  auto single_runner = reference::Runner::create(single->graph),
       wide_runner = reference::Runner::create(wide->graph);
  ASSERT_OK(single_runner);
  ASSERT_OK(wide_runner);
  auto got = single_runner->run(single->feeds, kSeed, kStep),
       want = wide_runner->run(wide->feeds, kSeed, kStep);
  ASSERT_OK(got);
  ASSERT_OK(want);
  for (std::size_t i = 0; i < single->outputs.size(); ++i) {
    const Tensor& reference = (*want)[wide->outputs[i]];
    Tolerance tolerance = tolerance_of(*op);
    tolerance.atol *= scale_of(*op, reference);
    EXPECT_TRUE(near((*got)[single->outputs[i]], reference, tolerance)) << "output " << i;
  }
}

void check_threads(const OpDef* op, const Sample& sample) {
  auto built = build(*op, sample, DType::f32);
  ASSERT_OK(built);
  auto runner = reference::Runner::create(built->graph);
  ASSERT_OK(runner);
  const int before = kernels::threads();
  kernels::set_threads(1);
  auto one = runner->run(built->feeds, kSeed, kStep);
  kernels::set_threads(2);
  auto two = runner->run(built->feeds, kSeed, kStep);
  kernels::set_threads(before);
  ASSERT_OK(one);
  ASSERT_OK(two);
  for (ValueId out : built->outputs) EXPECT_TRUE(bit_equal((*one)[out], (*two)[out]));
}

TEST_P(EveryOp, KernelWritesWhatInferenceSays) { for_each_sample(cases_of(GetParam()), check_writes); }
TEST_P(EveryOp, SingleAgreesWithDouble) { for_each_sample(cases_of(GetParam()), check_precision); }
TEST_P(EveryOp, SameBitsForAnyNumberOfThreads) { for_each_sample(cases_of(GetParam()), check_threads); }

INSTANTIATE_TEST_SUITE_P(Rows, EveryOp, ::testing::ValuesIn(rows(false)), name_of);

TEST(Rows, AreComplete) {
  std::set<std::tuple<std::string, std::string, int>> seen;
  for (const OpDef* op : all_ops()) {
    EXPECT_TRUE(seen.insert({op->domain, op->name, op->since}).second) << op->name << " twice";
    EXPECT_NE(op->infer, nullptr) << op->name;
    EXPECT_NE(op->cost, nullptr) << op->name;
    EXPECT_STRNE(op->summary, "") << op->name;
    ASSERT_NE(op->samples, nullptr) << op->name;
    EXPECT_FALSE(op->samples().empty()) << op->name;
    EXPECT_TRUE(op->has(kView) || op->cpu != nullptr) << op->name;
    EXPECT_FALSE(op->has(kNoGradient) && op->grad != nullptr) << op->name;
    EXPECT_EQ(find_op(op->name, op->domain, op->since), op);
  }
}

TEST(Rows, EveryElementwiseOperatorHasOne) {
  std::vector<kernels::EwRow> rows(kernels::ew_formulas().begin(), kernels::ew_formulas().end());
  rows.push_back(kernels::ew_row(kernels::EwOp::Cast));
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) EXPECT_EQ(rows[i].op, static_cast<kernels::EwOp>(i));
  for (const kernels::EwRow& formula : rows) {
    const OpDef& row = op_by_name(formula.name);
    EXPECT_TRUE(row.has(kElementwise)) << row.name;
    EXPECT_EQ(row.ew, formula.op);
    EXPECT_EQ(row.min_inputs, formula.arity);
    EXPECT_EQ(kernels::find_ew_row(formula.name)->op, formula.op);
  }
  EXPECT_EQ(kernels::find_ew_row("Conv"), nullptr);
}

TEST(Rows, RolesAreOfInputsThatExist) {
  for (const OpDef* op : all_ops())
    for (const InputRole& role : op->roles) {
      EXPECT_LT(static_cast<int>(role.input), op->max_inputs) << op->name;
      EXPECT_LT(static_cast<int>(role.of), op->max_inputs) << op->name;
      EXPECT_EQ(op->role(role.input), &role) << op->name << " has two roles for one input";
      const bool positions = role.use == InputUse::indices || role.use == InputUse::labels;
      EXPECT_TRUE(!positions || role.of != role.input) << op->name;
    }
}

}  // namespace
}  // namespace gradloom::every_op
