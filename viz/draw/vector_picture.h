// A part of the frame that was drawn last as SVG: its shapes as polygons, its texts as texts, in their order.
#pragma once

#include <imgui.h>

#include <string>

namespace gradloom {

// From the next frame on shapes have edges without the soft rim that is made for pixels: what svg_of_frame wants.
void set_hard_edges(bool on);

std::string svg_of_frame(ImVec2 min, ImVec2 max);

}  // namespace gradloom
