#include "viz/draw/input_queue.h"

#include <GLFW/glfw3.h>
#include <imgui_internal.h>

namespace gradloom {
namespace {

bool is_modifier(int code) { return code >= GLFW_KEY_LEFT_SHIFT && code <= GLFW_KEY_RIGHT_SUPER; }
// Keys that edit text or move in it; their order among typed characters matters.
bool is_special(int code) { return code >= GLFW_KEY_ESCAPE && !is_modifier(code); }

}  // namespace

void InputQueue::key(int code, bool down) {
  if (code >= 0 && code < kKeys) events_.push_back({Kind::kKey, code, down});
}

void InputQueue::button(int index, bool down) {
  if (index >= 0 && index < kButtons) events_.push_back({Kind::kButton, index, down});
}

void InputQueue::move(float x, float y) {
  if (!events_.empty() && events_.back().kind == Kind::kMove) events_.pop_back();  // only the last one shows
  events_.push_back({Kind::kMove, 0, false, x, y});
}

void InputQueue::leave() { move(-FLT_MAX, -FLT_MAX); }

void InputQueue::wheel(float x, float y) { events_.push_back({Kind::kWheel, 0, false, x, y}); }

void InputQueue::character(uint32_t codepoint) {
  events_.push_back({Kind::kText, static_cast<int>(codepoint), true});
}

void InputQueue::text(std::string_view utf8) {
  const char *at = utf8.data(), *end = at + utf8.size();
  while (at < end) {
    unsigned codepoint = 0;
    at += ImTextCharFromUtf8(&codepoint, at, end);
    if (codepoint != 0) character(codepoint);
  }
}

void InputQueue::focus_lost() { events_.push_back({Kind::kFocusLost}); }

bool InputQueue::fits(const Event& event, const Frame& frame) {
  switch (event.kind) {
    case Kind::kKey:
      if (frame.keys[static_cast<size_t>(event.code)]) return false;
      // A modifier belongs to what comes after it, not to what came before.
      if (is_modifier(event.code)) return !frame.key && frame.buttons.none() && !frame.wheel;
      return !(frame.text && is_special(event.code));
    case Kind::kButton: return !frame.buttons[static_cast<size_t>(event.code)] && !frame.wheel;
    case Kind::kMove: return frame.buttons.none() && !frame.wheel && !frame.key;
    case Kind::kWheel: return frame.buttons.none();
    case Kind::kText: return !frame.special_key && frame.buttons.none();
    case Kind::kFocusLost: return !frame.key && frame.buttons.none();
  }
  return true;
}

void InputQueue::apply(const Event& event, Frame& frame, ImGuiIO& io) {
  const auto code = static_cast<size_t>(event.code);
  switch (event.kind) {
    case Kind::kKey:
      if (keys_[code] == event.down) return;
      keys_[code] = event.down;
      frame.keys.set(code);
      frame.key |= !is_modifier(event.code);
      frame.special_key |= event.down && is_special(event.code);
      return;
    case Kind::kButton:
      if (buttons_[code] == event.down) return;
      buttons_[code] = event.down;
      frame.buttons.set(code);
      return;
    case Kind::kMove:
      x_ = event.x;
      y_ = event.y;
      return;
    case Kind::kWheel:
      io.MouseWheel += event.y;
      io.MouseWheelH += event.x;
      frame.wheel = true;
      return;
    case Kind::kText:
      io.AddInputCharacter(static_cast<unsigned>(event.code));
      frame.text = true;
      return;
    case Kind::kFocusLost:
      keys_.reset();
      buttons_.reset();
      return;
  }
}

void InputQueue::next_frame(ImGuiIO& io) {
  Frame frame;
  while (!events_.empty() && fits(events_.front(), frame)) {
    apply(events_.front(), frame, io);
    events_.pop_front();
  }
  io.MousePos = {x_, y_};
  for (size_t b = 0; b < kButtons; ++b) io.MouseDown[b] = buttons_[b];
  for (size_t k = 0; k < kKeys; ++k) io.KeysDown[k] = keys_[k];
  const auto either = [&](int left, int right) {
    return keys_[static_cast<size_t>(left)] || keys_[static_cast<size_t>(right)];
  };
  io.KeyCtrl = either(GLFW_KEY_LEFT_CONTROL, GLFW_KEY_RIGHT_CONTROL);
  io.KeyShift = either(GLFW_KEY_LEFT_SHIFT, GLFW_KEY_RIGHT_SHIFT);
  io.KeyAlt = either(GLFW_KEY_LEFT_ALT, GLFW_KEY_RIGHT_ALT);
  io.KeySuper = either(GLFW_KEY_LEFT_SUPER, GLFW_KEY_RIGHT_SUPER);
}

}  // namespace gradloom
