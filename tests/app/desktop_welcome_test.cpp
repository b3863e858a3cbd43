// The first screen: what it offers, the sample job, the tour, and the list of what was open.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/desktop/sample.h"
#include "app/desktop/suggest.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

class DesktopWelcome : public WindowScript {
 protected:
  void SetUp() override { setenv("XDG_DATA_HOME", file("data").c_str(), 1); }
  void TearDown() override { unsetenv("XDG_DATA_HOME"); }
};

TEST_F(DesktopWelcome, TheSampleOpensWithItsTourOnce) {
  ASSERT_EQ(open("",
                 "size 1280 720\n"
                 "expect welcome.open\n"
                 "expect welcome.drop\n"
                 "wait 200\n"
                 "screenshot " +
                     picture("desktop_welcome_test.png") +
                     "\n"
                     "click welcome.sample\n"
                     "wait idle\n"
                     "expect status.model bert-tiny\n"
                     "expect tour.card 1\n"
                     "click tour.next\n"
                     "expect tour.card 2\n"
                     "expect tab.Passes on\n"
                     "key right\n"
                     "expect tour.card 3\n"
                     "key left\n"
                     "expect tour.card 2\n"
                     "key enter\n"
                     "key enter\n"
                     "expect tour.card 4\n"
                     "expect tab.Advice on\n"
                     "wait 200\n"
                     "screenshot " +
                     picture("desktop_tour_test.png") +
                     "\n"
                     "click tour.back\n"
                     "expect tour.card 3\n"
                     "key escape\n"
                     "absent tour.card\n"
                     "key ctrl+w\n"
                     "expect recent.0 model*\n"
                     "click welcome.sample\n"
                     "wait idle\n"
                     "expect status.model bert-tiny\n"
                     "absent tour.card\n"
                     "click menu.Help\n"
                     "click menu.help.tour\n"
                     "expect tour.card 1\n"
                     "key right\nkey right\nkey right\nkey right\n"
                     "expect tour.card 5\n"
                     "key right\n"
                     "absent tour.card\n"),
            0)
      << error_;
}

TEST_F(DesktopWelcome, TheSampleTrains) {
  ASSERT_EQ(open("--session " + file("s.db"),
                 "click welcome.tour\n"
                 "wait idle\n"
                 "expect tour.card 1\n"
                 "absent tour.run\n"
                 "key right\nkey right\n"
                 "expect tour.card 3\n"
                 "click tour.run\n"
                 "wait until run.outcome done\n"
                 "absent tour.run\n"
                 "click tour.skip\n"
                 "absent tour.card\n"
                 "expect status.run \"run 1*\"\n"),
            0)
      << error_;
  EXPECT_EQ(open("--session " + file("s.db"), "wait idle\nexpect status.model bert-tiny\n"), 0)
      << "a session alone shows the model of its run: " << error_;
}

TEST_F(DesktopWelcome, ACaptureIsExplainedAndItsFolderOpens) {
  fs::create_directory(file("job"));
  fs::copy_file(GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx", file("job/model.onnx"));
  Recipe recipe;
  recipe.model = file("job/model.onnx");
  recipe.dims = {{"batch", 8}};
  recipe.loss = "loss";
  recipe.steps = 33;
  ASSERT_TRUE(write_recipe(recipe, file("job/recipe.json")).ok());
  ASSERT_EQ(open("",
                 "absent welcome.capture.code\n"
                 "click welcome.capture\n"
                 "expect welcome.capture.code *capture*\n"
                 "click welcome.capture.choose\n"
                 "wait until file.path\n"
                 "key ctrl+a\n"
                 "type " +
                     file("job") +
                     "\n"
                     "click file.accept\n"
                     "wait idle\n"
                     "expect status.model job\n"
                     "expect run.steps 33\n"
                     "key ctrl+w\n"
                     "drop " +
                     file("job") +
                     "\n"
                     "wait idle\n"
                     "expect status.model job\n"),
            0)
      << error_;
  EXPECT_EQ(open(file("job"), "wait idle\nexpect run.steps 33\n"), 0) << error_;
}

TEST_F(DesktopWelcome, RecentFilesAreToldAndRemoved) {
  fs::copy_file(GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx", file("a.onnx"));
  const std::string mlp = GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx";
  ASSERT_EQ(open(mlp,
                 "wait idle\n"
                 "drop " +
                     file("a.onnx") +
                     "\n"
                     "wait idle\n"
                     "key ctrl+w\n"
                     "wait idle\n"
                     "expect recent.0 \"model \u00b7 *B \u00b7 *a.onnx\"\n"
                     "expect recent.1 \"model \u00b7 *B \u00b7 *mlp/model.onnx\"\n"
                     "click recent.0.remove\n"
                     "expect recent.0 *mlp/model.onnx\n"
                     "absent recent.1\n"
                     "click recent.0\n"
                     "wait idle\n"
                     "expect status.model mlp\n"),
            0)
      << error_;
}

TEST(Sample, IsFoundInFoldersOfBuildsAndBesideThemInPackages) {
  const TemporaryFolder folder;
  EXPECT_FALSE(sample_job(folder / "bin"));
  for (const char* share : {"usr/share", "build/share"}) {
    const fs::path at = folder / (std::string(share) + "/gradloom/samples/bert-tiny");
    fs::create_directories(at);
    std::ofstream(at / "model.onnx") << "x";
  }
  for (const char* program : {"usr/bin", "build"}) {
    const auto job = sample_job(folder / program);
    ASSERT_TRUE(job) << program;
    EXPECT_TRUE(fs::exists(job->model)) << job->model;
    EXPECT_EQ(job->data.rfind("npz:", 0), 0u);
    EXPECT_TRUE(recipe_pipeline(*job)->text() == default_pipeline().text());
  }
}

TEST(Sample, OfAFolderTheJobInItIsOpened) {
  const TemporaryFolder folder;
  EXPECT_EQ(file_to_open(folder / "none"), folder / "none");
  EXPECT_EQ(file_to_open(folder / ""), folder / "");
  std::ofstream(folder / "model.onnx") << "x";
  EXPECT_EQ(fs::path(file_to_open(folder / "")).filename(), "model.onnx");
  std::ofstream(folder / "recipe.json") << "x";
  EXPECT_EQ(fs::path(file_to_open(folder / "")).filename(), "recipe.json");
}

}  // namespace
}  // namespace gradloom
