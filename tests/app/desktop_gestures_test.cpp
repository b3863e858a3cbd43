// What a hand expects of the window: what is clicked stays where it is,
// a row leads to its nodes, A and B are one pair.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/app/window_script.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

const std::string kMlp = GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx";
const std::string kFlags = " --dim batch=8 --loss loss --optimizer 'sgd{lr=0.1}' --steps 5";

class DesktopGestures : public WindowScript {
 protected:
  int run(const std::string& arguments) {
    const std::string command = std::string(GRADLOOM_COMMAND) + " " + arguments + " > /dev/null 2>&1";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // A session with a run without passes and one with the default passes, and their comparison.
  std::string compared_session() {
    std::string session = file("s.db");
    const std::string train = "train " + kMlp + kFlags + " --profile all --session " + session;
    EXPECT_EQ(run(train + " --passes none"), 0);
    EXPECT_EQ(run(train), 0);
    EXPECT_EQ(run("compare 1 2 --stored --session " + session), 0);
    return session;
  }
};

// The same hand on a small, a usual and a large screen.
class DesktopGesturesOfSize : public DesktopGestures, public testing::WithParamInterface<const char*> {
 protected:
  int open(const std::string& arguments, const std::string& script) {
    return DesktopGestures::open(arguments + " --size " + GetParam(), script);
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, DesktopGesturesOfSize, testing::Values("1280x720", "1600x900", "2560x1440"));

TEST_P(DesktopGesturesOfSize, ASecondClickHitsTheSameSwitch) {
  EXPECT_EQ(open(kMlp + kFlags + " --session " + file("s.db"),
                 "wait idle\nexpect pass.fuse-optimizer on\nclick pass.fuse-optimizer\nwait idle\n"
                 "expect pass.fuse-optimizer off\nexpect passes.last-change \"fuse-optimizer off\"\n"
                 "click mouse\nwait idle\nexpect pass.fuse-optimizer on\n"
                 // A plan that fails leaves the switches where they are, too.
                 "hover pass.fuse-optimizer\nclick run.loss\nkey ctrl+a\ntype nothing\nkey enter\nwait idle\n"
                 "expect passes.error\nclick run.loss\nkey ctrl+a\ntype loss\nkey enter\nwait idle\n"
                 "hover pass.fuse-optimizer\nkey ctrl+z\nwait idle\nexpect passes.error\nclick mouse\n"
                 "expect pass.fuse-optimizer off\n"),
            0)
      << error_;
}

TEST_P(DesktopGesturesOfSize, TheFieldsStayWhereTheyAreWhenARunStartsAndEnds) {
  EXPECT_EQ(open(kMlp + kFlags + " --session " + file("s.db"),
                 "wait idle\nhover run.more\nkey f5\nwait idle\nexpect run.outcome done\nclick mouse\n"
                 "expect run.clip_norm\nclick mouse\nabsent run.clip_norm\n"),
            0)
      << error_;
}

TEST_P(DesktopGesturesOfSize, ARowOfAComparisonSelectsWhatItStandsFor) {
  const std::string session = compared_session();
  EXPECT_EQ(
      open(session,
           "wait idle\nclick tab.Compare\nexpect compare.verdict\n"
           // Kernels without an ONNX node, and all nodes that one fused kernel computes.
           "click \"compare.rows.(optimizer)\"\nwait idle\nexpect tab.Compare on\n"
           "expect node-panel.name\nabsent toast.0\n"
           "click \"compare.rows./layers.0/Gemm + /Relu\"\nwait idle\nexpect tab.Compare on\nabsent toast.0\n"
           "expect node-panel.name\n"
           "click compare.table/Phases\nclick compare.rows.backward\nwait idle\n"
           "expect node-panel.count\nexpect tab.Compare on\nabsent toast.0\n"
           "click compare.table/Scopes\nclick \"compare.rows.(optimizer)\"\nwait idle\nabsent toast.0\n"
           // A double click brings the graph to the front.
           "click compare.table/Phases\ndoubleclick compare.rows.optimizer\nwait idle\n"
           "expect tab.Graph on\nexpect node-panel.name\n"),
      0)
      << error_;
}

TEST_P(DesktopGesturesOfSize, TheRowsOfAComparisonAreSortedByTheirColumns) {
  const std::string session = compared_session();
  EXPECT_EQ(
      open(session,
           "wait idle\nclick tab.Compare\nclick compare.table/Phases\nexpect compare.rows.column.Name \"\"\n"
           "click compare.rows.column.Name\nexpect compare.rows.column.Name ascending\n"
           "expect compare.rows.row.0 backward\n"
           "click compare.rows.column.Name\nexpect compare.rows.column.Name descending\n"
           "expect compare.rows.row.0 optimizer\n"
           "click compare.rows.column.Name\nexpect compare.rows.column.Name \"\"\n"
           "click compare.rows.column.B\nexpect compare.rows.column.B descending\n"),
      0)
      << error_;
}

TEST_F(DesktopGestures, AComparisonSaysHowSureItIs) {
  const std::string session = compared_session(), picture = file("noise.png");
  EXPECT_EQ(
      open(
          session,
          // Of recorded runs there are no blocks.
          "wait idle\nclick tab.Compare\nclick \"compare.table/How sure\"\nexpect compare.why\n"
          "absent compare.noise-plot\n"
          "key f6\nwait until compare.live\nwait idle\nexpect compare.verdict\n"
          "click \"compare.table/How sure\"\nexpect compare.why\nexpect compare.noise.1 \"one group strays by *\"\n"
          "expect compare.noise-plot\nexpect compare.group.12\nexpect compare.result\nscreenshot " +
              picture + "\nclick compare.table/Phases\nabsent compare.noise-plot\n"),
      0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture), 20'000u);
}

TEST_F(DesktopGestures, AAndBAreOnePairEverywhere) {
  const std::string session = compared_session();
  EXPECT_EQ(open(session,
                 // The comparison that is shown is of the runs that the list marks.
                 "wait idle\nclick tab.Runs\nexpect runs.a.1 on\nexpect runs.b.2 on\nclick tab.Compare\n"
                 "expect compare.verdict\n"
                 // Another pair has no verdict until it is compared.
                 "click runs.a.2\nexpect runs.a.2 on\nabsent compare.verdict\nexpect compare.passes\n"
                 "click runs.a.1\nexpect compare.verdict\n"
                 // While passes are compared no run is A or B, and no verdict stands.
                 "click compare.history\nkey escape\n"
                 "key f6\nexpect compare.measuring\nabsent compare.verdict\nexpect runs.a.1 off\n"
                 "expect runs.b.2 off\nclick run.stop\nwait idle\n"
                 // Its own verdict, or the newest one before it where it was stopped in time.
                 "expect compare.verdict\n"),
            0)
      << error_;
}

TEST_P(DesktopGesturesOfSize, TimesOfAnotherPlanSayTheyAre) {
  EXPECT_EQ(
      open(kMlp + kFlags + " --session " + file("s.db"),
           "wait idle\nclick run.start\nwait idle\nexpect run.outcome done\nabsent graph.times\n"
           "click pass.fuse-optimizer\nwait idle\nexpect graph.times \"measured in run 1, other passes\"\n"
           "click pass.fuse-optimizer\nwait idle\nabsent graph.times\n"),
      0)
      << error_;
}

TEST_F(DesktopGestures, AnOperatorHasAPageAndAPassItsExample) {
  EXPECT_EQ(
      open(kMlp + kFlags + " --session " + file("s.db"),
           "wait idle\nkey ctrl+p\nwait 3\ntype relu\nwait 3\nkey enter\nwait idle\n"
           "click graph.stage/Model\nwait idle\nexpect node-panel.operator Relu\n"
           "click node-panel.operator\nwait idle\nexpect operator-page *\n"
           "expect operator-page.formula *a*\nexpect operator-page.versions\n"
           "key escape\nabsent operator-page\n"
           "click pass-row.fuse-gelu\nexpect example.fuse-gelu.before 6\nexpect example.fuse-gelu.after 2\n"),
      0)
      << error_;
}

TEST_P(DesktopGesturesOfSize, EscapeClosesWhatIsOpen) {
  EXPECT_EQ(open(kMlp + kFlags + " --session " + file("s.db"),
                 "wait idle\nclick menu.File\nexpect menu.File open\nkey escape\nexpect menu.File closed\n"
                 "click run.loss.choices\nexpect run.loss.choices/loss\nkey escape\n"
                 "absent run.loss.choices/loss\n"
                 "click run.optimizer\nexpect run.optimizer/adam\nkey escape\nabsent run.optimizer/adam\n"),
            0)
      << error_;
}

TEST_F(DesktopGestures, TheModelOfASessionIsLocated) {
  fs::create_directories(file("old"));
  fs::create_directories(file("new"));
  fs::copy_file(kMlp, file("old/mlp.onnx"));
  const std::string session = file("s.db");
  ASSERT_EQ(run("train " + file("old/mlp.onnx") + kFlags + " --session " + session), 0);
  fs::rename(file("old/mlp.onnx"), file("new/moved.onnx"));
  EXPECT_EQ(
      open(
          session,
          "wait idle\nexpect status.session \"session s.db\"\nexpect model.locate\nclick model.locate\nwait until file.path\n"
          "key ctrl+a\ntype " +
              file("new/moved.onnx") +
              "\nclick file.accept\nwait idle\nexpect status.model moved\n"
              "absent model.locate\nexpect status.kernels\n"),
      0)
      << error_;
}

TEST_F(DesktopGestures, AParameterSaysWhetherItIsTrainedAndWhy) {
  EXPECT_EQ(
      open(kMlp + kFlags + " --freeze 'layers.0.*'",
           "wait idle\nexpect model.trained 4\nexpect untrained.layers.0.weight \"frozen by name\"\n"
           "click graph.stage/Model\nkey ctrl+p\nwait 3\ntype layers.0/Gemm\nwait 3\nkey enter\nwait idle\n"
           "expect input.layers.0.weight.training frozen\n"
           "key ctrl+p\nwait 3\ntype layers.1/Gemm\nwait 3\nkey enter\nwait idle\n"
           "expect input.layers.1.weight.training trained\nclick graph.stage/Step\nwait idle\nwait 3\n"
           "expect input.layers.1.weight.training trained\n"),
      0)
      << error_;
}

// The file does not tell the weights of a loss from those of a layer: the user does, and may take it back.
TEST_F(DesktopGestures, WhatMayBeABufferIsAskedFor) {
  const std::string model = GRADLOOM_SOURCE_DIR "/tests/modules/loss-bce-logits-weighted/model.onnx";
  EXPECT_EQ(
      open(
          model,
          "wait idle\nexpect model.trained 2\nexpect unsure.body.pos_weight\nexpect unsure.body.weight\n"
          "click unsure.freeze.body.weight\nwait idle\nexpect model.trained 1\nabsent unsure.body.weight\n"
          "expect untrained.body.weight \"frozen by name\"\n"
          "click unsure.train.body.pos_weight\nwait idle\nabsent unsure.body.pos_weight\nexpect model.trained 1\n"
          "key ctrl+z\nwait idle\nexpect unsure.body.pos_weight\n"),
      0)
      << error_;
}

// A name with a star is that name: as a glob it would fit the other weight too.
TEST_F(DesktopGestures, ANameWithAStarIsFrozenAlone) {
  std::ifstream in(GRADLOOM_SOURCE_DIR "/tests/modules/loss-bce-logits-weighted/model.onnx",
                   std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::string name = "body.weight", starred = "body.*eight";  // of one length, as protobuf keeps it
  for (std::size_t at = bytes.find(name); at != std::string::npos; at = bytes.find(name))
    bytes.replace(at, name.size(), starred);
  std::ofstream(file("starred.onnx"), std::ios::binary) << bytes;
  EXPECT_EQ(open(file("starred.onnx"),
                 "wait idle\nexpect model.trained 2\nexpect unsure.body.*eight\n"
                 "click unsure.freeze.body.*eight\nwait idle\nexpect model.trained 1\n"
                 "absent unsure.body.*eight\nexpect unsure.body.pos_weight\n"),
            0)
      << error_;
}

TEST_F(DesktopGestures, AModelOpensWithTheDefaultsOfTheCommandLine) {
  EXPECT_EQ(open(kMlp, "wait idle\nexpect run.optimizer sgd\nexpect run.optimizer.options lr=0.01\n"), 0)
      << error_;
}

}  // namespace
}  // namespace gradloom
