// The menu Export: each view of the window as a table and as a picture.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "app/desktop/panels.h"
#include "app/view_exports.h"
#include "sessions/store.h"
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

// Kernels and memory go by the switch of their tabs: those of the plan, or those of the run.
TEST_F(DesktopExports, AFileIsOfTheRunOrThePlanAsTheTabIs) {
  ASSERT_EQ(
      open(
          file("s.db"),
          "size 1600 900\nwait idle\nexpect status.run \"run 2*\"\nclick tab.Runs\nclick runs.row.1\nwait idle\n"
          "expect status.run \"run 1*\"\nclick tab.Kernels\n"
          "click menu.Export\nclick menu.export.kernels\nwait until file.path\nexpect file.path \"*mlp.kernels.csv\"\n" +
              into("plan.csv") +
              "click \"kernels.source/Run 1\"\nwait 3\n"
              "click menu.Export\nclick menu.export.kernels\nwait until file.path\nexpect file.path \"*mlp.run1.kernels.csv\"\n" +
              into("run.csv") + "click tab.Memory\nclick menu.Export\nclick menu.export.memory\n" +
              into("run.json") +
              "click \"memory.source/The plan\"\nwait 3\n"
              "click menu.Export\nclick menu.export.memory\n" +
              into("plan.json")),
      0)
      << error_;
  EXPECT_EQ(content("plan.csv").find("median_ns"), std::string::npos) << content("plan.csv");
  EXPECT_NE(content("run.csv").find("median_ns"), std::string::npos) << content("run.csv");
  const json run = json::parse(content("run.json"))["memory"];
  EXPECT_EQ(run["run_id"], 1);
  EXPECT_EQ(content("plan.json").find("run_id"), std::string::npos);
  EXPECT_NE(content("plan.json").find("\"findings\""), std::string::npos);
}

// What was answered is written as it stands, also when the recipe or the shown run is another by now.
TEST_F(DesktopExports, AnswersAreWrittenAsTheyAreShown) {
  ASSERT_EQ(
      open(
          file("s.db"),
          "size 1600 900\nwait idle\nclick tab.Advice\n"
          "click menu.Export\nclick menu.export.advice\nwait until file.path\nexpect file.path \"*mlp.advice.svg\"\n"
          "key escape\nclick advice.run\nwait until advice.count\nwait idle\n"
          "click tab.Runs\nclick runs.row.1\nwait idle\nclick tab.Advice\n"
          "click menu.Export\nclick menu.export.advice\n" +
              into("a.json") +
              "click tab.Compare\nclick compare.stored\nwait until compare.verdict\nwait idle\n"
              "click menu.Export\nclick menu.export.compare\n" +
              into("c.json") + "click menu.Export\nclick menu.export.difference\n" + into("d.json") +
              "expect compare.difference\n"),
      0)
      << error_;
  const std::string command = std::string(GRADLOOM_COMMAND) + " advise " + file("s.db") +
                              " --run 2 --json > " + file("asked.json") + " 2> " + file("err");
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(content("a.json"), content("asked.json"));
  auto store = Store::open(file("s.db"), StoreMode::read);
  ASSERT_TRUE(store.ok());
  const auto comparisons = (*store)->list_comparisons();
  ASSERT_TRUE(comparisons.ok());
  ASSERT_EQ(comparisons->size(), 1u) << "writing it compares nothing again";
  EXPECT_EQ(content("c.json"), comparison_json(comparisons->front().comparison) + "\n");
  const json difference = json::parse(content("d.json"))["graph_diff"];
  EXPECT_EQ(difference["a"], "all passes off") << "A and B as the tab has them";
  EXPECT_EQ(difference["b"], "the step as it stands");
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
