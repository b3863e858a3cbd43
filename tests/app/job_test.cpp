#include "app/job.h"

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <fstream>
#include <sstream>

#include "tests/folder.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

const std::string kFolder = GRADLOOM_SOURCE_DIR "/tests/modules/batch-norm2d";

// Writes batch-norm2d with other names of its running statistics.
void write_model(const std::string& path, const std::map<std::string, std::string>& names) {
  onnx::ModelProto model;
  std::ifstream in(kFolder + "/model.onnx", std::ios::binary);
  ASSERT_TRUE(model.ParseFromIstream(&in));
  const auto rename = [&](std::string& name) {
    if (const auto it = names.find(name); it != names.end()) name = it->second;
  };
  for (auto& initializer : *model.mutable_graph()->mutable_initializer()) rename(*initializer.mutable_name());
  for (auto& node : *model.mutable_graph()->mutable_node())
    for (auto& input : *node.mutable_input()) rename(input);
  std::ofstream out(path, std::ios::binary);
  ASSERT_TRUE(model.SerializeToOstream(&out));
}

// States of the optimizer have names like "w/m"; what the model itself calls so is told from them.
TEST(Job, ParametersHoldStatisticsOfAnyName) {
  const TemporaryFolder folder;
  const std::string model = folder / "model.onnx";
  write_model(model, {{"body.running_mean", "body/running/m"}, {"body.running_var", "body/running/v"}});
  Recipe recipe;
  recipe.model = model;
  recipe.optimizer = "adam{lr=0.01}";
  recipe.threads = 2;
  set_pipeline(recipe, default_pipeline());
  auto prepared = prepare(recipe);
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  auto job = Job::create(std::move(prepared).value());
  ASSERT_TRUE(job.ok()) << job.error().message;
  const auto before = (*job)->parameters();
  ASSERT_TRUE(before.ok());
  ASSERT_TRUE((*job)->step(1).ok());
  const auto after = (*job)->parameters();
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->size(), 4u) << "weight, bias and two statistics, nothing of Adam's";
  for (const char* name : {"body/running/m", "body/running/v"}) {
    ASSERT_EQ(after->count(name), 1u) << name;
    EXPECT_FALSE(bit_equal(before->at(name), after->at(name))) << name;
  }
}

// Each pass alone, so that no parameter's update waits for another's: it is made once per step, not per batch.
TEST(Job, UpdatesWaitForEveryFormOfAccumulation) {
  const std::string folder = GRADLOOM_SOURCE_DIR "/tests/models/mlp";
  std::vector<std::vector<double>> losses;
  for (const char* passes : {"none", "fuse-accumulate", "fuse-accumulate,fuse-optimizer",
                             "fuse-linear-cross-entropy{min_mib=0},fuse-accumulate,fuse-optimizer"}) {
    Recipe recipe;
    recipe.model = folder + "/model.onnx";
    recipe.data = "npz:" + folder + "/batches.npz";
    recipe.loss = "ce:logits,labels";
    recipe.optimizer = "sgd{lr=0.5}";
    recipe.dims = {{"batch", 8}};
    recipe.accumulate = 2;
    set_pipeline(recipe, *parse_pipeline(passes));
    auto prepared = prepare(recipe);
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    auto job = Job::create(std::move(prepared).value());
    ASSERT_TRUE(job.ok()) << job.error().message;
    losses.emplace_back();
    for (std::int64_t step = 1; step <= 3; ++step) losses.back().push_back((*job)->step(step)->loss);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses.back()[i], losses[0][i], 1e-5) << passes;
  }
}

// A weight that is another form of a parameter would train apart from it, unless the user says what it shall do.
TEST(Job, RefusesWeightsThatTrainApart) {
  std::ostringstream bytes;
  bytes << std::ifstream(GRADLOOM_SOURCE_DIR "/tests/modules/foldings-dynamo/model.onnx", std::ios::binary)
               .rdbuf();
  std::string file = bytes.str();
  const std::string views = "['body.positions', 'val_0'", function = "['body.positions', 'cos_0'";
  ASSERT_NE(file.find(views), std::string::npos);
  file.replace(file.find(views), views.size(), function);
  const TemporaryFolder folder;
  std::ofstream(folder / "model.onnx", std::ios::binary) << file;
  const auto created = [&](const std::vector<std::string>& train, const std::vector<std::string>& freeze) {
    Recipe recipe;
    recipe.model = folder / "model.onnx";
    recipe.optimizer = "adam{lr=0.01}";
    recipe.threads = 2;
    recipe.train = train;
    recipe.freeze = freeze;
    auto prepared = prepare(recipe);
    EXPECT_TRUE(prepared.ok()) << "which inspect and plan may do";
    return prepared.ok() ? Job::create(std::move(prepared).value()) : prepared.error();
  };
  const auto refused = created({}, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::bad_input);
  EXPECT_EQ(
      refused.error().message,
      "weight 'slice_1' is another form of 'body.positions': it would not train as the module does (export "
      "with optimize=False; --train slice_1 trains it as it is, --freeze slice_1 does not)");
  EXPECT_TRUE(created({"slice_1"}, {}).ok());
  EXPECT_TRUE(created({}, {"slice*"}).ok());
}

}  // namespace
}  // namespace gradloom
