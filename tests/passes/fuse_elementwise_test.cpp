#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::run_and_compare;
using test::run_pass;
using test::why_nots;

struct FuseElementwise : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  Type type{DType::f32, {3, 4}};
  ValueId x = b.input("x", type), y = b.input("y", type);
  Node fused() const {
    for (const Node& node : graph.nodes) {
      if (node.alive() && std::string(node.op->name) == "FusedElementwise") return node;
    }
    return {};
  }
};

TEST_F(FuseElementwise, AChainIsOneNode) {
  graph.outputs = {b.op("Tanh", {b.op("Exp", {b.op("Neg", {x})})})};
  EXPECT_EQ(run_and_compare(graph, "fuse-elementwise", 0).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"FusedElementwise", 1}}));
  EXPECT_EQ(fused().attrs.text("code"), "t0=Neg(i0);t1=Exp(t0);t2=Tanh(t1)");
}

TEST_F(FuseElementwise, RegionsHaveLimits) {
  graph.outputs = {b.op("Tanh", {b.op("Exp", {b.op("Neg", {x})})})};
  EXPECT_NE(why_nots(run_and_compare(graph, "fuse-elementwise{max_nodes=2}", 0))
                .find("the region would have more than max_nodes operations"),
            std::string::npos);
  const ValueId e = b.op("Exp", {y});
  for (int i = 0; i < 64; ++i) graph.outputs.push_back(b.op("Add", {e, b.scalar(DType::f32, i)}));
  graph.outputs.push_back(e);
  EXPECT_NE(why_nots(run_and_compare(graph, "fuse-elementwise{max_nodes=150}", 0))
                .find("the region would write more than 64 tensors"),
            std::string::npos);
}

// Sizes of later nodes are read from it: as a region's result nobody would know it.
TEST_F(FuseElementwise, WhatIsKnownBeforeRunningStays) {
  const ValueId rows = b.op("Add", {b.op("Size", {x}), b.constant(Tensor::scalar(DType::i64, 1))});
  graph.values[rows].data = Tensor::from_f64(DType::i64, {}, {13});  // as import finds it
  graph.outputs = {b.op("Neg", {b.op("Mul", {rows, b.constant(Tensor::scalar(DType::i64, 2))})})};
  run_and_compare(graph, "fuse-elementwise", 0);
  EXPECT_EQ(op_counts(graph).at("Add"), 1);
}

TEST_F(FuseElementwise, EveryResultReadOutsideIsAnOutput) {
  const ValueId e = b.op("Exp", {x}), s = b.op("Add", {e, y});
  graph.outputs = {s, b.op("MatMul", {e, b.op("Transpose", {b.op("Mul", {s, s})},
                                              {{"perm", std::vector<std::int64_t>{1, 0}}})})};
  EXPECT_EQ(run_and_compare(graph, "fuse-elementwise", 0).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"FusedElementwise", 1}, {"MatMul", 1}, {"Transpose", 1}}));
  EXPECT_EQ(fused().outputs.size(), 3u);
  EXPECT_EQ(fused().inputs.size(), 2u);
}

TEST_F(FuseElementwise, EveryKindOfOperatorAndBroadcast) {
  const ValueId row = b.input("row", {DType::f32, {4}}), column = b.input("column", {DType::f32, {3, 1}});
  const ValueId mask = b.input("mask", {DType::boolean, {1, 4}}),
                ints = b.input("ints", {DType::i64, {3, 4}});
  const ValueId cast = b.op("Cast", {ints}, {{"to", std::int64_t{1}}});
  const ValueId sum = b.op("Add", {b.op("Mul", {cast, row}), b.op("Sub", {x, column})});
  const ValueId masked = b.op("Where", {mask, b.scalar(DType::f32, -9), sum});
  const ValueId drop = b.op("Dropout", {masked, b.scalar(DType::f32, 0.4), b.scalar(DType::boolean, 1)},
                            {{"key", std::int64_t{-5}}});
  graph.outputs = {b.op("GeluGrad", {drop, y})};
  EXPECT_EQ(run_and_compare(graph, "fuse-elementwise", 0).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"FusedElementwise", 1}}));
  EXPECT_NE(fused().attrs.text("code").find("Dropout#18446744073709551611("), std::string::npos);
}

TEST_F(FuseElementwise, CastsKeepHowTheyRound) {
  const auto cast = [&](ValueId v, std::int64_t to) {
    return b.op("Cast", {v},
                {{"to", to}, {"saturate", std::int64_t{0}}, {"round_mode", std::string("nearest")}});
  };
  graph.outputs = {cast(cast(b.op("Exp", {x}), 24), 1), cast(cast(b.op("Neg", {x}), 22), 1),
                   cast(cast(b.op("Mul", {x, x}), 17), 1)};
  EXPECT_EQ(run_and_compare(graph, "fuse-elementwise", 0).matched, 3);
  std::string code;
  for (const Node& node : graph.nodes)
    if (node.alive()) code += node.attrs.text("code") + " ";
  for (const char* part : {"Cast:f8e8m0#5(", "Cast:i4(", "Cast:f8e4m3fn#1(", "Cast:f32("})
    EXPECT_NE(code.find(part), std::string::npos) << code;
}

TEST_F(FuseElementwise, TheMaskOfDropoutIsAnOutput) {
  const auto drop =
      b.ops(op_by_name("Dropout"), {b.op("Exp", {x}), b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)},
            {{"key", std::int64_t{3}}}, 2);
  graph.outputs = {drop[0], drop[1]};
  EXPECT_EQ(run_and_compare(graph, "fuse-elementwise", 0).matched, 1);
  EXPECT_EQ(op_counts(graph), (Counts{{"FusedElementwise", 1}}));
}

TEST_F(FuseElementwise, APathThroughAnotherOperatorKeepsRegionsApart) {
  // exp -> matmul -> add and exp -> add: one region would need its own result.
  const ValueId e = b.op("Exp", {x}), w = b.input("w", {DType::f32, {4, 4}});
  graph.outputs = {b.op("Add", {e, b.op("MatMul", {e, w})})};
  const PassReport report = run_and_compare(graph, "fuse-elementwise", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("node MatMul lies between it and node Add"), std::string::npos)
      << why_nots(report);
}

TEST_F(FuseElementwise, APathThroughAnotherRegionKeepsRegionsApart) {
  // Joining n with a would make a's region read m's result, while b reads a and leads to m.
  const ValueId a = b.op("Exp", {x}), c = b.op("MatMul", {a, b.input("w", {DType::f32, {4, 4}})});
  const ValueId d = b.op("Tanh", {c}), n = b.op("Add", {a, d});
  graph.outputs = {n, b.op("Neg", {n})};
  EXPECT_EQ(run_and_compare(graph, "fuse-elementwise", 0).matched, 1);  // tanh, add, neg
  EXPECT_EQ(op_counts(graph), (Counts{{"Exp", 1}, {"MatMul", 1}, {"FusedElementwise", 1}}));
}

TEST_F(FuseElementwise, TwoRegionsThatDependOnEachOtherBothWaysStayApart) {
  const ValueId w = b.input("w", {DType::f32, {4, 4}});
  const ValueId a1 = b.op("Exp", {x}), b1 = b.op("Neg", {y});
  const ValueId a2 = b.op("Add", {a1, b.op("MatMul", {b1, w})}),
                b2 = b.op("Sub", {b1, b.op("MatMul", {a1, w})});
  graph.outputs = {a2, b2, b.op("Mul", {a2, b2})};
  run_and_compare(graph, "fuse-elementwise", 0);  // verify inside run_passes finds a cycle
}

TEST_F(FuseElementwise, AnotherShapeEndsTheRegion) {
  const ValueId row = b.op("Exp", {b.input("row", {DType::f32, {4}})});
  graph.outputs = {b.op("Add", {x, row})};
  const PassReport report = run_and_compare(graph, "fuse-elementwise", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("its result [4] is broadcast to [3, 4] by node Add"), std::string::npos)
      << why_nots(report);
}

TEST_F(FuseElementwise, ForwardAndBackwardStayApart) {
  const ValueId e = b.op("Exp", {x});
  const BuildScope backward(b, {.origin = {{}, Phase::backward}});
  graph.outputs = {b.op("Mul", {e, y})};
  EXPECT_EQ(run_pass(graph, "fuse-elementwise").matched, 0);
}

TEST_F(FuseElementwise, LimitsOfOperationsAndInputs) {
  ValueId v = x;
  for (int i = 0; i < 7; ++i) v = b.op("Tanh", {v});
  graph.outputs = {v};
  Graph limited = graph;
  const PassReport report = run_and_compare(limited, "fuse-elementwise{max_nodes=3}", 0);
  EXPECT_EQ(report.matched, 2);  // 3 + 3 + 1
  EXPECT_NE(why_nots(report).find("max_nodes"), std::string::npos);

  Graph wide;
  GraphBuilder w(wide);
  ValueId sum = w.input("in0", type);
  for (int i = 1; i < 6; ++i) sum = w.op("Add", {sum, w.input("in" + std::to_string(i), type)});
  wide.outputs = {sum};
  const PassReport inputs = run_and_compare(wide, "fuse-elementwise{max_inputs=3}", 0);
  EXPECT_NE(why_nots(inputs).find("above max_inputs"), std::string::npos);
  for (const Node& node : wide.nodes) EXPECT_LE(node.inputs.size(), 3u);
}

TEST_F(FuseElementwise, MixedTypesOfPowStay) {
  graph.outputs = {b.op("Exp", {b.op("Pow", {x, b.input("i", {DType::i64, {4}})})})};
  EXPECT_EQ(run_and_compare(graph, "fuse-elementwise", 0).matched, 0);
}

TEST_F(FuseElementwise, RandomGraphsKeepTheirResults) {
  // Convexity in general: random graphs of elementwise operators and products of equal shape.
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    Graph g;
    GraphBuilder builder(g);
    const Type square{DType::f64, {4, 4}};
    std::vector<ValueId> pool = {builder.input("p", square), builder.input("q", square),
                                 builder.input("r", {DType::f64, {4}})};
    const auto pick = [&] { return pool[random() % pool.size()]; };
    for (int i = 0; i < 40; ++i) {
      const ValueId a = pick(), c = pick();
      const unsigned kind = random() % 5;
      if (kind == 0 && g.type(a) == square && g.type(c) == square)
        pool.push_back(builder.op("MatMul", {a, c}));
      else if (kind == 1)
        pool.push_back(builder.op("Tanh", {a}));
      else if (kind == 2)
        pool.push_back(builder.op("Sin", {a}));
      else
        pool.push_back(builder.op(kind == 3 ? "Add" : "Mul", {a, c}));
    }
    for (int i = 0; i < 4; ++i) g.outputs.push_back(pool[pool.size() - 1 - static_cast<std::size_t>(i)]);
    run_and_compare(g, "fuse-elementwise", 0);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace gradloom
