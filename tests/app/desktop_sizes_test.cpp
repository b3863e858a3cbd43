// No name or number is cut off, and none lies over another, in any tab, at windows from a small laptop's to 4K and text of the usual
// size to three times it.
#include <gtest/gtest.h>

#include "tests/app/window_script.h"

namespace gradloom {
namespace {

struct WindowSize {
  int width, height;
  double scale;
};
void PrintTo(const WindowSize& s, std::ostream* out) {
  *out << s.width << "x" << s.height << " at scale " << s.scale;
}

constexpr const char* kTabs[] = {"Model",    "Passes",  "Graph",  "Kernels", "Icicle",  "Memory", "Timeline",
                                 "Roofline", "Compare", "Advice", "What if", "Scaling", "Tune",   "Trends",
                                 "Node",     "Run",     "Curve",  "Runs",    "Notes"};

class DesktopSizes : public WindowScript, public testing::WithParamInterface<WindowSize> {
 protected:
  // Two runs of one model, the second with the passes that the window opens with; made once for all sizes.
  static const std::string& session() {
    static const std::string path = [] {
      static TemporaryFolder folder;
      const std::string file = folder / "s.db";
      for (const char* passes : {"none", "default"})
        train(
            bert() +
                "--clip-norm 1 --steps 12 --profile sampled --eval-data synthetic --eval-every 6 --eval-batches 2 "
                "--passes " +
                passes,
            file);
      return file;
    }();
    return path;
  }
  // What `uncut` says of each tab that it finds something in.
  std::string faults(const std::string& before) {
    std::string all;
    const WindowSize& s = GetParam();
    const std::string head = "size " + std::to_string(s.width) + " " + std::to_string(s.height) + "\nscale " +
                             std::to_string(s.scale) + "\nwait idle\n" + before;
    std::string script = head;
    for (const char* tab : kTabs)
      script += "click \"tab." + std::string(tab) + "\"\nwait idle\nwait 4\nuncut\n";
    if (open(session(), script) == 0) return {};
    for (const char* tab : kTabs) {  // which of them, and what
      if (open(session(), head + "click \"tab." + std::string(tab) +
                              "\"\nwait idle\nwait 4\nuncut\nscreenshot " + file("picture.png") + "\n") != 0)
        all += std::string(tab) + ": " + error_;
      const bool cut = error_.empty() || error_.find("cut off") != std::string::npos ||
                       error_.find("overlapping") != std::string::npos;
      if (!cut) break;  // something that is not there is waited for each time
    }
    return all;
  }
};

// From windows so small for their text that all panes fold into one.
INSTANTIATE_TEST_SUITE_P(Sizes, DesktopSizes,
                         testing::Values(WindowSize{1280, 720, 1}, WindowSize{1280, 720, 1.5},
                                         WindowSize{1280, 720, 2}, WindowSize{1280, 720, 3},
                                         WindowSize{1920, 1080, 1}, WindowSize{1920, 1080, 2},
                                         WindowSize{1920, 1080, 3}, WindowSize{3840, 2160, 1},
                                         WindowSize{3840, 2160, 2}, WindowSize{3840, 2160, 3}));

TEST_P(DesktopSizes, NothingIsCutOffOrLiesOverAnother) { EXPECT_EQ(faults(""), ""); }

// With a kernel selected that two passes made, and times of a run with other passes.
TEST_P(DesktopSizes, NorWithASelectionAndOtherPasses) {
  EXPECT_EQ(faults("click tab.Kernels\nwait 4\nclick kernels.search\ntype pass:fuse-bias-activation\nwait 4\n"
                   "click kernels.row.0\nwait idle\nclick kernels.search\nkey ctrl+a\nkey delete\n"
                   "click tab.Passes\nwait 4\nclick pass.fuse-optimizer\nwait idle\n"),
            "");
}

class DesktopSmallWindow : public WindowScript {
 protected:
  void SetUp() override { train(bert() + "--steps 12 --profile all", file("s.db")); }
  // Where the first text of the pane's picture that begins so stands, in points from the top; -1: nowhere.
  double height_of(const std::string& pane, const std::string& text) const {
    std::ifstream in(file(pane + ".svg"));
    const std::string svg{std::istreambuf_iterator<char>(in), {}};
    const std::size_t at = svg.find(">" + text), tag = svg.rfind("<text", at), y = svg.find(" y=\"", tag);
    return at == std::string::npos || y > at ? -1 : std::strtod(svg.c_str() + y + 4, nullptr);
  }
};

// What is said above plots and tables takes few lines, so that these have room at a laptop's window.
TEST_F(DesktopSmallWindow, HeadsOfPanelsAreShort) {
  std::string script = "size 1280 720\nwait idle\n";
  for (const char* pane : {"Roofline", "Memory", "Curve", "What if"})
    script += "click \"tab." + std::string(pane) + "\"\nwait idle\nmove 1 1\nwait 4\nscreenshot \"" +
              file(std::string(pane) + ".svg") + "\" \"pane." + pane + "\"\n";
  ASSERT_EQ(open(file("s.db"), script + "expect whatif.try enabled\n"), 0) << error_;
  constexpr double kLine = 8;
  EXPECT_NEAR(height_of("Roofline", "measured in run 1"), height_of("Roofline", "Measure this machine"),
              kLine);
  EXPECT_NEAR(height_of("Curve", "run 1: 12 steps"), height_of("Curve", "Follow"), kLine);
  EXPECT_NEAR(height_of("Memory", "Arena, best-fit"), height_of("Memory", "Inputs, constants"), kLine);
  EXPECT_GT(height_of("Roofline", "Time above the roofs"), 0);
  EXPECT_LT(height_of("Roofline", "Time above the roofs"), 340);
  EXPECT_LT(height_of("Memory", "Live at the peak"), 340);
  EXPECT_GT(height_of("What if", "How long would a step take"), 0);
}

class DesktopFolds : public WindowScript {
 protected:
  void SetUp() override { train(bert() + "--steps 4 --profile all", file("s.db")); }
};

// One pane with all tabs, the graph in front; a larger window has its panes again, as they were.
TEST_F(DesktopFolds, PanesThatHaveNoRoomAreTabsOfOneUntilTheyHave) {
  EXPECT_EQ(
      open(file("s.db") + " --size 1280x720",
           "wait idle\nexpect pane.Model\nexpect pane.Run\nscale 3\nwait idle\nwait 4\n"
           "expect pane.Graph\nabsent pane.Model\nabsent pane.Run\nabsent split.0\n"
           "click tab.Runs\nwait 4\nexpect pane.Runs\nabsent pane.Graph\n"
           "click tab.Passes\nwait 4\nexpect pane.Passes\n"
           "scale 1.5\nwait 4\nexpect pane.Model\nexpect pane.Passes\nexpect pane.Runs\n"
           "absent pane.Graph\nabsent pane.Run\nexpect split.0\n"
           "scale 1\nwait 4\nexpect pane.Model\nexpect pane.Passes\nexpect pane.Graph\nexpect pane.Node\n"
           "expect pane.Run\nexpect pane.Runs\nabsent toast.0\n"),
      0)
      << error_;
}

// Rows are there however little a table has left, and what is chosen does not take their tab away.
TEST_F(DesktopFolds, RowsAreInSightAndStayInFront) {
  for (const char* size : {"size 1280 720\nscale 3\n", "size 640 360\nscale 1\n", "size 300 220\nscale 1\n"})
    EXPECT_EQ(open(file("s.db"), std::string(size) +
                                     "wait idle\nclick tab.Kernels\nwait 4\nclick kernels.row.0\nwait idle\n"
                                     "expect pane.Kernels\nkey down\nwait idle\nexpect pane.Kernels\n"
                                     "click tab.Node\nwait 4\nexpect node-panel.name\n"),
              0)
        << size << error_;
}

// The keys of tabs go through all that a folded pane has; what is in front is so after a start.
TEST_F(DesktopFolds, KeysAndTheNextStartKnowTheTabInFront) {
  const std::string small = file("s.db") + " --size 640x360 --keep " + file("kept");
  ASSERT_EQ(open(small,
                 "wait idle\nclick tab.Graph\nwait 4\nkey ctrl+pagedown\nwait 4\nexpect pane.Kernels\n"
                 "key ctrl+pageup\nkey ctrl+pageup\nwait 4\nexpect pane.Passes\n"),
            0)
      << error_;
  EXPECT_EQ(open(small, "wait idle\nexpect pane.Passes\nabsent pane.Graph\n"), 0) << error_;
}

// Menus and dialogs have the window's room, however small it is.
TEST_F(DesktopFolds, NoDialogIsCutOff) {
  for (const char* size : {"size 1280 720\nscale 3\n", "size 1280 720\nscale 2\n"})
    EXPECT_EQ(open(file("s.db"),
                   std::string(size) +
                       "wait idle\nclick menu.Run\nwait 4\nuncut\nkey escape\nwait 4\n"
                       "key f1\nwait 4\nexpect keys.sheet\nuncut\nkey escape\nwait 4\n"
                       "click menu.Help\nwait 4\nuncut\nclick menu.help.about\nwait 4\n"
                       "expect about.version\nuncut\nkey escape\nwait 4\n"
                       "key ctrl+o\nwait idle\nwait 4\nexpect file.path\nuncut\nkey escape\nwait 4\n"
                       "key ctrl+shift+p\nwait 4\nexpect commands.input\nuncut\nkey escape\nwait 4\n"
                       "click tab.Kernels\nwait 4\nclick kernels.row.0\nwait idle\nkey shift+m\nwait 4\n"
                       "expect note.text\nuncut\nclick note.keep\nwait 4\nabsent note.text\n"),
              0)
        << size << error_;
}

}  // namespace
}  // namespace gradloom
