// Kernels under the roofs of a processor: of a recorded run what each took beside what it takes at least, of a plan what it is
// expected to take.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "profiler/roofline.h"
#include "sessions/store.h"

namespace gradloom {

// A kernel of the plan in an optimizer step, or kernels that are summed up.
struct RooflineRow {
  std::string name, op, kernel, phase, scope, types;
  std::string onnx_node;          // the first that it stands for
  std::string roof;               // roof_text; of a sum, of most of the expected time
  double count = 1;               // launches of a step
  double time_ns = std::nan("");  // of all of them; NaN: not measured
  double least_ns = 0, expected_ns = 0;
  double flops = 0, bytes = 0;
  double flops_per_ns = 0, bytes_per_ns = 0;  // the roofs over it; of a sum 0

  double intensity() const { return bytes > 0 ? flops / bytes : 0; }  // FLOP/B
  double rate() const { return time_ns > 0 ? flops / time_ns : std::nan(""); }
  // The part of the roof that it reaches, 0..1; more where the roof is lower than what the kernel did.
  double reached() const { return time_ns > 0 ? least_ns / time_ns : std::nan(""); }
  double above_ns() const { return time_ns > least_ns ? time_ns - least_ns : 0; }
};

struct RooflineModel {
  Hardware hardware;
  std::string precision;
  std::vector<RooflineRow> rows;  // by plan step
  RooflineRow sum;
  std::map<std::string, double> expected_by_roof, time_by_roof;  // ns of a step
  bool timed() const { return sum.time_ns > 0; }
};

// `launches`: by plan step, of an optimizer step; empty: as measured, else one each.
RooflineModel roofline_of(const std::vector<KernelRow>& kernels, const Hardware& hardware,
                          const std::string& precision, const std::vector<double>& launches = {});
// The best that kernels of the run reached, where nothing better is known of its hardware: no roof is lower.
// `name`: of the processor.
Hardware best_of_kernels(const std::vector<KernelRow>& kernels, const std::string& precision,
                         const std::string& name);

// What the plot shows of a kernel: its time where it was measured, else what is expected; FLOP/s, NaN: it is no dot.
double shown_ns(const RooflineModel& model, const RooflineRow& row);
double shown_rate(const RooflineModel& model, const RooflineRow& row);
// The roofs that some kernel has over it: FLOP/s of arithmetic with their names, and bytes/s of memory.
struct RooflineRoofs {
  std::map<double, std::string> level;
  std::set<double> slopes;
};
RooflineRoofs roofs_over(const RooflineModel& model);

// A rectangle of the plot, ends included.
struct RooflineArea {
  double from_intensity = 0, to_intensity = 0;  // FLOP/B
  double from_rate = 0, to_rate = 0;            // FLOP/s
  bool operator==(const RooflineArea&) const = default;
};
// "0.5..8,1e9..2.5e10", intensity first, with four digits of each number; and back. Errors: Errc::usage.
std::string area_text(const RooflineArea& area);
Result<RooflineArea> parse_area(std::string_view text);
// The same rectangle from any two of its corners, with the numbers that area_text gives: what the window selects is what the
// command line selects.
RooflineArea area_between(double intensity_a, double rate_a, double intensity_b, double rate_b);

// The kernels whose dots lie in at least one of some areas.
struct RooflineSelection {
  std::vector<RooflineArea> areas;
  RooflineModel inside;                   // only they, with their sums
  std::unordered_set<std::string> nodes;  // their names
  double share = 0;  // of the time of all kernels, 0..1; of the expected time where none was measured
};
RooflineSelection select_inside(const RooflineModel& model, std::vector<RooflineArea> areas);
// "12 kernels, 1.2 ms, 34.1 % of the step, ..."
std::string selection_text(const RooflineSelection& selection);

// Which of some points, x to the right and y up, is the next one from point `from` in a direction, (1, 0) to the right: the
// nearest, where a way aside counts twice. `from` where there is none; from -1: the first from the left.
int next_point(const std::vector<std::pair<double, double>>& points, int from, int dx, int dy);

enum class RooflineGroup : std::uint8_t { same, node, op, phase, scope, roof };
// Summed up; of measured ones those that are furthest above their roofs first, else those expected to take longest. `same`:
// kernels of one phase that do the same work.
std::vector<RooflineRow> grouped(const RooflineModel& model, RooflineGroup by);

}  // namespace gradloom
