// 50 training steps of each model, and of the smallest 100 with every optimizer, against PyTorch's float64
// losses (tests/models/export.py wrote them): f64 within 1e-9 relative at every step, f32 within 1e-4, with the
// default passes and without any.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "app/job.h"
#include "engine/train/optimizers.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

struct Case {
  std::string model;
  std::size_t run;
  std::string precision, passes;
};

std::string folder(const std::string& model) { return GRADLOOM_SOURCE_DIR "/tests/models/" + model; }

nlohmann::json reference(const std::string& model) {
  std::ifstream file(folder(model) + "/parity.json");
  return nlohmann::json::parse(file);
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const char* model : {"mlp", "cnn-digits", "bert-tiny", "gpt-char"}) {
    const std::size_t runs = reference(model)["runs"].size();
    for (std::size_t run = 0; run < runs; ++run)
      for (const char* precision : {"f64", "f32"})
        for (const char* passes : {"default", "none"}) list.push_back({model, run, precision, passes});
  }
  return list;
}

// Nothing that trains is without a proof.
TEST(ParityRuns, EveryOptimizerHas100Steps) {
  std::set<std::string> proven;
  const nlohmann::json runs = reference("mlp")["runs"];
  for (const nlohmann::json& run : runs)
    if (run["losses"].size() >= 100)
      proven.insert(std::string(optimizer_def(parse_optimizer(run["optimizer"])->kind).name));
  for (const OptimizerDef& def : all_optimizers()) EXPECT_EQ(proven.count(def.name), 1U) << def.name;
}

class Parity : public testing::TestWithParam<Case> {};

TEST_P(Parity, LossesFollowPyTorch) {
  const Case& c = GetParam();
  const nlohmann::json run = reference(c.model)["runs"][c.run];
  Recipe recipe;
  recipe.model = folder(c.model) + "/model.onnx";
  recipe.data = "npz:" + folder(c.model) + "/batches.npz";
  recipe.loss = run["loss"];
  recipe.optimizer = run["optimizer"];
  recipe.seed = run["seed"];
  recipe.accumulate = run["accumulate"];
  recipe.clip_norm = run["clip_norm"];
  recipe.clip_value = run.value("clip_value", 0.0);
  recipe.schedule = run.value("schedule", "constant");
  recipe.group = run.value("group", std::vector<std::string>());
  recipe.precision = c.precision;
  recipe.threads = 2;
  recipe.dims = {{"batch", c.model == "gpt-char" ? 4 : 8}};
  const std::vector<double> losses = run["losses"];
  recipe.steps = static_cast<std::int64_t>(losses.size());
  const auto pipeline = parse_pipeline(c.passes);
  ASSERT_TRUE(pipeline.ok()) << pipeline.error().message;
  set_pipeline(recipe, *pipeline);
  auto prepared = prepare(recipe);
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  const auto job = Job::create(std::move(prepared).value());
  ASSERT_TRUE(job.ok()) << job.error().message;
  const double tolerance = c.precision == "f64" ? 1e-9 : 1e-4;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto step = (*job)->step(static_cast<std::int64_t>(i) + 1);
    ASSERT_TRUE(step.ok()) << step.error().message;
    ASSERT_LE(std::fabs(step->loss - losses[i]), tolerance * std::fabs(losses[i]))
        << "step " << i + 1 << ": " << step->loss << ", PyTorch " << losses[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Parity, testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.model + "_run" + std::to_string(test.param.run) + "_" + test.param.precision +
                     "_" + test.param.passes;
  for (char& ch : name)
    if (ch == '-') ch = '_';
  return name;
});

}  // namespace
}  // namespace gradloom
