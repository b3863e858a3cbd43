// ONNX's own tests, checked as `gradloom check` does: nothing may fail, and what Gradloom lacks is counted by
// name. GRADLOOM_ONNX_TESTS=FOLDER checks another set than the data package's.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "app/check.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

struct Set {
  const char* name;
  int least;  // passes, of the data package
};

void PrintTo(const Set& set, std::ostream* out) { *out << set.name; }

class OnnxTests : public ::testing::TestWithParam<Set> {};

TEST_P(OnnxTests, NothingFails) {
  const char* chosen = std::getenv("GRADLOOM_ONNX_TESTS");
  const fs::path root =
      fs::path(chosen != nullptr ? chosen : "/usr/share/libonnx-testdata/data") / GetParam().name;
  if (!fs::is_directory(root)) GTEST_SKIP() << "no ONNX tests in " << root << " (package libonnx-testdata)";
  const auto folders = find_test_folders(root.string());
  ASSERT_TRUE(folders.ok()) << folders.error().message;
  int passed = 0, unsupported = 0;
  for (const std::string& folder : *folders) {
    const CheckResult result = check_folder(folder, {});
    const std::string name = fs::path(folder).filename().string();
    if (result.status == CheckStatus::pass) ++passed;
    if (result.status == CheckStatus::fail) ADD_FAILURE() << name << ": " << result.reason;
    if (result.status != CheckStatus::unsupported) continue;
    ++unsupported;
    std::cout << "unsupported " << name << ": " << result.reason << "\n";
  }
  std::cout << passed << " passed, " << unsupported << " unsupported, of " << folders->size() << "\n";
  EXPECT_GE(passed, chosen != nullptr ? 1 : GetParam().least);
}

INSTANTIATE_TEST_SUITE_P(Data, OnnxTests,
                         ::testing::Values(Set{"node", 880}, Set{"pytorch-operator", 35},
                                           Set{"pytorch-converted", 82}, Set{"simple", 14}),
                         [](const ::testing::TestParamInfo<Set>& set) {
                           std::string name = set.param.name;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace gradloom
