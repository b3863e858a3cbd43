// A bounded part of the fuzzing, the same in every run: each target on what earlier fuzzing found
// (kept/<target>), on the corpus of hostile files, on real models, and on as many mutations of them as
// GRADLOOM_TEST_MUTATIONS says. What a target dies of is left in fuzz-find.bin, in the folder that the test
// runs in. `./dev fuzz` goes on from here with libFuzzer.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/find.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"
#include "tests/hostile/corpus.h"
#include "tests/paths.h"

namespace gradloom::fuzz {
namespace {
namespace fs = std::filesystem;

constexpr std::uintmax_t kSeedBytes = 64 << 10;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> files_under(const fs::path& folder, const std::string& extension = "") {
  std::vector<fs::path> files;
  std::error_code absent;
  for (const auto& entry : fs::recursive_directory_iterator(folder, absent)) {
    if (entry.is_symlink() || !entry.is_regular_file() || entry.file_size() > kSeedBytes) continue;
    if (extension.empty() || entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class FuzzTargets : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gradloom-fuzz-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    keep_finds();
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Small files of the kind that the target reads.
  std::vector<std::string> seeds() const {
    const std::string models = GRADLOOM_SOURCE_DIR "/tests/models",
                      data = "/usr/share/libonnx-testdata/data/node";
    const bool model = target().model;
    std::vector<fs::path> files = files_under(models, model ? ".onnx" : ".npz");
    if (model)
      for (const fs::path& path : files_under(data, ".onnx")) files.push_back(path);
    for (const auto& c : hostile::all_cases()) {
      if (model != (c.row[0] == 'O')) continue;
      const fs::path place = folder_ / "case", outside = folder_ / "outside";
      fs::remove_all(place);
      fs::create_directories(place);
      fs::create_directories(outside);
      if (c.row == "O7" || c.row == "O10" || c.row == "O15")
        continue;  // links, large files: hostile_test.cpp
      c.make({place.string(), outside.string()});
      for (const fs::path& path : files_under(place)) {
        const fs::path kept = folder_ / ("seed-" + std::to_string(files.size()));
        fs::rename(path, kept);
        files.push_back(kept);
      }
    }
    for (const fs::path& path :
         files_under(fs::path(GRADLOOM_SOURCE_DIR) / "tests/fuzz/kept" / target().name))
      if (!model) files.push_back(path);
    std::vector<std::string> contents;
    for (const fs::path& path : files) contents.push_back(read_file(path));
    return contents;
  }

  static const Target& target() { return *find_target(GetParam()); }

  static void run(const std::string& bytes) { run_kept(target(), bytes); }

  fs::path folder_;
};

TEST_P(FuzzTargets, KeptCases) {
  for (const fs::path& path :
       files_under(fs::path(GRADLOOM_SOURCE_DIR) / "tests/fuzz/kept" / target().name)) {
    SCOPED_TRACE(path);
    run(read_file(path));
  }
}

TEST_P(FuzzTargets, SeedsAndMutations) {
  const std::vector<std::string> all = seeds();
  ASSERT_GT(all.size(), 20u);
  for (const std::string& seed : all) run(seed);
  const char* wanted = getenv("GRADLOOM_TEST_MUTATIONS");
  const int mutations = wanted != nullptr ? atoi(wanted) : 1500;
  std::mt19937_64 random(20260101);
  std::string now;
  for (int i = 0; i < mutations; ++i) {
    // Mostly one step away from a seed, sometimes several.
    if (i % 3 == 0) now = all[random() % all.size()];
    now = target().model ? mutate_model(now, random()) : mutate_bytes(now, random());
    run(now);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzTargets,
                         testing::Values("import", "compile", "recipe", "npz", "safetensors", "rules"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace gradloom::fuzz
