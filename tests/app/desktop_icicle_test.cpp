// The icicle as a user drives it: on a small and a large screen, by mouse and by keys, with pictures.
#include <filesystem>

#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopIcicle : public WindowScript {
 protected:
  void SetUp() override { train(bert() + "--steps 6 --profile all", file("s.db")); }
  int open(const std::string& script, const std::string& size = "1280x720") {
    return WindowScript::open(file("s.db") + " --size " + size,
                              "wait idle\nkey ctrl+i\nwait idle\n" + script);
  }
};

class DesktopIcicleOfSize : public DesktopIcicle, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Sizes, DesktopIcicleOfSize, testing::Values("1280x720", "2560x1440"));

TEST_P(DesktopIcicleOfSize, ShowsLayersAsOneAndByThemselves) {
  const std::string picture = file("icicle.png");
  EXPECT_EQ(open("expect tab.Icicle on\nexpect icicle.about \"run 1, 3 timed steps\"\nexpect icicle.fold on\n"
                 "expect \"icicle.box.2 x layers.*\"\nexpect \"icicle.box.2 x layers.*/output\"\n"
                 "absent icicle.box.layers.0\nexpect \"icicle.rows.2 x layers.*\"\n"
                 "hover \"icicle.box.2 x layers.*\"\nwait until icicle.card\nscreenshot " +
                     picture +
                     "\nclick icicle.fold\nexpect icicle.fold off\nexpect icicle.box.layers.0\n"
                     "expect icicle.box.layers.1/output\nabsent \"icicle.box.2 x layers.*\"\n"
                     "click \"icicle.by/ONNX node\"\nexpect \"icicle.box.Transpose + MatMul + Add\"\n"
                     "click icicle.by/Phase\nexpect icicle.box.backward\nexpect icicle.box.optimizer\n"
                     "click icicle.by/Pass\nexpect icicle.box.fuse-optimizer\n"
                     "click icicle.by/Operator\nexpect icicle.box.FusedMatMul\nabsent toast.0\n",
                 GetParam()),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture), 20'000u);
}

TEST_F(DesktopIcicle, ZoomsInAndOut) {
  EXPECT_EQ(
      open(
          "doubleclick \"icicle.box.2 x layers.*\"\nexpect icicle.crumb.1 here\nexpect icicle.crumb.0\n"
          "absent icicle.box.classifier\nexpect icicle.rows.output\n"
          "doubleclick icicle.rows.output\nexpect icicle.crumb.2 here\n"
          "click icicle.crumb.0\nexpect icicle.crumb.0 here\nabsent icicle.crumb.1\n"
          "doubleclick \"icicle.box.2 x layers.*/output\"\nexpect icicle.crumb.2 here\n"
          "hover icicle.canvas\nkey backspace\nexpect icicle.crumb.1 here\nkey escape\n"
          "expect icicle.crumb.0 here\nkey escape\nexpect icicle.crumb.0 here\n"
          "rightclick \"icicle.box.2 x layers.*/output\"\nclick icicle.menu.zoom\nexpect icicle.crumb.2 here\n"
          "hover icicle.canvas\nkey home\nexpect icicle.crumb.0 here\n"),
      0)
      << error_;
}

TEST_F(DesktopIcicle, SelectsInTheOtherViewsAndSumsUp) {
  EXPECT_EQ(
      open("expect icicle.sum \"\"\nclick icicle.by/Phase\n"
           // One kernel: the node of the graph.
           "click icicle.box.optimizer/all/Optimizer\n"
           "expect icicle.box.optimizer/all/Optimizer selected\nexpect node-panel.name all/Optimizer\n"
           "expect icicle.sum \"*of the step, 1 kernel, optimizer *\"\nexpect tab.Icicle on\n"
           // Several: all their nodes.
           "click icicle.box.optimizer ctrl\nclick icicle.box.backward ctrl\n"
           "expect icicle.sum \"*kernels, backward *optimizer *\"\nexpect icicle.box.backward selected\n"
           "expect node-panel.count\nclick icicle.box.backward ctrl\nexpect icicle.box.backward \"\"\n"
           "click tab.Kernels\nexpect kernels.all/Optimizer\n"
           "click tab.Icicle\nrightclick icicle.box.backward\nclick icicle.menu.kernels\n"
           "expect tab.Kernels on\nexpect kernels.search phase:?backward?\nabsent toast.0\n"),
      0)
      << error_;
}

TEST_F(DesktopIcicle, ArrowsWalkAlongIt) {
  EXPECT_EQ(
      open("click icicle.box\nexpect icicle.box selected\nhover icicle.canvas\nkey down\n"
           "expect \"icicle.box.2 x layers.*\" selected\nexpect icicle.box \"\"\nkey right\n"
           "expect \"icicle.box.(optimizer)\" selected\nkey left\nkey enter\nexpect icicle.crumb.1 here\n"
           "key up\nexpect icicle.crumb.1 here\nkey home\nexpect icicle.crumb.0 here\n"
           "expect \"icicle.box.2 x layers.*\" selected\nkey up\nexpect icicle.box selected\n"),
      0)
      << error_;
}

}  // namespace
}  // namespace gradloom
