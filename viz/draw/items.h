// The item registry: what is on the screen, by name. Every widget wrapper reports its id,
// rectangle, label and value each frame; scripts find, click and check items through it,
// and tests assert it instead of pixels.
#pragma once

#include <imgui.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace gradloom {

struct Item {
  ImVec2 min, max;
  std::string label, value;
  ImGuiID widget = 0;  // ImGui's item that is clicked there; 0: nothing can be, or a rectangle drawn by hand
  ImVec2 centre() const { return {(min.x + max.x) / 2, (min.y + max.y) / 2}; }
};

class ItemRegistry {
 public:
  // Widgets of frame n fill the registry; readers see frame n - 1 complete.
  void begin_frame();
  void add(std::string_view id, Item item) { filling_[std::string(id)] = std::move(item); }
  const Item* find(std::string_view id) const;
  const std::unordered_map<std::string, Item>& all() const { return shown_; }

  // The item a script is looking for: a widget outside its scroll area scrolls itself into view.
  void want(std::string_view id) { wanted_ = id; }
  const std::string& wanted() const { return wanted_; }

 private:
  std::unordered_map<std::string, Item> filling_, shown_;
  std::string wanted_;
};

ItemRegistry& items();

// Reports the last ImGui item under `id`.
void register_item(std::string_view id, std::string_view label, std::string_view value = {});
// Reports a rectangle drawn by hand (a node of the graph, a bar of a plot).
void register_rect(std::string_view id, ImVec2 min, ImVec2 max, std::string_view label,
                   std::string_view value = {});

}  // namespace gradloom
