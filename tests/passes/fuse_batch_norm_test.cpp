// Batch normalizations that write what is added to them and activated: the same bits in f32, f64 and bf16, plain and in blocks, in
// training steps; and why others stay.
#include <gtest/gtest.h>

#include <cmath>

#include "passes/compile.h"
#include "tests/passes/compiled_step.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::compiled_step;
using test::Counts;
using test::expect_same_results;
using test::op_counts;
using test::run_pass;
using test::why_nots;
using Ints = std::vector<std::int64_t>;

constexpr const char* kNormPass = "fuse-batch-norm";

// Convolutions of 16 channels with normalizations between them: Relu, Clip, a residual sum with Relu, one without.
Graph norm_network(DType type, bool clip_has_low = true) {
  Graph graph;
  GraphBuilder b(graph);
  graph.opset = 17;
  int count = 0;
  const auto parameter = [&](Shape shape) {
    const std::int64_t size = element_count(shape);
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < size; ++i)
      numbers.push_back(std::sin(static_cast<double>(i * 7 + count)) / 4);
    return b.parameter("w" + std::to_string(count++), Tensor::from_f64(type, std::move(shape), numbers));
  };
  const auto conv = [&](ValueId x) {
    return b.op("Conv", {x, parameter({16, 16, 3, 3})}, {{"pads", Ints{1, 1, 1, 1}}});
  };
  const auto norm = [&](ValueId x) {
    const ValueId mean = parameter({16}), variance = parameter({16});
    for (const ValueId state : {mean, variance}) graph.values[state].role = Role::state;
    return b.op("BatchNormalization", {x, parameter({16}), parameter({16}), mean, variance},
                {{"training_mode", std::int64_t{1}}});
  };
  const auto clip = [&](ValueId x) {
    return b.op("Clip", {x, clip_has_low ? b.scalar(type, -0.5) : kNone, b.scalar(type, 0.75)});
  };
  const ValueId first = b.op("Relu", {norm(conv(b.input("x", {type, {2, 16, 6, 5}})))});
  const ValueId second = clip(norm(conv(first)));
  const ValueId third = b.op("Relu", {b.op("Add", {first, norm(conv(second))})});
  const ValueId last = b.op("Add", {norm(conv(third)), second});
  const ValueId loss = b.op("ReduceMean", {b.op("Square", {last})}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

TEST(FuseBatchNorm, StepsKeepTheirBits) {
  for (const char* const passes : {"none", "block-channels", "block-channels,mixed-precision"}) {
    for (const DType type : {DType::f32, DType::f64}) {
      const bool mixed = std::string(passes).find("mixed") != std::string::npos;
      if (mixed && type == DType::f64) continue;
      for (const bool low : {true, false}) {
        SCOPED_TRACE(std::string(passes) + " " + dtype_name(type));
        const Graph before = compiled_step(norm_network(type, low), passes);
        Graph after = before;
        const PassReport report = run_pass(after, kNormPass);
        EXPECT_EQ(report.matched, 6) << why_nots(report);  // four results, two gradients
        Counts counts = op_counts(after);
        EXPECT_EQ(counts["FusedBatchNorm"], 4);
        EXPECT_EQ(counts["FusedBatchNormGrad"], 2);
        EXPECT_EQ(counts["BatchNormGrad"], 2);
        for (const char* const gone :
             {"BatchNormalization", "Clip", "Where", "LessOrEqual", "GreaterOrEqual"})
          EXPECT_EQ(counts[gone], 0) << gone;
        EXPECT_EQ(counts["ReluGrad"], 1) << "others read the gradient of a residual sum";
        EXPECT_EQ(counts["Relu"], 0);
        expect_same_results(before, after, 0);
        std::string bytes;
        for (const RewriteRecord& record : report.log)
          if (record.matched && record.rule == "gradient" && record.saves) bytes += record.why + "\n";
        EXPECT_NE(bytes.find("KiB less to read and write"), std::string::npos) << bytes;
      }
    }
  }
}

// What Clip's gradient compares is no longer kept for it.
TEST(FuseBatchNorm, KeepsLessForTheBackwardPass) {
  const auto arena = [](const char* passes) {
    CompileOptions options;
    options.train.loss = "loss";
    options.train.optimizer = *parse_optimizer("sgd{lr=0.1}");
    options.pipeline = *parse_pipeline(passes);
    const auto compiled = compile(norm_network(DType::f32), options);
    EXPECT_TRUE(compiled.ok());
    return compiled.ok() ? compiled->plan.arena_bytes : 0;
  };
  EXPECT_LE(arena(kNormPass), arena("none") - 2 * 16 * 6 * 5 * 4);
}

// One normalization with what follows it and its gradient, as a graph has them.
struct NormStep {
  const char* activation = "Relu";
  Shape added{};  // none: nothing
  bool trains = true, computed_bound = false, adds_own_mean = false, own_gradient = true, known = true;
  DType type = DType::f32;
  const char* also_output = "";  // "norm", "stopped": a value between them
};
Graph norm_step(const NormStep& s) {
  Graph graph;
  GraphBuilder b(graph);
  graph.opset = 17;
  const Shape shape{s.known ? 2 : -1, 4, 3};
  const Type c_type{DType::f32, {4}};
  const ValueId x = b.input("x", {s.type, shape}), scale = b.input("scale", c_type),
                bias = b.input("bias", c_type), mean = b.input("mean", c_type),
                variance = b.op("Square", {b.input("deviation", c_type)}),
                dy = b.input("dy", {s.type, shape});
  const Attrs attrs = s.trains ? Attrs{{"training_mode", std::int64_t{1}}} : Attrs{};
  const auto norm =
      b.ops(op_by_name("BatchNormalization"), {x, scale, bias, mean, variance}, attrs, s.trains ? 5 : 1);
  ValueId y = norm[0];
  if (!s.added.empty()) y = b.op("Add", {y, b.input("added", {DType::f32, s.added})});
  if (s.adds_own_mean)
    y = b.op("Add", {y, b.op("Expand", {b.op("Reshape", {norm[3], b.i64s({1, 4, 1})}), b.i64s({2, 4, 3})})});
  const ValueId high = s.computed_bound ? b.op("Abs", {b.input("high", {DType::f32, {}})}) : kNone;
  y = high != kNone ? b.op("Clip", {y, kNone, high}) : b.op(s.activation, {y});
  GraphBuilder after(graph, {.origin = {{}, Phase::backward}});
  const ValueId stopped = s.own_gradient && high == kNone ? after.op("ReluGrad", {dy, y}) : dy;
  const ValueId inv_std = s.trains ? norm[4] : variance;
  const auto dx =
      after.ops(op_by_name("BatchNormGrad"), {stopped, x, scale, s.trains ? norm[3] : mean, inv_std},
                {{"training", std::int64_t{s.trains}}}, 3);
  graph.outputs = {y, dx[0], dx[1], dx[2]};
  if (*s.also_output != '\0')
    graph.outputs.push_back(s.also_output == std::string("norm") ? norm[0] : stopped);
  return graph;
}

TEST(FuseBatchNorm, BothSidesAndEitherAlone) {
  const auto expect = [](const NormStep& s, int matched, int results, int gradients) {
    Graph graph = norm_step(s);
    const PassReport report = test::run_and_compare(graph, kNormPass, 1e-300);
    EXPECT_EQ(report.matched, matched) << why_nots(report);
    EXPECT_EQ(op_counts(graph)["FusedBatchNorm"], results);
    EXPECT_EQ(op_counts(graph)["FusedBatchNormGrad"], gradients);
  };
  expect({}, 2, 1, 1);
  expect({.trains = false}, 1, 1, 0);
  expect({.added = {2, 4, 3}}, 1, 1, 0);
  expect({.also_output = "stopped"}, 1, 1, 0);
  expect({.also_output = "norm"}, 1, 0, 1);
}

TEST(FuseBatchNorm, SaysWhatItLeavesAlone) {
  const auto expect_left = [](const NormStep& s, const std::string& why) {
    Graph graph = norm_step(s);
    const PassReport report = run_pass(graph, kNormPass);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why << "\n" << why_nots(report);
  };
  expect_left({.also_output = "norm"}, "activation at");
  expect_left({.also_output = "norm"}, "is also an output of the graph");
  expect_left({.also_output = "stopped"}, "gradient at");
  expect_left({.also_output = "stopped"}, "is also an output of the graph");
  expect_left({.added = {4, 1}}, "what is added, [4, 1], is not like it, [2, 4, 3]");
  expect_left({.adds_own_mean = true}, "what is added waits for it");
  expect_left({.computed_bound = true}, "activation at BatchNormalization: a bound of Clip is computed");
  expect_left({.computed_bound = true}, "gradient at BatchNormGrad: a bound of Clip is computed");
  expect_left({.known = false}, "its sizes are not known");
  expect_left({.type = DType::bf16}, "16 bits that are not bf16 in blocks with parameters in f32");
  expect_left({.trains = false}, "its statistics are not those of a batch that the graph normalizes");
  expect_left({.added = {2, 4, 3}}, "a sum lies between it and the activation");
  expect_left({.own_gradient = false}, "its gradient is not that of Relu alone");
  Graph half = norm_step({.type = DType::bf16});
  EXPECT_EQ(run_pass(half, kNormPass, kernels::Target::gpu).matched, 2) << "GPUs' kernels take 16 bits";
  Graph other = norm_step({.activation = "Sigmoid"});
  EXPECT_EQ(run_pass(other, kNormPass).matched, 0);
}

}  // namespace
}  // namespace gradloom
