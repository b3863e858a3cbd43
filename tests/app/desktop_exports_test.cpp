// The menu Export: each view of the window as a table and as a picture.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "app/desktop/panels.h"
#include "app/view_exports.h"
#include "tests/app/command_fixture.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

TEST(DesktopViews, EachPanelHasAViewButThoseOfTheRecipeAndTheSelection) {
  std::set<std::string> with;
  for (const ViewDef& view : all_views()) {
    EXPECT_NE(find_panel(view.panel), nullptr) << view.name;
    with.insert(view.panel);
  }
  for (const Panel& panel : panels())
    if (with.count(panel.name) == 0) {
      EXPECT_EQ(std::set<std::string>({"Model", "Node", "Run", "Notes"}).count(panel.name), 1u) << panel.name;
    }
}

class DesktopExports : public WindowScript {
 protected:
  void SetUp() override {
    const std::string job = GRADLOOM_SOURCE_DIR
        "/tests/models/mlp/model.onnx --dim batch=8 --loss ce:logits,labels --steps 6 --profile all";
    train(job, file("s.db"));
    train(job + " --passes none", file("s.db"));
  }
  std::string content(const std::string& name) const { return read_file(file(name)); }
  // Chooses the file in the dialog that is open.
  std::string into(const std::string& name) const {
    return "wait until file.path\nkey ctrl+a\ntype " + file(name) + "\nkey enter\nwait idle\nwait 6\n";
  }
};

TEST_F(DesktopExports, AViewIsWrittenByMenuKeyAndPalette) {
  ASSERT_EQ(open(file("s.db"),
                 "size 1600 900\nwait idle\nclick tab.Roofline\nexpect roofline.plot\n"
                 "click menu.Export\nclick menu.export.roofline\n" +
                     into("r.csv") + "expect toast.0 \"Written to *r.csv*\"\n" +
                     // The one that has the keys.
                     "click tab.Kernels\nclick kernels.row.0\nkey ctrl+shift+e\n" + into("k.json") +
                     "key ctrl+shift+p\nwait 3\ntype The icicle\nkey enter\n" + into("i.svg") +
                     "expect tab.Icicle on\n"),
            0)
      << error_;
  EXPECT_NE(content("r.csv").find("above_ns"), std::string::npos);
  EXPECT_TRUE(json::accept(content("k.json")));
  EXPECT_NE(content("k.json").find("\"kernels\""), std::string::npos);
  EXPECT_NE(content("i.svg").find("</svg>"), std::string::npos);
}

TEST_F(DesktopExports, EachViewHasAPicture) {
  std::string script = "size 1600 900\nwait idle\nclick tab.Compare\nclick compare.stored\nwait idle\n";
  std::set<std::string> panels;
  for (const ViewDef& view : all_views())
    if (panels.insert(view.panel).second)
      script += "click \"tab." + std::string(view.panel) + "\"\nwait idle\nmove 1 1\nwait 4\nscreenshot " +
                file(std::string(view.name) + ".svg") + " \"pane." + view.panel + "\"\nscreenshot " +
                file(std::string(view.name) + ".png") + " \"pane." + view.panel + "\"\n";
  ASSERT_EQ(open(file("s.db"), script), 0) << error_;
  panels.clear();
  for (const ViewDef& view : all_views()) {
    if (!panels.insert(view.panel).second) continue;
    const std::string svg = content(std::string(view.name) + ".svg");
    EXPECT_NE(svg.find(">" + std::string(view.panel) + "</text>"), std::string::npos) << view.name;
    EXPECT_EQ(svg.find("<text"), svg.find("<text x=")) << view.name;
    EXPECT_GT(std::filesystem::file_size(file(std::string(view.name) + ".png")), 1000u) << view.name;
  }
}

TEST_F(DesktopExports, ARunAndAnotherAreChosenWhenItIsOpened) {
  ASSERT_EQ(
      open(file("s.db") + " --run 1 --against 2",
           "wait idle\nexpect status.run \"run 1: *\"\nclick tab.Compare\nexpect compare.stored enabled\n"),
      0)
      << error_;
  EXPECT_EQ(open(file("s.db") + " --run 7", "wait idle\n"), 3) << error_;
}

TEST_F(DesktopExports, APictureOfNothingIsAnError) {
  EXPECT_EQ(open(file("s.db"), "wait idle\nscreenshot " + file("x.svg") + " pane.None\n"), 1);
  EXPECT_NE(error_.find("pane.None"), std::string::npos) << error_;
}

}  // namespace
}  // namespace gradloom
