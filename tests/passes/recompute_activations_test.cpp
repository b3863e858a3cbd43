// recompute-activations frees what the backward pass alone waits for, computes the same, and leaves what would not help.
#include <gtest/gtest.h>

#include "passes/compile.h"
#include "passes/planners.h"
#include "tests/passes/compiled_step.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::compiled_step;
using test::op_counts;
using test::run_pass;
using test::why_nots;

const std::string kAgainAlways = "recompute-activations{min_mib=0,max_percent=100}";

std::int64_t best_fit_arena(const Graph& graph) {
  const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit"});
  EXPECT_TRUE(plan.ok());
  EXPECT_TRUE(check_plan(graph, *plan).ok());
  return plan->arena_bytes;
}

// What the gradient of GELU reads is kept, what it gives waits for the next layer's weight gradient.
TEST(RecomputeActivations, OfATransformersLayersRunAgain) {
  const Graph model =
      test::layered_network(6, [](GraphBuilder& b, ValueId product, int) { return b.op("Gelu", {product}); });
  for (const char* const passes : {"none", "default"}) {
    const Graph before = compiled_step(model, passes);
    Graph after = before;
    const PassReport report = run_pass(after, kAgainAlways);
    EXPECT_GE(report.matched, 5) << why_nots(report);
    EXPECT_LT(best_fit_arena(after), best_fit_arena(before) - 3 * 256 * 16 * 4);
    test::expect_same_results(before, after, 0);
    EXPECT_EQ(run_pass(after, kAgainAlways).matched, 0);
  }
}

// The product of a gated unit: of two kept operands, one kernel.
TEST(RecomputeActivations, RegionsRunAgainAsAWhole) {
  const Graph model = test::layered_network(4, [](GraphBuilder& b, ValueId product, int) {
    return b.op("Mul", {b.op("Gelu", {product}), b.op("Sin", {product})});
  });
  const Graph before = compiled_step(model, "fuse-elementwise");
  Graph after = before;
  EXPECT_GE(run_pass(after, kAgainAlways).matched, 3);
  EXPECT_GT(op_counts(after)["FusedElementwise"], op_counts(before)["FusedElementwise"]);
  test::expect_same_results(before, after, 0);
}

struct KeptValue {
  bool kept = true, output = false, view = false, waits = true;
};
Graph kept_value(const KeptValue& o) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId in = b.input("in", {DType::f32, {64, 64}}), dy = b.input("dy", {DType::f32, {64, 64}});
  const Attrs all{{"keepdims", std::int64_t{0}}};
  if (!o.waits) {  // the peak is elsewhere
    const ValueId high = b.input("high", {DType::f32, {256, 64}}),
                  wide = b.input("wide", {DType::f32, {64, 256}});
    graph.outputs.push_back(b.op("ReduceSum", {b.op("MatMul", {high, wide})}, all));
  }
  const ValueId x = b.op("MatMul", {in, in}), y = b.op("Gelu", {x});
  const ValueId view = o.view ? b.op("Reshape", {y, b.i64s({64, 64, 1})}) : kNone;
  graph.outputs.push_back(b.op("ReduceSum", {y}, all));
  if (o.waits) graph.outputs.push_back(b.op("ReduceSum", {b.op("MatMul", {in, dy})}, all));
  GraphBuilder after(graph, {.origin = {{}, Phase::backward}});
  const ValueId read = o.view ? after.op("Reshape", {after.op("Neg", {view}), after.i64s({64, 64})}) : y;
  graph.outputs.push_back(after.op("ReduceSum", {after.op("MatMul", {dy, read})}, all));
  if (o.kept) graph.outputs.push_back(after.op("ReduceSum", {after.op("GeluGrad", {dy, x})}, all));
  if (o.output) graph.outputs.push_back(y);
  return graph;
}

void expect_kept_once(const KeptValue& o, const std::string& why, const std::string& pass = kAgainAlways) {
  Graph graph = kept_value(o);
  const PassReport report = run_pass(graph, pass);
  EXPECT_EQ(report.matched, 0) << why;
  EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
}

TEST(RecomputeActivations, SaysWhatItLeavesAlone) {
  Graph graph = kept_value({});
  EXPECT_EQ(test::run_and_compare(graph, kAgainAlways, 0).matched, 1);
  expect_kept_once({.kept = false}, "what it reads, MatMul:v, is not kept");
  expect_kept_once({.output = true}, "is an output of the graph");
  expect_kept_once({.view = true}, "a view of it from before the loss, Reshape, is read after it");
  expect_kept_once({.waits = false}, "with all of them the peak would fall by 0 B, less than min_mib");
  expect_kept_once({}, "all of them hold 16.0 KiB, less than min_mib", "recompute-activations");
  expect_kept_once({}, "of a step, more than max_percent", "recompute-activations{min_mib=0,max_percent=1}");
}

}  // namespace
}  // namespace gradloom
