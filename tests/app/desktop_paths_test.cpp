// In the graph: what is next to a node, and the way from one node to another, by key and by menu.
#include <filesystem>

#include "tests/app/window_script.h"

namespace gradloom {
namespace {

class DesktopPaths : public WindowScript {
 protected:
  int open(const std::string& script) {
    return WindowScript::open(
        GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx --dim batch=8 --loss loss --size 1600x900",
        "wait idle\nclick tab.Graph\nkey ctrl+p\nwait 3\ntype layers.0\nwait 3\nkey enter\nwait idle\n" +
            script);
  }
};

TEST_F(DesktopPaths, NeighboursAreSelectedToo) {
  EXPECT_EQ(open("expect node-panel.name *layers.0/Gemm/grad/ReduceSum*\nabsent node-panel.count\n"
                 "hover graph\nkey n\nwait 3\nexpect node-panel.count 3\nexpect node-panel.name *ReduceSum*\n"
                 "key escape\nabsent node-panel.count\n"
                 "rightclick node./Relu\nwait 3\nclick graph.menu.neighbours\nwait idle\n"
                 "expect node-panel.count 5\nexpect node-panel.name */Relu*\n"),
            0)
      << error_;
}

TEST_F(DesktopPaths, OneNodeLeadsToAnother) {
  const std::string picture = file("path.png");
  EXPECT_EQ(open("rightclick node./Relu\nwait 3\nclick graph.menu.path\nwait idle\n"
                 "expect node-panel.count 3\nscreenshot " +
                 picture +
                 "\nabsent toast.0\n"
                 "click \"node./layers.0/Gemm/grad/ReduceSum\"\nabsent node-panel.count\n"
                 "rightclick node./layers.0/Gemm/grad/FusedMatMul\nwait 3\nclick graph.menu.path\nwait 3\n"
                 "expect toast.0 \"*leads to the other*\"\nabsent node-panel.count\n"),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture), 20'000u);
}

TEST_F(DesktopPaths, SearchesAreKeptUnderNames) {
  EXPECT_EQ(
      open(
          "click graph.search\nkey ctrl+a\ntype op:FusedMatMul or ~gelu\nwait 3\n"
          "click graph.filters\nwait 3\nclick graph.filters.name\ntype products\nkey enter\nwait 3\nkey escape\nwait 3\n"
          "click graph.search\nkey ctrl+a\ntype x\nwait 3\nexpect graph.search x\n"
          "click graph.filters\nwait 3\nclick graph.filters.use.products\nwait 3\n"
          "expect graph.search \"op:FusedMatMul or ~gelu\"\n"
          // The table of kernels has the same.
          "click tab.Kernels\nwait 3\nclick kernels.filters\nwait 3\nclick kernels.filters.use.products\nwait 3\n"
          "expect kernels.search \"op:FusedMatMul or ~gelu\"\n"
          "click kernels.filters\nwait 3\nclick kernels.filters.forget.products\nwait 3\n"
          "absent kernels.filters.use.products\n"),
      0)
      << error_;
}

}  // namespace
}  // namespace gradloom
