// The texts of the frame that was drawn last, read back from what ImGui made of it: each glyph is known by its place in
// the font's texture. So a script can say that no name or number is cut off, whatever drew it.
#pragma once

#include <imgui.h>

#include <string>
#include <vector>

namespace gradloom {

struct DrawnText {
  std::string text;  // a run of glyphs on one line
  ImVec2 min, max;
  std::string window;    // of ImGui
  bool cut = false;      // its first or last glyph shows only in part, to the left or right
  bool at_edge = false;  // nor has a space room behind it: a next word may have been left out
};

std::vector<DrawnText> drawn_texts();

// Those that are cut, each as a line: none may be. What moves under a canvas, and what is typed into a field, is cut where
// it leaves them and is none of it.
std::vector<std::string> cut_texts();

// Those that lie over one another, each pair as a line: none may, where both are of one window. What moves under a canvas is none
// of it, nor what stands in a plot, whose labels have a ground of their own.
std::vector<std::string> overlapping_texts();

}  // namespace gradloom
