// Jobs of the models in tests/models, with their recorded batches.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "app/job.h"
#include "tests/paths.h"

namespace gradloom {

// The default passes; its batch is 8.
inline Recipe model_recipe(const std::string& model, const std::string& optimizer = "adamw{lr=1e-3}") {
  const std::string folder = GRADLOOM_SOURCE_DIR "/tests/models/" + model;
  Recipe recipe;
  recipe.model = folder + "/model.onnx";
  recipe.data = "npz:" + folder + "/batches.npz";
  recipe.loss = "ce:logits,labels";
  recipe.optimizer = optimizer;
  recipe.dims = {{"batch", 8}};
  set_pipeline(recipe, default_pipeline());
  return recipe;
}

// Null, with a failure of the test: the job is impossible.
inline std::unique_ptr<Job> make_job(const Recipe& recipe, const Checkpoint* from = nullptr) {
  auto prepared = prepare(recipe, {}, from);
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
  if (!prepared.ok()) return nullptr;
  auto job = Job::create(std::move(prepared).value());
  EXPECT_TRUE(job.ok()) << job.error().message;
  return job.ok() ? std::move(job).value() : nullptr;
}

}  // namespace gradloom
