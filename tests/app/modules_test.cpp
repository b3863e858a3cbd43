// The modules of tests/modules (export.py wrote them): loss and every gradient
// against PyTorch's float64 ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "app/check.h"
#include "app/job.h"
#include "app/model_summary.h"
#include "engine/onnx/file/tensor_file.h"
#include "engine/onnx/import.h"
#include "engine/ir/op.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> module_names() {
  std::vector<std::string> names;
  std::error_code code;  // a folder that is missing is a failure of the tests, not of their listing
  for (const auto& entry : fs::directory_iterator(GRADLOOM_SOURCE_DIR "/tests/modules", code))
    if (fs::exists(entry.path() / "model.onnx")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Relative to each number; what cancels to nearly nothing is held to `atol`.
CheckResult check_module(const std::string& name, CheckOptions options) {
  const bool f64 = options.precision == "f64";
  options.rtol = f64 ? 1e-9 : 1e-4;
  options.atol = f64 ? 1e-12 : 1e-6;
  return check_folder(GRADLOOM_SOURCE_DIR "/tests/modules/" + name, options);
}

class Modules : public testing::TestWithParam<std::string> {};

TEST_P(Modules, LossAndGradientsArePyTorchs) {
  for (const char* precision : {"f32", "f64"}) {
    for (const char* passes : {"default", "none"}) {
      const CheckResult r = check_module(GetParam(), {*parse_pipeline(passes), precision, "cpu", {}, {}, 0});
      EXPECT_EQ(r.status, CheckStatus::pass) << precision << ", passes " << passes << ": " << r.reason;
      EXPECT_GT(r.gradients, 0) << precision << ", passes " << passes;
    }
  }
}

// Each pass alone, each left out, and four random choices, as one list.
std::vector<std::string> choices_of_passes() {
  std::vector<std::string> choices;
  std::mt19937 random(20261124);
  for (const PassDef* def : all_passes()) {
    if (!is_default(*def)) continue;
    choices.emplace_back(def->name);
    choices.push_back(std::string("default,-") + def->name);
  }
  for (int i = 0; i < 4; ++i) {
    std::string some = "none";
    for (const PassDef* def : all_passes())
      if (is_default(*def) && random() % 2 == 0) some += std::string(",") + def->name;
    choices.push_back(some);
  }
  return choices;
}

// Some of them for each module, in turn, so that all modules together see all; GRADLOOM_TEST_MATRIX says how many.
TEST_P(Modules, NoChoiceOfPassesChangesThem) {
  const std::vector<std::string> choices = choices_of_passes(), names = module_names();
  const char* wanted = getenv("GRADLOOM_TEST_MATRIX");
  const std::size_t count =
      std::min<std::size_t>(wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 2, choices.size());
  const auto place =
      static_cast<std::size_t>(std::find(names.begin(), names.end(), GetParam()) - names.begin());
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& passes = choices[(place * count + i) % choices.size()];
    const CheckResult r = check_module(GetParam(), {*parse_pipeline(passes), "f64", "cpu", {}, {}, 0});
    EXPECT_EQ(r.status, CheckStatus::pass) << "passes " << passes << ": " << r.reason;
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Modules, testing::ValuesIn(module_names()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// What a file alone says of its initializers: those are trained that PyTorch has a gradient of. The files do not tell
// why some are not: noise of dropout that is written out, and parameters that no gradient reaches.
TEST(ModuleFolders, TrainedIsWhatPyTorchTrains) {
  for (const std::string& name : module_names()) {
    SCOPED_TRACE(name);
    const std::string folder = GRADLOOM_SOURCE_DIR "/tests/modules/" + name;
    const auto model = import_onnx(folder + "/model.onnx", {});
    ASSERT_TRUE(model.ok()) << model.error().message;
    std::set<std::string> want, trained;
    for (int i = 0; fs::exists(folder + "/test_data_set_0/grad_" + std::to_string(i) + ".pb"); ++i) {
      const auto gradient = read_tensor_file(folder + "/test_data_set_0/grad_" + std::to_string(i) + ".pb");
      ASSERT_TRUE(gradient.ok()) << gradient.error().message;
      want.insert(gradient->name);
    }
    for (const ValueId id : model->graph.inputs) want.erase(model->graph.value(id).name);
    for (const ParameterRow& row : parameter_table(*model, {model->graph.outputs[0]}, {})) {
      EXPECT_NE(row.why, "") << row.name;
      if (row.trained) trained.insert(row.name);
    }
    if (name == "loss-bce-logits-weighted")
      want = trained;  // buffers of class weights, which look like any parameter
    if (name == "spatial-transformer-dynamo")
      want.insert("view_2");  // a constant, by a file stripped of what says so
    EXPECT_EQ(trained, want);
  }
}

std::vector<std::string> trained_names() {
  std::vector<std::string> names = module_names();
  std::erase_if(names, [](const std::string& name) {
    return !fs::exists(GRADLOOM_SOURCE_DIR "/tests/modules/" + name + "/training.json");
  });
  return names;
}

class TrainedModules : public testing::TestWithParam<std::string> {};

// Steps of training against PyTorch's float64 losses, buffers as they were.
TEST_P(TrainedModules, LossesArePyTorchs) {
  const std::string folder = GRADLOOM_SOURCE_DIR "/tests/modules/" + GetParam();
  std::ifstream file(folder + "/training.json");
  const nlohmann::json reference = nlohmann::json::parse(file);
  const std::vector<double> losses = reference["losses"];
  ASSERT_GE(losses.size(), 10u);
  for (const char* precision : {"f64", "f32"}) {
    for (const char* passes : {"default", "none"}) {
      SCOPED_TRACE(std::string(precision) + ", passes " + passes);
      Recipe recipe;
      recipe.model = folder + "/model.onnx";
      recipe.data = "npz:" + folder + "/batches.npz";
      recipe.optimizer = reference["optimizer"];
      recipe.precision = precision;
      set_pipeline(recipe, *parse_pipeline(passes));
      auto prepared = prepare(recipe);
      ASSERT_TRUE(prepared.ok()) << prepared.error().message;
      const auto job = Job::create(std::move(prepared).value());
      ASSERT_TRUE(job.ok()) << job.error().message;
      const double tolerance = recipe.precision == "f64" ? 1e-9 : 1e-4;
      for (std::size_t i = 0; i < losses.size(); ++i) {
        const auto step = (*job)->step(static_cast<std::int64_t>(i) + 1);
        ASSERT_TRUE(step.ok()) << step.error().message;
        ASSERT_LE(std::fabs(step->loss - losses[i]), tolerance * std::fabs(losses[i]))
            << "step " << i + 1 << ": " << step->loss << ", PyTorch " << losses[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, TrainedModules, testing::ValuesIn(trained_names()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// The modules that nodes belong to, by both exporters' ways of writing them.
std::set<std::string> scopes_of(const std::string& name) {
  std::set<std::string> scopes;
  const auto model = import_onnx(GRADLOOM_SOURCE_DIR "/tests/modules/" + name + "/model.onnx", {});
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return scopes;
  for (const Node& node : model->graph.nodes) {
    const bool product = std::string(node.op->name) == "MatMul" || std::string(node.op->name) == "Gemm";
    if (product) scopes.insert(model->graph.sources[node.origin.sources[0]].scope);
  }
  return scopes;
}

TEST(ModuleFolders, ScopesAreTheModulesOfBothExporters) {
  std::set<std::string> want{"body/output"};
  for (const char* layer : {"body/layers.0", "body/layers.1"}) {
    want.insert(layer);  // the attention, which is written out there
    for (const char* weight : {"wq", "wk", "wv", "wo", "w1", "w2", "w3"})
      want.insert(std::string(layer) + "/" + weight);
  }
  EXPECT_EQ(scopes_of("llama"), want);
  EXPECT_EQ(scopes_of("llama-dynamo"), want);
  EXPECT_EQ(scopes_of("vit"), scopes_of("vit-dynamo"));
}

// Every family on the executor of the GPU kernels' sources, a few modules each.
TEST(ModuleFolders, PassOnTheHostGpu) {
#ifdef GRADLOOM_PLUGIN_FOLDER
  setenv("GRADLOOM_PLUGINS", GRADLOOM_PLUGIN_FOLDER, 1);
  setenv("GRADLOOM_CACHE", GRADLOOM_PLUGIN_FOLDER "/tests/cache", 1);
  for (const char* name : {"adaptive-pool",
                           "attention-causal-dynamo",
                           "batch-norm2d",
                           "conv-transpose2d",
                           "dlrm",
                           "einsum",
                           "fold-dynamo",
                           "gcn",
                           "group-norm",
                           "gru-bidirectional",
                           "index-put",
                           "layer-norm",
                           "llama-rms-dynamo",
                           "loss-cross-entropy-ignored",
                           "lstm-states",
                           "moe",
                           "pads",
                           "reductions",
                           "spatial-transformer-dynamo",
                           "swin-dynamo",
                           "unet",
                           "upsample-bicubic"}) {
    const CheckResult r = check_module(name, {default_pipeline(), "f32", "host-gpu", {}, {}, 0});
    EXPECT_EQ(r.status, CheckStatus::pass) << name << ": " << r.reason;
  }
#else
  GTEST_SKIP() << "this build has no host executor (GRADLOOM_HOST_GPU is off)";
#endif
}

// Both exporters, and enough of each that an operator family or a loss is not lost unseen.
TEST(ModuleFolders, AreOfBothExporters) {
  const auto names = module_names();
  const auto dynamo = std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return name.size() > 7 && name.compare(name.size() - 7, 7, "-dynamo") == 0;
  });
  EXPECT_GE(names.size() - static_cast<std::size_t>(dynamo), 80u);
  EXPECT_GE(dynamo, 40);
}

}  // namespace
}  // namespace gradloom
