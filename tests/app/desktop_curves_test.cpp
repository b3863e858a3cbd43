// Curves of several runs in the window, whose times stand where, and how long a run will still take.
#include <gtest/gtest.h>

#include <filesystem>

#include "app/desktop/run_events.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopCurves : public WindowScript {
 protected:
  void SetUp() override {
    record("none --name plain", "s.db");
    record("default --name fused", "s.db");
    record("default --name elsewhere", "other.db");
  }
  void record(const std::string& passes, const std::string& session) {
    train(
        bert() +
            "--clip-norm 1 --steps 24 --profile sampled --eval-data synthetic --eval-every 6 --eval-batches 2 "
            "--passes " +
            passes,
        file(session));
  }
};

class DesktopCurvesOfSize : public DesktopCurves, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Sizes, DesktopCurvesOfSize, testing::Values("1280x720", "1920x1080"));

TEST_P(DesktopCurvesOfSize, RunsAreOverlaidAndRead) {
  const std::string shown = picture(std::string("desktop_curves_") + GetParam() + ".png");
  ASSERT_EQ(
      open(
          file("s.db") + " --size " + GetParam(),
          "wait idle\nclick tab.Curve\nwait 3\nexpect curve.legend.0\nexpect curve.summary \"run 2 (fused): 24 steps*\"\n"
          "expect curve.legend.1\n"  // held-out data of the only run
          "click curve.runs\nwait 3\nclick curve.run.1\nwait idle\nkey escape\nwait 3\n"
          "expect curve.legend.1\nabsent curve.legend.2\n"
          "click curve.smoothing\nclick \"curve.smoothing/Smoothed 0.9\"\nwait 3\nhover curve.plot\nwait 3\n"
          "screenshot " +
              shown +
              "\nclick curve.of\nclick \"curve.of/Gradient norm\"\nwait 3\nexpect curve.legend.1\n"
              "click curve.of\nclick \"curve.of/Learning rate\"\nwait 3\nexpect curve.legend.1 0.001\n"
              "click curve.of\nclick \"curve.of/Held-out loss\"\nwait 3\nexpect curve.legend.1\n"
              "click curve.of\nclick curve.of/Throughput\nwait 3\nexpect curve.legend.1 \"*samples/s\"\n"
              "click curve.log\nwait 3\nexpect curve.log on\n"
              "click curve.runs\nwait 3\nclick curve.runs.none\nwait idle\nkey escape\nwait 3\n"
              "absent curve.legend.1\nabsent toast.0\n"),
      0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(shown), 20'000u);
}

TEST_F(DesktopCurves, AreChosenInTheListAndOfOtherSessions) {
  ASSERT_EQ(
      open(
          file("s.db") + " --size 1600x900",
          "wait idle\nclick tab.Runs\nwait 3\nexpect runs.curve.2 on\nexpect runs.curve.1 off\n"
          "click runs.curve.1\nwait idle\nexpect runs.curve.1 on\nclick tab.Curve\nwait 3\nexpect curve.legend.1\n"
          "click curve.runs\nwait 3\nclick curve.session\nwait 5\nkey ctrl+a\ntype " +
              file("other.db") +
              "\nkey enter\nwait idle\nwait 5\nclick curve.runs\nwait 3\nclick \"curve.run." +
              file("other.db") +
              "#1\"\nwait idle\nkey escape\nwait 3\nexpect curve.legend.2\n"
              "screenshot " +
              picture("desktop_curves_sessions.png") + "\nabsent toast.0\n"),
      0)
      << error_;
}

// Also of a run that has no such quantity, and so no curve: what stands after it keeps its colour.
TEST_F(DesktopCurves, DotsInTheListHaveTheColoursOfTheCurves) {
  train(bert() + "--steps 4 --name bare", file("s.db"));
  EXPECT_EQ(
      open(
          file("s.db") + " --size 1600x900",
          "wait idle\nexpect run.shown \"run 3 of this session: 4 steps of *, loss *\"\n"
          "click tab.Runs\nwait 3\nexpect runs.colour.3 0\nexpect runs.colour.2 -1\n"
          "click runs.curve.1\nwait idle\nclick runs.curve.2\nwait idle\nwait 3\n"
          "expect runs.colour.3 0\nexpect runs.colour.1 1\nexpect runs.colour.2 2\n"
          "click tab.Curve\nwait 3\nexpect curve.colour.0 0\nexpect curve.colour.1 1\nexpect curve.colour.2 2\n"
          "click curve.of\nclick \"curve.of/Held-out loss\"\nwait 3\n"
          "expect curve.colour.0 1\nexpect curve.colour.1 2\nabsent curve.colour.2\n"
          "click tab.Runs\nwait 3\nclick runs.curve.1\nwait 3\nexpect runs.colour.1 -1\nexpect runs.colour.2 1\n"
          "click tab.Curve\nwait 3\nexpect curve.colour.0 1\nabsent toast.0\n"),
      0)
      << error_;
}

TEST_F(DesktopCurves, TheChipSaysWhoseTimesStandAndRunsAgain) {
  ASSERT_EQ(
      open(
          file("s.db") + " --size 1600x900",
          "wait idle\nclick tab.Kernels\nwait 3\nexpect kernels.source.times \"measured in run 2\"\n"
          "absent kernels.source.times.do\n"
          "click pass.fuse-optimizer\nwait idle\nwait 3\n"
          "expect kernels.source.times \"measured in run 2, other passes\"\nexpect kernels.source.times.do enabled\n"
          "click tab.Icicle\nwait 3\nexpect icicle.times \"measured in run 2, other passes\"\n"
          "click tab.Timeline\nwait 3\nexpect timeline.times \"measured in run 2, other passes\"\n"
          "click tab.Roofline\nwait 3\nexpect roofline.times \"measured in run 2, other passes\"\n"
          "click tab.Graph\nwait 3\nexpect graph.times \"measured in run 2, other passes\"\nscreenshot " +
              picture("desktop_curves_chip.png") +
              "\nclick graph.times.do\nwait until run.said\nwait idle\nwait 3\nabsent graph.times\n"
              "click tab.Icicle\nwait 3\nexpect icicle.times \"measured in run 3\"\n"),
      0)
      << error_;
}

TEST_F(DesktopCurves, TheGraphIsColouredByWhatElseThereIs) {
  ASSERT_EQ(
      open(
          file("s.db") + " --size 1600x900",
          "wait idle\nclick tab.Graph\nwait 3\nabsent graph.against\n"
          "click graph.color\nclick graph.color/FLOP/s\nwait 5\nexpect graph.color FLOP/s\nscreenshot " +
              picture("desktop_curves_rate.png") +
              "\nclick graph.color\nclick \"graph.color/Live at peak\"\nwait 5\nexpect graph.color \"Live at peak\"\n"
              "click graph.color\nclick graph.color/Change\nwait idle\nwait 5\nexpect graph.against \"run 1\"\nscreenshot " +
              picture("desktop_curves_change.png") + "\nabsent toast.0\n"),
      0)
      << error_;
}

TEST(SecondsLeft, OfATrainingFollowItsPace) {
  RunProgress p;
  EXPECT_EQ(seconds_left(p, 0), -1) << "no step was made";
  p.planned_steps = 110;
  p.step = 10;
  p.step_ns.assign(10, 2e9);
  p.first_step_at_ns = 0;
  p.last_step_at_ns = 18'000'000'000;
  EXPECT_DOUBLE_EQ(seconds_left(p, p.last_step_at_ns), 200);
  EXPECT_DOUBLE_EQ(seconds_left(p, p.last_step_at_ns + 50'000'000'000), 150)
      << "it counts down between lines";
  p.last_step_at_ns = 36'000'000'000;  // half of the time goes into something else than steps
  EXPECT_DOUBLE_EQ(seconds_left(p, p.last_step_at_ns), 400);
  p.last_step_at_ns = 0;  // its lines came all at once
  EXPECT_DOUBLE_EQ(seconds_left(p, 0), 200);
  p.step = 110;
  EXPECT_EQ(seconds_left(p, 0), 0);
}

TEST(SecondsLeft, OfASearchAreItsOwn) {
  RunProgress p;
  p.kind = RunKind::tune;
  EXPECT_EQ(seconds_left(p, 0), -1);
  p.seconds_left = 30;
  p.left_at_ns = 5'000'000'000;
  EXPECT_DOUBLE_EQ(seconds_left(p, 15'000'000'000), 20);
  EXPECT_EQ(seconds_left(p, 99'000'000'000), 0);
}

}  // namespace
}  // namespace gradloom
