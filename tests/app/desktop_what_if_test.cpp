// The window's roofline, what-if and scaling tabs, and what the child's lines make of them.
#include <gtest/gtest.h>

#include <filesystem>

#include "app/desktop/run_events.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopWhatIf : public WindowScript {
 protected:
  static std::string picture(const std::string& name) {
    return (std::filesystem::path(GRADLOOM_COMMAND).parent_path() / name).string();
  }
  std::string job() {
    return GRADLOOM_SOURCE_DIR
           "/tests/models/gpt-char/model.onnx --dim batch=2 --loss ce:logits,labels "
           "--optimizer adamw --steps 8 --profile all --session " +
           file("s.db");
  }
};

TEST_F(DesktopWhatIf, KernelsStandUnderTheirRoofs) {
  ASSERT_EQ(open(job(),
                 "size 1280 720\n"
                 "wait idle\n"
                 "click tab.Roofline\n"
                 "expect roofline.on\n"
                 "click run.start\n"
                 "wait until run.outcome\n"
                 "wait idle\n"
                 "expect roofline.plot\n"
                 "expect roofline.reached\n"
                 "expect roofline.rows.row.0\n"
                 "wait 400\n"
                 "screenshot " +
                     picture("desktop_roofline_test.png") +
                     "\n"
                     "click roofline.rows.row.0\n"
                     "wait idle\n"
                     "click roofline.group/Operator\n"
                     "wait 2\n"
                     "expect roofline.rows.row.0\n"),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture("desktop_roofline_test.png")), 20000u);
}

TEST_F(DesktopWhatIf, AQuestionIsAskedAndAnswered) {
  ASSERT_EQ(open(job(),
                 "size 1280 720\n"
                 "wait idle\n"
                 "click run.start\n"
                 "wait until run.outcome\n"
                 "wait idle\n"
                 "click \"tab.What if\"\n"
                 "absent whatif.answer\n"
                 "click whatif.add\n"
                 "wait 2\n"
                 "click whatif.faster.1.pattern\n"
                 "type *MatMul*\n"
                 "key enter\n"
                 "click whatif.ask\n"
                 "wait until whatif.answer\n"
                 "expect whatif.now\n"
                 "expect whatif.then\n"
                 "expect whatif.ops.row.0\n"
                 "wait 400\n"
                 "screenshot " +
                     picture("desktop_what_if_test.png") +
                     "\n"
                     "click whatif.faster.1.remove\n"
                     "wait 2\n"
                     "absent whatif.faster.1.factor\n"),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture("desktop_what_if_test.png")), 20000u);
}

TEST_F(DesktopWhatIf, MoreRanksArePredictedForTheStepAsItStands) {
  ASSERT_EQ(open(job(),
                 "size 1280 720\n"
                 "wait idle\n"
                 "click tab.Scaling\n"
                 "wait until scaling.sent\n"
                 "expect scaling.rows.1\n"
                 "expect scaling.times \"estimates*\"\n"
                 "click run.start\n"
                 "wait until run.outcome\n"
                 "wait idle\n"
                 "expect scaling.times \"*run 1\"\n"
                 "click scaling.link\n"
                 "type 1Mb/s\n"
                 "key enter\n"
                 "wait idle\n"
                 "expect scaling.bend below*\n"
                 "wait 400\n"
                 "screenshot " +
                     picture("desktop_scaling_test.png") +
                     "\n"
                     "click \"scaling.curve/Peak of a rank\"\n"
                     "wait 2\n"
                     "expect scaling.plot\n"
                     "click scaling.link\n"
                     "type fast\n"
                     "key enter\n"
                     "wait idle\n"
                     "absent scaling.sent\n"),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture("desktop_scaling_test.png")), 20000u);
}

TEST_F(DesktopWhatIf, PredictionsAreScoredByARun) {
  ASSERT_EQ(open(job(),
                 "size 1280 720\n"
                 "wait idle\n"
                 "click run.start\n"
                 "wait until run.outcome\n"
                 "wait idle\n"
                 "click \"tab.What if\"\n"
                 "click whatif.tab/Scores\n"
                 "wait idle\n"
                 "absent scores.error\n"
                 "click \"whatif.tab/A question\"\n"
                 "click whatif.changes\n"
                 "type passes=none\n"
                 "key enter\n"
                 "click whatif.keep\n"
                 "click whatif.ask\n"
                 "wait until whatif.answer\n"
                 "wait idle\n"
                 "click whatif.tab/Scores\n"
                 "wait idle\n"
                 "absent scores.error\n"  // it was not to be kept
                 "click \"whatif.tab/A question\"\n"
                 "click whatif.keep\n"
                 "click whatif.ask\n"
                 "wait idle\n"
                 "click whatif.tab/Scores\n"
                 "wait until scores.1 \"not measured\"\n"
                 "expect scores.waiting 1\n"
                 "click scores.run.1\n"
                 "wait idle\n"
                 "expect scores.1 *%\n"
                 "expect scores.show.1 enabled\n"
                 "expect scores.error *%\n"
                 "wait 400\n"
                 "screenshot " +
                     picture("desktop_scores_test.png") + "\n"),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture("desktop_scores_test.png")), 20000u);
}

TEST(RunEvents, AnswersAreReadAsTheyAreSaid) {
  RunProgress progress;
  progress.kind = RunKind::what_if;
  const RunEvent event = read_run_line(
      R"({"question":"op:MatMul 2x","times":"run 1","step_ns":10.0,"predicted_ns":8.0,"low_ns":7.0,"high_ns":9.0,)"
      R"("samples":1.0,"ratio":{"value":1.25,"low":1.1,"high":1.4},"measured":0.5,"plan_peak_bytes":64,)"
      R"("phases":[{"name":"forward","before_ns":4,"after_ns":2,"kernels_before":3,"kernels_after":3}],"ops":[]})",
      progress);
  ASSERT_TRUE(event.answer);
  EXPECT_EQ(event.answer->question, "op:MatMul 2x");
  EXPECT_EQ(event.answer->ratio, 1.25);
  EXPECT_EQ(event.answer->high_ns, 9);
  ASSERT_EQ(event.answer->phases.size(), 1u);
  EXPECT_EQ(event.answer->phases[0].after_ns, 2);
  for (const char* odd : {R"({"question":3})", R"({"question":"x","phases":7,"ops":[1],"ratio":[]})"})
    EXPECT_TRUE(read_run_line(odd, progress).answer) << odd;
  progress.kind = RunKind::train;
  EXPECT_FALSE(read_run_line(R"({"question":"x"})", progress).answer);
}

}  // namespace
}  // namespace gradloom
