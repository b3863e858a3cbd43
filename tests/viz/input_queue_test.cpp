#include "viz/draw/input_queue.h"

#include <GLFW/glfw3.h>
#include <gtest/gtest.h>

#include <string>

namespace gradloom {
namespace {

// A frame at a time, as the window sees it: ImGui's own io, without a window.
class Input : public testing::Test {
 protected:
  void SetUp() override {
    ImGui::CreateContext();
    ImGuiIO& io = ImGui::GetIO();
    io.IniFilename = nullptr;
    io.DisplaySize = {800, 600};
    io.DeltaTime = 1.f / 60;
    unsigned char* pixels = nullptr;
    int width = 0, height = 0;
    io.Fonts->GetTexDataAsRGBA32(&pixels, &width, &height);
  }
  void TearDown() override { ImGui::DestroyContext(); }

  // What ImGui makes of the next frame: "press F", "click left", "text ab", ... in a fixed order.
  std::string frame() {
    ImGuiIO& io = ImGui::GetIO();
    queue_.next_frame(io);
    ImGui::NewFrame();
    std::string seen;
    const auto add = [&](const std::string& what) { seen += (seen.empty() ? "" : ", ") + what; };
    if (io.KeyCtrl) add("ctrl");
    if (io.KeyShift) add("shift");
    for (int key = 32; key < 512; ++key) {
      const bool modifier = key >= GLFW_KEY_LEFT_SHIFT && key <= GLFW_KEY_RIGHT_SUPER;
      if (!modifier && ImGui::IsKeyPressed(key, false)) add("press " + std::to_string(key));
    }
    for (int button = 0; button < 3; ++button) {
      if (ImGui::IsMouseClicked(button))
        add("click " + std::to_string(button) + " at " + std::to_string(static_cast<int>(io.MousePos.x)));
      if (ImGui::IsMouseReleased(button))
        add("release " + std::to_string(button) + " at " + std::to_string(static_cast<int>(io.MousePos.x)));
    }
    if (io.MouseWheel != 0) add("wheel " + std::to_string(static_cast<int>(io.MouseWheel)));
    for (const ImWchar c : io.InputQueueCharacters) add(std::string("text ") + static_cast<char>(c));
    ImGui::EndFrame();
    return seen;
  }
  void tap(int key) {
    queue_.key(key, true);
    queue_.key(key, false);
  }

  InputQueue queue_;
};

TEST_F(Input, ATapWithinOneFrameIsSeen) {
  tap(GLFW_KEY_F);
  EXPECT_EQ(frame(), "press 70");
  EXPECT_EQ(frame(), "");
  EXPECT_TRUE(queue_.empty());
}

TEST_F(Input, ThreeTapsAreThree) {
  for (int i = 0; i < 3; ++i) tap(GLFW_KEY_F);
  int presses = 0;
  for (int i = 0; i < 8; ++i) presses += frame() == "press 70";
  EXPECT_EQ(presses, 3);
}

TEST_F(Input, AModifierBelongsToTheKeyThatCameAfterIt) {
  queue_.key(GLFW_KEY_LEFT_CONTROL, true);
  tap(GLFW_KEY_Z);
  queue_.key(GLFW_KEY_LEFT_CONTROL, false);
  tap(GLFW_KEY_A);
  queue_.key(GLFW_KEY_LEFT_CONTROL, true);
  EXPECT_EQ(frame(), "ctrl, press 90");
  std::string rest;
  for (int i = 0; i < 5; ++i) rest += frame() + ";";
  EXPECT_NE(rest.find(";press 65"), std::string::npos) << rest;
  EXPECT_EQ(rest.find("ctrl, press"), std::string::npos) << rest;
}

TEST_F(Input, AClickLandsWhereItWasMade) {
  queue_.move(100, 50);
  queue_.button(0, true);
  queue_.button(0, false);
  queue_.move(300, 50);
  EXPECT_EQ(frame(), "click 0 at 100");
  EXPECT_EQ(frame(), "release 0 at 100");
  EXPECT_EQ(frame(), "");
  EXPECT_EQ(ImGui::GetIO().MousePos.x, 300);
}

TEST_F(Input, ADoubleClickIsTwoClicks) {
  queue_.move(100, 50);
  for (int i = 0; i < 2; ++i) {
    queue_.button(0, true);
    queue_.button(0, false);
  }
  bool twice = false;
  for (int i = 0; i < 6; ++i) {
    frame();
    twice |= ImGui::GetIO().MouseDoubleClicked[0];
  }
  EXPECT_TRUE(twice);
}

TEST_F(Input, MovesAreJoinedAndTheWheelAdds) {
  for (int x = 0; x < 1000; ++x) queue_.move(static_cast<float>(x), 1);
  queue_.wheel(0, 1);
  queue_.wheel(0, 2);
  EXPECT_EQ(frame(), "wheel 3");
  EXPECT_EQ(ImGui::GetIO().MousePos.x, 999);
  EXPECT_EQ(frame(), "");
}

TEST_F(Input, TextKeepsItsOrderAmongEditingKeys) {
  queue_.text("ab");
  tap(GLFW_KEY_BACKSPACE);
  queue_.text("c");
  EXPECT_EQ(frame(), "text a, text b");
  EXPECT_EQ(frame(), "press " + std::to_string(GLFW_KEY_BACKSPACE));
  EXPECT_EQ(frame(), "text c");
}

TEST_F(Input, LosingTheFocusReleasesEverything) {
  queue_.key(GLFW_KEY_LEFT_CONTROL, true);
  queue_.button(0, true);
  frame();
  EXPECT_TRUE(ImGui::GetIO().KeyCtrl);
  queue_.focus_lost();
  frame();
  EXPECT_FALSE(ImGui::GetIO().KeyCtrl);
  EXPECT_FALSE(ImGui::GetIO().MouseDown[0]);
  queue_.key(-1, true);  // GLFW's unknown key
  queue_.button(7, true);
  EXPECT_TRUE(queue_.empty());
}

}  // namespace
}  // namespace gradloom
