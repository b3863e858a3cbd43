// The checker must fail what is wrong: references are changed and models broken on purpose.
#include "app/check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/onnx/file/tensor_file.h"
#include "engine/onnx/import.h"
#include "tests/engine/onnx/support.h"
#include "tests/paths.h"

namespace gradloom {
namespace {
namespace fs = std::filesystem;

class Check : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gradloom-check-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::copy(GRADLOOM_SOURCE_DIR "/tests/models/mlp", folder_, fs::copy_options::recursive);
  }
  void TearDown() override { fs::remove_all(folder_); }
  CheckResult run(const CheckOptions& options = {}) const { return check_folder(folder_.string(), options); }
  // Changes one element of a reference file.
  void damage(const std::string& file) const {
    const std::string path = (folder_ / "test_data_set_0" / file).string();
    auto tensor = read_tensor_file(path);
    ASSERT_TRUE(tensor.ok());
    tensor->tensor.mutable_as<float>()[0] += 0.01f;
    ASSERT_TRUE(write_tensor_file(path, *tensor).ok());
  }
  fs::path folder_;
};

TEST_F(Check, PassesWithAndWithoutPassesInBothPrecisions) {
  for (const char* passes : {"default", "none"})
    for (const char* precision : {"f32", "f64"}) {
      CheckOptions options;
      options.passes = *parse_pipeline(passes);
      options.precision = precision;
      if (options.precision == "f64")
        options.rtol = 1e-5, options.atol = 1e-8;  // references are rounded to f32
      const CheckResult r = run(options);
      EXPECT_EQ(r.status, CheckStatus::pass) << r.reason;
      EXPECT_EQ(r.gradients, 7);
    }
}

TEST_F(Check, AWrongLossFails) {
  damage("output_0.pb");
  const CheckResult r = run();
  EXPECT_EQ(r.status, CheckStatus::fail);
  EXPECT_NE(r.reason.find("loss"), std::string::npos) << r.reason;
}

TEST_F(Check, EveryWrongGradientFails) {
  for (int i = 0; i < 7; ++i) {
    TearDown();
    SetUp();
    damage("grad_" + std::to_string(i) + ".pb");
    const CheckResult r = run();
    EXPECT_EQ(r.status, CheckStatus::fail) << i;
    EXPECT_NE(r.reason.find("gradient of"), std::string::npos) << r.reason;
  }
}

// exp(x) in f16, the reference some units in the last place away: what a few roundings explain says nothing
// about Gradloom, more is wrong.
TEST_F(Check, A16BitReferenceThatWasRoundedOftenerIsNoFailure) {
  fs::remove_all(folder_);
  fs::create_directories(folder_ / "test_data_set_0");
  const auto model = gradloom::test::model_from_text("g (float16[4] x) => (float16[4] y) { y = Exp(x) }");
  std::ofstream(folder_ / "model.onnx", std::ios::binary) << model.SerializeAsString();
  const auto write = [&](const char* file, const std::vector<double>& values) {
    const NamedTensor tensor{"", Tensor::from_f64(DType::f16, {4}, values)};
    ASSERT_TRUE(write_tensor_file((folder_ / "test_data_set_0" / file).string(), tensor).ok());
  };
  const std::vector<double> x = {0, 0.5, 1, 2};
  write("input_0.pb", x);
  std::vector<double> y;
  for (const double v : x) y.push_back(std::exp(v));
  write("output_0.pb", y);
  EXPECT_EQ(run().status, CheckStatus::pass);
  y[2] *= 1 + 3 * 0x1p-10;
  write("output_0.pb", y);
  EXPECT_EQ(run().status, CheckStatus::unsupported);
  EXPECT_NE(run().reason.find("further from the result in f64"), std::string::npos) << run().reason;
  y[2] *= 1 + 3 * 0x1p-10;
  write("output_0.pb", y);
  EXPECT_EQ(run().status, CheckStatus::fail);
}

TEST_F(Check, ABrokenModelFailsAndFoldersAreFound) {
  EXPECT_EQ(find_test_folders(folder_.string())->size(), 1u);
  EXPECT_FALSE(find_test_folders((folder_ / "absent").string()).ok());
  std::ofstream(folder_ / "model.onnx") << "not a model";
  EXPECT_EQ(run().status, CheckStatus::fail);
}

}  // namespace
}  // namespace gradloom
