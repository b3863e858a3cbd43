// Whatever is done to the window, it stands: random actions by a seed, on what is usually open and on what should not
// be. GRADLOOM_TEST_ACTIONS is how many each case does, GRADLOOM_TEST_SEED the first seed; what was done before a fault
// is the file `trail`, which the failure shows the end of.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "tests/app/window_script.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

const std::string kModels = GRADLOOM_SOURCE_DIR "/tests/models/";

int number_from(const char* variable, int usual) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::max(1, std::atoi(text)) : usual;
}

class DesktopRandom : public WindowScript {
 protected:
  // Text that was typed into a field of a folder makes one where the window was started: that is ours, too.
  void SetUp() override {
    fs::create_directories(file("work"));
    shell_ =
        "cd " + file("work") + "; export HOME=" + file("home") + "; unset XDG_DATA_HOME XDG_CONFIG_HOME; ";
  }

  std::string copy_of(const std::string& model, const std::string& name) {
    fs::create_directories(file("models"));
    fs::copy_file(kModels + model + "/model.onnx", file("models/" + name));
    return file("models/" + name);
  }
  void record(const std::string& arguments, const std::string& session) {
    train(arguments + " --profile all", session);
  }
  std::string last_actions() const {
    std::ifstream in(file("trail"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::ostringstream out;
    out << lines.size() << " actions, the last:\n";
    for (std::size_t i = lines.size() < 25 ? 0 : lines.size() - 25; i < lines.size(); ++i)
      out << lines[i] << '\n';
    return out.str();
  }
  void survives(const std::string& arguments, int seed, const std::string& drops = {}) {
    const int actions = number_from("GRADLOOM_TEST_ACTIONS", 60);
    seed += number_from("GRADLOOM_TEST_SEED", 1);
    std::ostringstream script;
    script << "wait idle\nrandom " << seed << ' ' << actions << " \"" << file("trail") << "\" " << drops
           << '\n';
    const int code = open(arguments + " --size 1000x700", script.str());
    // What could not be opened is the command's error; a fault is one of the script (1) or an end by a signal.
    EXPECT_TRUE(code == 0 || code == 3 || code == 5)
        << "exit code " << code << ", seed " << seed << ": " << error_ << last_actions();
  }
};

TEST_F(DesktopRandom, AModelWithItsSession) {
  const std::string model = copy_of("gpt-char", "gpt-char.onnx") + " --dim batch=2 --loss loss --steps 2";
  record(model, file("s.db"));
  survives(model + " --session " + file("s.db"), 100);
}

TEST_F(DesktopRandom, AnEmptyWindowThatFilesAreDroppedOn) {
  const std::string model = copy_of("mlp", "mlp.onnx");
  record(model + " --dim batch=4 --loss loss --steps 2", file("s.db"));
  std::ofstream(file("broken.onnx")) << "not a model";
  survives("", 200, '"' + model + "\" \"" + file("s.db") + "\" \"" + file("broken.onnx") + '"');
}

TEST_F(DesktopRandom, AModelOfAHostileName) {
  const std::string name = "a\nb\x1b[31m%s%n \u202e$(x)##" + std::string(180, 'W') + ".onnx";
  const std::string model = copy_of("mlp", name);
  fs::create_symlink(model, file("link.onnx"));
  survives("", 300, '"' + file("link.onnx") + '"');
  fs::copy_file(model, file("work/hostile.onnx"));
  survives(
      "hostile.onnx --dim batch=4 --loss loss --steps 2 --session '" + std::string(120, '%') + "n\u202e.db'",
      301);
}

TEST_F(DesktopRandom, ASessionWithoutItsModel) {
  const std::string model = copy_of("mlp", "mlp.onnx");
  record(model + " --dim batch=4 --loss loss --steps 2", file("s.db"));
  fs::remove(model);
  survives(file("s.db"), 400);
}

TEST_F(DesktopRandom, ItDoesWhatItSays) {
  survives("", 500);
  std::ifstream in(file("trail"));
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  EXPECT_EQ(lines, number_from("GRADLOOM_TEST_ACTIONS", 60));
}

// ---- What it found ----

// The step was drawn with the stages of the plan before.
TEST_F(DesktopRandom, APlanThatChangesWhileItIsShownPassByPass) {
  std::string script = "wait idle\nclick \"graph.stage/By pass\"\nwait idle\nwait 20\n";
  for (const char* pass : {"fuse-optimizer", "fuse-optimizer", "fuse-elementwise", "fuse-elementwise"})
    script += "click pass." + std::string(pass) + "\nwait 30\nwait idle\n";
  const std::string model = copy_of("mlp", "mlp.onnx") + " --dim batch=4 --loss loss";
  EXPECT_EQ(open(model, script), 0) << error_;
}

}  // namespace
}  // namespace gradloom
