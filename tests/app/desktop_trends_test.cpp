// The trends tab: runs from day to day, the change among them, its kernel in the graph, its run shown.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/app/trend_session.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopTrends : public WindowScript {
 protected:
  // Opens s.db of ten runs; when `script` has made ready.png, others write six slower ones. The exit code.
  int open_while_recorded(const std::string& script) {
    runs_.write(file("s.db"), 10, 0);
    std::thread other([&] {
      while (!std::filesystem::exists(file("ready.png")))
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      runs_.write(file("s.db"), 0, 6);
    });
    const int code = open(file("s.db"), script);
    other.join();
    return code;
  }
  TrendSession runs_{GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx", 8};
};

TEST_F(DesktopTrends, AChangeLeadsToItsKernelAndItsRun) {
  runs_.write(file("s.db"), 10, 6);
  const auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->edit_runs({{RunEdit::Kind::pin, 2, ""}}).ok());
  ASSERT_EQ(open(file("s.db"),
                 "size 1280 720\n"
                 "wait idle\n"
                 "click tab.Trends\n"
                 "wait until trends.count 16\n"
                 "expect trends.last \"slower, 1.5*\"\n"
                 "expect trends.changes.1 \"SLOWER 1.5*\"\n"
                 "expect trends.setting.1 \"clip_norm: 1* -> 0*\"\n"
                 "expect trends.mark.1\n"
                 "expect trends.level.1 \"20.1 us\"\n"
                 "expect trends.level.2 \"30.1 us\"\n"
                 "expect trends.baseline.2 \"1.50*\"\n"
                 "expect \"trends.kernels." +
                     runs_.slow_kernel() +
                     "\" +10*\n"
                     "wait 400\n"
                     "screenshot " +
                     picture("desktop_trends_test.png") +
                     "\n"
                     "click \"trends.kernels." +
                     runs_.slow_kernel() +
                     "\"\n"
                     "wait idle\n"
                     "expect node-panel.name\n"
                     "click trends.run.4\n"
                     "wait idle\n"
                     "expect status.run \"run 4: 20*\"\n"),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture("desktop_trends_test.png")), 20000u);
}

TEST_F(DesktopTrends, SessionsOfOtherDaysAreAddedAndTakenAway) {
  runs_.write(file("monday.db"), 6, 0);
  runs_.write(file("tuesday.db"), 0, 6);
  ASSERT_EQ(open(file("monday.db"),
                 "wait idle\n"
                 "click tab.Trends\n"
                 "wait until trends.count 6\n"
                 "expect trends.last none\n"
                 "click trends.add\n"
                 "wait until file.path\n"
                 "key ctrl+a\n"
                 "type " +
                     file("tuesday.db") +
                     "\n"
                     "key enter\n"
                     "wait idle\n"
                     "wait until trends.count 12\n"
                     "expect trends.added.1 tuesday.db\n"
                     "expect trends.changes.1 SLOWER*\n"
                     "click trends.run.12\n"  // of the added session, which then is the open one
                     "wait idle\n"
                     "expect trends.added.1 monday.db\n"
                     "expect trends.count 12\n"
                     "click trends.added.1.close\n"
                     "wait idle\n"
                     "expect trends.count 6\n"),
            0)
      << error_;
}

// Runs that another process records come in by themselves; the slower level that they make is told once, by name.
TEST_F(DesktopTrends, WhatIsRecordedMeanwhileIsThereAndARegressionIsTold) {
  EXPECT_EQ(open_while_recorded(
                "size 1280 720\nwait idle\nabsent toast.0\nclick tab.Trends\n"
                "wait until trends.count 10\nexpect trends.last none\nabsent trends.changes.1\nscreenshot " +
                file("ready.png") +
                "\nwait until trends.count 16\nexpect trends.changes.1 \"SLOWER 1.5*\"\n"
                "expect toast.0 \"mlp on cpu (a processor): a step takes 1.*x as long since run 11: " +
                runs_.slow_kernel() +
                " +* us (*); clip_norm: 1* -> 0*\"\n"
                "click tab.Runs\nexpect runs.16\n"),
            0)
      << error_;
}

// Also while another tab is in front, which reads no trends itself.
TEST_F(DesktopTrends, ARegressionIsToldWhateverIsShown) {
  EXPECT_EQ(
      open_while_recorded("wait idle\nscreenshot " + file("ready.png") +
                          "\nwait until toast.0 \"mlp on *: a step takes 1.*x as long since run 11*\"\n"),
      0)
      << error_;
}

TEST_F(DesktopTrends, OneRunIsNoTrend) {
  runs_.write(file("s.db"), 1, 0);
  ASSERT_EQ(
      open(file("s.db"), "wait idle\nclick tab.Trends\nwait idle\nabsent trends.plot\nexpect trends.add\n"),
      0)
      << error_;
}

}  // namespace
}  // namespace gradloom
