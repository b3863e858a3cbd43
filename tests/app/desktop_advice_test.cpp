// The window's advice: asked for, listed with gains, and one of it proved by a comparison.
#include <gtest/gtest.h>

#include <filesystem>

#include "app/desktop/run_events.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopAdvice : public WindowScript {};

TEST_F(DesktopAdvice, IsAskedForAndProved) {
  const std::string picture =
      (std::filesystem::path(GRADLOOM_COMMAND).parent_path() / "desktop_advice_test.png").string();
  ASSERT_EQ(
      open(GRADLOOM_SOURCE_DIR "/tests/models/gpt-char/model.onnx --dim batch=2 --loss ce:logits,labels "
                               "--optimizer adamw --passes none --steps 4 --session " +
               file("s.db"),
           "size 1280 720\n"
           "wait idle\n"
           "click tab.Advice\n"
           "expect advice.find\n"
           "absent advice.run\n"
           "click advice.find\n"
           "wait until advice.count\n"
           "expect advice.row.1\n"
           "expect advice.gain.1 \"* %  [* %, * %]\"\n"
           "expect run.outcome done\n"
           "wait 400\n"
           "screenshot " +
               picture +
               "\n"
               "click advice.prove.1\n"
               "wait until compare.verdict\n"
               "click tab.Advice\n"
               "expect advice.row.1\n"
               "click pass.fuse-optimizer\n"
               "wait idle\n"
               "expect advice.again\n"),
      0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture), 20000u);
}

TEST_F(DesktopAdvice, WithoutAModelThereIsNone) {
  EXPECT_EQ(open("", "wait idle\nabsent advice.find\n"), 0) << error_;
}

TEST(RunEvents, FindingsAreReadAsTheyAreSaid) {
  RunProgress progress;
  progress.kind = RunKind::advise;
  const RunEvent event = read_run_line(
      R"({"finding":"moves","title":"3 x Cast","gain_ns":1500.0,"gain":0.1,"low":0.05,"high":0.2,"node":"c",)"
      R"("numbers":["a","b"],"change":"x=1","remedy":"r","command":"gradloom compare m","compares":true})",
      progress);
  ASSERT_TRUE(event.finding);
  EXPECT_EQ(event.finding->title, "3 x Cast");
  EXPECT_EQ(event.finding->numbers, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(event.finding->gain_ns, 1500);
  EXPECT_TRUE(event.finding->compares);
  EXPECT_EQ(read_run_line(R"({"summary":{"findings":1,"step_ns":2e6}})", progress).advised_step_ns, 2e6);
  read_run_line(R"({"event":"progress","fraction":0.5,"what":"batch"})", progress);
  EXPECT_EQ(progress.what, "batch");
  for (const char* odd : {R"({"finding":3})", R"({"finding":"x","numbers":3,"title":[],"gain":"NaN"})"})
    EXPECT_TRUE(read_run_line(odd, progress).finding) << odd;
  progress.kind = RunKind::train;
  EXPECT_FALSE(read_run_line(R"({"finding":"moves"})", progress).finding);
}

}  // namespace
}  // namespace gradloom
