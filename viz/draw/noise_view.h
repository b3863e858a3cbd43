// How sure a comparison is: each group of blocks as a dot, and the interval as it shrank.
#pragma once

#include <vector>

#include "sessions/compare.h"
#include "sessions/comparison_noise.h"
#include "viz/draw/plots.h"

namespace gradloom {

struct NoiseViewState {
  PlotView view;
  // Of the comparison that was drawn last, which is known by these.
  double ratio = 0, seconds = 0;
  std::size_t groups = 0;
  ComparisonNoise noise;
  RunningIntervals intervals;
};

// Of a comparison that is there: the reasons of its verdict, then the plot.
void draw_comparison_noise(const Comparison& comparison, NoiseViewState& state);
// Of one that is being measured, which may last until `most_seconds`.
// `intervals`: of the groups, as RunningIntervals has them.
void draw_groups_so_far(const std::vector<ComparedGroup>& groups, const std::vector<Interval>& intervals,
                        double most_seconds, float height);

}  // namespace gradloom
