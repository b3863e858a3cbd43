// What must hold of every frame, whatever was drawn: looked at after ImGui::Render, in what ImGui made of it.
//
// - Every corner is a finite place: one that is not is a line or text that shows nowhere, or everywhere.
// - Nothing of a pane or list shows beyond it: it would lie over its neighbours.
// - Panes lie in the window.
#pragma once

#include <string>
#include <vector>

namespace gradloom {

std::vector<std::string> frame_faults();  // each a line; empty before the first frame

}  // namespace gradloom
