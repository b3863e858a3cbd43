// The curves of several runs in one plot: smooth lines with what was measured faint behind them, and above the plot each run
// with its value under the mouse, else its last one.
#pragma once

#include <cmath>
#include <vector>

#include "viz/draw/plots.h"
#include "viz/model/curves.h"

namespace gradloom {

inline constexpr double kSmoothings[] = {0, 0.6, 0.8, 0.9, 0.97, 0.99};  // weights that are offered

struct CurveViewState {
  PlotView view;
  int of = 0;         // CurveOf
  int smoothing = 0;  // index in kSmoothings
  bool log = false;
};
// Colours are those of `category_color`, by Curve::place. `planned`: the axis reaches that step; 0: the last of the curves. `unit`:
// behind the numbers of the legend, as "samples/s".
void draw_curves(const std::vector<Curve>& curves, CurveOf of, const char* unit, double planned,
                 CurveViewState& state, float height);

}  // namespace gradloom
