#include <gtest/gtest.h>

#include "engine/plan/plan.h"
#include "passes/planners.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::why_nots;

constexpr const char* kGatherGradPass = "fuse-gather-grad";

// A table of [9, 4] with a gradient by a product, and one by tokens.
struct FuseGatherGrad : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId tokens = b.input("tokens", {DType::i64, {2, 3}}), dx = b.input("dx", {DType::f32, {2, 3, 4}});
  ValueId head =
      b.op("MatMul", {b.input("dlogits", {DType::f32, {9, 6}}), b.input("h", {DType::f32, {6, 4}})});

  ValueId gathered(DType type = DType::f32) {
    const ValueId rows = type == DType::f32 ? dx : b.op("Cast", {dx}, {{"to", onnx_from(type)}});
    return b.op("GatherGrad", {rows, tokens, b.i64s({9, 4})}, {{"axis", std::int64_t{0}}});
  }
  static std::int64_t onnx_from(DType type) { return type == DType::bf16 ? 16 : 1; }
  PassReport run(double tolerance = 0) { return test::run_and_compare(graph, kGatherGradPass, tolerance); }
  int gathers_with_base() const {
    int count = 0;
    for (const Node& node : graph.nodes)
      if (is_op(node, "GatherGrad") && node.inputs.size() == 4) ++count;
    return count;
  }
};

TEST_F(FuseGatherGrad, RowsAreAddedInPlace) {
  graph.outputs = {b.op("Add", {head, gathered()})};
  EXPECT_EQ(run().matched, 1);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"GatherGrad", 1}, {"MatMul", 1}}));
  const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit"});
  ASSERT_OK(plan);
  ASSERT_OK(check_plan(graph, *plan));
  EXPECT_EQ(plan->buffer_of[graph.outputs[0]], plan->buffer_of[head]);
}

TEST_F(FuseGatherGrad, InEitherOrder) {
  graph.outputs = {b.op("Add", {gathered(), head})};
  EXPECT_EQ(run().matched, 1);
  EXPECT_EQ(gathers_with_base(), 1);
}

// A table of two inputs: each adds to what is there.
TEST_F(FuseGatherGrad, SeveralInTurn) {
  const ValueId more = b.op(
      "GatherGrad", {b.input("dy", {DType::f32, {5, 4}}), b.input("ids", {DType::i64, {5}}), b.i64s({9, 4})},
      {{"axis", std::int64_t{0}}});
  graph.outputs = {b.op("Add", {b.op("Add", {head, gathered()}), more})};
  EXPECT_EQ(run().matched, 2);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"GatherGrad", 2}, {"MatMul", 1}}));
}

TEST_F(FuseGatherGrad, NotWhereTheOtherIsReadOnceMore) {
  graph.outputs = {b.op("Add", {head, gathered()}), head};
  const PassReport report = run();
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("also an output"), std::string::npos) << why_nots(report);
}

TEST_F(FuseGatherGrad, NotWhereTheRowsAreReadOnceMore) {
  const ValueId rows = gathered();
  graph.outputs = {b.op("Add", {head, rows}), b.op("Tanh", {rows})};
  EXPECT_EQ(run().matched, 0);
}

TEST_F(FuseGatherGrad, NotToWhatMustStay) {
  graph.outputs = {b.op("Add", {b.input("table", {DType::f32, {9, 4}}), gathered()})};
  const PassReport report = run();
  EXPECT_NE(why_nots(report).find("stays as it is"), std::string::npos) << why_nots(report);
}

TEST_F(FuseGatherGrad, NotToWhatIsBroadcast) {
  graph.outputs = {b.op("Add", {b.op("Tanh", {b.input("row", {DType::f32, {4}})}), gathered()})};
  const PassReport report = run();
  EXPECT_NE(why_nots(report).find("broadcast"), std::string::npos) << why_nots(report);
}

// On the CPU 16-bit rows are added in f32.
TEST_F(FuseGatherGrad, In16BitsOnGpusAlone) {
  const ValueId low = b.op("Cast", {head}, {{"to", onnx_from(DType::bf16)}});
  graph.outputs = {b.op("Add", {low, gathered(DType::bf16)})};
  const PassReport report = test::run_pass(graph, kGatherGradPass, kernels::Target::cpu);
  EXPECT_NE(why_nots(report).find("16-bit"), std::string::npos) << why_nots(report);
  EXPECT_EQ(test::run_pass(graph, kGatherGradPass, kernels::Target::gpu).matched, 1);
}

}  // namespace
}  // namespace gradloom
