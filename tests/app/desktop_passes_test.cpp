// Pass by pass in the graph, who made a node, and the step beside another graph.
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopPasses : public WindowScript {
 protected:
  int gpt(const std::string& script) {
    return open(GRADLOOM_SOURCE_DIR "/tests/models/gpt-char/model.onnx --dim batch=4 --loss ce:logits,labels",
                "size 1600 1000\nwait idle\n" + script);
  }
};

constexpr const char* kToGelu =
    "key ctrl+p\n"
    "wait 3\n"
    "type blocks.1/gelu/Mul_5\n"
    "wait 4\n"
    "key enter\n"
    "wait idle\n"
    "wait 5\n";

TEST_F(DesktopPasses, AGraphIsSteppedThroughItsPasses) {
  EXPECT_EQ(
      gpt(std::string("click \"graph.stage/By pass\"\n"
                      "expect graph.stage.label \"after memory-order (*: nodes in another order\"\n") +
          kToGelu +
          "expect blame.0.fuse-gelu \"*\"\n"
          "click blame.0.fuse-gelu\n"
          "wait idle\n"
          "expect graph.stage.label \"in fuse-gelu (*), rewrite 2 of 4 at /blocks.1/gelu/Mul_5: 8 nodes fewer\"\n"
          "expect node./blocks.1/gelu/Mul_5 \"*added*\"\n"
          "expect \"node./blocks.1/gelu/Mul_2\" \"removed\"\n"
          "click graph.stage.previous\n"
          "expect graph.stage.label \"*rewrite 1 of 4 at /blocks.0/gelu/Mul_5*\"\n"
          "expect \"node./blocks.1/gelu/Mul_2\" \"\"\n"
          "absent node./blocks.1/gelu/Mul_5\n"
          "hover graph\n"
          "key shift+]\n"
          "expect graph.stage.label \"after fuse-gelu (*: 32 nodes fewer\"\n"
          "key escape\n"
          "wait idle\n"
          "absent graph.stage.label\n"
          "absent \"node./blocks.1/gelu/Mul_2\"\n"),
      0)
      << error_;
}

TEST_F(DesktopPasses, TheSliderGoesToTheStart) {
  EXPECT_EQ(gpt("key ctrl+h\n"
                "expect graph.stage.label \"after*\"\n"
                "drag graph.stage.slider -600 0\n"
                "expect graph.stage.label \"before all passes*\"\n"
                "expect graph.stage.slider \"0 / *\"\n"
                "click graph.stage/Step\n"
                "wait idle\n"
                "absent graph.stage.slider\n"),
            0)
      << error_;
}

TEST_F(DesktopPasses, TheStepIsComparedWithThatBeforeAChange) {
  EXPECT_EQ(gpt("click pass.fuse-gelu\n"
                "wait idle\n"
                "click tab.Compare\n"
                "wait 3\n"
                "click compare.view/Graph\n"
                "expect compare.difference \"*\"\n"
                "click compare.against\n"
                "wait 3\n"
                "click \"compare.against/before the last change\"\n"
                "expect compare.difference 4\n"
                "expect compare.regions.row.0 \"*gelu/Mul*\"\n"
                "click compare.regions.row.0\n"
                "wait idle\n"
                "expect node-panel.count \"*\"\n"
                "click tab.Compare\n"
                "wait 3\n"
                "click compare.mark\n"
                "wait idle\n"
                "expect graph \"*\"\n"),
            0)
      << error_;
}

}  // namespace
}  // namespace gradloom
