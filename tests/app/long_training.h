// 500 steps of a model of tests/models as one of its runs in parity.json does them, with something changed.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "app/job.h"
#include "tests/paths.h"

namespace gradloom {

struct LongTraining {
  const char* model;
  std::size_t run;
  const char* optimizer = "";  // instead of the run's
};

// For INSTANTIATE_TEST_SUITE_P.
inline std::string training_name(const testing::TestParamInfo<LongTraining>& test) {
  std::string name = test.param.model;
  if (*test.param.optimizer != 0)
    name += "_" + std::string(test.param.optimizer, std::strcspn(test.param.optimizer, "{"));
  for (char& ch : name)
    if (ch == '-') ch = '_';
  return name;
}

// The mean loss of steps 480 to 500; NaN after a failure.
inline double last_loss(const LongTraining& training, const std::function<void(Recipe&)>& change) {
  const std::string folder = std::string(GRADLOOM_SOURCE_DIR "/tests/models/") + training.model;
  std::ifstream file(folder + "/parity.json");
  const nlohmann::json run = nlohmann::json::parse(file)["runs"][training.run];
  Recipe recipe;
  recipe.model = folder + "/model.onnx";
  recipe.data = "npz:" + folder + "/batches.npz";
  recipe.loss = run["loss"];
  recipe.optimizer = *training.optimizer != 0 ? training.optimizer : run["optimizer"];
  recipe.dims = {{"batch", std::string(training.model) == "gpt-char" ? 4 : 8}};
  recipe.threads = 2;
  recipe.steps = 500;
  set_pipeline(recipe, default_pipeline());
  change(recipe);
  auto prepared = prepare(recipe);
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
  if (!prepared.ok()) return NAN;
  const auto job = Job::create(std::move(prepared).value());
  EXPECT_TRUE(job.ok()) << job.error().message;
  if (!job.ok()) return NAN;
  double sum = 0;
  for (std::int64_t i = 1; i <= recipe.steps; ++i) {
    const auto step = (*job)->step(i);
    EXPECT_TRUE(step.ok()) << step.error().message;
    if (!step.ok()) return NAN;
    if (i >= 480) sum += step->loss;
  }
  return sum / 21;
}

}  // namespace gradloom
