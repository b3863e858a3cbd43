// What must hold of every frame, whatever was drawn: looked at after ImGui::Render, in what ImGui made of it.
//
// - Every corner is a finite place: one that is not is a line or text that shows nowhere, or everywhere.
// - Nothing is clipped by a rectangle that reaches beyond the window, and nothing in a pane by one that reaches
//   beyond the pane: what is drawn there lies over its neighbours.
// - Panes lie in the window.
#pragma once

#include <string>
#include <vector>

namespace gradloom {

std::vector<std::string> frame_faults();  // each a line; empty before the first frame

}  // namespace gradloom
