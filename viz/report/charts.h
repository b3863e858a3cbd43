// Pictures of a page as SVG, whose colours are the page's: they follow light and dark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sessions/store.h"
#include "viz/model/axis.h"
#include "viz/model/memory_model.h"
#include "viz/model/roofline_model.h"
#include "viz/model/trend.h"

namespace gradloom::report {

struct Curve {
  std::string name;
  std::string classes;  // its colour
  std::vector<double> x, y;
  bool dots = false;  // else a line
};
// Curves over a common x; values that are not finite are left out. Empty when none is finite.
std::string curves(const std::vector<Curve>& all, const std::string& x_title, Unit unit);

// A step's kernels one after the other, as wide as their time, in the colour of their phase; what would be too narrow to
// see is joined with its neighbours. Empty when nothing was timed.
std::string kernel_strip(const std::vector<KernelRow>& kernels);

// Live bytes of the arena over a step's kernels, with the peak marked and the phases below. Empty without kernels.
std::string memory_curve(const MemoryModel& memory, const std::vector<KernelRow>& kernels);

// Kernels that were timed as dots under the roofs, as large as their time; of very many those that take most. Empty when none
// both computes and moves data.
std::string roofline_plot(const RooflineModel& model);

// Runs as dots, levels as steps with their range, changes numbered, pinned runs as dashed lines. `shown`: the run of the page.
std::string trend_plot(const Trend& trend, std::int64_t shown);

}  // namespace gradloom::report
