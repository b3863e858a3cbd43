// A thin plot layer on ImDrawList: frame with axes, line, step area, interval bars, cell bars; tooltips with
// units. A plot is immediate: begin_plot, draw into it, end_plot. Transforms and ticks are viz/model/axis.h.
#pragma once

#include <imgui.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sessions/stats.h"
#include "viz/draw/theme.h"
#include "viz/model/axis.h"

namespace gradloom {

struct Plot {
  ImVec2 min, max;  // the data area on the screen
  Axis x, y;
  ImDrawList* list = nullptr;
  bool hovered = false;
  float to_x(double value) const {
    return min.x + static_cast<float>(x.to_fraction(value)) * (max.x - min.x);
  }
  float to_y(double value) const {
    return max.y - static_cast<float>(y.to_fraction(value)) * (max.y - min.y);
  }
  double value_x(float screen) const { return x.from_fraction((screen - min.x) / (max.x - min.x)); }
};

struct PlotView {  // pan and zoom along x; empty = everything
  double min = 0, max = 0;
  bool zoomed() const { return max > min; }
};

// Zooms along x, by `factor` (below 1: in) around the part `t` (0..1) of what is shown, and pans by a part of it.
void plot_move(PlotView& view, const Axis& full, double t, double factor, double pan);
// Draws frame, grid and labels and reserves `size`. Wheel zooms and right drag pans along x when `view` is
// given; a double click shows everything again. `labels`: least room of the labels of y, for plots that are read below one another.
Plot begin_plot(std::string_view id, ImVec2 size, Axis x, Axis y, std::string_view x_title,
                PlotView* view = nullptr, float labels = 0);
float y_labels_width(const Axis& y, float height);  // of a plot as high
void end_plot(const Plot& plot);

void plot_line(const Plot& plot, const std::vector<double>& x, const std::vector<double>& y, ImU32 color,
               float thickness = 1.6f, bool fill = false);
// Values hold from x[i] to x[i + 1]; x has one entry more than y.
void plot_steps(const Plot& plot, const std::vector<double>& x, const std::vector<double>& y, ImU32 color,
                float fill_alpha);
void plot_marker(const Plot& plot, double x, double y, ImU32 color, std::string_view label);
// A text on a ground of its own, kept inside the plot.
void plot_label(const Plot& plot, ImVec2 at, ImU32 color, std::string_view label);
// Horizontal, dashed; its label stands at the right end, or at the left one.
void plot_rule(const Plot& plot, double y, ImU32 color, std::string_view label, bool left = false);
// The sample nearest to the mouse: a crosshair and a dot; -1 when the mouse is elsewhere.
int plot_hover(const Plot& plot, const std::vector<double>& x, const std::vector<double>& y, ImU32 color);

// "value [low, high]" drawn as a dot on a bar, against a reference value (a ratio's 1.0), over the marks of its axis.
void interval_bar(std::string_view id, const Interval& interval, double reference, const Axis& axis,
                  float height, ImU32 color);

// A horizontal bar inside a table cell, behind right-aligned text.
void cell_bar(double fraction, ImU32 color, std::string_view label);

}  // namespace gradloom
