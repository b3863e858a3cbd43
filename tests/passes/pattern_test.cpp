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
  for (const DType half : {DType::f16, DType::bf16}) {
    const ValueId h = b.input(dtype_name(half), {half, {4}});
    EXPECT_TRUE(pattern.match(graph, producer(b.op("Mul", {h, b.scalar(half, 0.044715)})), match));
    EXPECT_FALSE(pattern.match(graph, producer(b.op("Mul", {h, b.scalar(half, 0.045)})), match));
  }
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

TEST_F(PatternTest, MoreOperandsOfACommutativeOperatorMatchHoweverTheyAreCombined) {
  const Pattern pattern("r = Mul(a, e, #0.5); e = Exp(a)");
  const ValueId half = b.scalar(DType::f32, 0.5), e = b.op("Exp", {x});
  for (const ValueId root :
       {b.op("Mul", {b.op("Mul", {x, e}), half}), b.op("Mul", {b.op("Mul", {half, x}), e}),
        b.op("Mul", {x, b.op("Mul", {e, half})}), b.op("Mul", {e, b.op("Mul", {x, half})})}) {
    Match match;
    ASSERT_TRUE(pattern.match(graph, producer(root), match));
    EXPECT_EQ(match.value("a"), x);
    EXPECT_EQ(match.nodes.size(), 3u);
  }
  Match match;
  EXPECT_FALSE(pattern.match(graph, producer(b.op("Mul", {b.op("Mul", {y, e}), half})), match));
  EXPECT_FALSE(pattern.match(graph, producer(b.op("Mul", {b.op("Add", {x, e}), half})), match));
}

TEST_F(PatternTest, AStatementHasForms) {
  const Pattern pattern("r = Neg(s); s = Pow(a, #2) | Mul(a, a)");
  Match match;
  EXPECT_TRUE(pattern.match(graph, producer(b.op("Neg", {b.op("Mul", {x, x})})), match));
  EXPECT_TRUE(
      pattern.match(graph, producer(b.op("Neg", {b.op("Pow", {y, b.scalar(DType::f32, 2)})})), match));
  EXPECT_EQ(match.value("a"), y);
  EXPECT_FALSE(pattern.match(graph, producer(b.op("Neg", {b.op("Mul", {x, y})})), match));
}

TEST_F(PatternTest, OptionalOperandsAndAttributes) {
  const ValueId m = b.input("m", {DType::f32, {3, 4}});
  const ValueId sum = b.op("ReduceSum", {m, b.i64s({1})}, {{"keepdims", std::int64_t{0}}});
  const ValueId all = b.op("ReduceSum", {m});
  Match match;
  const Pattern any("r = ReduceSum(a, axes?)");
  EXPECT_TRUE(any.match(graph, producer(sum), match));
  EXPECT_TRUE(any.match(graph, producer(all), match));
  EXPECT_FALSE(Pattern("r = ReduceSum(a)").match(graph, producer(sum), match));
  EXPECT_TRUE(Pattern("r = ReduceSum(a, _){keepdims=0}").match(graph, producer(sum), match));
  EXPECT_FALSE(Pattern("r = ReduceSum(a, _){keepdims=1}").match(graph, producer(sum), match));
  const ValueId turned = b.op("Transpose", {m}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  ASSERT_TRUE(Pattern("r = Transpose(a){perm=$p}").match(graph, producer(turned), match));
  EXPECT_EQ(to_string(match.attrs.at("p")), "[1, 0]");
  EXPECT_TRUE(Pattern("r = Transpose(a){perm=[1, 0]}").match(graph, producer(turned), match));
  EXPECT_FALSE(Pattern("r = Transpose(a){perm=[0, 1]}").match(graph, producer(turned), match));
}

// A product of many equal factors combines in more ways than anyone can try.
TEST_F(PatternTest, ASearchWithoutEndIsGivenUp) {
  ValueId root = x;
  for (int i = 0; i < 15; ++i) root = b.op("Mul", {root, y});
  std::string text = "r = Mul(z, z";
  for (int i = 0; i < 14; ++i) text += ", w" + std::to_string(i);
  Match match;
  Mismatch mismatch;
  EXPECT_FALSE(Pattern((text + "); z = Exp(q)").c_str()).match(graph, producer(root), match, &mismatch));
}

TEST(PatternText, ErrorsNameThePlace) {
  const std::pair<const char*, const char*> wrong[] = {
      {"y = Mull(x, z)", "1:5: unknown operator 'Mull'; did you mean Mul?"},
      {"y = Mul(x, z", "1:13: expected ',', got the end"},
      {"y = Mul(x z)", "1:11: expected ',', got 'z'"},
      {"y = Mul(x, #)", "1:13: expected a number"},
      {"y = Neg(x);\n z = Neg(w)", "2:2: 'z' is nothing that 'y' is made of"},
      {"y = Neg(x); y = Exp(x)", "1:13: 'y' has a statement already"},
      {"", "1:1: expected the result of a statement, got the end"},
      {"y = Neg(x){axis}", "1:16: expected '=', got '}'"},
      {"y = Neg(x){axis=[1 2]}", "1:20: expected ',', got '2'"}};
  for (const auto& [text, error] : wrong) {
    Scanner scanner(text);
    const auto pattern = Pattern::parse(scanner, "");
    ASSERT_FALSE(pattern.ok()) << text;
    EXPECT_EQ(pattern.error().message, error);
    EXPECT_EQ(pattern.error().code, Errc::usage);
  }
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
