// No name or number is cut off, and none lies over another, in any tab, at windows from a small laptop's to 4K and text of the usual
// size to three times it.
#include <gtest/gtest.h>

#include <filesystem>

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
      for (const char* passes : {"none", "default"}) {
        const std::string command =
            std::string(GRADLOOM_COMMAND) +
            " train " GRADLOOM_SOURCE_DIR
            "/tests/models/bert-tiny/model.onnx --dim batch=2 --loss ce:logits,labels --optimizer "
            "adamw --clip-norm 1 --steps 12 --profile sampled --eval-data synthetic --eval-every 6 "
            "--eval-batches 2 --passes " +
            passes + " --session " + file + " > /dev/null 2>&1";
        EXPECT_EQ(std::system(command.c_str()), 0);
      }
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
    for (const char* tab : kTabs)  // which of them, and what
      if (open(session(), head + "click \"tab." + std::string(tab) +
                              "\"\nwait idle\nwait 4\nuncut\nscreenshot " + file("picture.png") + "\n") != 0)
        all += std::string(tab) + ": " + error_;
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(Sizes, DesktopSizes,
                         testing::Values(WindowSize{1280, 720, 1}, WindowSize{1920, 1080, 1},
                                         WindowSize{3840, 2160, 1}, WindowSize{3840, 2160, 2},
                                         WindowSize{3840, 2160, 3}));

TEST_P(DesktopSizes, NothingIsCutOffOrLiesOverAnother) { EXPECT_EQ(faults(""), ""); }

// With something selected, and times of a run with other passes.
TEST_P(DesktopSizes, NorWithASelectionAndOtherPasses) {
  EXPECT_EQ(faults("click tab.Kernels\nwait 4\nclick kernels.row.0\nwait idle\nclick tab.Passes\nwait 4\n"
                   "click pass.fuse-optimizer\nwait idle\n"),
            "");
}

}  // namespace
}  // namespace gradloom
