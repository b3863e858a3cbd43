// Draws a PaneTree: splits with drag bars, leaves with a tab strip; tabs move between panes by dragging.
#pragma once

#include <imgui.h>

#include <functional>
#include <string_view>

#include "viz/model/panes.h"

namespace gradloom {

// Calls `draw_tab` inside a child window for every visible tab. Bars report as "split.N", tabs as "tab.NAME".
void draw_panes(PaneTree& tree, ImVec2 min, ImVec2 max,
                const std::function<void(std::string_view tab)>& draw_tab);

}  // namespace gradloom
