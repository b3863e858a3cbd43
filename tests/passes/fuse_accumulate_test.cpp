#include <gtest/gtest.h>

#include <algorithm>

#include "engine/onnx/import.h"
#include "engine/plan/pieces.h"
#include "passes/compile.h"
#include "passes/planners.h"
#include "tests/passes/support.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::run_pass;
using test::why_nots;

struct FuseAccumulate : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph, {.origin = {{}, Phase::backward}}};
  ValueId micro = b.input("micro", {DType::i64, {}}, Role::hyper);
  ValueId acc = b.input("acc", {DType::f64, {4, 3}}, Role::state);
  ValueId x = b.input("x", {DType::f64, {8, 4}}), dy = b.input("dy", {DType::f64, {8, 3}});
  const Attrs turned{{"perm_a", std::vector<std::int64_t>{1, 0}}};

  void accumulate(ValueId gradient) {
    graph.updates = {{acc, b.op("Accumulate", {acc, gradient, micro}, {{"count", std::int64_t{2}}})}};
  }
};

TEST_F(FuseAccumulate, TheProductAddsToTheAccumulator) {
  accumulate(b.op("FusedMatMul", {x, dy}, turned));
  EXPECT_EQ(test::run_and_compare(graph, "fuse-accumulate", 1e-12).matched, 1);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"AccumulateMatMul", 1}}));
}

TEST_F(FuseAccumulate, AProductThatIsReadElsewhereStays) {
  const ValueId gradient = b.op("FusedMatMul", {x, dy}, turned);
  accumulate(gradient);
  graph.outputs = {gradient};
  const PassReport report = test::run_and_compare(graph, "fuse-accumulate", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("also an output"), std::string::npos) << why_nots(report);
}

TEST_F(FuseAccumulate, AProductWithBiasStays) {
  accumulate(b.op("FusedMatMul", {x, dy, b.input("bias", {DType::f64, {3}})}, turned));
  const PassReport report = test::run_and_compare(graph, "fuse-accumulate", 0);
  EXPECT_NE(why_nots(report).find("bias"), std::string::npos) << why_nots(report);
}

TEST_F(FuseAccumulate, OtherGradientsStay) {
  accumulate(b.op("Tanh", {b.input("g", {DType::f64, {4, 3}})}));
  EXPECT_EQ(test::run_and_compare(graph, "fuse-accumulate", 0).matched, 0);
}

TEST_F(FuseAccumulate, ACastOfTheProductIsPartOfIt) {
  Graph low;
  GraphBuilder c(low, {.origin = {{}, Phase::backward}});
  const ValueId m = c.input("micro", {DType::i64, {}}, Role::hyper),
                sum = c.input("acc", {DType::f32, {4, 3}}, Role::state);
  const ValueId a = c.input("x", {DType::bf16, {8, 4}}), d = c.input("dy", {DType::bf16, {8, 3}});
  const ValueId wide = c.op("Cast", {c.op("FusedMatMul", {a, d}, turned)}, {{"to", std::int64_t{1}}});
  low.updates = {{sum, c.op("Accumulate", {sum, wide, m})}};
  EXPECT_EQ(run_pass(low, "fuse-accumulate").matched, 1);
  EXPECT_EQ(op_counts(low), (test::Counts{{"AccumulateMatMul", 1}}));
}

// On GPUs, where the host does not see the micro-batch's number, the product stays one and is added with the others.
TEST_F(FuseAccumulate, OnGpusProductsStay) {
  accumulate(b.op("FusedMatMul", {x, dy}, turned));
  EXPECT_EQ(run_pass(graph, "fuse-accumulate", kernels::Target::gpu).matched, 0);
}

// A table of 9 rows of 4, of which a micro-batch reads some.
struct AccumulatedTable : FuseAccumulate {
  ValueId table = b.input("table", {DType::f64, {9, 4}}, Role::state);
  ValueId tokens = b.input("tokens", {DType::i64, {2, 3}}), dx = b.input("dx", {DType::f64, {2, 3, 4}});
  const Attrs rows{{"axis", std::int64_t{0}}};

  ValueId gathered() { return b.op("GatherGrad", {dx, tokens, b.i64s({9, 4})}, rows); }
  void accumulate_table(ValueId gradient) {
    graph.updates = {{table, b.op("Accumulate", {table, gradient, micro}, {{"count", std::int64_t{3}}})}};
  }
};

TEST_F(AccumulatedTable, RowsAreAddedToTheAccumulator) {
  accumulate_table(gathered());
  EXPECT_EQ(test::run_and_compare(graph, "fuse-accumulate", 1e-15).matched, 1);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"AccumulateRows", 1}}));
}

TEST_F(AccumulatedTable, OnGpusToo) {
  accumulate_table(gathered());
  EXPECT_EQ(run_pass(graph, "fuse-accumulate", kernels::Target::gpu).matched, 1);
}

// The head's gradient first, by its product; then the rows, in the same micro-batch.
TEST_F(AccumulatedTable, BothGradientsOfATiedTableAreAdded) {
  const ValueId head = b.op(
      "FusedMatMul", {b.input("dlogits", {DType::f64, {6, 9}}), b.input("h", {DType::f64, {6, 4}})}, turned);
  accumulate_table(b.op("Add", {head, gathered()}));
  ASSERT_EQ(test::run_and_compare(graph, "fuse-gather-grad", 0).matched, 1);
  ASSERT_EQ(test::run_and_compare(graph, "fuse-accumulate", 1e-14).matched, 2);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"AccumulateMatMul", 1}, {"AccumulateRows", 1}}));
  const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit"});
  ASSERT_OK(plan);
  ASSERT_OK(check_plan(graph, *plan));
  for (const PlanStep& step : plan->steps) EXPECT_TRUE(step.micro) << graph.nodes[step.node].name;
}

// A vocabulary of 9 words, whose head takes 6 rows, 4 at a time.
struct AccumulatedHead : AccumulatedTable {
  ValueId w = b.input("w", {DType::f64, {9, 4}}), bias = b.input("bias", {DType::f64, {9}}),
          bias_sum = b.input("bias_sum", {DType::f64, {9}}, Role::state);
  std::vector<ValueId> made;  // loss, dx, dw, dbias

  AccumulatedHead() {
    const ValueId dloss = b.input("dloss", {DType::f64, {}}), h = b.input("h", {DType::f64, {6, 4}}),
                  labels = b.input("labels", {DType::i64, {6}});
    made = b.ops(op_by_name("LinearCrossEntropyGrad"), {dloss, h, w, bias, labels},
                 {{"chunk_rows", std::int64_t{4}}, {"axis", std::int64_t{0}}}, 4);
    graph.outputs = {made[0], b.op("Tanh", {made[1]})};
  }
  void accumulate_head(ValueId gradient) {
    accumulate_table(gradient);
    graph.updates.push_back(
        {bias_sum, b.op("Accumulate", {bias_sum, made[3], micro}, {{"count", std::int64_t{3}}})});
  }
  // That all runs with every micro-batch: the loss and what reads the gradient of the rows too.
  void expect_every_micro_batch() const {
    const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit"});
    ASSERT_OK(plan);
    ASSERT_OK(check_plan(graph, *plan));
    for (const PlanStep& step : plan->steps) EXPECT_TRUE(step.micro) << graph.nodes[step.node].name;
  }
};

TEST_F(AccumulatedHead, ItsChunksAreAddedToTheAccumulator) {
  accumulate_head(made[2]);
  EXPECT_EQ(test::run_and_compare(graph, "fuse-accumulate", 1e-14).matched, 1);
  EXPECT_EQ(op_counts(graph),
            (test::Counts{{"AccumulateLinearCrossEntropy", 1}, {"Accumulate", 1}, {"Tanh", 1}}));
  expect_every_micro_batch();
}

TEST_F(AccumulatedHead, OnGpusTooWithAllElse) {
  accumulate_head(b.op("Add", {made[2], gathered()}));
  ASSERT_EQ(test::run_and_compare(graph, "fuse-gather-grad", 0).matched, 1);
  Graph gpu = graph;
  EXPECT_EQ(run_pass(gpu, "fuse-accumulate", kernels::Target::gpu).matched, 2);
  ASSERT_EQ(test::run_and_compare(graph, "fuse-accumulate", 1e-14).matched, 2);
  const test::Counts counts{
      {"AccumulateLinearCrossEntropy", 1}, {"AccumulateRows", 1}, {"Accumulate", 1}, {"Tanh", 1}};
  EXPECT_EQ(op_counts(graph), counts);
  EXPECT_EQ(op_counts(gpu), counts);
  expect_every_micro_batch();
}

TEST_F(AccumulatedHead, AGradientThatIsReadElsewhereStays) {
  accumulate_head(made[2]);
  graph.outputs.push_back(made[2]);
  const PassReport report = test::run_and_compare(graph, "fuse-accumulate", 0);
  EXPECT_EQ(op_counts(graph)["LinearCrossEntropyGrad"], 1);
  EXPECT_NE(why_nots(report).find("also an output"), std::string::npos) << why_nots(report);
}

// In 16 bits the sums are in f32, and so is an accumulator to which chunks are added.
TEST_F(AccumulatedHead, OfSixteenBitsIsAddedInF32) {
  for (const DType sums : {DType::f32, DType::bf16}) {
    Graph low;
    GraphBuilder c(low);
    const ValueId m = c.input("micro", {DType::i64, {}}, Role::hyper),
                  sum = c.input("sum", {sums, {9, 4}}, Role::state);
    const auto of_head =
        c.ops(op_by_name("LinearCrossEntropyGrad"),
              {c.input("dloss", {DType::f32, {}}), c.input("h", {DType::bf16, {6, 4}}),
               c.input("w", {DType::bf16, {9, 4}}), kNone, c.input("labels", {DType::i64, {6}})},
              {{"axis", std::int64_t{0}}}, 3);
    low.updates = {{sum, c.op("Accumulate", {sum, of_head[2], m})}};
    const PassReport report = run_pass(low, "fuse-accumulate");
    EXPECT_EQ(op_counts(low)["AccumulateLinearCrossEntropy"], sums == DType::f32 ? 1 : 0);
    if (sums == DType::bf16) {
      EXPECT_NE(why_nots(report).find("another type than the sums"), std::string::npos) << why_nots(report);
    }
  }
}

TEST_F(AccumulatedTable, RowsThatAreReadElsewhereStay) {
  const ValueId gradient = gathered();
  accumulate_table(gradient);
  graph.outputs = {gradient};
  const PassReport report = test::run_and_compare(graph, "fuse-accumulate", 0);
  EXPECT_NE(why_nots(report).find("also an output"), std::string::npos) << why_nots(report);
}

TEST_F(AccumulatedTable, RowsOfAnotherTypeStay) {
  const ValueId narrow =
      b.op("GatherGrad",
           {b.input("low", {DType::bf16, {6, 4}}), b.input("ids", {DType::i64, {6}}), b.i64s({9, 4})}, rows);
  ValueId wide = b.input("wide", {DType::f32, {9, 4}}, Role::state);
  graph.updates = {{wide, b.op("Accumulate", {wide, narrow, micro})}};
  const PassReport report = run_pass(graph, "fuse-accumulate");
  EXPECT_NE(why_nots(report).find("another type"), std::string::npos) << why_nots(report);
}

struct AccumulateTogether : FuseAccumulate {
  // Gradients of so many elements, made in the order of the list; their accumulators in the other.
  void accumulate_all(const std::vector<std::int64_t>& sizes) {
    std::vector<ValueId> gradients, accumulators;
    for (const std::int64_t n : sizes) {
      const std::string number = std::to_string(gradients.size());
      GraphBuilder at(graph,
                      {.origin = {{}, Phase::backward}, .rank = static_cast<std::int64_t>(gradients.size())});
      gradients.push_back(at.op("Tanh", {at.input("g" + number, {DType::f64, {n}})}));
      accumulators.push_back(at.input("sum" + number, {DType::f64, {n}}, Role::state));
    }
    GraphBuilder last(graph, {.origin = {{}, Phase::optimizer}, .rank = 99});
    for (std::size_t i = sizes.size(); i-- > 0;)
      graph.updates.push_back({accumulators[i], last.op("Accumulate", {accumulators[i], gradients[i], micro},
                                                        {{"count", std::int64_t{4}}})});
  }
  // How many gradients each Accumulate adds, in the order in which they run.
  std::vector<std::size_t> added() const {
    std::vector<std::size_t> counts;
    const auto order = topological_order(graph);
    for (const NodeId id : *order)
      if (is_op(graph.nodes[id], "Accumulate")) counts.push_back(graph.nodes[id].outputs.size());
    return counts;
  }
};

TEST_F(AccumulateTogether, OneKernelAddsThemAll) {
  accumulate_all({5, 1, 300});
  EXPECT_EQ(test::run_and_compare(graph, "fuse-accumulate", 0).matched, 1);
  EXPECT_EQ(added(), (std::vector<std::size_t>{3}));
  const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit"});
  ASSERT_OK(plan);
  ASSERT_OK(check_plan(graph, *plan));
}

// Two of 400 bytes fit into a KiB, three do not; one of 1600 bytes is added alone, at the end.
TEST_F(AccumulateTogether, AsManyAsMakeUpTheLimit) {
  accumulate_all({50, 50, 50, 200, 50, 50});
  const PassReport report = test::run_and_compare(graph, "fuse-accumulate{together_kib=1}", 0);
  EXPECT_EQ(added(), (std::vector<std::size_t>{2, 2, 1, 1}));
  EXPECT_NE(why_nots(report).find("larger than together_kib"), std::string::npos) << why_nots(report);
}

TEST_F(AccumulateTogether, NotOfDifferentCounts) {
  accumulate_all({5});
  const Update first = graph.updates[0];
  accumulate(b.op("Tanh", {b.input("g", {DType::f64, {4, 3}})}));
  graph.updates.push_back(first);
  EXPECT_EQ(test::run_and_compare(graph, "fuse-accumulate", 0).matched, 0);
}

// What --accumulate costs: one kernel for all that is small, and one for each large gradient that no product makes.
TEST(Accumulate, AddsHardlyAKernel) {
  for (const std::string name : {"mlp", "cnn-digits", "gpt-char", "bert-tiny"}) {
    ImportOptions import;
    import.dims["batch"] = 8;
    const auto model =
        import_onnx(std::string(GRADLOOM_SOURCE_DIR) + "/tests/models/" + name + "/model.onnx", import);
    ASSERT_OK(model);
    std::size_t kernels[2];
    for (const std::int64_t count : {1, 4}) {
      CompileOptions options;
      options.train.loss = "ce:logits,labels";
      options.train.optimizer = *parse_optimizer("adamw");
      options.train.accumulate = count;
      options.pipeline = default_pipeline();
      const auto compiled = compile(model->graph, options);
      ASSERT_OK(compiled);
      // Which parts are read where they lie depends on the library's products, and is not the pass's.
      kernels[count == 4 ? 1 : 0] = static_cast<std::size_t>(std::count_if(
          compiled->plan.steps.begin(), compiled->plan.steps.end(),
          [&](const PlanStep& step) { return !moves_parts(compiled->train.graph.nodes[step.node]); }));
    }
    EXPECT_LE(kernels[1], kernels[0] + 1) << name;
  }
}

}  // namespace
}  // namespace gradloom
