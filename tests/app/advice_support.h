// Advice on jobs whose kernels take what a machine of the test's own says: no step is made, no clock is read.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/advice/advice.h"
#include "app/job.h"
#include "tests/app/model_job.h"
#include "tests/engine/onnx/support.h"

namespace gradloom {

// A launch takes `fixed_ns`, and its FLOPs or its bytes, whichever take longer; of f64 half as many FLOPs.
struct TestMachine {
  double fixed_ns = 50, flops_per_ns = 16, bytes_per_ns = 8;
  // How many times as long this kernel takes; none: once.
  std::function<double(const KernelInfo&)> slower;
  MachineFacts facts{1, std::int64_t{64} << 30, false};

  double ns(const KernelInfo& k, std::int64_t threads = 1) const {
    const double wide = k.types.rfind("f64", 0) == 0 ? 2 : 1;
    const double work =
        std::max(wide * k.flops / flops_per_ns, (k.bytes_read + k.bytes_written) / bytes_per_ns);
    return fixed_ns +
           work * (slower ? slower(k) : 1) / static_cast<double>(std::max<std::int64_t>(1, threads));
  }

  Result<TimedKernels> time(const Recipe& recipe) const {
    const auto prepared = TRY(prepare(recipe));
    TimedKernels timed;
    timed.kernels = kernel_infos(prepared->compiled.train.graph, prepared->compiled.plan);
    for (const KernelInfo& kernel : timed.kernels) {
      const double own_ns = ns(kernel, recipe.threads);
      const bool micro = prepared->compiled.plan.steps[static_cast<std::size_t>(kernel.plan_step)].micro;
      timed.samples.push_back({kernel.plan_step, 0, 0, static_cast<std::int64_t>(own_ns)});
      timed.kernels_ns += own_ns * static_cast<double>(micro ? recipe.accumulate : 1);
    }
    timed.step_ns = timed.kernels_ns;
    timed.steps = 1;
    return timed;
  }

  // `timed`: changes are timed on this machine; else all that is known are the times of the job's own kernels.
  Result<Advice> advise(Recipe recipe, bool timed, double least_share = 0.01) const {
    AdviceOptions options;
    options.machine = facts;
    options.least_share = least_share;
    options.seconds = 600;
    if (timed) {
      options.time = [this](const Recipe& r) { return time(r); };
    } else {
      Recipe alone = recipe;
      alone.ranks = 1;
      const TimedKernels own = TRY(time(alone));
      CostModel model;
      model.add(own.kernels, own.samples);
      recipe.kernel_times = model.times();
      recipe.costs = "test.gls#1";
    }
    return gradloom::advise(recipe, nullptr, options, {}, nullptr);
  }
};

class AdviceTest : public ::testing::Test {
 protected:
  // Which parts of tensors lie in place, and so how many kernels there are, depends on the processor's products: these are of one without AVX-512.
  AdviceTest() { setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1); }

  // A job of a model in ONNX's text syntax; `weights`: its trained parameters.
  Recipe job_of(const std::string& text, const std::map<std::string, std::vector<std::int64_t>>& weights) {
    onnx::ModelProto model = test::model_from_text(text);
    for (const auto& [name, dims] : weights) {
      std::int64_t count = 1;
      for (const std::int64_t dim : dims) count *= dim;
      std::vector<float> numbers(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<float>((i * i * 7919 + i) % 201) / 2000 - 0.05f;
      test::add_floats(model, name, dims, numbers);
    }
    Recipe recipe;
    recipe.model = folder_ / ("model" + std::to_string(models_++) + ".onnx");
    test::write_bytes(recipe.model, model.SerializeAsString());
    recipe.threads = 1;
    set_pipeline(recipe, default_pipeline());
    return recipe;
  }

  // A model of tests/models on one thread, with data that can be cut.
  static Recipe known_job(const std::string& name, std::int64_t batch = 64) {
    Recipe recipe = model_recipe(name);
    recipe.data = "synthetic";
    recipe.threads = 1;
    recipe.dims["batch"] = batch;
    return recipe;
  }
  static void set_passes(Recipe& recipe, const std::string& text) {
    const auto pipeline = parse_pipeline(text);
    ASSERT_TRUE(pipeline.ok()) << pipeline.error().message;
    set_pipeline(recipe, *pipeline);
  }

  static std::string told(const Advice& advice) { return advice_text(advice, 0.01); }

  // The first finding is of this rule, and its title or change has `part`: whether changes are timed or not.
  static void expect_first(const Recipe& recipe, const TestMachine& machine, const std::string& rule,
                           const std::string& part) {
    for (const bool timed : {false, true}) {
      SCOPED_TRACE(timed ? "timed" : "predicted");
      const auto advice = machine.advise(recipe, timed);
      ASSERT_TRUE(advice.ok()) << advice.error().message;
      ASSERT_FALSE(advice->findings.empty());
      const Finding& first = advice->findings.front();
      EXPECT_EQ(first.rule, rule) << told(*advice);
      EXPECT_NE((first.title + " " + first.change).find(part), std::string::npos) << told(*advice);
      EXPECT_LE(first.gain.low_ns, first.gain.ns);
      EXPECT_GE(first.gain.high_ns, first.gain.ns);
      EXPECT_LT(first.gain.high_ns, advice->step_ns) << "no step is left";
      EXPECT_NE(first.command, "");
      EXPECT_FALSE(first.numbers.empty());
    }
  }
  static void expect_none(const Recipe& recipe, const TestMachine& machine, const std::string& rule) {
    for (const bool timed : {false, true}) {
      SCOPED_TRACE(timed ? "timed" : "predicted");
      const auto advice = machine.advise(recipe, timed);
      ASSERT_TRUE(advice.ok()) << advice.error().message;
      for (const Finding& finding : advice->findings) EXPECT_NE(finding.rule, rule) << told(*advice);
    }
  }

  TemporaryFolder folder_;
  int models_ = 0;
};

}  // namespace gradloom
