#include "app/last_good.h"
#include "tests/paths.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "engine/base/file.h"
#include "tests/folder.h"

namespace gradloom {
namespace {

const std::string kFolder = GRADLOOM_SOURCE_DIR "/tests/models/mlp";

std::unique_ptr<Job> make_job(const std::string& model = kFolder + "/model.onnx") {
  Recipe recipe;
  recipe.model = model;
  recipe.data = "npz:" + kFolder + "/batches.npz";
  recipe.loss = "ce:logits,labels";
  recipe.optimizer = "adam{lr=0.01}";  // with states of its own
  recipe.dims = {{"batch", 8}};
  recipe.threads = 2;
  set_pipeline(recipe, default_pipeline());
  auto prepared = prepare(recipe);
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
  auto job = Job::create(std::move(prepared).value());
  EXPECT_TRUE(job.ok()) << job.error().message;
  return std::move(job).value();
}

void run_steps(Job& job, std::int64_t first, std::int64_t last) {
  for (std::int64_t step = first; step <= last; ++step) {
    const auto result = job.step(step);
    ASSERT_TRUE(result.ok()) << result.error().message;
  }
}

// The parameters of a job that made so many steps and nothing else.
std::map<std::string, Tensor> parameters_after(std::int64_t steps) {
  const auto job = make_job();
  run_steps(*job, 1, steps);
  return *job->parameters();
}

void expect_equal(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(bit_equal(tensor, b.at(name))) << name;
}

// Writes NaN into a parameter, as an update that went wrong does.
void spoil(Job& job) {
  const Graph& graph = job.compiled().train.graph;
  const ValueId id = graph.parameters[0];
  Tensor spoiled = *job.executor().read(id);
  spoiled.mutable_as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(job.executor().write(id, spoiled).ok());
}

TEST(LastGood, FindsTheParametersBeforeAStepFromTheStart) {
  const auto job = make_job();
  LastGood last_good(*job);
  run_steps(*job, 1, 7);
  spoil(*job);
  const auto found = last_good.before(6, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->step, 5);
  expect_equal(found->parameters, parameters_after(5));
}

// The start is in the model's file: another one under its name is no harm, as an export over it makes.
TEST(LastGood, FindsThemWhereTheModelWasReplaced) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kFolder + "/model.onnx", folder / "model.onnx");
  const auto job = make_job(folder / "model.onnx");
  run_steps(*job, 1, 3);
  ASSERT_TRUE(atomic_write_file(folder / "model.onnx", "another").ok());
  const auto found = LastGood(*job).before(3, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  expect_equal(found->parameters, parameters_after(2));
}

TEST(LastGood, ToldWhereTheModelWasWrittenOver) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kFolder + "/model.onnx", folder / "model.onnx");
  const auto job = make_job(folder / "model.onnx");
  run_steps(*job, 1, 3);
  std::ofstream(folder / "model.onnx") << "another";
  const auto found = LastGood(*job).before(3, {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::io);
  EXPECT_NE(found.error().message.find("model.onnx: has changed"), std::string::npos)
      << found.error().message;
}

// Nothing of the way from a file to steps brings weights into memory beside the device's.
TEST(Job, LeavesLargeWeightsInTheFile) {
  const auto job = make_job();
  run_steps(*job, 1, 2);
  LastGood last_good(*job);
  ASSERT_TRUE(last_good.keep(2).ok());
  ASSERT_TRUE(last_good.before(2, {}).ok());
  int in_file = 0;
  for (const Graph* graph : {&job->model().graph, &job->compiled().train.graph})
    for (const ValueId id : graph->parameters) {
      const Tensor& contents = graph->value(id).data;
      EXPECT_EQ(contents.in_memory(), contents.bytes() < 4096) << graph->value(id).name;
      in_file += contents.in_memory() ? 0 : 1;
    }
  EXPECT_GT(in_file, 0);
  const auto views = job->parameter_views();
  ASSERT_TRUE(views.ok());
  expect_equal(*views, *job->parameters());
  for (const auto& [name, view] : *views) EXPECT_TRUE(view.in_memory()) << name;
}

TEST(LastGood, FindsThemFromACopy) {
  const auto job = make_job();
  LastGood last_good(*job, 0);
  EXPECT_TRUE(last_good.due());
  run_steps(*job, 1, 4);
  ASSERT_TRUE(last_good.keep(4).ok());
  run_steps(*job, 5, 9);
  spoil(*job);
  ASSERT_TRUE(last_good.keep(9).ok());  // of parameters that are not finite: the copy before stays
  const auto found = last_good.before(8, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->step, 7);
  expect_equal(found->parameters, parameters_after(7));
}

TEST(LastGood, StopsWithWhatItHas) {
  const auto job = make_job();
  LastGood last_good(*job, 0);
  run_steps(*job, 1, 3);
  ASSERT_TRUE(last_good.keep(3).ok());
  run_steps(*job, 4, 6);
  std::stop_source stop;
  stop.request_stop();
  const auto found = last_good.before(6, stop.get_token());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->step, 3);
  expect_equal(found->parameters, parameters_after(3));
}

TEST(LastGood, IsDueAfterItsPauseOnly) {
  const auto job = make_job();
  EXPECT_FALSE(LastGood(*job, std::numeric_limits<std::int64_t>::max()).due());
}

}  // namespace
}  // namespace gradloom
