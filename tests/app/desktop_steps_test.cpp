// The timeline of several steps as a user drives it: the strip of all steps, what lanes wait for, a second run below.
#include <filesystem>

#include "app/import_trace.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopSteps : public WindowScript {
 protected:
  void SetUp() override {
    const std::string job = bert() + "--steps 14 --profile sampled --passes ";
    train(job + "default --eval-data synthetic --eval-every 6", file("s.db"));
    train(job + "none", file("s.db"));
  }
  int open(const std::string& script, const std::string& size = "1280x720") {
    return WindowScript::open(file("s.db") + " --size " + size,
                              "wait idle\nclick tab.Timeline\nwait 3\n" + script);
  }
};

class DesktopStepsOfSize : public DesktopSteps, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Sizes, DesktopStepsOfSize, testing::Values("1280x720", "1600x900"));

TEST_P(DesktopStepsOfSize, TheStripOpensTheNearestTimedStep) {
  const std::string picture = file("steps.png");
  EXPECT_EQ(open("expect timeline.strip \"14 steps\"\nexpect strip.5 timed*\n"
                 "click strip.5\nexpect timeline.canvas 5\nexpect timeline.strip.shown 5\n"
                 "click strip.6\nexpect timeline.canvas 5\n"  // not timed itself
                 "click strip.12 shift\nexpect timeline.canvas \"5 to 11\"\n"
                 "expect timeline.shown.5\nexpect timeline.shown.8\nexpect timeline.shown.11\n"
                 "expect timeline.strip.shown \"5 to 11\"\nscreenshot " +
                     picture +
                     "\nhover timeline.canvas\nkey shift+,\nexpect timeline.canvas \"5 to 8\"\n"
                     "key .\nexpect timeline.canvas 11\nkey ,\nexpect timeline.canvas 8\n"
                     "key shift+.\nexpect timeline.canvas \"8 to 11\"\n"
                     "absent toast.0\n",
                 GetParam()),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture), 20'000u);
}

TEST_F(DesktopSteps, SaysWhatTheStepWaitsFor) {
  EXPECT_EQ(
      open(
          "expect idle.busy *s\nexpect idle.launch *s\nexpect idle.bar.Time \"busy *launch *\"\n"
          "absent idle.imbalance\nclick timeline.path\nexpect timeline.path on\n"
          "expect timeline.path.text \"*one lane*\"\nclick timeline.path\nabsent timeline.path.text\n"
          "drag timeline.canvas 160 0 ctrl\nexpect timeline.range *kernels\nexpect idle.bar.Time \"busy *\"\n"
          "absent toast.0\n"),
      0)
      << error_;
}

TEST_F(DesktopSteps, AnotherRunStandsBelow) {
  const std::string picture = file("beside.png");
  EXPECT_EQ(open("click timeline.beside\nwait 3\nclick \"timeline.beside/run 1\"\nwait idle\n"
                 "expect timeline.beside \"run 1\"\nexpect timeline.beside.head \"run 1, step *\"\n"
                 "expect timeline.align \"Step starts\"\nexpect timeline.change.0\n"
                 "click timeline.change.0\nwait 5\nscreenshot " +
                     picture + "\nabsent toast.0\n",
                 "1600x900"),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture), 20'000u);
}

// A step of PyTorch's profiler, 900 us with modules within modules on the host, below one of ours.
class DesktopBeside : public WindowScript {
 protected:
  void SetUp() override {
    std::string events =
        R"([{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":1,"tid":1,"ts":0,"dur":900})";
    const auto add = [&](const char* cat, const std::string& name, int at, int us) {
      events += ",\n{\"ph\":\"X\",\"cat\":\"" + std::string(cat) + "\",\"name\":\"" + name +
                R"(","pid":1,"tid":1,"ts":)" + std::to_string(at) + R"(,"dur":)" + std::to_string(us) + "}";
    };
    std::string scope;
    for (int depth = 0; depth < 5; ++depth) {
      scope += (depth == 0 ? "net" : ".part") + std::to_string(depth);
      add("user_annotation", scope, 5 + depth, 750 - 2 * depth);
    }
    for (int i = 0; i < 20; ++i) add("cpu_op", "aten::mm", 12 + 36 * i, 33);
    add("user_annotation", "Optimizer.step#SGD.step", 780, 117);
    add("cpu_op", "aten::add_", 783, 111);
    std::ofstream(file("t.json")) << events << "]";
    ImportRequest request;
    request.session = file("s.db");
    request.name = "pytorch";
    ASSERT_TRUE(import_trace(request, {file("t.json")}).ok());
    train(bert() + "--steps 8 --profile all", file("s.db"));
  }
};
class DesktopBesideOfSize : public DesktopBeside, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Sizes, DesktopBesideOfSize, testing::Values("1280x720", "1600x900"));

TEST_P(DesktopBesideOfSize, KernelsOfBothRunsAreInSightToTheirEnd) {
  const std::string picture = file("beside.png");
  EXPECT_EQ(
      open(file("s.db") + " --size " + GetParam(),
           "wait idle\nclick tab.Runs\nwait 4\ndoubleclick runs.2\nwait idle\nclick tab.Timeline\nwait idle\n"
           "expect timeline.kernels \"whole *\"\nabsent beside.kernels\n"
           "click timeline.beside\nwait 3\nclick \"timeline.beside/run 1 (pytorch)\"\nwait idle\nwait 4\n"
           "expect timeline.kernels \"whole *\"\nexpect beside.kernels \"whole *\"\n"
           "expect timeline.lanes *\nexpect \"timeline.lane.beside.Host 4\" folded\n"
           "expect beside.shown.1\nuncut\nscreenshot " +
               picture +
               "\nclick timeline.beside\nwait 3\nclick \"timeline.beside/no other run\"\nwait idle\nwait 4\n"
               "expect timeline.kernels \"whole *\"\nabsent beside.kernels\nabsent toast.0\n"),
      0)
      << error_;
}

// A lane opens by a click on its name or the key, by Shift and the wheel the others come into sight; folds are there again.
TEST_F(DesktopBeside, LanesFoldOpenAndScroll) {
  const std::string window = file("s.db") + " --size 1280x720 --keep " + file("kept");
  const std::string beside =
      "wait idle\nclick tab.Runs\nwait 4\ndoubleclick runs.2\nwait idle\nclick tab.Timeline\nwait idle\n"
      "click timeline.beside\nwait 3\nclick \"timeline.beside/run 1 (pytorch)\"\nwait idle\nwait 4\n";
  EXPECT_EQ(
      open(window, beside +
                       "click \"timeline.lane.beside.Host 4\"\nwait 4\n"
                       "expect \"timeline.lane.beside.Host 4\" open\nexpect timeline.lane.beside.Host open\n"
                       "click timeline.lane.Phase\nwait 4\n"
                       "click timeline.lane.Kernels\nwait 4\nexpect timeline.lane.Kernels folded\n"
                       "hover timeline.canvas\nwheel timeline.canvas -30 shift\nwait 4\n"
                       "expect timeline.lanes bottom\nkey pageup pageup pageup pageup\nwait 4\n"
                       "expect timeline.lanes top\nuncut\n"),
      0)
      << error_;
  EXPECT_EQ(
      open(window,
           beside + "expect \"timeline.lane.beside.Host 4\" open\nexpect timeline.lane.Kernels folded\n"),
      0)
      << error_;
}

// Arrows go from bar to bar and from lane to lane, Shift measures, and the fold key folds the lane.
TEST_F(DesktopBeside, TheKeysWalkTheBars) {
  EXPECT_EQ(
      open(file("s.db") + " --size 1600x900",
           "wait idle\nclick tab.Runs\nwait 4\ndoubleclick runs.2\nwait idle\nclick tab.Timeline\nwait idle\n"
           "hover timeline.canvas\nabsent timeline.cursor\nkey right\nwait 4\nexpect timeline.cursor\n"
           "key right right\nwait idle\nkey shift+right\nwait idle\nexpect timeline.ruler\n"
           "key m\nwait 4\nexpect timeline.range *kernels\nabsent timeline.ruler\n"
           "key up up up up up\nwait idle\nkey t\nwait 4\nexpect timeline.lane.Phase folded\nkey t\nwait 4\n"
           "expect timeline.lane.Phase open\nkey z\nwait 4\n"
           "key shift+f10\nwait 4\nexpect timeline.menu.all\nkey down\nwait 4\nexpect focus timeline.menu.*\n"
           "key escape\nwait 4\nabsent timeline.menu.all\nkey escape\nwait 4\nabsent timeline.cursor\n"
           "absent toast.0\n"),
      0)
      << error_;
}

}  // namespace
}  // namespace gradloom
