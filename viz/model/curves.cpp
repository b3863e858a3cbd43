#include "viz/model/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/text.h"
#include "sessions/recipe.h"

namespace gradloom {
namespace {

bool any_known(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return !std::isnan(v); });
}

}  // namespace

double samples_per_step(const Recipe& recipe) {
  const auto batch = recipe.dims.find("batch");
  if (batch == recipe.dims.end()) return 0;
  const auto at_least_one = [](int64_t n) { return static_cast<double>(std::max<int64_t>(1, n)); };
  return static_cast<double>(batch->second) * at_least_one(recipe.accumulate) * at_least_one(recipe.ranks);
}

std::string run_label(const RunSummary& run) {
  return fmt::format("run {}{}", run.id, run.name.empty() ? "" : " (" + escaped(run.name) + ")");
}

RunCurves run_curves(const RunRecord& run) {
  RunCurves curves;
  curves.run = run.summary.id;
  curves.name = run_label(run.summary);
  const bool has_loss = run.summary.has_loss();
  for (const StepRow& row : run.steps) {
    curves.steps.push_back(static_cast<double>(row.step));
    curves.loss.push_back(has_loss ? row.loss : std::nan(""));
    curves.grad_norm.push_back(row.grad_norm < 0 ? std::nan("") : row.grad_norm);
    curves.lr.push_back(run.summary.has_recipe() ? row.lr : std::nan(""));
    curves.step_ns.push_back(static_cast<double>(row.step_ns));
  }
  for (const EvaluationRow& row : run.evaluations) {
    curves.held_out_steps.push_back(static_cast<double>(row.step));
    curves.held_out.push_back(row.loss);
  }
  if (run.summary.has_recipe())
    if (const auto recipe = parse_recipe(run.recipe_json)) curves.samples = samples_per_step(*recipe);
  return curves;
}

std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  std::vector<double> smooth;
  double mean = 0, part = 1;  // part: weight^n, what the zero in front still counts
  for (const double value : values) {
    if (!std::isfinite(value)) {
      smooth.push_back(value);
      continue;
    }
    mean = weight * mean + (1 - weight) * value;
    part *= weight;
    smooth.push_back(mean / (1 - part));
  }
  return smooth;
}

Curve curve_of(const RunCurves& run, CurveOf of, double weight, bool by_samples) {
  Curve curve;
  curve.name = run.name;
  curve.run = run.run;
  curve.steps = of == CurveOf::kHeldOut ? run.held_out_steps : run.steps;
  switch (of) {
    case CurveOf::kLoss: curve.values = run.loss; break;
    case CurveOf::kHeldOut: curve.values = run.held_out; break;
    case CurveOf::kGradNorm: curve.values = run.grad_norm; break;
    case CurveOf::kRate: curve.values = run.lr; break;
    case CurveOf::kStepTime: curve.values = run.step_ns; break;
    case CurveOf::kThroughput:
      for (const double ns : run.step_ns)
        curve.values.push_back(ns > 0 ? (by_samples ? run.samples : 1) * 1e9 / ns : std::nan(""));
      break;
  }
  curve.values.resize(curve.steps.size(), std::nan(""));
  if (!any_known(curve.values)) return {curve.name, curve.run, {}, {}, {}, 0};
  if (weight > 0) curve.smooth = smoothed(curve.values, std::min(weight, 0.9999));
  return curve;
}

const std::vector<Curve>& KeptCurves::of(const std::vector<Run>& runs, CurveOf of, double weight,
                                         bool by_samples) {
  Asked asked{runs, of, weight, by_samples};
  if (asked == asked_) return curves_;
  asked_ = std::move(asked);
  curves_.clear();
  ++made_;
  const auto add = [&](Curve curve, uint32_t place) {
    if (curve.empty()) return;
    curve.place = place;
    curves_.push_back(std::move(curve));
  };
  for (const Run& run : runs) add(curve_of(*run.curves, of, weight, by_samples), run.place);
  if (of == CurveOf::kLoss && runs.size() == 1) {
    Curve held_out = curve_of(*runs.front().curves, CurveOf::kHeldOut, 0, false);
    held_out.name = "held-out data";
    add(std::move(held_out), runs.front().place + 1);
  }
  return curves_;
}

int Curve::at(double step) const {
  if (steps.empty()) return -1;
  auto i = static_cast<size_t>(std::lower_bound(steps.begin(), steps.end(), step) - steps.begin());
  if (i == steps.size() || (i > 0 && step - steps[i - 1] < steps[i] - step)) --i;
  return static_cast<int>(i);
}

bool know_samples(const std::vector<const RunCurves*>& runs) {
  return !runs.empty() &&
         std::all_of(runs.begin(), runs.end(), [](const RunCurves* run) { return run->samples > 0; });
}

std::string curve_value_text(CurveOf of, double value) {
  if (std::isnan(value)) return "NaN";
  return format_value(value, curve_kind(of).unit);
}

}  // namespace gradloom
