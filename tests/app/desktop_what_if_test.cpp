// The window's roofline, what-if and scaling tabs, and what the child's lines make of them.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/desktop/run_events.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopWhatIf : public WindowScript {
 protected:
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

// Chooses kernels of a recorded run in the roofline.
class DesktopRoofline : public DesktopWhatIf {
 protected:
  void SetUp() override { ASSERT_EQ(command("train " + job()), ""); }
  // What a command prints; "failed" where it does.
  std::string command(const std::string& words) const {
    const std::string line =
        std::string(GRADLOOM_COMMAND) + " " + words + " > " + file("out") + " 2> " + file("err");
    if (std::system(line.c_str()) != 0) return "failed";
    if (words.rfind("train", 0) == 0) return "";
    std::ifstream in(file("out"));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // What an item says after a script: the window tells it when something else is expected.
  std::string value_of(const std::string& item, const std::string& script) {
    EXPECT_EQ(choose(script + "expect " + item + " \"\"\n"), 1);
    const std::size_t from = error_.find(" is '"), to = error_.find("', expected");
    if (from == error_.npos || to == error_.npos) return error_;
    return error_.substr(from + 5, to - from - 5);
  }
  // Of the kernels in an area, as the command line counts them.
  std::size_t counted(const std::string& area) const {
    const std::string said = command("show " + file("s.db") + " --roofline --json --inside " + area);
    const nlohmann::json json = nlohmann::json::parse(said)["roofline"];
    EXPECT_EQ(json["inside"]["kernels"], json["kernels"].size());
    EXPECT_EQ(json["inside"]["areas"][0], area);
    return json["kernels"].size();
  }
  int choose(const std::string& script) {
    return open(file("s.db"),
                "size 1600 900\nwait idle\nclick tab.Roofline\nexpect roofline.plot\n" + script);
  }
  // Four rectangles over the whole plot.
  static constexpr const char* kAll =
      "drag roofline.plot -2000 -2000\nexpect roofline.sum\ndrag roofline.plot 2000 -2000 shift\n"
      "drag roofline.plot -2000 2000 shift\ndrag roofline.plot 2000 2000 shift\n";
};

TEST_F(DesktopRoofline, ADragChoosesKernelsInAllViews) {
  // What the window offers to copy chooses the same kernels on the command line.
  const std::string twin = value_of("roofline.command", kAll);
  ASSERT_EQ(twin.rfind("gradloom show ", 0), 0u) << twin;
  const nlohmann::json inside =
      nlohmann::json::parse(command(twin.substr(9) + " --json"))["roofline"]["inside"];
  ASSERT_GE(inside["areas"].size(), 2u);  // a quarter without a kernel is no area
  ASSERT_GT(inside["kernels"], 10);
  const std::string kernels = std::to_string(inside["kernels"].get<int>()) + " kernels";
  EXPECT_EQ(
      choose(
          "absent roofline.selection\n" + std::string(kAll) + "expect roofline.sum \"" + kernels +
          ", * of the kernels' time, *FLOP, *B\"\n"
          "expect roofline.command \"gradloom show *s.db --run 1 --roofline --inside *..*,*..* --inside *\"\n"
          "screenshot " +
          picture("desktop_lasso_test.png") + "\nclick tab.Kernels\nexpect kernels.sum \"" + kernels +
          "*\"\nexpect kernels.roofline \"Roofline: " + kernels +
          "\"\nclick tab.Timeline\nexpect timeline.roofline\nscreenshot " +
          picture("desktop_lasso_timeline_test.png") + "\nkey ctrl+i\nexpect icicle.roofline\nscreenshot " +
          picture("desktop_lasso_icicle_test.png") +
          "\nclick tab.Graph\nexpect graph.roofline\nclick graph.roofline.close\n"
          "absent graph.roofline\nclick tab.Roofline\nabsent roofline.selection\n"
          "click tab.Kernels\nabsent kernels.roofline\n"),
      0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture("desktop_lasso_test.png")), 20000u);
}

TEST_F(DesktopRoofline, ADragReplacesShiftAddsAndEscapeEnds) {
  EXPECT_EQ(choose(std::string(kAll) +
                   // Without Shift the rectangle stands alone.
                   "drag roofline.plot 2000 -2000\nexpect roofline.command \"*--inside *\"\n"
                   "hover roofline.plot\nkey escape\nabsent roofline.selection\n"
                   // One around nothing chooses nothing, and adds nothing.
                   "drag roofline.plot 2000 -2000\nexpect roofline.selection\ndrag roofline.plot 5 5 shift\n"
                   "expect roofline.selection\ndrag roofline.plot 5 5\nabsent roofline.selection\n"),
            0)
      << error_;
}

TEST_F(DesktopRoofline, ArrowsWalkFromDotToDot) {
  EXPECT_EQ(
      choose("hover roofline.plot\nabsent roofline.dot\nkey right\nwait idle\nexpect roofline.dot\n"
             "expect node-panel.name\nexpect tab.Roofline on\nkey right\nkey up\nkey down\nkey left\n"
             "wait idle\nexpect roofline.dot\nabsent toast.0\n"
             // In a zoomed part the plot goes along with the walk.
             "key plus\nkey plus\nkey plus\nkey plus\nkey plus\nwait 2\nkey right\nkey right\nkey right\n"
             "key right\nkey right\nkey right\nkey right\nkey right\nwait idle\nexpect roofline.dot\n"),
      0)
      << error_;
}

TEST_F(DesktopRoofline, AnAreaIsReadOrRefused) {
  const std::string show = "show " + file("s.db");
  EXPECT_EQ(command(show + " --roofline --inside 1..2"), "failed");
  EXPECT_EQ(command(show + " --inside 1..2,1..2"), "failed");
  const std::string text = command(show + " --roofline --inside 0..1e12,0..1e18");
  EXPECT_NE(text.find("\ninside       "), std::string::npos) << text;
  EXPECT_EQ(counted("1e+15..1e+16,0..1"), 0u);
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

// Of a selection in any view one gesture asks for the step with it twice as fast; the answer stands beside the measured step.
TEST_F(DesktopRoofline, WhatIsSelectedIsAskedTwiceAsFast) {
  ASSERT_EQ(
      open(file("s.db"),
           "size 1600 900\nwait idle\n"
           // Before anything was asked, one question is offered.
           "click \"tab.What if\"\nexpect whatif.try enabled\nclick whatif.try\nwait until whatif.answer\n"
           "expect whatif.faster.1.of Operator\nabsent whatif.try\n"
           // A row of the kernel table, by its menu.
           "click tab.Kernels\nrightclick kernels.row.0\nclick kernels.menu.faster\n"
           "wait until whatif.answer\nexpect \"tab.What if\" on\n"
           "expect whatif.faster.1.of Node\nabsent whatif.faster.2.of\n"
           // The same node from the keyboard.
           "click tab.Kernels\nclick kernels.row.1\nkey ctrl+shift+f\nwait idle\n"
           "expect whatif.faster.1.of Node\n"
           // A module of the icicle, and an operator of it.
           "click tab.Icicle\nrightclick \"icicle.box.4 x blocks.*\"\nclick icicle.menu.faster\nwait idle\n"
           "expect whatif.faster.1.of Scope\nexpect whatif.answer\n"
           // A lane's bar of the timeline; below it the predicted step.
           "click tab.Timeline\nexpect timeline.prediction\nwait 400\nscreenshot " +
               picture("desktop_prediction_test.png") + "\n"),
      0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture("desktop_prediction_test.png")), 20000u);
}

// Everything that the command can be asked has its control; what is asked is the command that the button tells.
TEST_F(DesktopRoofline, AllKindsOfQuestionsAreAsked) {
  std::ofstream(file("there.json"))
      << R"({"name":"x","launch_ns":1,"memory":[{"bytes":1,"bytes_per_second":1e9}],)"
         R"("products":[{"type":"f32","flops_per_second":1e9}]})";
  const std::string ask = "click whatif.ask\nwait idle\nexpect whatif.answer\n";
  const auto choose = [](const std::string& combo, const std::string& what) {
    return "click " + combo + "\nclick \"" + combo + "/" + what + "\"\n";
  };
  const auto enter = [](const std::string& field, const std::string& what) {
    return "click " + field + "\nkey ctrl+a\ntype " + what + "\nkey enter\n";
  };
  ASSERT_EQ(
      open(file("s.db"),
           "size 1600 900\nwait idle\nclick \"tab.What if\"\n" +
               // Settings by their fields: precision, batch, ranks with their links.
               choose("whatif.precision", "bf16") + enter("whatif.dim.batch", "4") + ask +
               "expect whatif.question \"precision=bf16;dim=batch=4*\"\n" +
               choose("whatif.precision", "The same") +
               "click whatif.dim.batch\nkey ctrl+a\nkey delete\nkey enter\n" + enter("whatif.ranks", "4") +
               "expect whatif.link\n" + enter("whatif.link", "1Gb/s") + ask +
               "expect whatif.question \"ranks=4\"\n"
               // A faster link, a kernel's type, the launches.
               "click whatif.add\n" +
               choose("whatif.faster.1.of", "Link of ranks") + ask +
               "expect whatif.question \"ranks=4; link 2x\"\n" +
               "click whatif.ranks\nkey ctrl+a\nkey delete\nkey enter\nabsent whatif.link\n" +
               choose("whatif.faster.1.of", "Kernel type") + enter("whatif.faster.1.pattern", "*") + ask +
               "expect whatif.question \"kernel:* 2x\"\n" + choose("whatif.faster.1.of", "Launches") + ask +
               "expect whatif.question \"launch 2x\"\n" + "click whatif.faster.1.remove\n" +
               // A processor that a file describes.
               choose("whatif.on", "One that a file describes") +
               enter("whatif.on_file", file("there.json")) + ask + "expect whatif.question \"on x\"\n"),
      0)
      << error_;
}

TEST_F(DesktopWhatIf, MoreRanksArePredictedForTheStepAsItStands) {
  ASSERT_EQ(open(job(),
                 "size 1280 720\n"
                 "wait idle\n"
                 "click tab.Scaling\n"
                 "wait until scaling.sent\n"
                 "expect scaling.rows.1\n"
                 "expect \"scaling.rows.column.Exchange time\"\n"
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
                 "expect scaling.figures \"kernels as measured*exchanges of processes*\"\n"
                 "click scaling.on\n"
                 "click \"scaling.on/NVIDIA H200 SXM\"\n"
                 "wait idle\n"
                 "expect scaling.times \"what is expected of NVIDIA H200 SXM\"\n"
                 "expect scaling.figures \"kernels as expected of NVIDIA H200 SXM*NCCL*\"\n"
                 "click scaling.on\n"
                 "click \"scaling.on/The job's processor\"\n"
                 "wait idle\n"
                 "expect scaling.times \"*run 1\"\n"
                 "wait 400\n"
                 "screenshot " +
                     picture("desktop_scaling_test.png") +
                     "\n"
                     "click \"scaling.curve/Peak of a rank\"\n"
                     "wait 2\n"
                     "expect scaling.plot\n"
                     "expect scaling.memory.1\n"
                     "click \"scaling.stage/zero{stage=2}\"\n"
                     "wait 2\n"
                     "expect scaling.memory.2\n"
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
