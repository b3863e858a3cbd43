// The list of runs in the window: finding, naming, tagging, noting, pinning and deleting, as the commands that it shows.
#include <gtest/gtest.h>

#include "sessions/store.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopRuns : public WindowScript {
 protected:
  void SetUp() override {
    const std::string job =
        GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx --dim batch=8 --loss loss --steps 4 --name ";
    for (const char* name : {"base --passes none", "fused", "third"}) train(job + name, file("s.db"));
  }
  std::vector<RunSummary> runs() const {
    auto store = Store::open(file("s.db"), StoreMode::read);
    EXPECT_TRUE(store.ok());
    return store.ok() ? (*store)->list_runs().value() : std::vector<RunSummary>();
  }
};

TEST_F(DesktopRuns, AreNamedTaggedNotedPinnedAndDeleted) {
  const std::string script =
      "size 1600 900\nwait idle\nclick tab.Runs\nwait 3\nexpect runs.found \"3 runs\"\n"
      // In place, and left by Escape without a change.
      "rightclick runs.row.1\nwait 3\nclick runs.menu.rename\nwait 3\nkey ctrl+a\ntype other\nkey escape\nwait idle\n"
      "absent runs.name\n"
      "rightclick runs.row.1\nwait 3\nclick runs.menu.rename\nwait 3\nkey ctrl+a\ntype two words\nkey enter\nwait idle\n"
      "absent runs.name\n"
      "rightclick runs.2\nwait 3\nclick runs.menu.tags\nwait 3\ntype night, base\nwait 3\n"
      "expect run-editor.command \"gradloom runs */s.db --tag 2=base,night\"\nkey enter\nwait idle\n"
      "rightclick runs.2\nwait 3\nclick runs.menu.note\nwait 3\ntype fan off\nwait 3\nclick run-editor.keep\nwait idle\n"
      "rightclick runs.1\nwait 3\nclick runs.menu.pin\nwait idle\nexpect runs.row.0 1\n"
      // Pinned ones are not deleted; deleting asks.
      "rightclick runs.3\nwait 3\nclick runs.menu.delete\nwait 3\nclick run-editor.cancel\nwait idle\n"
      "expect runs.found \"3 runs\"\n"
      "screenshot " +
      file("before.png") +
      "\n"
      "rightclick runs.3\nwait 3\nclick runs.menu.delete\nwait 3\n"
      "expect run-editor.command \"gradloom runs */s.db --delete 3\"\nclick run-editor.delete\nwait idle\n"
      "expect runs.found \"2 runs\"\nabsent runs.3\nexpect status.run \"run 2*\"\n"
      "click runs.filter\ntype tag:night\nwait 3\nexpect runs.found \"1 of 2 runs\"\nexpect runs.row.0 2\nabsent runs.1\n"
      "key ctrl+a\ntype colour:red\nwait 3\nexpect runs.found \"unknown key*\"\nexpect runs.1\n";
  ASSERT_EQ(open(file("s.db"), script), 0) << error_;
  const std::vector<RunSummary> left = runs();
  ASSERT_EQ(left.size(), 2u);
  EXPECT_TRUE(left[0].pinned);
  EXPECT_EQ(left[0].name, "base");
  EXPECT_EQ(left[1].name, "two words");
  EXPECT_EQ(left[1].tags, (std::vector<std::string>{"base", "night"}));
  EXPECT_EQ(left[1].note, "fan off");
}

// F2 is of the run that is shown; what the command refuses is told.
TEST_F(DesktopRuns, TheShownRunIsNamedByAKey) {
  ASSERT_EQ(
      open(
          file("s.db"),
          "size 1600 900\nwait idle\nkey f2\nwait 3\nexpect runs.name third\nkey ctrl+a\ntype 17\nkey enter\n"
          "wait idle\nkey f2\nwait 3\nexpect runs.name third\nkey ctrl+a\ntype best\nkey enter\nwait idle\n"),
      0)
      << error_;
  EXPECT_EQ(runs().at(2).name, "best");
}

// Runs that nobody named are told apart by what they computed in.
TEST_F(DesktopRuns, ARunWithoutANameSaysItsPrecision) {
  for (const char* precision : {"f32", "bf16"})
    train(bert() + "--steps 2 --precision " + precision, file("t.db"));
  EXPECT_EQ(open(file("t.db"),
                 "size 1600 900\nwait idle\nclick tab.Runs\nwait 3\nexpect runs.label.1 \"default passes\"\n"
                 "expect runs.label.2 \"bf16, default passes\"\n"),
            0)
      << error_;
}

// The pill beside the times says that they are another model's, and leads to it.
TEST_F(DesktopRuns, ARunOfAnotherModelIsSaidToBe) {
  train(bert() + "--steps 2", file("s.db"));
  ASSERT_EQ(open(file("s.db"),
                 "size 1600 900\nwait idle\nexpect status.run \"run 4*\"\nabsent graph.times\n"
                 "click tab.Runs\nclick runs.row.1\nwait idle\nexpect status.run \"run 3*\"\n"
                 "expect status.model bert-tiny\nexpect graph.times \"measured in run 3, other model\"\n"
                 "click tab.Timeline\nexpect timeline.times \"measured in run 3, other model\"\nuncut\n"
                 "click tab.Advice\nexpect advice.find\nabsent advice.run\n"
                 "click tab.Graph\nexpect graph.times.do enabled\nclick graph.times.do\nwait idle\n"
                 "expect status.model mlp\nexpect status.run \"run 3*\"\nabsent graph.times\n"
                 // Another model in the same session: without the run.
                 "drop " GRADLOOM_SOURCE_DIR "/tests/models/cnn-digits/model.onnx\nwait idle\n"
                 "expect status.model cnn-digits\nabsent status.run\nabsent graph.times\n"
                 "expect runs.found \"4 runs\"\n"),
            0)
      << error_;
}

}  // namespace
}  // namespace gradloom
