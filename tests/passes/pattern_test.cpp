#include "passes/pattern.h"

#include <gtest/gtest.h>

#include "engine/ir/op.h"

namespace gradloom {
namespace {

struct Fixture : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.input("x", {DType::f32, {4}}), y = b.input("y", {DType::f32, {4}});
  NodeId producer(ValueId id) const { return graph.values[id].producer; }
};
using PatternTest = Fixture;

TEST_F(PatternTest, BindsWildcardsStatementsAndConstants) {
  const ValueId half = b.scalar(DType::f32, 0.5);
  const ValueId e = b.op("Exp", {x}), s = b.op("Sub", {e, half}), root = b.op("Div", {s, y});
  Match match;
  ASSERT_TRUE(Pattern("r = Div(s, z); s = Sub(e, #half); e = Exp(w)").match(graph, producer(root), match));
  EXPECT_EQ(match.root, producer(root));
  EXPECT_EQ(match.nodes, (std::vector<NodeId>{producer(root), producer(s), producer(e)}));
  EXPECT_EQ(match.value("w"), x);
  EXPECT_EQ(match.value("z"), y);
  EXPECT_EQ(match.value("s"), s);
  EXPECT_EQ(match.constants.at("half"), 0.5);
}

TEST_F(PatternTest, CommutativeOperandsMatchInEitherOrderWithBacktracking) {
  // Both operands of the outer Add are Mul; only the second one squares its operand.
  const ValueId plain = b.op("Mul", {x, y}), square = b.op("Mul", {y, y}),
                root = b.op("Add", {plain, square});
  Match match;
  ASSERT_TRUE(Pattern("r = Add(s, m); s = Mul(a, a); m = Mul(c, a)").match(graph, producer(root), match));
  EXPECT_EQ(match.value("s"), square);
  EXPECT_EQ(match.value("a"), y);
  EXPECT_EQ(match.value("c"), x);
  EXPECT_FALSE(Pattern("r = Add(s, t); s = Mul(a, a); t = Mul(c, c)").match(graph, producer(root), match));
}

TEST_F(PatternTest, SubtractionIsNotCommutative) {
  const ValueId root = b.op("Sub", {x, b.op("Exp", {y})});
  Match match;
  EXPECT_FALSE(Pattern("r = Sub(e, a); e = Exp(c)").match(graph, producer(root), match));
  EXPECT_TRUE(Pattern("r = Sub(a, e); e = Exp(c)").match(graph, producer(root), match));
}

TEST_F(PatternTest, TheSameLetterIsTheSameValue) {
  Match match;
  EXPECT_FALSE(Pattern("r = Mul(a, a)").match(graph, producer(b.op("Mul", {x, y})), match));
  EXPECT_TRUE(Pattern("r = Mul(a, a)").match(graph, producer(b.op("Mul", {x, x})), match));
}

TEST_F(PatternTest, ASharedStatementMustBeOneNode) {
  const ValueId e1 = b.op("Exp", {x}), e2 = b.op("Exp", {y});
  const Pattern pattern("r = Sub(e, m); m = Neg(e); e = Exp(a)");
  Match match;
  EXPECT_TRUE(pattern.match(graph, producer(b.op("Sub", {e1, b.op("Neg", {e1})})), match));
  EXPECT_FALSE(pattern.match(graph, producer(b.op("Sub", {e1, b.op("Neg", {e2})})), match));
}

TEST_F(PatternTest, ConstantsMatchWithinThePrecisionOfTheirType) {
  const Pattern pattern("r = Mul(a, #0.044715)");
  Match match;
  EXPECT_TRUE(pattern.match(graph, producer(b.op("Mul", {x, b.scalar(DType::f32, 0.044715)})), match));
  EXPECT_FALSE(pattern.match(graph, producer(b.op("Mul", {x, b.scalar(DType::f32, 0.04472)})), match));
  EXPECT_FALSE(pattern.match(graph, producer(b.op("Mul", {x, y})), match));
  const ValueId d = b.input("d", {DType::f64, {4}});
  EXPECT_TRUE(pattern.match(graph, producer(b.op("Mul", {d, b.scalar(DType::f64, 0.044715)})), match));
  // The f32 rounding of the constant is not the constant to the precision of f64.
  Mismatch mismatch;
  EXPECT_FALSE(pattern.match(graph, producer(b.op("Mul", {d, b.scalar(DType::f64, 0.044714998453855515)})),
                             match, &mismatch));
}

TEST_F(PatternTest, TheReasonIsThatOfTheAttemptThatGotFurthest) {
  const ValueId root = b.op("Div", {b.op("Sub", {b.op("Exp", {x}), y}), y});
  Match match;
  Mismatch mismatch;
  EXPECT_FALSE(
      Pattern("r = Div(s, a); s = Sub(e, #1); e = Exp(c)").match(graph, producer(root), match, &mismatch));
  EXPECT_EQ(mismatch.why, "value y is not a scalar constant");
  EXPECT_FALSE(
      Pattern("r = Div(s, a); s = Sub(e, c); e = Log(d)").match(graph, producer(root), match, &mismatch));
  EXPECT_EQ(mismatch.why, "node Exp is not Log");
  EXPECT_EQ(mismatch.nodes.size(), 2u);
  EXPECT_FALSE(Pattern("r = Add(a, c)").match(graph, producer(root), match));
}

TEST_F(PatternTest, UsesOutsideAreNamed) {
  const ValueId e = b.op("Exp", {x}), root = b.op("Neg", {e});
  const ValueId other = b.op("Tanh", {e});
  graph.outputs = {root, other};
  Match match;
  ASSERT_TRUE(Pattern("r = Neg(e); e = Exp(a)").match(graph, producer(root), match));
  Rewriter rw(graph, "test");
  std::string why;
  EXPECT_FALSE(only_used_inside(rw, match, &why));
  EXPECT_NE(why.find("is also read by node Tanh"), std::string::npos) << why;
}

TEST_F(PatternTest, GraphOutputsCountAsUses) {
  const ValueId e = b.op("Exp", {x}), root = b.op("Neg", {e});
  graph.outputs = {root, e};
  Match match;
  ASSERT_TRUE(Pattern("r = Neg(e); e = Exp(a)").match(graph, producer(root), match));
  Rewriter rw(graph, "test");
  std::string why;
  EXPECT_FALSE(only_used_inside(rw, match, &why));
  EXPECT_NE(why.find("is also an output of the graph"), std::string::npos) << why;
}

}  // namespace
}  // namespace gradloom
