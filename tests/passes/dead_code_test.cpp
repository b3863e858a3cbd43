#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using testing::Counts;
using testing::op_counts;
using testing::run_and_compare;

struct DeadCode : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  Type type{DType::f32, {3, 4}};
  ValueId x = b.input("x", type), y = b.input("y", type);
};

TEST_F(DeadCode, UnreadNodesGoOutputsLossAndUpdatesStay) {
  b.op("Exp", {b.op("Neg", {x})});
  const ValueId state = b.input("state", type, Role::state),
                loss = b.op("ReduceSum", {y}, {{"keepdims", std::int64_t{0}}});
  graph.updates = {{state, b.op("Add", {state, x})}};
  graph.outputs = {b.op("Tanh", {x})};
  graph.loss = loss;
  EXPECT_EQ(run_and_compare(graph, "dead-code", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Add", 1}, {"ReduceSum", 1}, {"Tanh", 1}}));
}

TEST_F(DeadCode, UnreadOptionalOutputsAreNotWritten) {
  const auto d = b.ops(op_by_name("Dropout"), {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)},
                       {{"key", std::int64_t{4}}}, 2);
  graph.outputs = {d[0]};
  EXPECT_EQ(run_and_compare(graph, "dead-code", 0).matched, 1);
  for (const Node& node : graph.nodes) {
    if (node.alive()) {
      EXPECT_EQ(node.outputs.size(), 1u);
    }
  }
}

TEST_F(DeadCode, OutputsThatCountForTheOthersStay) {
  const auto parts = b.ops(op_by_name("Split"), {x, b.i64s({1, 3})}, {{"axis", std::int64_t{1}}}, 2);
  graph.outputs = {parts[0]};
  EXPECT_EQ(run_and_compare(graph, "dead-code", 0).matched, 0);
}

}  // namespace
}  // namespace gradloom
