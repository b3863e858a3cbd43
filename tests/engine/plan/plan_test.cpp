#include "engine/plan/plan.h"

#include <gtest/gtest.h>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "tests/engine/plan/support.h"

namespace gradloom {
namespace {

Graph chain(int length, bool keep_all = false) {
  Graph graph;
  GraphBuilder b(graph);
  ValueId v = b.input("x", {DType::f32, {64}});
  for (int i = 0; i < length; ++i) {
    v = b.op(i % 2 ? "Tanh" : "Exp", {v});
    if (keep_all) graph.outputs.push_back(v);
  }
  if (!keep_all) graph.outputs = {v};
  return graph;
}

TEST(Plan, InPlaceChainNeedsOneBuffer) {
  const Graph graph = chain(6);
  const auto plan = make_plan(graph, {stack_all, "stack", true});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->arena_bytes, 256);
  EXPECT_EQ(plan->lower_bound_bytes, 256);
  EXPECT_EQ(plan->input_bytes, 256);
  EXPECT_TRUE(check_plan(graph, *plan).ok());
}

TEST(Plan, WithoutInPlaceTwoAreLive) {
  const Graph graph = chain(6);
  const auto plan = make_plan(graph, {stack_all, "stack", false});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->arena_bytes, 6 * 256);
  EXPECT_EQ(plan->lower_bound_bytes, 2 * 256);
  EXPECT_TRUE(check_plan(graph, *plan).ok());
}

TEST(Plan, OutputsAreNeverOverwritten) {
  const Graph graph = chain(4, true);
  const auto plan = make_plan(graph, {stack_all, "stack", true});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->arena_bytes, 4 * 256);
  EXPECT_TRUE(check_plan(graph, *plan).ok());
}

// ScatterElements may write over its data, but not where its updates are the same numbers.
TEST(Plan, WhatANodeReadsTwiceItDoesNotOverwrite) {
  for (const bool twice : {false, true}) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = b.op("Exp", {b.input("x", {DType::f32, {64}})});
    const ValueId indices = b.input("indices", {DType::i64, {64}});
    const ValueId updates =
        twice ? b.op("Reshape", {x, b.i64s({64})}) : b.input("updates", {DType::f32, {64}});
    const ValueId y = b.op("ScatterElements", {x, indices, updates});
    graph.outputs = {b.op("Tanh", {y})};
    const auto plan = make_plan(graph, {stack_all, "stack", true});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->buffer_of[y] == plan->buffer_of[x], !twice);
    const Status checked = check_plan(graph, *plan);
    EXPECT_TRUE(checked.ok()) << checked.error().message;
  }
}

TEST(Plan, ViewsShareStorageAndKeepItAlive) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4, 16}});
  const ValueId e = b.op("Exp", {x});
  const ValueId r = b.op("Reshape", {e, b.i64s({64})});
  const ValueId t = b.op("Tanh", {x});
  const ValueId u = b.op("Reshape", {t, b.i64s({64})});
  graph.outputs = {b.op("Add", {r, u})};
  const auto plan = make_plan(graph, {stack_all, "stack", true});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->buffer_of[e], plan->buffer_of[r]);
  EXPECT_EQ(plan->steps.size(), 3u);  // views have no kernel
  EXPECT_TRUE(check_plan(graph, *plan).ok());
}

TEST(Plan, UnboundDimsAreNamed) {
  Graph graph;
  graph.symbols = {"batch"};
  GraphBuilder b(graph);
  graph.outputs = {b.op("Exp", {b.input("x", {DType::f32, {-1, 3}})})};
  const auto plan = make_plan(graph, {stack_all, "stack", true});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Errc::usage);
  EXPECT_NE(plan.error().message.find("batch"), std::string::npos);
}

TEST(Plan, LeavesWorkspaceToALibraryWhereThereIsOne) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {2, 8, 12, 12}});
  const ValueId w = b.parameter("w", Tensor(DType::f32, {16, 8, 3, 3}));
  graph.outputs = {b.op("Conv", {x, w})};
  const auto workspace = [&](kernels::Target target, bool dnn_library) {
    const auto plan = make_plan(graph, {stack_all, "stack", true, target, dnn_library});
    EXPECT_TRUE(plan.ok());
    return plan.ok() ? plan->steps[0].workspace_bytes : -1;
  };
  const std::int64_t images = 4 * (2 * 8 * 144 + 16 * 8 * 9 + 2 * 16 * 100);
  EXPECT_GE(workspace(kernels::Target::gpu, true), images);
  EXPECT_LT(workspace(kernels::Target::gpu, false), images);
  EXPECT_EQ(workspace(kernels::Target::cpu, true), workspace(kernels::Target::cpu, false));
}

TEST(Plan, ProductsOfAGpuHaveTheirLibrarysWorkspaceAtItsBoundary) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {1000, 24}});
  const ValueId w = b.parameter("w", Tensor(DType::f32, {24, 3000}));
  const ValueId v = b.parameter("v", Tensor(DType::f32, {3000, 10}));
  graph.outputs = {b.op("MatMul", {b.op("MatMul", {b.op("Exp", {x}), w}), v})};
  const auto planned = [&](kernels::Target target, bool library) {
    auto plan = make_plan(graph, {stack_all, "stack", true, target, library});
    EXPECT_TRUE(plan.ok());
    EXPECT_TRUE(check_plan(graph, *plan).ok());
    return std::move(plan).value();
  };
  const Plan gpu = planned(kernels::Target::gpu, true), alone = planned(kernels::Target::gpu, false),
             cpu = planned(kernels::Target::cpu, true);
  ASSERT_EQ(gpu.steps.size(), 3u);
  EXPECT_EQ(gpu.steps[0].workspace_bytes, 0) << "no product";
  EXPECT_EQ(gpu.steps[1].workspace_bytes, 32 << 20) << "whatever the size of its result";
  EXPECT_EQ(gpu.steps[2].workspace_bytes, 32 * 1024 * 128 * 4) << "32 slices of a small one";
  for (const Plan* plan : {&gpu, &alone})
    for (const PlanStep& step : plan->steps)
      if (step.workspace_bytes > 0) {
        EXPECT_EQ(step.workspace_offset % 256, 0);
      }
  EXPECT_LT(alone.steps[1].workspace_bytes, 32 << 20);
  EXPECT_EQ(cpu.steps[1].workspace_bytes, planned(kernels::Target::cpu, false).steps[1].workspace_bytes);
}

TEST(PlanCheck, SeededFaultsAreAllFound) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {64}});
  const ValueId p = b.op("Exp", {x});
  const ValueId q = b.op("Tanh", {x});
  const ValueId r = b.op("Sin", {x});
  graph.outputs = {b.op("Add", {b.op("Add", {p, q}), r})};
  const auto good = make_plan(graph, {stack_all, "stack", false});
  ASSERT_TRUE(good.ok());
  ASSERT_TRUE(check_plan(graph, *good).ok());
  const auto buffer = [&](Plan& plan, ValueId v) -> Buffer& {
    return plan.buffers[static_cast<std::size_t>(plan.buffer_of[v])];
  };
  // Each value moved onto each other one that is live at the same time must be noticed.
  int faults = 0;
  for (const ValueId from : {p, q, r})
    for (const ValueId to : {p, q, r}) {
      if (from == to) continue;
      Plan bad = *good;
      buffer(bad, from).offset = buffer(bad, to).offset;
      EXPECT_FALSE(check_plan(graph, bad).ok()) << from << " over " << to;
      ++faults;
    }
  EXPECT_EQ(faults, 6);
  Plan bad = *good;
  buffer(bad, p).offset += 32;
  EXPECT_FALSE(check_plan(graph, bad).ok()) << "misaligned";
  bad = *good;
  buffer(bad, p).offset = bad.arena_bytes;
  EXPECT_FALSE(check_plan(graph, bad).ok()) << "outside";
  bad = *good;
  bad.steps.pop_back();
  EXPECT_FALSE(check_plan(graph, bad).ok()) << "missing step";
  bad = *good;
  std::swap(bad.steps[0], bad.steps.back());
  EXPECT_FALSE(check_plan(graph, bad).ok()) << "wrong order";
  bad = *good;
  buffer(bad, x).place = Place::constant;
  EXPECT_FALSE(check_plan(graph, bad).ok()) << "wrong block";
}

TEST(Plan, HashChangesWithPlacement) {
  const Graph graph = chain(3);
  const auto a = make_plan(graph, {stack_all, "stack", true}),
             b = make_plan(graph, {stack_all, "stack", true}),
             c = make_plan(graph, {stack_all, "stack", false});
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a->hash, b->hash);
  EXPECT_NE(a->hash, c->hash);
}

TEST(Plan, LowerBoundIsTheLargestLiveSum) {
  std::int32_t peak = -1;
  EXPECT_EQ(lower_bound_bytes({{100, 0, 2}, {50, 1, 1}, {30, 2, 3}, {500, 5, 5}}, &peak), 500);
  EXPECT_EQ(peak, 5);
  EXPECT_EQ(lower_bound_bytes({}), 0);
}

}  // namespace
}  // namespace gradloom
