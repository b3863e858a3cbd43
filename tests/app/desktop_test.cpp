// The window itself, drawn without a display and driven by scripts as a user would drive it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sessions/recipe_settings.h"
#include "sessions/store.h"
#include "tests/app/window_script.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

const std::string kModels = GRADLOOM_SOURCE_DIR "/tests/models/";

class Desktop : public WindowScript {};

// The artefact stays beside the executable.
std::string artefact(const std::string& name) {
  return (fs::path(GRADLOOM_COMMAND).parent_path() / name).string();
}

bool is_png(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char magic[8] = {};
  in.read(magic, 8);
  return std::string(magic + 1, 3) == "PNG" && fs::file_size(path) > 20000;
}

TEST_F(Desktop, OpenToggleRunCompareExport) {
  const std::string picture = artefact("desktop_test.png"), recipe = file("out.recipe.json"),
                    session = file("s.db");
  std::error_code ignored;
  fs::remove(picture, ignored);
  std::ostringstream script;
  script << "wait idle\n"
            "expect status.model mlp\n"
            "expect pass.fuse-optimizer on\n"
            "expect status.kernels \"16 kernels*\"\n"
            "click run.start\n"
            "wait until run.outcome done\n"
            "wait idle\n"
            "click pass.fuse-optimizer\n"
            "expect pass.fuse-optimizer off\n"
            "wait idle\n"
            "expect status.kernels \"21 kernels*\"\n"
            "key f5\n"
            "wait idle\n"
            "expect run.outcome done\n"
            "expect status.run \"run 2*\"\n"
            "click tab.Runs\n"
            "expect runs.a.1 on\n"
            "expect runs.b.2 on\n"
            "click runs.stored\n"
            "wait idle\n"
            "expect compare.verdict\n"
            "click tab.Kernels\n"
            "expect kernels.sum \"21 kernels*\"\n"
            "click tab.Memory\n"
            "expect memory.peak *B\n"
            "click tab.Timeline\n"
            "expect timeline.canvas\n"
            "click tab.Graph\n"
            "key ctrl+p\n"
            "wait 3\n"
            "type layers.1\n"
            "wait 3\n"
            "key enter\n"
            "wait idle\n"
            "expect node-panel.name *layers.1*\n"
            "click export\n"
            "wait until file.path\n"
            "key ctrl+a\n"
            "type "
         << recipe
         << "\n"
            "click file.accept\n"
            "wait idle\n"
            "absent file.path\n"
            "click tab.Curve\n"
            "wait 400\n"
            "screenshot "
         << picture << "\n";
  ASSERT_EQ(
      open(kModels +
               "mlp/model.onnx --dim batch=8 --loss loss --optimizer 'sgd{lr=0.1}' --steps 5 --session " +
               session,
           script.str()),
      0)
      << error_;
  EXPECT_TRUE(is_png(picture));
  const auto written = read_recipe(recipe);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE(written->expect);
  const auto store = Store::open(session, StoreMode::read);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->list_runs()->size(), 2u);
  EXPECT_EQ((*store)->list_comparisons()->size(), 1u);
}

// Every setting with a label stands in the form with its value, and what is typed
// there is in the command line.
TEST_F(Desktop, TheFormListsTheSettings) {
  std::string script = "size 1600 1600\nwait idle\nclick run.more\nwait 3\n";
  const Recipe defaults;
  for (const RecipeSetting& setting : recipe_settings()) {
    const std::string id = std::string("run.") + setting.key;
    if (*setting.label == 0 || *setting.precision != 0) {
      script += "absent " + id + "\n";
    } else if (setting.forms == nullptr) {
      const std::string value = setting_text(defaults, setting);
      script += "expect " + id + " \"" + value + "\"\n";
    } else {
      script += "expect " + id + "\n";
    }
  }
  script +=
      "click run.clip_norm\nkey ctrl+a\ntype 0.5\nkey enter\nwait idle\n"
      "click run.freeze\ntype *bias* 0*\nkey enter\nwait idle\n"
      "expect run.command \"*--freeze '*bias*' --freeze '0*' --optimizer * --clip-norm 0.5 *\"\n"
      "click run.accumulate\nkey ctrl+a\ntype 0\nkey enter\nwait idle\n"
      "expect problem.accumulate \"Accumulate must be at least 1\"\n"
      "key ctrl+z\nwait idle\nabsent problem.accumulate\n";
  ASSERT_EQ(open(kModels + "mlp/model.onnx --dim batch=8 --loss loss --steps 10", script), 0) << error_;
}

TEST_F(Desktop, RulerRangeNotesAndBookmarks) {
  const std::string model =
      kModels + "mlp/model.onnx --dim batch=8 --loss loss --optimizer 'sgd{lr=0.1}' --steps 5";
  const std::string session = file("s.db");
  ASSERT_EQ(std::system((std::string(GRADLOOM_COMMAND) + " train " + model + " --profile all --session " +
                         session + " > /dev/null 2>&1")
                            .c_str()),
            0);
  const std::string script =
      "wait idle\n"
      "click tab.Timeline\nwait 3\n"
      // The ruler measures, and Escape clears it.
      "drag timeline.canvas 160 0\nexpect timeline.ruler *s\nabsent timeline.range\n"
      "hover timeline.canvas\nkey escape\nabsent timeline.ruler\n"
      // Ctrl + drag filters the kernels; the chip ends it.
      "drag timeline.canvas 160 0 ctrl\nexpect timeline.range *kernels\n"
      "click tab.Kernels\nexpect kernels.range\nclick kernels.range.close\nabsent kernels.range\n"
      "expect kernels.sum \"16 kernels*\"\n"
      // A right drag pans and is no click; a right click is a menu.
      "click tab.Timeline\nwheel timeline.canvas 4\ndrag timeline.canvas 60 0 right\nabsent "
      "timeline.menu.all\n"
      "click timeline.canvas right\nclick timeline.menu.all\n"
      // M marks the ruler's time, Shift+M writes a note on it.
      "drag timeline.canvas 160 0\nhover timeline.canvas\nkey m\nexpect timeline.range\nabsent "
      "timeline.ruler\n"
      "key shift+m\nwait until note.text\nwait 3\ntype too slow\nkey enter\nabsent note.text\n"
      "expect timeline.note.1 \"too slow\"\nhover timeline.canvas\nkey escape\nabsent timeline.range\n"
      // In the graph the note is on the selected node, from the keys and from the menu.
      "click tab.Graph\nkey ctrl+p\nwait 3\ntype layers.1\nwait 3\nkey enter\nwait idle\n"
      "key shift+m\nwait until note.text\nwait 3\ntype look here\nkey enter\nexpect node-note.2 \"look "
      "here\"\n"
      "key ctrl+z\nabsent node-note.2\nkey ctrl+shift+z\nexpect node-note.2\n"
      "click tab.Notes\nexpect notes.1 \"too slow\"\nexpect notes.2 \"look here\"\n"
      "click notes.edit.2\nwait until note.text\nwait 3\nkey ctrl+a\ntype looked at\nkey enter\n"
      "expect notes.2 \"looked at\"\nclick notes.delete.1\nabsent notes.1\n"
      // Bookmarks bring back tab, selection and view.
      "key ctrl+2\nwait idle\n"
      "key ctrl+shift+2\nwait 3\nclick tab.Graph\nhover graph\nkey escape home\nwait 3\nabsent "
      "node-panel.name\n"
      "click tab.Memory\nwait 2\nkey ctrl+2\nwait idle\nwait 3\n"
      "expect tab.Graph on\nexpect node-panel.name *layers.1*\nclick bookmark.2\nwait idle\n"
      // Ctrl+D marks what a switch did.
      "click pass.fuse-optimizer\nwait idle\nkey ctrl+d\nwait idle\nwait 3\nexpect graph.diff "
      "*fuse-optimizer*\n"
      "key ctrl+d\nabsent graph.diff\n"
      // Ctrl+S asks for a file once, Ctrl+E exports the run.
      "key ctrl+s\nwait until file.path\nkey ctrl+a\ntype " +
      file("kept.json") +
      "\nclick file.accept\nwait idle\nabsent file.path\nclick pass.fuse-optimizer\nwait idle\nkey "
      "ctrl+s\nwait idle\n"
      "absent file.path\nkey ctrl+e\nwait until file.path\nkey ctrl+a\ntype " +
      file("run.json") +
      "\nclick file.accept\nwait idle\nkey ctrl+w\nwait idle\nexpect status.model \"nothing open\"\n";
  ASSERT_EQ(open(model + " --session " + session, script), 0) << error_;
  const auto kept = read_recipe(file("kept.json")), run = read_recipe(file("run.json"));
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_FALSE(kept->expect);
  ASSERT_TRUE(run->expect);
  EXPECT_EQ(run->expect->losses.size(), 5u);
}

#ifdef GRADLOOM_PLUGIN_FOLDER
TEST_F(Desktop, AGpuSessionShowsStreamsAndItsDeviceCanBeChosen) {
  setenv("GRADLOOM_PLUGINS", GRADLOOM_PLUGIN_FOLDER, 1);
  setenv("GRADLOOM_CACHE", GRADLOOM_PLUGIN_FOLDER "/tests/cache", 1);
  const std::string model =
      kModels +
      "mlp/model.onnx --dim batch=8 --loss loss --optimizer 'sgd{lr=0.1}' --steps 5 --device host-gpu";
  const std::string session = file("s.db");
  const std::string train =
      std::string(GRADLOOM_COMMAND) + " train " + model + " --session " + session + " > /dev/null 2>&1";
  ASSERT_EQ(std::system(train.c_str()), 0);
  const std::string script =
      "wait idle\n"
      "click tab.Timeline\nwait 3\nexpect \"bar.launch of the recorded step\"\nexpect status.device "
      "\"host-gpu*\"\n"
      "click run.device\nexpect run.device/cpu\nclick run.device/cpu\nwait idle\nexpect status.device "
      "\"cpu*\"\n"
      "click run.device\nclick run.device/host-gpu\nwait idle\nexpect status.device \"host-gpu*\"\n"
      "click run.start\nwait idle 120\nexpect run.outcome done\n";
  const int code = open(model + " --session " + session, script);
  unsetenv("GRADLOOM_PLUGINS");
  unsetenv("GRADLOOM_CACHE");
  ASSERT_EQ(code, 0) << error_;
}
#endif

TEST_F(Desktop, FirstScreenDropAndLightTheme) {
  const std::string script =
      "expect welcome.open\nexpect status.model \"nothing open\"\ndrop " + kModels +
      "mlp/model.onnx\nwait idle\nexpect status.model mlp\n"
      "theme light\nscreenshot " +
      file("light.png") + "\nsize 1280 800\nwait 3\nscreenshot " + file("small.png") +
      "\nkey ?\nexpect keys.sheet\nwait 3\nuncut\nclick keys.close\nabsent keys.sheet\n";
  ASSERT_EQ(open("", script), 0) << error_;
  EXPECT_TRUE(is_png(file("light.png")));
  EXPECT_TRUE(is_png(file("small.png")));
}

TEST_F(Desktop, AWrongExpectationFailsAndNamesTheLine) {
  EXPECT_EQ(open("", "wait idle\nexpect status.model mlp\n"), 1);
  EXPECT_NE(error_.find("line 2"), std::string::npos) << error_;
  EXPECT_EQ(std::count(error_.begin(), error_.end(), '\n'), 1) << error_;
}

TEST_F(Desktop, AMalformedScriptIsAUsageError) {
  EXPECT_EQ(open("", "wait idle\njump high\n"), 2);
  EXPECT_NE(error_.find("line 2"), std::string::npos) << error_;
}

// The window shows a toast and stays; without one that a person sees, the command says what was wrong.
TEST_F(Desktop, ABrokenModelIsAToastAndTheCommandsError) {
  std::ofstream(file("broken.onnx")) << "not a model";
  EXPECT_EQ(open(file("broken.onnx"), "wait idle\nexpect toast.0 *broken.onnx*\nexpect welcome.open\n"), 3)
      << error_;
  EXPECT_NE(error_.find("broken.onnx"), std::string::npos) << error_;
}

TEST_F(Desktop, WithoutADisplayTheErrorNamesTheWayOut) {
  const std::string command =
      std::string("env -u DISPLAY -u WAYLAND_DISPLAY ") + GRADLOOM_COMMAND + " open 2> " + file("stderr");
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 6);
  std::ifstream in(file("stderr"));
  const std::string error(std::istreambuf_iterator<char>(in), {});
  EXPECT_NE(error.find("--headless"), std::string::npos);
}

TEST_F(Desktop, BadFlagsAreUsageErrors) {
  EXPECT_EQ(open("--size 12", ""), 2);
  const std::string command = std::string(GRADLOOM_COMMAND) + " open --screenshot x.png 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
}

}  // namespace
}  // namespace gradloom
