// The plot and tables of a trend: runs as dots, levels as steps with their range, changes as numbered marks, pinned runs as
// baselines; below the changes, and the kernels of the chosen one.
#pragma once

#include <string>
#include <vector>

#include "viz/draw/actions.h"
#include "viz/draw/plots.h"
#include "viz/draw/table.h"
#include "viz/model/trend.h"

namespace gradloom {

struct TrendViewState {
  PlotView view;
  const Trend* of = nullptr;  // what the rest is of; null: to be made
  std::vector<TrendLevel> levels;
  std::vector<TrendBaseline> baselines;
  int change = -1;  // whose kernels are shown; -1: none
  TableState changes, kernels;
};
// `shown`: the run that the window shows; `path` its session. The run that was clicked, or -1.
int draw_trend_view(const Trend& trend, const std::string& path, std::int64_t shown, TrendViewState& state,
                    Actions& actions);

}  // namespace gradloom
