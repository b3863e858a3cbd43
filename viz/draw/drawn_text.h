// The frame that was drawn last, read back from what ImGui made of it: each glyph is known by its place in the font's texture.
// So a script can say that no name or number is cut off, and a picture has texts as texts, whatever drew them.
#pragma once

#include <imgui.h>

#include <functional>
#include <string>
#include <vector>

namespace gradloom {

struct DrawnText {
  std::string text;  // a run of glyphs on one line
  ImVec2 min, max;
  std::string window;    // of ImGui
  bool cut = false;      // its first or last glyph shows only in part, to the left or right
  bool at_edge = false;  // nor has a space room behind it: a next word may have been left out
  const ImFont* font = nullptr;
  float top = 0, size = 0;  // of the line; of the font as it is drawn, in pixels
  ImU32 color = 0;
  ImVec4 clip;  // left, top, right, bottom
};
struct DrawnShape {
  std::vector<ImVec2> corners;  // convex, filled
  ImU32 color = 0;
  ImVec4 clip;
};
// All of it in the order in which it is drawn, where a text is of one colour.
void walk_frame(const std::function<void(const DrawnText&)>& text,
                const std::function<void(const DrawnShape&)>& shape);

std::vector<DrawnText> drawn_texts();

// Those that are cut, each as a line: none may be. What moves under a canvas, and what is typed into a field, is cut where
// it leaves them and is none of it.
std::vector<std::string> cut_texts();

// Those that lie over one another, each pair as a line: none may, where both are of one window. What moves under a canvas is none
// of it, nor what stands in a plot, whose labels have a ground of their own.
std::vector<std::string> overlapping_texts();

}  // namespace gradloom
