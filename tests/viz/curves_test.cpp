// Curves of runs: values by quantity, and smoothing against the mean that it is, computed term by term.
#include "viz/model/curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "sessions/recipe.h"

namespace gradloom {
namespace {

RunRecord run_of(std::int64_t steps) {
  RunRecord run;
  run.summary.id = 3;
  run.summary.name = "base";
  for (std::int64_t step = 1; step <= steps; ++step) {
    StepRow row;
    row.step = step;
    row.loss = 4.0 / static_cast<double>(step);
    row.step_ns = 1'000'000 * step;
    row.lr = 0.1 * static_cast<double>(step);
    row.grad_norm = step % 2 == 0 ? 2.5 : -1;
    run.steps.push_back(row);
  }
  run.summary.steps = steps;
  return run;
}

// Sum of w^(n - i) x_i over sum of w^(n - i): the weights of an exponential mean, made to add up to one.
double mean_of(const std::vector<double>& values, std::size_t n, double weight) {
  double sum = 0, all = 0;
  for (std::size_t i = 0; i <= n; ++i) {
    if (!std::isfinite(values[i])) continue;
    std::size_t later = 0;
    for (std::size_t j = i + 1; j <= n; ++j) later += std::isfinite(values[j]) ? 1 : 0;
    const double part = std::pow(weight, static_cast<double>(later));
    sum += part * values[i];
    all += part;
  }
  return sum / all;
}

TEST(Curves, SmoothingIsTheExponentialMeanWithoutItsBias) {
  const std::vector<double> values{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
  for (const double weight : {0.0, 0.3, 0.6, 0.9, 0.99}) {
    const std::vector<double> smooth = smoothed(values, weight);
    ASSERT_EQ(smooth.size(), values.size());
    EXPECT_DOUBLE_EQ(smooth[0], values[0]) << "no zero in front of the first";
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(smooth[i], mean_of(values, i, weight), 1e-12) << weight << " at " << i;
  }
}

TEST(Curves, WhatIsNotFiniteStaysAndDoesNotCount) {
  const std::vector<double> values{2, std::nan(""), 4, HUGE_VAL, 8};
  const std::vector<double> smooth = smoothed(values, 0.5);
  EXPECT_TRUE(std::isnan(smooth[1]));
  EXPECT_TRUE(std::isinf(smooth[3]));
  for (const std::size_t i : {0u, 2u, 4u}) EXPECT_NEAR(smooth[i], mean_of(values, i, 0.5), 1e-12);
}

TEST(Curves, EachQuantityIsTheRunsOwn) {
  RunRecord run = run_of(4);
  Recipe recipe;
  recipe.model = "m.onnx";
  recipe.dims["batch"] = 8;
  recipe.accumulate = 2;
  recipe.ranks = 3;
  run.recipe_json = recipe_json(recipe);
  run.evaluations.push_back({2, 1.5, 4, 1000});
  const RunCurves curves = run_curves(run);
  EXPECT_EQ(curves.name, "run 3 (base)");
  EXPECT_EQ(curves.samples, 48);
  EXPECT_EQ(curve_of(curves, CurveOf::kLoss, 0, false).values, (std::vector<double>{4, 2, 4.0 / 3, 1}));
  EXPECT_EQ(curve_of(curves, CurveOf::kRate, 0, false).values[1], 0.2);
  EXPECT_EQ(curve_of(curves, CurveOf::kStepTime, 0, false).values[2], 3e6);
  EXPECT_DOUBLE_EQ(curve_of(curves, CurveOf::kThroughput, 0, false).values[1], 500);
  EXPECT_DOUBLE_EQ(curve_of(curves, CurveOf::kThroughput, 0, true).values[1], 24000);
  const Curve norm = curve_of(curves, CurveOf::kGradNorm, 0.5, false),
              held = curve_of(curves, CurveOf::kHeldOut, 0, false);
  EXPECT_TRUE(std::isnan(norm.values[0])) << "not computed in this step";
  EXPECT_EQ(norm.values[1], 2.5);
  EXPECT_EQ(norm.smooth[3], 2.5);
  EXPECT_EQ(held.steps, std::vector<double>{2});
  EXPECT_EQ(held.values, std::vector<double>{1.5});
}

TEST(Curves, WhatARunDoesNotTellIsNoCurve) {
  RunRecord run = run_of(3);
  for (StepRow& row : run.steps) row.grad_norm = -1;
  const RunCurves curves = run_curves(run);
  EXPECT_TRUE(curve_of(curves, CurveOf::kGradNorm, 0.9, false).empty());
  EXPECT_TRUE(curve_of(curves, CurveOf::kHeldOut, 0, false).empty());
  EXPECT_TRUE(curve_of(run_curves(RunRecord()), CurveOf::kLoss, 0, false).empty());
  EXPECT_FALSE(know_samples({&curves})) << "no recipe says them";
  EXPECT_FALSE(know_samples({}));
}

TEST(Curves, TheNearestStepIsRead) {
  Curve curve;
  curve.steps = {1, 2, 10};
  curve.values = {5, 6, 7};
  EXPECT_EQ(curve.at(0), 0);
  EXPECT_EQ(curve.at(1.4), 0);
  EXPECT_EQ(curve.at(5), 1);
  EXPECT_EQ(curve.at(7), 2);
  EXPECT_EQ(curve.at(99), 2);
  EXPECT_EQ(Curve().at(3), -1);
}

// Frames come many times a second: what is drawn is made when it changes.
TEST(Curves, AreKeptUntilRunsQuantityOrSmoothingChange) {
  RunRecord record = run_of(400);
  const auto a = std::make_shared<const RunCurves>(run_curves(record));
  record.summary.id = 4;
  for (StepRow& row : record.steps) row.grad_norm = -1;
  const auto b = std::make_shared<const RunCurves>(run_curves(record));
  KeptCurves kept;
  for (int frame = 0; frame < 50; ++frame) {
    const std::vector<Curve>& curves = kept.of({{a, 0}, {b, 1}}, CurveOf::kLoss, 0.6, false);
    ASSERT_EQ(curves.size(), 2u);
    EXPECT_EQ(curves[1].smooth, curve_of(*b, CurveOf::kLoss, 0.6, false).smooth);
  }
  EXPECT_EQ(kept.made(), 1);
  kept.of({{a, 0}, {b, 1}}, CurveOf::kStepTime, 0.6, false);
  kept.of({{a, 0}, {b, 1}}, CurveOf::kStepTime, 0, false);
  kept.of({{a, 0}, {b, 1}}, CurveOf::kThroughput, 0, true);
  kept.of({{a, 0}, {b, 1}}, CurveOf::kThroughput, 0, false);
  EXPECT_EQ(kept.made(), 5);
  kept.of({{std::make_shared<const RunCurves>(*a), 0}, {b, 1}}, CurveOf::kThroughput, 0, false);
  EXPECT_EQ(kept.made(), 6) << "another run, however alike";
}

TEST(Curves, ARunWithoutTheQuantityKeepsItsPlace) {
  RunRecord record = run_of(6);
  const auto with = std::make_shared<const RunCurves>(run_curves(record));
  for (StepRow& row : record.steps) row.grad_norm = -1;
  const auto without = std::make_shared<const RunCurves>(run_curves(record));
  KeptCurves kept;
  const std::vector<Curve>& norms =
      kept.of({{with, 0}, {without, 1}, {with, 2}}, CurveOf::kGradNorm, 0, false);
  ASSERT_EQ(norms.size(), 2u);
  EXPECT_EQ(norms[0].place, 0u);
  EXPECT_EQ(norms[1].place, 2u);
}

TEST(Curves, HeldOutLossStandsBesideTheLossOfOneRun) {
  RunRecord record = run_of(6);
  record.evaluations.push_back({3, 1.5, 4, 1000});
  const auto run = std::make_shared<const RunCurves>(run_curves(record));
  KeptCurves kept;
  const std::vector<Curve>& one = kept.of({{run, 0}}, CurveOf::kLoss, 0, false);
  ASSERT_EQ(one.size(), 2u);
  EXPECT_EQ(one[1].name, "held-out data");
  EXPECT_EQ(one[1].values, std::vector<double>{1.5});
  EXPECT_EQ(one[1].place, 1u);
  EXPECT_EQ(kept.of({{run, 0}, {run, 1}}, CurveOf::kLoss, 0, false).size(), 2u);
}

}  // namespace
}  // namespace gradloom
