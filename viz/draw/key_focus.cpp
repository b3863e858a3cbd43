#include "viz/draw/key_focus.h"

#include <GLFW/glfw3.h>
#include <imgui_internal.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "viz/draw/items.h"
#include "viz/draw/keys.h"
#include "viz/draw/table.h"
#include "viz/draw/theme.h"

namespace gradloom {
namespace {

struct KeyStop {
  ImGuiID item = 0;
  ImGuiWindow* window = nullptr;
  ImRect rect;
  bool field = false;
};

// One per process, as ImGui's context is.
struct KeyFocus {
  std::vector<KeyStop> filling, drawn;                      // of this frame, and of the last one as a whole
  std::map<ImGuiID, std::string> filling_actions, actions;  // of items that are no stops, the same
  int frame = -1;                                           // that is being filled
  ImGuiID item = 0;                                         // has the focus
  ImGuiID pressed = 0;  // has it again when what its press opened is closed
  bool shown = false;   // with its frame: keys brought it there
  bool moved = false;   // just now: it comes into view when it is drawn
  std::optional<ImRect> from;
};

KeyFocus& key_focus() {
  static KeyFocus focus;
  return focus;
}

// In which Tab stays: that of the innermost open popup, else the window itself.
const ImGuiWindow* room_of_keys() {
  const auto& open = GImGui->OpenPopupStack;
  if (!open.empty() && open.back().Window != nullptr) return open.back().Window;
  return ImGui::FindWindowByName("main");
}

std::vector<KeyStop> stops_in(const ImGuiWindow* room) {
  std::vector<KeyStop> stops;
  for (const KeyStop& stop : key_focus().drawn)
    if (room != nullptr && stop.window->RootWindow == room->RootWindow) stops.push_back(stop);
  return stops;
}

void begin_frame() {
  KeyFocus& focus = key_focus();
  if (focus.frame == ImGui::GetFrameCount()) return;
  focus.frame = ImGui::GetFrameCount();
  focus.drawn = std::exchange(focus.filling, {});
  focus.actions = std::exchange(focus.filling_actions, {});
}

void add_stop(std::string_view id, bool field) {
  begin_frame();
  const ImGuiContext& context = *GImGui;
  const ImGuiLastItemData& last = context.LastItemData;
  if (last.ID == 0 || (last.InFlags & ImGuiItemFlags_Disabled) != 0) return;
  KeyFocus& focus = key_focus();
  ImGuiWindow* const window = context.CurrentWindow;
  focus.filling.push_back({last.ID, window, last.Rect, field});
  if (field && last.ID == context.ActiveId)
    register_rect("typing", last.Rect.Min, last.Rect.Max, "field", id);
  const ImGuiWindow* const room = room_of_keys();
  if (focus.item != last.ID || !focus.shown || room == nullptr || room->RootWindow != window->RootWindow)
    return;
  if (std::exchange(focus.moved, false)) ImGui::ScrollToBringRectIntoView(window, last.Rect);
  const float air = px(1.5f);
  const ImVec2 min{last.Rect.Min.x - air, last.Rect.Min.y - air},
      max{last.Rect.Max.x + air, last.Rect.Max.y + air};
  // Over what the item draws of itself after this, and inside what its window shows.
  ImDrawList* const list = ImGui::GetForegroundDrawList();
  list->PushClipRect(window->OuterRectClipped.Min, window->OuterRectClipped.Max, true);
  list->AddRect(min, max, palette().accent, ImGui::GetStyle().FrameRounding + air, 0, px(2));
  list->PopClipRect();
  register_rect("focus", min, max, "focus", id);
}

// This frame's press of a key is seen by nobody else.
void swallow(int key) { ImGui::GetIO().KeysDownDuration[key] = 1e-6f; }

void go_to(const KeyStop& stop) {
  KeyFocus& focus = key_focus();
  focus.item = stop.item;
  focus.shown = focus.moved = true;
  focus.from.reset();
  if (GImGui->ActiveId != 0) ImGui::ClearActiveID();  // a field takes what was typed into it
  ImGui::FocusWindow(stop.window);
  arrows_to_table();
  if (!stop.field) return;
  GImGui->NavNextActivateId = stop.item;
  GImGui->NavNextActivateFlags = ImGuiActivateFlags_PreferInput;
}

// `by` items on from the one that has the focus, or the first in the rectangle that was named.
bool step(int by) {
  KeyFocus& focus = key_focus();
  const std::vector<KeyStop> stops = stops_in(room_of_keys());
  const int count = static_cast<int>(stops.size());
  if (count == 0) return false;
  const ImGuiID active = GImGui->ActiveId;
  const auto find = [&](ImGuiID item) {
    const auto at =
        std::find_if(stops.begin(), stops.end(), [&](const KeyStop& s) { return s.item == item; });
    return item == 0 || at == stops.end() ? -1 : static_cast<int>(at - stops.begin());
  };
  int at = -1;
  for (const ImGuiID item : {active, focus.item, focus.pressed})
    if (at < 0) at = find(item);
  if (focus.from) {
    const auto inside = [&](const KeyStop& s) { return focus.from->Contains(s.rect.GetCenter()); };
    const auto first = std::find_if(stops.begin(), stops.end(), inside);
    if (first != stops.end()) at = static_cast<int>(first - stops.begin()) - (by > 0 ? 1 : 0);
  } else if (at < 0 && by < 0) {
    at = 0;
  }
  go_to(stops[static_cast<std::size_t>((at + by + count) % count)]);
  return true;
}

}  // namespace

void focus_stop(std::string_view id) { add_stop(id, false); }
void focus_field(std::string_view id) { add_stop(id, true); }

void reached_by(std::string_view action) {
  begin_frame();
  if (GImGui->LastItemData.ID != 0) key_focus().filling_actions[GImGui->LastItemData.ID] = action;
}

std::vector<std::string> out_of_reach() {
  const KeyFocus& focus = key_focus();
  std::set<ImGuiID> stops;
  for (const KeyStop& stop : focus.drawn) stops.insert(stop.item);
  std::vector<std::string> faults;
  for (const auto& [name, item] : items().all()) {
    if (item.widget == 0 || stops.count(item.widget) != 0) continue;
    const auto action = focus.actions.find(item.widget);
    const auto known = [&](const KeyBinding& binding) { return action->second == binding.action; };
    if (action == focus.actions.end())
      faults.push_back("no key reaches " + name);
    else if (std::none_of(key_map().begin(), key_map().end(), known))
      faults.push_back("there is no action '" + action->second + "', which is to reach " + name);
  }
  std::sort(faults.begin(), faults.end());
  return faults;
}

bool focus_keys() {
  begin_frame();
  KeyFocus& focus = key_focus();
  const ImGuiIO& io = ImGui::GetIO();
  for (const bool pressed : io.MouseClicked)
    if (pressed) focus.shown = false;
  if (io.KeyCtrl || io.KeyAlt) return false;
  const auto pressed = [](int key) { return ImGui::IsKeyPressed(key, true); };
  if (pressed(GLFW_KEY_TAB)) {
    swallow(GLFW_KEY_TAB);
    return step(io.KeyShift ? -1 : 1);
  }
  if (!focus.shown || io.WantTextInput || io.KeyShift) return false;
  const ImGuiWindow* const room = room_of_keys();
  const std::vector<KeyStop> stops = stops_in(room);
  const auto find = [&](ImGuiID item) {
    return std::find_if(stops.begin(), stops.end(), [&](const KeyStop& s) { return s.item == item; });
  };
  if (find(focus.item) == stops.end() && find(focus.pressed) != stops.end()) focus.item = focus.pressed;
  const auto at = find(focus.item);
  const bool popup = room != nullptr && (room->Flags & ImGuiWindowFlags_Popup) != 0;
  for (const auto& [key, by] : {std::pair{GLFW_KEY_DOWN, 1}, {GLFW_KEY_UP, -1}})
    if (popup && pressed(key)) {
      swallow(key);
      return step(by);
    }
  if (at == stops.end()) return false;  // it is not there any more, or below what is open
  for (const int key : {GLFW_KEY_ENTER, GLFW_KEY_KP_ENTER, GLFW_KEY_SPACE}) {
    if (!ImGui::IsKeyPressed(key, false)) continue;
    swallow(key);
    focus.pressed = at->item;
    GImGui->NavNextActivateId = at->item;
    GImGui->NavNextActivateFlags = at->field ? ImGuiActivateFlags_PreferInput : ImGuiActivateFlags_None;
    return true;
  }
  return false;
}

void menu_by_keys(ImVec2 at) {
  if (GImGui->OpenPopupStack.empty()) return;
  GImGui->OpenPopupStack.back().OpenPopupPos = at;
  KeyFocus& focus = key_focus();
  focus.pressed = std::exchange(focus.item, 0);
  focus.shown = true;
}

void focus_from(ImVec2 min, ImVec2 max) {
  key_focus().from = ImRect(min, max);
  key_focus().shown = false;
}

}  // namespace gradloom
