#include <gtest/gtest.h>

#include "passes/pattern.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::Perm;
using test::run_and_compare;
using test::why_nots;

struct Cse : test::TwoInputs {};

TEST_F(Cse, EqualNodesMergeThroughChainsAndCommutedOperands) {
  graph.outputs = {b.op("Sub", {b.op("Exp", {b.op("Mul", {x, y})}), b.op("Exp", {b.op("Mul", {y, x})})})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 1}, {"Mul", 1}, {"Sub", 1}}));
}

TEST_F(Cse, ANodeThatIsKeptStandsForItsDuplicatesToo) {
  graph.outputs = {b.op("Sub", {b.op("Exp", {x}), b.op("Exp", {x})})};
  graph.sources.resize(10);
  std::uint32_t source = 6;
  for (Node& node : graph.nodes) node.origin.sources = {source++};
  const PassReport report = run_and_compare(graph, "cse", 0);
  ASSERT_EQ(report.matched, 1);
  for (const Node& node : graph.nodes)
    if (is_op(node, "Exp")) {
      EXPECT_EQ(node.origin.sources, (std::vector<std::uint32_t>{6, 7}));
      EXPECT_EQ(node.origin.passes.size(), 1u);
      EXPECT_EQ(report.log[0].changed, std::vector<std::string>{node.name});
    }
}

TEST_F(Cse, ANodeOfAnotherPhaseKeepsItsOrigin) {
  graph.outputs = {b.op("Sub", {b.op("Exp", {x}), b.op("Exp", {x})})};
  graph.sources.resize(10);
  graph.nodes[0].origin = {{7}, Phase::forward};
  graph.nodes[1].origin = {{8}, Phase::backward};
  ASSERT_EQ(run_and_compare(graph, "cse", 0).matched, 1);
  EXPECT_EQ(graph.nodes[0].origin.sources, std::vector<std::uint32_t>{7});
}

TEST_F(Cse, EqualConstantsAreEqualOperands) {
  const ValueId c = b.constant(Tensor::scalar(DType::f32, 2), "c"),
                d = b.constant(Tensor::scalar(DType::f32, 2), "d");
  const ValueId other = b.constant(Tensor::scalar(DType::f32, 3), "e");
  graph.outputs = {b.op("Sub", {b.op("Mul", {x, c}), b.op("Mul", {x, d})}),
                   b.op("Exp", {b.op("Mul", {x, other})})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 1);
}

TEST_F(Cse, OtherAttributesOperandsOrOrdersStay) {
  graph.outputs = {b.op("Sub", {b.op("Sub", {x, y}), b.op("Sub", {y, x})}),
                   b.op("MatMul", {b.op("Softmax", {x}, {{"axis", std::int64_t{0}}}),
                                   b.op("Transpose", {b.op("Softmax", {x}, {{"axis", std::int64_t{1}}})},
                                        {{"perm", Perm{1, 0}}})})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 0);
}

TEST_F(Cse, DropoutsWithDifferentKeysStayApartEqualKeysMerge) {
  const auto dropout = [&](std::int64_t key) {
    return b.op("Dropout", {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)}, {{"key", key}});
  };
  const ValueId first = dropout(1), second = dropout(2), third = dropout(1);
  graph.outputs = {b.op("Sub", {b.op("Add", {first, second}), third})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 1);
  EXPECT_EQ(op_counts(graph).at("Dropout"), 2);
}

TEST_F(Cse, ParametersWithEqualContentsStayApart) {
  const ValueId p = b.parameter("p", Tensor(DType::f32, {3, 4})),
                q = b.parameter("q", Tensor(DType::f32, {3, 4}));
  graph.outputs = {b.op("Sub", {b.op("Exp", {p}), b.op("Exp", {q})})};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 0);
}

TEST_F(Cse, OutputsOfTheGraphStay) {
  graph.outputs = {b.op("Exp", {x}), b.op("Exp", {x})};
  const PassReport report = run_and_compare(graph, "cse", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("is an output of the graph"), std::string::npos);
}

TEST_F(Cse, SplitsIntoDifferentNumbersStayApart) {
  const OpDef& split = op_by_name("Split");
  const auto two = b.ops(split, {x, b.i64s({2, 2})}, {{"axis", std::int64_t{1}}}, 2);
  const auto four = b.ops(split, {x, b.i64s({1, 1, 1, 1})}, {{"axis", std::int64_t{1}}}, 4);
  graph.outputs = {two[0], four[0]};
  EXPECT_EQ(run_and_compare(graph, "cse", 0).matched, 0);
}

}  // namespace
}  // namespace gradloom
