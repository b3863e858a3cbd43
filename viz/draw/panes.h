// Draws a PaneTree: splits with drag bars, leaves with a tab strip; tabs move between panes by dragging.
#pragma once

#include <imgui.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "viz/model/panes.h"

namespace gradloom {

// Which pane has the keys: the one that was clicked last, or that pane_step went to.
struct PaneFocus {
  std::vector<std::string> order;                // tabs in front, as they were drawn last
  std::vector<std::vector<std::string>> strips;  // all tabs of each of these panes
  std::string has, wanted;                       // by its tab in front; wanted: from the next frame on
  bool by_keys = false;                          // it is marked until the mouse is used
};
float pane_strip();  // height of the line of tabs above what a pane shows
// The pane, or the tab in the pane that has the keys, `by` places on.
void pane_step(PaneFocus& focus, int by);
void tab_step(PaneTree& tree, PaneFocus& focus, int by);

// What a pane with this tab needs, without the line of tabs; points.
using TabRoom = std::function<ImVec2(std::string_view tab)>;

// Calls `draw_tab` inside a child window for every visible tab. A double click on a tab gives its pane all the room, and back.
// The sign on a bar folds the smaller side away. Panes report as "pane.NAME" of the tab in front, with
// "keys" while they have them, bars as "split.N", tabs as "tab.NAME", the signs as "maximize.NAME" and
// "split.N.fold". Splits whose sides have less than `least` fold.
void draw_panes(PaneTree& tree, ImVec2 min, ImVec2 max,
                const std::function<void(std::string_view tab)>& draw_tab, const TabRoom& least,
                PaneFocus* focus = nullptr);

}  // namespace gradloom
