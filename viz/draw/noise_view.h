// How sure a comparison is: each group of blocks as a dot, and the interval as it shrank.
#pragma once

#include <vector>

#include "sessions/compare.h"
#include "viz/draw/plots.h"

namespace gradloom {

struct NoiseViewState {
  PlotView view;
};

// Of a comparison that is there: the reasons of its verdict, then the plot.
void draw_comparison_noise(const Comparison& comparison, NoiseViewState& state);
// Of one that is being measured, which may last until `most_seconds`.
void draw_groups_so_far(const std::vector<ComparedGroup>& groups, double most_seconds, float height);

}  // namespace gradloom
