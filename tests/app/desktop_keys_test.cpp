// The keyboard reaches everything: in every tab what can be clicked is a stop of Tab or done by an action's key; menus open by
// their key; runs are chosen, pinned and compared without a mouse; panes are maximized and folded away; several rows have a sum.
#include <gtest/gtest.h>

#include "app/desktop/panels.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopKeys : public WindowScript {
 protected:
  void SetUp() override {
    for (const char* passes : {"none", "default"})
      train(bert() +
                "--steps 12 --profile all --eval-data synthetic --eval-every 6 --eval-batches 2 --passes " +
                passes,
            file("s.db"));
  }
};

// Derived from the panels: a new one is asked too. With a selection, whose links and menus are then there.
TEST_F(DesktopKeys, ReachWhatIsDrawnInEveryTab) {
  std::string script = "wait idle\nclick tab.Kernels\nwait 4\nclick kernels.row.0\nwait idle\n";
  for (const Panel& panel : panels())
    script += "click \"tab." + std::string(panel.name) + "\"\nwait idle\nwait 4\nreachable\n";
  for (const char* size : {"1280x720", "1600x900"})
    EXPECT_EQ(open(file("s.db") + " --size " + size, script), 0) << size << error_;
}

TEST_F(DesktopKeys, ReachTheRunBelowInTheTimelineAndACompare) {
  EXPECT_EQ(
      open(
          file("s.db") + " --size 1600x900",
          "wait idle\nclick tab.Timeline\nwait idle\nclick timeline.beside\nwait 3\n"
          "click \"timeline.beside/run 1\"\nwait idle\nwait 4\nreachable\n"
          "click tab.Runs\nwait 4\nclick runs.stored\nwait idle\nexpect compare.verdict\nwait 4\nreachable\n"),
      0)
      << error_;
}

TEST_F(DesktopKeys, RunsAreChosenPinnedAndComparedByKeys) {
  EXPECT_EQ(
      open(file("s.db"),
           "wait idle\nclick tab.Runs\nwait 4\nclick runs.1\nwait idle\n"
           "key alt+a\nwait 4\nexpect runs.a.1 o*\nkey alt+b\nwait 4\nexpect runs.b.1 on\nkey alt+b\nwait 4\n"
           "expect runs.b.1 off\nkey down\nwait idle\nkey shift+f10\nwait 4\nexpect runs.menu.a\n"
           "key down\nwait 4\nexpect focus runs.menu.rename\nkey escape\nwait 4\nabsent runs.menu.a\n"
           "key alt+p\nwait idle\nkey shift+f10\nwait 4\nexpect runs.menu.pin\n"
           "key escape\nwait 4\nabsent toast.0\n"),
      0)
      << error_;
}

TEST_F(DesktopKeys, MenusOpenForWhatIsSelected) {
  EXPECT_EQ(
      open(file("s.db") + " --size 1600x900",
           "wait idle\nclick tab.Kernels\nwait 4\nclick kernels.row.0\nwait idle\nkey menu\nwait 4\n"
           "expect kernels.menu.copy\nkey down\nwait 4\nexpect focus kernels.menu.*\nkey enter\nwait idle\n"
           "absent kernels.menu.copy\n"
           "click tab.Graph\nwait idle\nhover graph\nkey menu\nwait 4\nexpect graph.menu.copy\nuncut\n"
           "key escape\nwait 4\nabsent graph.menu.copy\n"
           "click tab.Icicle\nwait idle\nhover icicle.canvas\nkey down\nwait 4\nkey shift+f10\nwait 4\n"
           "expect icicle.menu.copy\nkey escape\nwait 4\nabsent icicle.menu.copy\n"),
      0)
      << error_;
}

// By a double click on its tab, the key, the menu and the sign; what is asked for elsewhere brings the others back.
TEST_F(DesktopKeys, OnePaneFillsTheWindowAndGivesItBack) {
  const std::string alone =
                        "wait 4\nexpect pane.Graph\nabsent pane.Model\nabsent pane.Run\nabsent pane.Node\n",
                    all = "wait 4\nexpect pane.Graph\nexpect pane.Model\nexpect pane.Run\nexpect pane.Node\n";
  EXPECT_EQ(
      open(
          file("s.db") + " --size 1280x720",
          "wait idle\n" + all + "doubleclick tab.Graph\n" + alone +
              "uncut\nclick tab.Kernels\nwait 4\n"
              "click kernels.row.0\nwait idle\nexpect pane.Kernels\nabsent pane.Node\n"  // a selection leaves it so
              "click tab.Graph\n" +
              alone + "key ctrl+m\n" + all + "click tab.Graph\nkey ctrl+m\n" + alone +
              "click maximize.Graph\n" + all + "click menu.View\nwait 4\nclick menu.pane.maximize\n" + alone +
              "key ctrl+shift+p\nwait 4\ntype runs\nwait 4\nkey escape\nwait 4\n" + alone +
              "click menu.View\nwait 4\nclick menu.view.runs\n" +
              "wait 4\nexpect pane.Runs\nexpect pane.Graph\n"),
      0)
      << error_;
}

// Folded panes stay so after a start, and a selection does not bring them back.
TEST_F(DesktopKeys, PanesFoldAwayAndStayFolded) {
  ASSERT_EQ(
      open(file("s.db") + " --size 1280x720 --keep " + file("kept"),
           "wait idle\nclick tab.Node\nwait 4\nkey ctrl+b\nwait 4\nabsent pane.Node\nexpect pane.Graph\n"
           "click tab.Run\nwait 4\nkey ctrl+b\nwait 4\nabsent pane.Run\n"
           "click tab.Kernels\nwait 4\nclick kernels.row.0\nwait idle\nabsent pane.Node\nuncut\n"),
      0)
      << error_;
  EXPECT_EQ(open(file("s.db") + " --size 1280x720 --keep " + file("kept"),
                 "wait idle\nwait 4\nabsent pane.Node\nabsent pane.Run\nexpect pane.Kernels\n"
                 "key ctrl+shift+b\nwait 4\nexpect pane.Node\nexpect pane.Run\nabsent toast.0\n"),
            0)
      << error_;
}

TEST_F(DesktopKeys, SeveralRowsHaveASum) {
  EXPECT_EQ(
      open(
          file("s.db") + " --size 1600x900",
          "wait idle\nclick tab.Kernels\nwait 4\nclick kernels.row.0\nwait idle\nabsent status.selection\n"
          "click kernels.row.2 shift\nwait 4\nexpect status.selection *\n"
          "key shift+down\nwait 4\nkey shift+down\nwait 4\nclick kernels.row.1 ctrl\nwait 4\n"
          "key ctrl+a\nwait 4\nexpect status.selection\nclick kernels.row.1\nwait idle\nabsent status.selection\n"
          "click tab.Memory\nwait idle\nclick memory.live.row.0\nwait idle\nclick memory.live.row.1 ctrl\nwait 4\n"
          "expect status.selection\nuncut\n"
          "click tab.Runs\nwait 4\nclick runs.stored\nwait idle\nexpect compare.verdict\nwait 4\n"
          "click compare.rows.row.0\nwait idle\nclick compare.rows.row.1 shift\nwait 4\nexpect status.selection\n"),
      0)
      << error_;
}

}  // namespace
}  // namespace gradloom
