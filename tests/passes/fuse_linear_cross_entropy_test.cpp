#include <gtest/gtest.h>

#include <functional>

#include "engine/ops/inference.h"
#include "passes/compile.h"
#include "tests/passes/matmul_support.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::f64;
using test::op_counts;
using test::run_and_compare;
using test::why_nots;

constexpr const char* kCrossEntropyPass = "fuse-linear-cross-entropy{min_mib=0}";

// x [2, 3, 4], w [4, 5], labels [6] or as asked for.
struct FuseLinearCrossEntropy : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.input("x", {f64, {2, 3, 4}}), w = b.input("w", {f64, {4, 5}}),
          bias = b.input("bias", {f64, {5}});

  ValueId labels(Shape shape) { return b.input("labels", {DType::i64, std::move(shape)}); }
  ValueId reshape(ValueId of, const std::vector<std::int64_t>& to) {
    return b.op("Reshape", {of, b.i64s(to)});
  }
  ValueId rows(ValueId of) { return reshape(of, {-1, 5}); }
  ValueId loss(ValueId logits, ValueId of, Attrs attrs = {}) {
    return b.op("SoftmaxCrossEntropyLoss", {logits, of}, std::move(attrs));
  }
  void expect_fused(ValueId result, const Counts& others) {
    graph.outputs = {result};
    Counts counts = others;
    counts["LinearCrossEntropyLoss"] = 1;
    EXPECT_EQ(run_and_compare(graph, kCrossEntropyPass, 1e-12).matched, 1);
    EXPECT_EQ(op_counts(graph), counts);
  }
  void expect_kept(const char* why) {
    const PassReport report = run_and_compare(graph, kCrossEntropyPass, 0);
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
  }
};

TEST_F(FuseLinearCrossEntropy, TakesAProductWhoseRowsAreReshaped) {
  expect_fused(loss(rows(b.op("MatMul", {x, w})), labels({6})), {{"Reshape", 1}});
}

TEST_F(FuseLinearCrossEntropy, TakesBiasTransposedWeightReductionAndIgnoredLabels) {
  const ValueId transposed = b.input("v", {f64, {5, 4}});
  const ValueId logits = b.op("Add", {bias, b.op("MatMul", {x, b.op("Transpose", {transposed})})});
  expect_fused(
      loss(rows(logits), labels({6}), {{"reduction", std::string("sum")}, {"ignore_index", std::int64_t{2}}}),
      {{"Reshape", 1}});
}

TEST_F(FuseLinearCrossEntropy, TakesAGemm) {
  const ValueId flat = b.input("flat", {f64, {6, 4}}), v = b.input("v", {f64, {5, 4}});
  expect_fused(loss(b.op("Gemm", {flat, v, bias}, {{"transB", std::int64_t{1}}}), labels({6})), {});
}

TEST_F(FuseLinearCrossEntropy, TakesClassesThatATransposeBringsToAxisOne) {
  const ValueId logits =
      b.op("Transpose", {b.op("MatMul", {x, w})}, {{"perm", std::vector<std::int64_t>{0, 2, 1}}});
  expect_fused(loss(logits, labels({2, 3})), {{"Reshape", 2}});
}

TEST_F(FuseLinearCrossEntropy, ComputesOnlyTheRowsThatTheLossReads) {
  const ValueId shifted = b.op("Slice", {b.op("MatMul", {x, w}), b.i64s({0}), b.i64s({2}), b.i64s({1})});
  graph.outputs = {loss(rows(shifted), labels({4}))};
  EXPECT_EQ(run_and_compare(graph, kCrossEntropyPass, 1e-12).matched, 1);
  for (const Node& node : graph.nodes) {
    if (!node.alive() || std::string_view(node.op->name) != "Slice") continue;
    EXPECT_EQ(graph.type(node.outputs[0]).shape, (Shape{2, 2, 4}));  // of x
  }
}

TEST_F(FuseLinearCrossEntropy, TakesGatheredRows) {
  const ValueId chosen = b.op("Gather", {rows(b.op("MatMul", {x, w})), b.i64s({5, 0, 0})});
  expect_fused(loss(chosen, labels({3})), {{"Reshape", 1}, {"Gather", 1}});
}

TEST_F(FuseLinearCrossEntropy, SmallLogitsStay) {
  graph.outputs = {loss(rows(b.op("MatMul", {x, w})), labels({6}))};
  const PassReport report = run_and_compare(graph, "fuse-linear-cross-entropy", 0);
  EXPECT_NE(why_nots(report).find("the logits take less than 8 MiB"), std::string::npos) << why_nots(report);
}

TEST_F(FuseLinearCrossEntropy, ALossOfEachRowStays) {
  graph.outputs = {loss(rows(b.op("MatMul", {x, w})), labels({6}), {{"reduction", std::string("none")}})};
  expect_kept("not reduced");
}

TEST_F(FuseLinearCrossEntropy, LogitsReadElsewhereStay) {
  const ValueId logits = b.op("MatMul", {x, w});
  graph.outputs = {loss(rows(logits), labels({6})), logits};
  expect_kept("also an output");
}

TEST_F(FuseLinearCrossEntropy, LogProbabilitiesThatAreReadStay) {
  const auto out =
      b.ops(op_by_name("SoftmaxCrossEntropyLoss"), {rows(b.op("MatMul", {x, w})), labels({6})}, {}, 2);
  graph.outputs = {out[0], out[1]};
  expect_kept("its log-probabilities or sums are read");
}

TEST_F(FuseLinearCrossEntropy, ASliceOfTheClassesStays) {
  const ValueId some = b.op("Slice", {b.op("MatMul", {x, w}), b.i64s({0}), b.i64s({4}), b.i64s({-1})});
  graph.outputs = {loss(reshape(some, {-1, 4}), labels({6}))};
  expect_kept("takes part of the classes");
}

TEST_F(FuseLinearCrossEntropy, AReshapeThatSplitsTheClassesStays) {
  graph.outputs = {loss(reshape(b.op("MatMul", {x, w}), {-1, 3}), labels({10}))};
  expect_kept("splits the classes");
}

TEST_F(FuseLinearCrossEntropy, SomethingElseBetweenStays) {
  graph.outputs = {loss(rows(b.op("Tanh", {b.op("MatMul", {x, w})})), labels({6}))};
  expect_kept("Tanh");
}

TEST_F(FuseLinearCrossEntropy, AWeightOfThreeDimsStays) {
  const ValueId many = b.input("many", {f64, {2, 4, 5}});
  graph.outputs = {loss(rows(b.op("MatMul", {x, many})), labels({6}))};
  expect_kept("the weight has 3 dims");
}

TEST_F(FuseLinearCrossEntropy, AClassWeightThatIsComputedStays) {
  graph.outputs = {
      b.op("SoftmaxCrossEntropyLoss", {rows(b.op("MatMul", {x, w})), labels({6}), b.op("Exp", {bias})})};
  expect_kept("class weight");
}

TEST_F(FuseLinearCrossEntropy, ClassesInAxisOneOfImagesStay) {
  const ValueId image =
      b.op("Transpose", {b.op("MatMul", {x, w})}, {{"perm", std::vector<std::int64_t>{2, 0, 1}}});
  graph.outputs = {
      loss(b.op("Transpose", {image}, {{"perm", std::vector<std::int64_t>{1, 0, 2}}}), labels({2, 3}))};
  expect_kept("the classes are in axis 1 of");
}

TEST_F(FuseLinearCrossEntropy, TwoBiasesStay) {
  const ValueId more = b.input("more", {f64, {5}});
  const ValueId once = b.op("Add", {b.op("MatMul", {x, w}), bias});
  graph.outputs = {loss(rows(b.op("Add", {more, once})), labels({6}))};
  expect_kept("two biases are added");
}

TEST_F(FuseLinearCrossEntropy, ABiasBesideThatOfAGemmStays) {
  const ValueId flat = b.input("flat", {f64, {6, 4}}), more = b.input("more", {f64, {5}});
  graph.outputs = {loss(b.op("Add", {b.op("Gemm", {flat, w, bias}), more}), labels({6}))};
  expect_kept("two biases are added");
}

// Each column is a class of its own only after the sum.
TEST_F(FuseLinearCrossEntropy, ABiasThatMakesTheClassesStays) {
  const ValueId column = b.input("column", {f64, {4, 1}});
  graph.outputs = {loss(rows(b.op("Add", {b.op("MatMul", {x, column}), bias})), labels({6}))};
  EXPECT_EQ(run_and_compare(graph, kCrossEntropyPass, 0).matched, 0);
}

TEST_F(FuseLinearCrossEntropy, AScaledProductStays) {
  const ValueId flat = b.input("flat", {f64, {6, 4}});
  graph.outputs = {loss(b.op("Gemm", {flat, w}, {{"alpha", 0.5}}), labels({6}))};
  expect_kept("the product is scaled");
}

TEST_F(FuseLinearCrossEntropy, AProductOfTransposedRowsStays) {
  const ValueId flat = b.input("flat", {f64, {4, 6}});
  graph.outputs = {loss(b.op("Gemm", {flat, w}, {{"transA", std::int64_t{1}}}), labels({6}))};
  expect_kept("the product transposes its rows");
}

TEST_F(FuseLinearCrossEntropy, ACastThatRoundsStays) {
  const ValueId low = b.op("Cast", {b.op("MatMul", {x, w})}, {{"to", onnx_from_dtype(DType::f32)}});
  graph.outputs = {loss(rows(low), labels({6}))};
  expect_kept("Cast does not widen");
}

// ---- with gradients -------------------------------------------------------------------------------------------

Graph classifier(DType type) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<double> numbers;
  for (int i = 0; i < 20; ++i) numbers.push_back(0.1 * i - 1);
  const ValueId x = b.input("x", {type, {6, 4}}), labels = b.input("labels", {DType::i64, {6}});
  const ValueId w = b.parameter("w", Tensor::from_f64(type, {4, 5}, numbers)),
                bias = b.parameter("bias", Tensor(type, {5}));
  const ValueId logits = b.op("Add", {b.op("MatMul", {b.op("Tanh", {x}), w}), bias});
  const ValueId loss = b.op("SoftmaxCrossEntropyLoss", {logits, labels});
  graph.values[loss].name = "loss";
  graph.outputs = {loss, logits};
  return graph;
}

Result<Compiled> trained(const Graph& graph, const std::string& passes, const char* precision = "f32",
                         const std::function<void(CompileOptions&)>& change = {}) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("sgd");
  options.pipeline = *parse_pipeline(passes);
  const PassConfig low = *configure_pass(*find_pass("mixed-precision"));
  auto& list = options.pipeline.passes;
  if (std::string(precision) == "bf16 before") list.insert(list.begin(), low);
  if (std::string(precision) == "bf16 after") list.push_back(low);
  if (change) change(options);
  return compile(graph, options);
}

TEST(LinearCrossEntropyInTraining, LossAndGradientsAreOneNodeAndTheModelsOtherOutputsNoObstacle) {
  const auto compiled = trained(classifier(DType::f32), kCrossEntropyPass);
  ASSERT_OK(compiled);
  const Counts counts = op_counts(compiled->train.graph);
  EXPECT_EQ(counts.count("LinearCrossEntropyLoss"), 0u);
  EXPECT_EQ(counts.at("LinearCrossEntropyGrad"), 1);
  EXPECT_EQ(counts.count("MatMul"), 0u);
  EXPECT_EQ(compiled->train.graph.values[compiled->train.names.loss].name, "loss");
}

// 50257 classes: chunks of 128 MiB of logits in f32 on the CPU, of 400 on a GPU, of which each reads and writes the weight's gradient.
TEST(FuseLinearCrossEntropyOnTargets, ChunksAreLargerOnGpus) {
  const auto rows = [](const char* pass, kernels::Target target) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {65536, 8}}), w = b.input("w", {DType::f32, {8, 50257}});
    graph.outputs = {
        b.op("SoftmaxCrossEntropyLoss", {b.op("MatMul", {x, w}), b.input("labels", {DType::i64, {65536}})})};
    EXPECT_EQ(test::run_pass(graph, pass, target).matched, 1);
    for (const Node& node : graph.nodes)
      if (node.alive() && node.attrs.has("chunk_rows")) return node.attrs.integer("chunk_rows");
    return std::int64_t{0};
  };
  EXPECT_EQ(rows("fuse-linear-cross-entropy", kernels::Target::cpu), 672);
  EXPECT_EQ(rows("fuse-linear-cross-entropy", kernels::Target::gpu), 2048);
  EXPECT_EQ(rows("fuse-linear-cross-entropy{chunk_mib=128}", kernels::Target::gpu), 672);
}

TEST(LinearCrossEntropyInTraining, ComputesTheSameStepAsWithoutIt) {
  for (const int accumulate : {1, 2}) {
    const auto options = [&](CompileOptions& o) { o.train.accumulate = accumulate; };
    const auto without = trained(classifier(f64), "none", "f32", options),
               with = trained(classifier(f64), kCrossEntropyPass, "f32", options);
    ASSERT_OK(without);
    ASSERT_OK(with);
    test::expect_same_results(without->train.graph, with->train.graph, 1e-12);
  }
}

// Losses of the same operands that differ in what they make of the rows: each gradient node gives its own loss.
TEST(LinearCrossEntropyInTraining, TwoHeadsOverTheSameOperandsKeepTheirLosses) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<double> numbers;
  for (int i = 0; i < 20; ++i) numbers.push_back(0.1 * i - 1);
  const ValueId x = b.input("x", {f64, {6, 4}}), labels = b.input("labels", {DType::i64, {6}}),
                w = b.parameter("w", Tensor::from_f64(f64, {4, 5}, numbers)), rows = b.op("Tanh", {x});
  const auto head = [&](const char* reduction) {
    return b.op("SoftmaxCrossEntropyLoss", {b.op("MatMul", {rows, w}), labels},
                {{"reduction", std::string(reduction)}});
  };
  const ValueId mean = head("mean"), sum = head("sum");
  const ValueId loss = b.op("Add", {mean, b.op("Mul", {sum, b.scalar(f64, 0.01)})});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  const auto without = trained(graph, "none"), with = trained(graph, kCrossEntropyPass);
  ASSERT_OK(without);
  ASSERT_OK(with);
  EXPECT_EQ(op_counts(with->train.graph).at("LinearCrossEntropyGrad"), 2);
  test::expect_same_results(without->train.graph, with->train.graph, 1e-12);
}

TEST(LinearCrossEntropyInTraining, ReadsSixteenBitsAndGivesGradientsOfParametersInF32) {
  for (const char* order : {"bf16 before", "bf16 after"}) {
    const auto compiled = trained(classifier(DType::f32), kCrossEntropyPass, order);
    ASSERT_OK(compiled);
    const Graph& graph = compiled->train.graph;
    int found = 0;
    for (const Node& node : graph.nodes) {
      if (!node.alive() || std::string_view(node.op->name) != "LinearCrossEntropyGrad") continue;
      ++found;
      EXPECT_EQ(graph.type(node.inputs[2]).dtype, DType::bf16) << order;
      EXPECT_EQ(graph.type(node.outputs[2]).dtype, DType::f32) << order;
    }
    EXPECT_EQ(found, 1) << order;
  }
}

TEST(LinearCrossEntropyInTraining, AGradientThatDependsOnTheLossKeepsBoth) {
  Graph graph = classifier(DType::f32);
  GraphBuilder b(graph);
  const ValueId loss = graph.outputs[0];
  graph.values[loss].name = "cross";
  const ValueId squared = b.op("Mul", {loss, loss});
  graph.values[squared].name = "loss";
  graph.outputs = {squared};
  const auto compiled = trained(graph, kCrossEntropyPass);
  ASSERT_OK(compiled);
  EXPECT_EQ(op_counts(compiled->train.graph).at("LinearCrossEntropyLoss"), 1);
  bool said = false;
  for (const PassReport& report : compiled->reports)
    said = said || why_nots(report).find("depends on the loss") != std::string::npos;
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace gradloom
