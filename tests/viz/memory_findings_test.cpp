#include "viz/model/memory_findings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/onnx/import.h"
#include "passes/compile.h"
#include "passes/planners.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

// A peak in the middle (c, d, e), over which `a` is kept; who reads it behind the peak is each test's.
struct Middle {
  Graph graph;
  GraphBuilder b{graph};
  std::int64_t rank = 0;
  ValueId x = b.input("x", {DType::f32, {64, 64}});
  ValueId a = op("Exp", {x}), before = op("ReduceMean", {a}), s = middle();

  ValueId op(const char* name, std::vector<ValueId> inputs) {
    const BuildScope scope(b, {.rank = ++rank});
    return b.op(name, std::move(inputs));
  }
  ValueId middle() {
    const ValueId c = op("Tanh", {x}), d = op("Exp", {c}), e = op("Mul", {c, d});
    return op("ReduceMean", {e});
  }
  std::string node_of(ValueId value) const { return graph.nodes[graph.values[value].producer].name; }

  std::vector<MemoryFinding> find(std::vector<ValueId> outputs) {
    outputs.push_back(before);
    graph.outputs = std::move(outputs);
    const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit", false});
    EXPECT_TRUE(plan.ok()) << error_of(plan);
    return find_memory(graph, *plan);
  }
  static std::string error_of(const Result<Plan>& plan) { return plan.ok() ? "" : plan.error().message; }
};

TEST(MemoryFindings, WhatNothingKeepsIsFreedLate) {
  Middle m;
  const ValueId late = m.op("ReduceMax", {m.a});
  const auto found = m.find({m.s, late});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, MemoryFinding::freed_late);
  EXPECT_EQ(found[0].node, m.node_of(m.a));
  EXPECT_EQ(found[0].reader, m.node_of(late));
  EXPECT_EQ(found[0].value, m.graph.values[m.a].name);
  EXPECT_EQ(found[0].could_step, 1) << "right behind what made it";
  EXPECT_LT(found[0].bytes, 64 * 64 * 4) << "what the reader makes takes a little of its place";
  EXPECT_GT(found[0].bytes, 64 * 64 * 4 - 1024);
}

// Run where the finding says that it could, the reader does lower the peak by what the finding says.
TEST(MemoryFindings, TheReaderRunEarlierLowersThePeak) {
  std::int64_t bound[2] = {0, 0}, promised = 0;
  for (const bool early : {false, true}) {
    Middle m;
    m.rank = early ? 1 : 100;
    const ValueId reader = m.op("ReduceMax", {m.a});
    const auto found = m.find({m.s, reader});
    if (!early) promised = found.at(0).bytes;
    const auto plan = make_plan(m.graph, {find_planner("best-fit")->plan, "best-fit", false});
    bound[early ? 1 : 0] = plan->lower_bound_bytes;
  }
  EXPECT_EQ(bound[0] - bound[1], promised);
}

TEST(MemoryFindings, OneReaderThatNeedsThePeakKeepsIt) {
  Middle m;
  const ValueId late = m.op("Mul", {m.a, m.s});
  const auto found = m.find({m.op("ReduceMean", {late})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, MemoryFinding::kept_for_one_reader);
  EXPECT_EQ(found[0].reader, m.node_of(late));
  EXPECT_EQ(found[0].bytes, 64 * 64 * 4);
  EXPECT_FALSE(found[0].can_run_again) << "its reader is no part of the backward pass";
  EXPECT_GT(found[0].again, 0.01);
  EXPECT_LT(found[0].again, 0.5);
}

TEST(MemoryFindings, NothingIsSaidOfSeveralReadersOrOfWhatThePeakUses) {
  Middle two;
  const ValueId one = two.op("Mul", {two.a, two.s}), other = two.op("Add", {two.a, two.s});
  EXPECT_TRUE(two.find({two.op("ReduceMean", {one}), two.op("ReduceMean", {other})}).empty());

  Middle used;  // the largest step reads it
  const ValueId c = used.op("Tanh", {used.x}), d = used.op("Exp", {c}), e = used.op("Mul", {c, used.a}),
                f = used.op("Sum", {c, d, e, used.a});
  const auto found = used.find({used.s, used.op("ReduceMean", {used.op("Mul", {used.a, f})})});
  for (const MemoryFinding& finding : found) EXPECT_NE(finding.node, used.node_of(used.a));
}

TEST(MemoryFindings, WhatMadeItCannotRunAgainWithoutItsInputs) {
  Middle m;
  const BuildScope scope(m.b, {.rank = 2});
  // `again` is made of `a`, which is gone at its reader.
  const ValueId again = m.b.op("Sqrt", {m.a});
  m.rank = 100;
  const auto found = m.find({m.op("ReduceMean", {m.op("Mul", {again, m.s})})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].node, m.node_of(again));
  EXPECT_FALSE(found[0].can_run_again);
}

// In the memory of what it was made of: what is read late is the last that was written there.
TEST(MemoryFindings, WhatWasWrittenLastIsNamed) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {64, 64}});
  std::int64_t rank = 0;
  const auto op = [&](const char* name, std::vector<ValueId> inputs) {
    const BuildScope scope(b, {.rank = ++rank});
    return b.op(name, std::move(inputs));
  };
  const ValueId a = op("Exp", {x}), relu = op("Relu", {a}), c = op("Tanh", {x}), d = op("Exp", {x}),
                e = op("Sigmoid", {x}), s = op("ReduceMean", {op("Sum", {c, d, e})});
  graph.outputs = {op("ReduceMean", {op("MatMul", {relu, op("Add", {x, s})})})};
  const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit", true});
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->buffer_of[a], plan->buffer_of[relu]) << "in place";
  const auto found = find_memory(graph, *plan);
  const auto kept = std::find_if(found.begin(), found.end(),
                                 [&](const MemoryFinding& f) { return f.value == graph.values[relu].name; });
  ASSERT_NE(kept, found.end());
  EXPECT_EQ(kept->node, graph.nodes[graph.values[relu].producer].name);
  EXPECT_FALSE(kept->can_run_again) << "it wrote over what it read";
  for (const MemoryFinding& f : found) EXPECT_NE(f.value, graph.values[a].name) << "nobody reads it late";
}

// Nobody's reading keeps it: it is a result.
TEST(MemoryFindings, ResultsOfTheStepAreLeftOut) {
  Middle m;
  const ValueId late = m.op("ReduceMax", {m.a});
  EXPECT_TRUE(m.find({m.s, late, m.a}).empty());
}

// Made again, every value that the plan of a training step says so of has left its place, and all of them the peak.
TEST(MemoryFindings, MadeAgainTheyLowerThePeakOfAStep) {
  ImportOptions import;
  import.dims = {{ "batch", 2 }};
  const ImportedModel model =
      std::move(import_onnx(GRADLOOM_SOURCE_DIR "/tests/models/gpt-char/model.onnx", import)).value();
  CompileOptions options;
  options.train.loss = "ce:logits,labels";
  options.pipeline = std::move(parse_pipeline("default")).value();
  const auto step = compile(model.graph, options);
  ASSERT_TRUE(step.ok()) << step.error().message;
  const std::vector<MemoryFinding> found = find_memory(step->train.graph, step->plan);
  std::vector<std::string> again;
  for (const MemoryFinding& f : found)
    if (f.can_run_again && f.node.find("/ln") != std::string::npos) again.push_back(f.node);
  ASSERT_GE(again.size(), 4u) << found.size() << " findings";
  options.recompute = again;
  const auto made = compile(model.graph, options);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_LT(made->plan.lower_bound_bytes, step->plan.lower_bound_bytes);
  for (const MemoryFinding& f : find_memory(made->train.graph, made->plan))
    EXPECT_EQ(std::count(again.begin(), again.end(), f.node), 0) << f.node << " is still kept over the peak";
}

}  // namespace
}  // namespace gradloom
