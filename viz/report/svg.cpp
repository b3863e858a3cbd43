#include "viz/report/svg.h"

#include <fmt/format.h>

#include <cmath>

#include "viz/report/html.h"

namespace gradloom::report {

std::string svg(double height, const std::string& told, const std::string& inside) {
  return fmt::format(
      "<div class=\"scroll\"><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg></div>\n",
      kWidth, height, html::text(told), inside);
}

std::string svg_label(double x, double y, const char* anchor, std::string_view text,
                      std::string_view classes) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>", x, y,
                     anchor, classes, html::text(text));
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view classes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>", x1, y1,
                     x2, y2, classes);
}

std::string svg_rect(double x, double y, double width, double height, std::string_view classes,
                     std::string_view told) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"{}\"><title>{}</title></rect>",
      x, y, width, height, html::text(classes), html::text(told));
}

std::string svg_circle(double x, double y, double radius, std::string_view classes, std::string_view told) {
  return fmt::format(
      "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" class=\"{}\"><title>{}</title></circle>", x, y,
      radius, html::text(classes), html::text(told));
}

std::string SvgPlot::grid(const std::string& x_title) const {
  std::string made;
  for (const Tick& t : ticks(y, 5)) {
    made += svg_line(left, at_y(t.value), kWidth - kRight, at_y(t.value), "grid");
    made += svg_label(left - 8, at_y(t.value) + 4, "end", t.label);
  }
  for (const Tick& t : ticks(x, 8)) {
    if (x.unit == Unit::kCount && t.value != std::floor(t.value)) continue;
    made += svg_label(at_x(t.value), bottom() + 16, "middle", t.label);
  }
  return made + svg_label(kWidth - kRight, height - 4, "end", x_title);
}

}  // namespace gradloom::report
