// A session whose runs are of a real model's plan with times of our own: steps of a level, and the plan's first kernel takes what is
// more than 10 us.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "app/desktop/snapshots.h"
#include "engine/base/text.h"
#include "passes/pass.h"
#include "sessions/store.h"

namespace gradloom {

class TrendSession {
 public:
  TrendSession(const std::string& model, std::int64_t batch) {
    recipe_.model = model;
    recipe_.dims = {{"batch", batch}};
    set_pipeline(recipe_, default_pipeline());
    model_ = load_model_snapshot(recipe_).value();
    recipe_.loss = model_->losses.front();
    plan_ = make_plan_snapshot(model_->model, recipe_).value();
  }

  std::string slow_kernel() const { return plan_->kernels.front().node; }

  void add_run(Store& store, std::int64_t step_ns, double clip_norm) {
    recipe_.clip_norm = clip_norm;
    RunStart start;
    start.model = recipe_.model;
    start.model_hash = model_->model.content_hash;
    start.device = "cpu";
    start.precision = "f32";
    start.loss = recipe_.loss;
    start.passes = default_pipeline().text();
    start.recipe_json = recipe_json(recipe_);
    start.planned_steps = 6;
    start.plan_hash = plan_->plan().hash;
    start.environment = {{"cpu_model", "a processor"}};
    auto run = store.begin_run(start);
    ASSERT_TRUE(run.ok()) << run.error().message;
    ASSERT_TRUE((*run)->write_plan(plan_->graph(), plan_->plan(), plan_->compiled.reports).ok());
    for (std::int64_t i = 1; i <= 6; ++i) {
      std::vector<KernelSample> samples;
      std::int64_t at = i * 10'000'000;
      for (std::size_t k = 0; i > 3 && k < plan_->plan().steps.size(); ++k) {
        const std::int64_t ns = k == 0 ? 100 + step_ns - 10'000 : 100;
        samples.push_back({static_cast<std::int32_t>(k), 0, at, ns});
        at += ns;
      }
      ASSERT_TRUE((*run)->add_step({i, 1, step_ns, 0.1, -1, i > 3}, samples).ok());
    }
    ASSERT_TRUE((*run)->finish({}).ok());
  }

  // `before` runs of some 20 us a step, then `after` of some 30 us without clipping.
  void write(const std::string& path, int before, int after) {
    const auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    for (int i = 0; i < before; ++i) add_run(**store, 20'000 + i % 3 * 100, 1);
    for (int i = 0; i < after; ++i) add_run(**store, 30'000 + i % 3 * 100, 0);
  }

 private:
  Recipe recipe_;
  std::shared_ptr<const ModelSnapshot> model_;
  std::shared_ptr<const PlanSnapshot> plan_;
};

}  // namespace gradloom
