#include "viz/draw/items.h"

#include <imgui_internal.h>

#include <algorithm>

namespace gradloom {

ItemRegistry& items() {
  static ItemRegistry registry;
  return registry;
}

void ItemRegistry::begin_frame() {
  std::swap(filling_, shown_);
  filling_.clear();
}

const Item* ItemRegistry::find(std::string_view id) const {
  const auto found = shown_.find(std::string(id));
  return found == shown_.end() ? nullptr : &found->second;
}

void register_item(std::string_view id, std::string_view label, std::string_view value) {
  const ImVec2 min = ImGui::GetItemRectMin(), max = ImGui::GetItemRectMax();
  if (!items().wanted().empty() && items().wanted() == id) {
    const ImVec2 lo = ImGui::GetWindowDrawList()->GetClipRectMin(),
                 hi = ImGui::GetWindowDrawList()->GetClipRectMax();
    const float y = (min.y + max.y) / 2;  // a click goes to the centre: that must show, not just an edge
    if (!ImGui::IsItemVisible() || y < lo.y || y >= hi.y) ImGui::SetScrollHereY(0.5f);
  }
  const ImGuiLastItemData& last = GImGui->LastItemData;
  const bool disabled = (last.InFlags & ImGuiItemFlags_Disabled) != 0;
  items().add(id, {min, max, std::string(label), std::string(value), disabled ? 0 : last.ID});
}

void register_rect(std::string_view id, ImVec2 min, ImVec2 max, std::string_view label,
                   std::string_view value) {
  items().add(id, {min, max, std::string(label), std::string(value)});
}

}  // namespace gradloom
