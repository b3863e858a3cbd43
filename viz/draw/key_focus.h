// Tab and Shift+Tab go through everything that can be pressed or typed into, in the order in which it is drawn, Enter and Space
// press it. While a menu, list or dialog is open they stay in it, and there the arrows go, too. ImGui 1.86 has this for text
// fields alone, and its own walk by arrows would take them from tables and canvases. The item that has the focus has a frame
// around it until the mouse is used, and is in the registry as "focus", with its name as the value.
#pragma once

#include <imgui.h>

#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

// The last ImGui item can be pressed; call right after it. The widgets of widgets.h do so themselves.
void focus_stop(std::string_view id);
// A text field, which takes what is typed; while it does it is in the registry as "typing".
void focus_field(std::string_view id);
// The last ImGui item is no stop: an action of the key map does for the keys what a click on it does.
void reached_by(std::string_view action);
// Items of the last frame that can be clicked and that the keys do not reach, "what is wrong with NAME"; sorted.
std::vector<std::string> out_of_reach();

// Takes the keys of this frame; call it before anything is drawn. True: an item was gone to or pressed, and nothing else hears
// of the key.
bool focus_keys();
// From this rectangle of the screen on: Tab goes to the first item in it.
void focus_from(ImVec2 min, ImVec2 max);

// The popup that was just opened stands at a place of the screen, and the arrows and Tab go through it from its first item on.
void menu_by_keys(ImVec2 at);

}  // namespace gradloom
