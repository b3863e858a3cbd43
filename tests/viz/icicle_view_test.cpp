// The icicle drawn headless, of very many kernels: what is drawn in a frame does not grow with them.
#include "viz/draw/icicle_view.h"

#include <gtest/gtest.h>
#include <imgui.h>

#include <chrono>

#include "viz/draw/items.h"
#include "viz/draw/platform.h"
#include "viz/draw/script.h"

namespace gradloom {
namespace {

constexpr int kLayers = 50, kKernelsOfLayer = 500;  // 25,000 kernels

class IcicleView : public ::testing::Test {
 protected:
  void SetUp() override {
    HostOptions options;
    options.headless = true;
    options.width = 1280;
    options.height = 720;
    auto host = Host::create(options);
    if (!host.ok()) GTEST_SKIP() << host.error().message;
    host_ = std::move(host).value();
    for (int layer = 0; layer < kLayers; ++layer)
      for (int i = 0; i < kKernelsOfLayer; ++i) {
        KernelRow row;
        row.info.phase = i % 3 == 0 ? "forward" : "backward";
        row.info.scope = "model/h." + std::to_string(layer) + "/part_" + std::to_string(i % 20);
        row.info.node = "/" + row.info.scope + "/MatMul_" + std::to_string(i);
        row.info.op = "MatMul";
        row.samples = 1;
        row.step_ns = 1000 + 7 * i;
        kernels_.push_back(std::move(row));
      }
    make_tree();
  }
  void make_tree() {
    const auto before = std::chrono::steady_clock::now();
    icicle_set_tree(state_, build_step_tree(kernels_, {}, {}, {}, state_.by, state_.fold));
    RecordProperty("tree_us", microseconds(std::chrono::steady_clock::now() - before));
  }
  static int microseconds(std::chrono::steady_clock::duration time) {
    return static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  }

  Status run(const std::string& text) {
    auto commands = parse_script(text);
    if (!commands.ok()) return commands.error();
    ScriptRunner runner(std::move(commands).value(), 2);
    return host_->run(
        [&] {
          ImGui::SetNextWindowPos({0, 0});
          ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
          ImGui::Begin("main", nullptr, ImGuiWindowFlags_NoDecoration);
          Actions now;
          const auto before = std::chrono::steady_clock::now();
          const IcicleEvents events = draw_icicle(kernels_, "run 1", {}, state_, now);
          icicle_keys(state_);
          drawing_ += std::chrono::steady_clock::now() - before;
          ++frames_;
          if (events.changed_tree) make_tree();
          if (!now.hover_node.empty()) hovered_ = now.hover_node;
          ImGui::End();
        },
        &runner);
  }

  std::unique_ptr<Host> host_;
  std::vector<KernelRow> kernels_;
  IcicleState state_;
  std::string hovered_;
  std::chrono::steady_clock::duration drawing_{};
  int frames_ = 0;
};

TEST_F(IcicleView, DrawsOnlyWhatIsWiderThanAPixel) {
  const Status folded = run("expect icicle.box.model\nexpect \"icicle.box.model/50 x h.*\"\nwait 20\n");
  EXPECT_TRUE(folded.ok()) << folded.error().message;
  const Status open =
      run("click icicle.fold\nexpect icicle.fold off\nwait 20\nexpect icicle.box.model/h.7\n");
  EXPECT_TRUE(open.ok()) << open.error().message;
  EXPECT_GT(state_.tree.nodes.size(), 25'000u);
  EXPECT_LT(state_.boxes.size(), 5000u);
  EXPECT_GT(state_.boxes.size(), 50u);
  const Status zoomed =
      run("doubleclick icicle.box.model/h.7\nexpect icicle.crumb.2 here\nabsent icicle.box.model/h.8\n"
          "expect icicle.box.model/h.7/part_3\ndoubleclick icicle.box.model/h.7/part_3\n"
          "expect icicle.crumb.3 here\n");
  EXPECT_TRUE(zoomed.ok()) << zoomed.error().message;
  const Status kernel = run("hover icicle.box.model/h.7/part_3/MatMul_483\nwait until icicle.card\n");
  EXPECT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_EQ(hovered_, "/model/h.7/part_3/MatMul_483");
  RecordProperty("frame_us", microseconds(drawing_ / frames_));
}

}  // namespace
}  // namespace gradloom
