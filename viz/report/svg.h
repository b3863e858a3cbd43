// Pieces of pictures in SVG: the plot's area with its axes, lines, labels. The width is the same in all.
#pragma once

#include <string>
#include <string_view>

#include "viz/model/axis.h"

namespace gradloom::report {

constexpr double kWidth = 960, kLeft = 70, kRight = 16, kTop = 14, kBottom = 34;

// A picture; `told`: to who does not see it.
std::string svg(double height, const std::string& told, const std::string& inside);
std::string svg_label(double x, double y, const char* anchor, std::string_view text,
                      std::string_view classes = "");
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view classes);
std::string svg_rect(double x, double y, double width, double height, std::string_view classes,
                     std::string_view told);
std::string svg_circle(double x, double y, double radius, std::string_view classes, std::string_view told);

// A plot's area and what its axes say.
struct SvgPlot {
  Axis x, y;
  double height;
  double left = kLeft;  // room for the labels of y
  double bottom() const { return height - kBottom; }
  double at_x(double v) const { return left + x.to_fraction(v) * (kWidth - left - kRight); }
  double at_y(double v) const { return bottom() - y.to_fraction(v) * (bottom() - kTop); }
  std::string grid(const std::string& x_title) const;  // counts along x are whole
};

}  // namespace gradloom::report
