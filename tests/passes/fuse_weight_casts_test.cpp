#include <gtest/gtest.h>

#include "engine/ops/inference.h"
#include "engine/train/weight_copies.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_pass;
using test::why_nots;

// Two parameters that a product reads in bf16, with gradients in bf16, as mixed-precision and autodiff make them.
struct FuseWeightCasts : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
          step = b.input("step", {DType::i64, {}}, Role::hyper);
  const Type low{DType::bf16, {2, 2}};
  ValueId x = b.input("x", low);
  ValueId cast(ValueId of, DType to) { return b.op("Cast", {of}, {{"to", onnx_from_dtype(to)}}); }
  ValueId parameter(const std::string& name) { return b.parameter(name, Tensor(DType::f32, {2, 2})); }
  ValueId gradient(const std::string& name) { return cast(b.input(name, low), DType::f32); }
  void read(ValueId p, DType type = DType::bf16) {
    graph.outputs.push_back(b.op("MatMul", {type == DType::bf16 ? x : cast(x, type), cast(p, type)}));
  }
  void update(ValueId p, ValueId g, ValueId scale = kNone) {
    const Attrs attrs{{"kind", std::string("sgd")}, {"n", std::int64_t{1}}};
    b.update(p, b.ops(op_by_name("Optimizer"), {lr, step, scale, kNone, p, g}, attrs, 1)[0]);
  }
};

TEST_F(FuseWeightCasts, NoCastIsLeft) {
  const ValueId p = parameter("p"), q = parameter("q");
  read(p), read(q);
  update(p, gradient("dp")), update(q, gradient("dq"));
  EXPECT_EQ(run_pass(graph, "fuse-weight-casts").matched, 4);
  EXPECT_EQ(op_counts(graph), (std::map<std::string, int>{{"MatMul", 2}, {"Optimizer", 2}}));
  const auto copies = weight_copies(graph);
  ASSERT_EQ(copies.size(), 2u);
  for (const auto& [copy, of] : copies) {
    EXPECT_TRUE(of == p || of == q);
    EXPECT_EQ(graph.type(copy), low);
  }
  EXPECT_EQ(graph.updates.size(), 4u);
}

TEST_F(FuseWeightCasts, FusedUpdatesKeepTheirCopies) {
  const ValueId p = parameter("p"), q = parameter("q"), r = parameter("r");
  read(p), read(r);
  update(p, gradient("dp")), update(q, gradient("dq")), update(r, gradient("dr"));
  run_pass(graph, "fuse-weight-casts");
  EXPECT_EQ(run_pass(graph, "fuse-optimizer").matched, 1);
  EXPECT_EQ(op_counts(graph).at("Optimizer"), 1);
  const auto copies = weight_copies(graph);
  ASSERT_EQ(copies.size(), 2u);
  for (const auto& [copy, of] : copies) EXPECT_EQ(graph.value(copy).name.substr(0, 1), graph.value(of).name);
}

TEST_F(FuseWeightCasts, OfFusedUpdatesToo) {
  const ValueId p = parameter("p"), q = parameter("q");
  read(q), read(p);
  update(p, gradient("dp")), update(q, gradient("dq"));
  run_pass(graph, "fuse-optimizer");
  EXPECT_EQ(run_pass(graph, "fuse-weight-casts").matched, 4);
  for (const auto& [copy, of] : weight_copies(graph))
    EXPECT_EQ(graph.value(copy).name.substr(0, 1), graph.value(of).name);
}

TEST_F(FuseWeightCasts, WhatIsNotTrainedIsCast) {
  const ValueId p = parameter("p"), q = parameter("q");
  graph.values[p].frozen = true;
  read(p), read(q);
  const PassReport report = run_pass(graph, "fuse-weight-casts");
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("the parameter is not trained"), std::string::npos);
  EXPECT_NE(why_nots(report).find("no optimizer updates the parameter"), std::string::npos);
}

TEST_F(FuseWeightCasts, CopiesAreOfOneType) {
  const ValueId p = parameter("p"), q = parameter("q");
  read(p), read(q, DType::f16);
  update(p, gradient("dp")), update(q, gradient("dq"));
  const PassReport report = run_pass(graph, "fuse-weight-casts");
  EXPECT_EQ(report.matched, 3);
  EXPECT_NE(why_nots(report).find("copies of another type"), std::string::npos) << why_nots(report);
}

TEST_F(FuseWeightCasts, ACastThatIsAnOutputStays) {
  const ValueId p = parameter("p"), g = gradient("dp");
  graph.outputs.push_back(cast(p, DType::bf16));
  update(p, g);
  graph.outputs.push_back(g);
  const PassReport report = run_pass(graph, "fuse-weight-casts");
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("output of the graph"), std::string::npos);
  EXPECT_NE(why_nots(report).find("others than the update"), std::string::npos);
}

TEST_F(FuseWeightCasts, TheNormStaysF32) {
  const ValueId p = parameter("p"), g = gradient("dp");
  const ValueId norm = b.op("GlobalNorm", {g});
  graph.outputs.push_back(norm);
  update(p, g, b.op("ClipScale", {norm}, {{"max_norm", 1.0}}));
  EXPECT_EQ(run_pass(graph, "fuse-weight-casts").matched, 1);
  EXPECT_EQ(op_counts(graph).count("Cast"), 0u);
  EXPECT_EQ(graph.type(graph.outputs.back()).dtype, DType::f32);
}

TEST_F(FuseWeightCasts, AccumulatorsStayF32) {
  const ValueId p = parameter("p"), g = gradient("dp");
  const ValueId acc = b.state("acc", Tensor(DType::f32, {2, 2})),
                micro = b.input("micro", {DType::i64, {}}, Role::hyper);
  const ValueId sum = b.op("Accumulate", {acc, g, micro}, {{"count", std::int64_t{2}}});
  b.update(acc, sum);
  update(p, sum);
  EXPECT_EQ(run_pass(graph, "fuse-weight-casts").matched, 1);
  EXPECT_EQ(op_counts(graph).count("Cast"), 0u);
}

}  // namespace
}  // namespace gradloom
