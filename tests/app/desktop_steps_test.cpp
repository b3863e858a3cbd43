// The timeline of several steps as a user drives it: the strip of all steps, what lanes wait for, a second run below.
#include <filesystem>

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

}  // namespace
}  // namespace gradloom
