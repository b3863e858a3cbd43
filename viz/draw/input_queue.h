// Input events in the order they came, handed to ImGui over as many frames as it takes to see each of them.
//
// ImGui 1.86 reads keys and buttons as states, once per frame: a key that goes down and up between two frames
// was never pressed for it, and a click lands where the pointer is when the frame is drawn. Here an event
// that would hide an earlier one of the same frame waits for the next frame, and those behind it wait too.
#pragma once

#include <imgui.h>

#include <bitset>
#include <cfloat>
#include <cstdint>
#include <deque>
#include <string_view>

namespace gradloom {

class InputQueue {
 public:
  void key(int code, bool down);      // GLFW_KEY_*; unknown codes are ignored
  void button(int index, bool down);  // 0 left, 1 right, 2 middle
  void move(float x, float y);        // points of the window
  void leave();                       // the pointer left the window
  void wheel(float x, float y);       // notches
  void character(uint32_t codepoint);
  void text(std::string_view utf8);
  void focus_lost();  // everything is released
  bool empty() const { return events_.empty(); }

  // Before ImGui::NewFrame: writes pointer, buttons, keys, modifiers, wheel and text of one frame.
  void next_frame(ImGuiIO& io);

 private:
  enum class Kind : uint8_t { kKey, kButton, kMove, kWheel, kText, kFocusLost };
  struct Event {
    Kind kind;
    int code = 0;  // key, button, codepoint
    bool down = false;
    float x = 0, y = 0;
  };
  static constexpr int kKeys = IM_ARRAYSIZE(ImGuiIO::KeysDown), kButtons = IM_ARRAYSIZE(ImGuiIO::MouseDown);
  struct Frame {  // what the frame has seen so far
    std::bitset<kKeys> keys;
    std::bitset<kButtons> buttons;
    bool key = false, special_key = false, text = false, wheel = false;
  };
  static bool fits(const Event& event, const Frame& frame);
  void apply(const Event& event, Frame& frame, ImGuiIO& io);

  std::deque<Event> events_;
  std::bitset<kKeys> keys_;
  std::bitset<kButtons> buttons_;
  float x_ = -FLT_MAX, y_ = -FLT_MAX;
};

}  // namespace gradloom
