// The modules of tests/modules (export.py wrote them): loss and every gradient against PyTorch's float64
// ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "app/check.h"

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
      const CheckResult r = check_module(GetParam(), {passes, precision, "cpu", {}, {}, 0});
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
