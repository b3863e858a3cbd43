// The window's panels, one row each: tabs, layouts, the View menu and its keys derive from the table.
#pragma once

#include <imgui.h>

#include <span>
#include <string>
#include <string_view>

#include "app/desktop/settings.h"
#include "viz/model/panes.h"

namespace gradloom {

struct Ui;

struct Panel {
  const char* name;     // of its tab, and in saved layouts: never changed
  const char* command;  // of the View menu, as in key_map(); null: the panel is always in sight
  const char* beside;   // the panel behind whose tab it stands in a layout that does not know it
  void (*draw)(Ui& ui);
  bool narrow = false;  // a column at the side is room enough for it
};

std::span<const Panel> panels();
const Panel* find_panel(std::string_view name);  // null: there is none

// What a pane that shows the panel needs, in points; what has less is put behind the tabs of another pane.
ImVec2 least_room_of(std::string_view panel);

std::span<const NamedLayout> built_in_layouts();  // the first is the default
PaneTree default_panes();
// The layout of the settings. Panels that it does not know are added, those that there are no more are left
// out; a text that is no layout gives the default.
PaneTree panes_from(const std::string& text);

}  // namespace gradloom
