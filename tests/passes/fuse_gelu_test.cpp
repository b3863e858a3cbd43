#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_and_compare;
using test::run_pass;
using test::why_nots;

struct GeluOptions {
  DType dtype = DType::f32;
  double sqrt_half = 0.7071067811865476, kappa = 0.044715;
};

ValueId erf_gelu(GraphBuilder& b, ValueId x, bool halve_last, bool divide, GeluOptions o = {}) {
  const ValueId scaled = divide ? b.op("Div", {x, b.scalar(o.dtype, 1 / o.sqrt_half)})
                                : b.op("Mul", {x, b.scalar(o.dtype, o.sqrt_half)});
  const ValueId s = b.op("Add", {b.op("Erf", {scaled}), b.scalar(o.dtype, 1)}), half = b.scalar(o.dtype, 0.5);
  return halve_last ? b.op("Mul", {b.op("Mul", {x, s}), half}) : b.op("Mul", {b.op("Mul", {x, half}), s});
}

ValueId tanh_gelu(GraphBuilder& b, ValueId x, bool power, GeluOptions o = {}) {
  const ValueId cube = power ? b.op("Pow", {x, b.scalar(o.dtype, 3)}) : b.op("Mul", {x, b.op("Mul", {x, x})});
  const ValueId inner = b.op("Add", {x, b.op("Mul", {b.scalar(o.dtype, o.kappa), cube})});
  const ValueId t = b.op("Tanh", {b.op("Mul", {b.scalar(o.dtype, 0.7978845608028654), inner})});
  const ValueId a = b.op("Add", {b.scalar(o.dtype, 1), t}), half = b.scalar(o.dtype, 0.5);
  return power ? b.op("Mul", {b.op("Mul", {half, x}), a}) : b.op("Mul", {half, b.op("Mul", {x, a})});
}

TEST(FuseGelu, EveryErfFormBecomesOneNode) {
  for (bool halve_last : {false, true}) {
    for (bool divide : {false, true}) {
      Graph graph;
      GraphBuilder b(graph);
      graph.outputs = {erf_gelu(b, b.input("x", {DType::f64, {3, 5}}), halve_last, divide, {DType::f64})};
      const PassReport report = run_and_compare(graph, "fuse-gelu", 1e-14);
      EXPECT_EQ(report.matched, 1);
      EXPECT_EQ(op_counts(graph), (std::map<std::string, int>{{"Gelu", 1}}));
    }
  }
}

TEST(FuseGelu, BothTanhFormsBecomeOneNode) {
  for (bool power : {false, true}) {
    Graph graph;
    GraphBuilder b(graph);
    graph.outputs = {tanh_gelu(b, b.input("x", {DType::f64, {3, 5}}), power, {DType::f64})};
    const PassReport report = run_and_compare(graph, "fuse-gelu", 1e-14);
    EXPECT_EQ(report.matched, 1);
    EXPECT_EQ(op_counts(graph), (std::map<std::string, int>{{"GeluTanh", 1}}));
  }
}

TEST(FuseGelu, APieceReadElsewhereKeepsThePieces) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId y = erf_gelu(b, b.input("x", {DType::f32, {4}}), true, true);
  const ValueId product = graph.nodes[graph.values[y].producer].inputs[0];
  graph.outputs = {y, b.op("Neg", {product})};
  const PassReport report = run_and_compare(graph, "fuse-gelu", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("is also read by node Neg"), std::string::npos) << why_nots(report);
}

TEST(FuseGelu, AnotherConstantKeepsThePieces) {
  Graph graph;
  GraphBuilder b(graph);
  graph.outputs = {tanh_gelu(b, b.input("x", {DType::f32, {4}}), false, {.kappa = 0.05})};
  const PassReport report = run_and_compare(graph, "fuse-gelu", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("is not 0.044715"), std::string::npos) << why_nots(report);
}

TEST(FuseGelu, AConstantRoundedToF32IsAnotherConstantInF64) {
  Graph graph;
  GraphBuilder b(graph);
  graph.outputs = {
      tanh_gelu(b, b.input("x", {DType::f64, {4}}), false, {DType::f64, 0.7, 0.044714998453855515})};
  EXPECT_EQ(run_and_compare(graph, "fuse-gelu", 0).matched, 0);
}

TEST(FuseGelu, AnotherOperandKeepsThePieces) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4}}), z = b.input("z", {DType::f32, {4}});
  const ValueId s = b.op("Add", {b.op("Erf", {b.op("Div", {x, b.scalar(DType::f32, 1.4142135381698608)})}),
                                 b.scalar(DType::f32, 1)});
  graph.outputs = {b.op("Mul", {b.op("Mul", {z, s}), b.scalar(DType::f32, 0.5)})};
  const PassReport report = run_and_compare(graph, "fuse-gelu", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_FALSE(why_nots(report).empty());
}

TEST(FuseGelu, AnOrdinaryTanhIsNotReported) {
  Graph graph;
  GraphBuilder b(graph);
  graph.outputs = {b.op("Mul", {b.op("Tanh", {b.input("x", {DType::f32, {4}})}), b.scalar(DType::f32, 2)})};
  const PassReport report = run_pass(graph, "fuse-gelu");
  EXPECT_EQ(report.matched + report.rejected, 0) << why_nots(report);
}

TEST(FuseGelu, ASiteSwitchedOffStays) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId y = erf_gelu(b, b.input("x", {DType::f32, {4}}), true, true);
  graph.outputs = {y};
  const std::string site = graph.nodes[graph.values[y].producer].name;
  const PassReport report = run_pass(graph, "fuse-gelu{except=" + site + "}");
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("switched off"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
