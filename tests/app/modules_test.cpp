// The modules of tests/modules (export.py wrote them): loss and every gradient
// against PyTorch's float64 ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "app/check.h"
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

INSTANTIATE_TEST_SUITE_P(PyTorch, Modules, testing::ValuesIn(module_names()), [](const auto& test) {
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
