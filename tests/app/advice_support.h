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

// A run of ten steps on the machine; of the first the time is given.
inline RunRecord run_of(const Recipe& recipe, const TestMachine& machine, std::int64_t first_step_ns) {
  RunRecord run;
  const auto timed = machine.time(recipe);
  EXPECT_TRUE(timed.ok());
  const auto prepared = prepare(recipe);
  EXPECT_TRUE(prepared.ok());
  if (!timed.ok() || !prepared.ok()) return run;
  for (const KernelInfo& kernel : timed->kernels) {
    KernelRow row;
    row.info = kernel;
    row.samples = 5;
    row.median_ns = row.step_ns = static_cast<std::int64_t>(machine.ns(kernel));
    run.kernels.push_back(row);
  }
  run.summary.id = 1;
  run.summary.plan_hash = (*prepared)->compiled.plan.hash;
  run.summary.median_step_ns = static_cast<std::int64_t>(timed->kernels_ns);
  for (std::int64_t step = 1; step <= 10; ++step)
    run.steps.push_back({step, 1, step == 1 ? first_step_ns : run.summary.median_step_ns});
  return run;
}

// The run's steps from the fourth on, timed: the host has `host_ns` before the first kernel, each kernel `launch_ns` before it.
inline std::shared_ptr<const TraceDocument> trace_of(RunRecord& run, std::int64_t host_ns,
                                                     std::int64_t launch_ns) {
  auto trace = std::make_shared<TraceDocument>();
  for (const KernelRow& row : run.kernels) trace->kernels.push_back(row.info);
  std::int64_t step_ns = host_ns;
  for (const KernelRow& row : run.kernels) step_ns += row.median_ns + launch_ns;
  run.summary.median_step_ns = step_ns;
  for (StepRow& step : run.steps) {
    step.step_ns = step_ns;
    step.timed = step.step > 3;
    if (!step.timed) continue;
    std::int64_t at = step.step * step_ns;
    trace->steps.push_back({step.step, at, step_ns});
    at += host_ns;
    for (std::size_t i = 0; i < run.kernels.size(); ++i) {
      TraceRow row;
      row.step = step.step;
      row.plan_step = static_cast<std::int32_t>(i);
      row.start_ns = at += i == 0 ? 0 : launch_ns;
      row.duration_ns = run.kernels[i].median_ns;
      at += row.duration_ns;
      trace->rows.push_back(row);
    }
  }
  return trace;
}

// A recorded loop whose steps are these parts.
inline RunRecord loop_of(const std::vector<LoopPart>& parts) {
  RunRecord run;
  run.summary.id = 3;
  run.summary.data = kLoopData;
  LoopShares loop;
  loop.steps = 10;
  for (const LoopPart& part : parts) loop.step_ns += part.ns;
  loop.parts = parts;
  run.loop = loop;
  return run;
}

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

  TemporaryFolder folder_;
  int models_ = 0;
};

}  // namespace gradloom
