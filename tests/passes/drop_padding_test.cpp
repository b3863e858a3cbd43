// drop-padding: a small transformer over padded batches trains to the same numbers, on as many rows as there are tokens.
#include <gtest/gtest.h>

#include "engine/ops/padding/packed_rows.h"
#include "passes/compile.h"
#include "tests/passes/padded_model.h"

namespace gradloom {
namespace {

using test::expect_same;
using test::kBatch;
using test::kBatches;
using test::kPositions;
using test::kWidth;
using test::Lengths;
using test::Model;
using test::op_counts;
using test::padded_options;
using test::Tiny;
using test::train_padded;
using test::Training;
using test::why_nots;

constexpr const char* kPass = "drop-padding";

PassReport run_drop_padding(Graph& graph, const std::string& pass, PassPhase phase = PassPhase::pre_gradient,
                            kernels::Target target = kernels::Target::cpu) {
  std::vector<PassReport> reports;
  const Status status = run_passes(graph, *parse_pipeline(pass), phase, reports, target);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return reports.empty() ? PassReport{} : reports[0];
}

TEST(DropPadding, GradientsStayWhatTheyAre) {
  for (const bool causal : {false, true})
    for (const Lengths& lengths : kBatches) {
      const Model model({.causal = causal});
      for (const char* passes :
           {"default,drop-padding", "drop-padding", "drop-padding,fuse-matmul-epilogue{devices=all}",
            "drop-padding,fuse-residual{devices=all}"})
        expect_same(train_padded(model.graph, "none", {lengths}),
                    train_padded(model.graph, passes, {lengths}), 1e-13);
    }
}

TEST(DropPadding, MasksOfEveryFormAreFoundByTrying) {
  for (const test::Form form : {test::Form::keep, test::Form::block, test::Form::add, test::Form::pad_id}) {
    const Model model({.form = form});
    Model packed({.form = form});
    const PassReport report = run_drop_padding(packed.graph, kPass);
    EXPECT_GT(report.matched, 0) << why_nots(report);
    expect_same(train_padded(model.graph, "none", kBatches, {.accumulate = 2}),
                train_padded(model.graph, "default,drop-padding", kBatches, {.accumulate = 2}), 1e-12);
    expect_same(train_padded(model.graph, "none", kBatches, {.accumulate = 2}),
                train_padded(model.graph, "default,fuse-attention{min_keys=1},drop-padding", kBatches,
                             {.accumulate = 2}),
                1e-12);
  }
}

TEST(DropPadding, EveryBatchHasItsOwnNumberOfTokens) {
  const Model model;
  for (const std::int64_t accumulate : {1, 2, 3})
    expect_same(train_padded(model.graph, "none", kBatches, {.accumulate = accumulate}),
                train_padded(model.graph, "default,drop-padding", kBatches, {.accumulate = accumulate}),
                1e-12);
}

TEST(DropPadding, HoldsInSinglePrecisionAndWithRecompute) {
  const Model model({.type = DType::f32});
  expect_same(train_padded(model.graph, "none", kBatches, {.accumulate = 2}),
              train_padded(model.graph, "default,drop-padding", kBatches, {.accumulate = 2}), 1e-5);
}

// Half types: beside the same precision with all positions, and beside full precision, within eight roundings.
TEST(DropPadding, HoldsInHalfPrecisions) {
  const Model model({.type = DType::f32});
  for (const auto& [precision, tolerance] : {std::pair("bf16", 3e-2), std::pair("f16", 4e-3)}) {
    for (const std::int64_t accumulate : {0, 2}) {
      const test::Training how{.accumulate = accumulate, .precision = precision};
      expect_same(train_padded(model.graph, "default", kBatches, how),
                  train_padded(model.graph, "default,drop-padding", kBatches, how), tolerance);
      expect_same(train_padded(model.graph, "none", kBatches, {.accumulate = accumulate}),
                  train_padded(model.graph, "default,drop-padding", kBatches, how), tolerance);
    }
  }
}

// Nodes that run again may give one of two results: rows that nobody reads have no shape.
TEST(DropPadding, HoldsUnderEveryMemoryBudget) {
  const Model model;
  const Training whole{.accumulate = 1};
  for (const char* passes :
       {"default,-select-rows,drop-padding", "default,-select-rows,-fuse-gelu,drop-padding"}) {
    const auto options = padded_options(passes, whole);
    ASSERT_OK(options);
    const auto compiled = compile(model.graph, *options);
    ASSERT_OK(compiled);
    const auto curve = memory_curve(*compiled, *options);
    ASSERT_OK(curve);
    EXPECT_GT(curve->size(), 3u);
    const auto expected = train_padded(model.graph, passes, kBatches, whole);
    for (const RecomputeChoice& point : *curve)
      expect_same(expected,
                  train_padded(model.graph, passes, kBatches,
                               {.accumulate = 1, .memory_budget_bytes = point.peak_bytes}),
                  0);
  }
}

TEST(DropPadding, DropoutDrawsTheSameMasks) {
  const Model model({.dropout = true});
  expect_same(train_padded(model.graph, "none", kBatches, {.accumulate = 2}),
              train_padded(model.graph, "default,drop-padding", kBatches, {.accumulate = 2}), 1e-12);
}

// Where drop-padding finds no mask beside select-rows, the passes run again without that one, and else both run.
TEST(DropPadding, SelectRowsGivesWay) {
  const auto matched = [&](const Tiny& tiny, const char* passes) {
    const Model model(tiny);
    const auto options = padded_options(passes, {.accumulate = 1});
    EXPECT_TRUE(options.ok());
    const auto compiled = compile(model.graph, *options);
    EXPECT_TRUE(compiled.ok()) << compiled.error().message;
    std::map<std::string, int> counts;
    for (const PassReport& report : compiled->reports)
      if (report.name == kPass || report.name == "select-rows") counts[report.name] += report.matched;
    return counts;
  };
  const Tiny unmasked{.masked = false};
  EXPECT_GT(matched(unmasked, "default")["select-rows"], 0);
  EXPECT_EQ(matched(unmasked, "default,drop-padding"), (std::map<std::string, int>{{kPass, 0}}));
  const auto both = matched({}, "default,drop-padding");
  EXPECT_GT(both.at(kPass), 0);
  EXPECT_GT(both.at("select-rows"), 0);
}

TEST(DropPadding, AllRowsArePackedAndNoneIsComputedWhole) {
  const Model model;
  for (const kernels::Target target : {kernels::Target::cpu, kernels::Target::gpu}) {
    CompileOptions options;
    options.target = target;
    options.gradients_only = true;
    options.train.loss = "loss";
    options.pipeline = *parse_pipeline("default,-select-rows,drop-padding");  // which leaves one query
    const auto compiled = compile(model.graph, options);
    ASSERT_OK(compiled);
    auto counts = op_counts(compiled->train.graph);
    EXPECT_EQ(counts["TokenRows"], 1);
    // 7 products forward, 14 backward.
    int products = 0;
    for (const Node& node : compiled->train.graph.nodes)
      if (node.alive() && is_op(node, "PackedRows"))
        products += node.attrs.text("packed_op").find("MatMul") != std::string::npos ? 1 : 0;
    EXPECT_EQ(products, 21);
    for (const PassReport& report : compiled->reports)
      if (report.name == kPass && report.at == PassPhase::post_gradient) {
        EXPECT_EQ(why_nots(report), "");
      }
  }
}

TEST(DropPadding, AnInstanceCanBeSwitchedOff) {
  Model model({.dropout = true});  // which divides the rows
  const PassReport report = run_drop_padding(model.graph, "drop-padding");
  ASSERT_GE(report.matched, 2);
  const std::string site = report.log.front().fingerprint;
  const Model other({.dropout = true});
  expect_same(train_padded(other.graph, "none", kBatches, {.accumulate = 2}),
              train_padded(other.graph, "default,-select-rows,drop-padding{except=" + site + "}", kBatches,
                           {.accumulate = 2}),
              1e-12);
}

// A value that something else reads whole is computed whole, and so is what it is made of.
TEST(DropPadding, WhatIsReadWholeIsComputedWhole) {
  Model model;
  run_drop_padding(model.graph, kPass);
  Graph& graph = model.graph;
  const auto added = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                  [](const Node& node) { return node.alive() && is_op(node, "Gelu"); });
  ASSERT_NE(added, graph.nodes.end());
  const ValueId rows = added->outputs[0];
  ASSERT_EQ(graph.type(rows).shape, (Shape{kBatch * kPositions, 3 * kWidth}));
  GraphBuilder b(graph);
  graph.outputs.push_back(b.op("ReduceMax", {rows}));
  const PassReport report = run_drop_padding(graph, kPass, PassPhase::post_gradient);
  EXPECT_NE(why_nots(report).find("ReduceMax"), std::string::npos) << why_nots(report);
  EXPECT_NE(why_nots(report).find("reads all rows"), std::string::npos) << why_nots(report);
  for (const Node& node : graph.nodes)
    if (node.alive() && is_op(node, "Gelu")) {
      EXPECT_EQ(node.outputs[0], rows);
    }
}

// ---- why not ----

std::string refusal(Model& model, const std::string& pass = kPass) {
  const PassReport report = run_drop_padding(model.graph, pass);
  EXPECT_EQ(report.matched, 0);
  EXPECT_EQ(op_counts(model.graph)["PackRows"], 0);
  return why_nots(report);
}

TEST(DropPadding, IsTheSameForGpus) {
  Model model, other;
  EXPECT_EQ(run_drop_padding(model.graph, kPass, PassPhase::pre_gradient, kernels::Target::gpu).matched,
            run_drop_padding(other.graph, kPass).matched);
  EXPECT_EQ(test::canonical_dump(model.graph), test::canonical_dump(other.graph));
}

TEST(DropPadding, NeedsAMask) {
  Model model({.masked = false});
  EXPECT_NE(refusal(model).find("no input of [batch, position] masks attention"), std::string::npos);
}

TEST(DropPadding, NeedsAMaskThatLeavesKeysOut) {
  Model model({.form = test::Form::weak});
  EXPECT_NE(refusal(model).find("it leaves out other keys than those where 'mask' is 0"), std::string::npos);
}

TEST(DropPadding, NeedsAllAttentionMasked) {
  Model model;
  const ValueId x = model.b.input("x", {DType::f64, {kBatch, kPositions, kPositions}});
  model.graph.outputs.push_back(model.b.op("Softmax", {model.b.op("Abs", {x})}));
  EXPECT_NE(refusal(model).find("'mask' leaves nothing out here"), std::string::npos);
}

TEST(DropPadding, TakesTheMaskThatIsNamed) {
  Model model;
  EXPECT_GT(run_drop_padding(model.graph, "drop-padding{mask=mask}").matched, 0);
  Model other;
  EXPECT_NE(refusal(other, "drop-padding{mask=nosuch}").find("no input 'nosuch' of [batch, position] masks"),
            std::string::npos);
  Model ids;
  EXPECT_NE(refusal(ids, "drop-padding{mask=ids}").find("no input 'ids' of [batch, position] masks"),
            std::string::npos);
}

TEST(DropPadding, LeavesWhatKnowsPositionsToPaddedValues) {
  Model plain, own({.own_positions = true});
  const auto islands = [](Model& model) { return run_drop_padding(model.graph, kPass).matched; };
  EXPECT_GT(islands(own), islands(plain));  // an operand [1, position, width] divides one
  const Model again({.own_positions = true});
  expect_same(train_padded(again.graph, "none", kBatches, {.accumulate = 1}),
              train_padded(again.graph, "default,drop-padding", kBatches, {.accumulate = 1}), 1e-12);
}

TEST(PackedRows, StepsHoldTheTokens) {
  for (std::int64_t rows = 1; rows <= 70; ++rows) {
    std::int64_t before = 0;
    for (std::int64_t count = 0; count <= rows; ++count) {
      const std::int64_t step = row_step(count, rows), size = rows_of_step(step, rows);
      EXPECT_TRUE(step >= 0 && step < kRowSteps);
      EXPECT_TRUE(size >= count && size <= rows && size >= 1 && size >= before) << count << " of " << rows;
      EXPECT_TRUE(step == 0 || rows_of_step(step - 1, rows) < count) << count << " of " << rows;
      before = size;
    }
    EXPECT_EQ(before, rows);
    EXPECT_EQ(rows_of_step(row_step(INT64_MAX, rows), rows), rows);
  }
}

}  // namespace
}  // namespace gradloom
