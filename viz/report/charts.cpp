#include "viz/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/text.h"
#include "viz/report/html.h"
#include "viz/report/svg.h"

namespace gradloom::report {
namespace {

std::string path_of(const SvgPlot& plot, const Curve& curve) {
  std::string path;
  bool pen_down = false;
  const auto count = static_cast<std::uint32_t>(curve.y.size());
  for (const std::uint32_t i : decimate(curve.y, 0, count, 800)) {
    if (!std::isfinite(curve.y[i])) {
      pen_down = false;
      continue;
    }
    path +=
        fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", plot.at_x(curve.x[i]), plot.at_y(curve.y[i]));
    pen_down = true;
  }
  return fmt::format("<path d=\"{}\" class=\"curve {}\"/>", path, curve.classes);
}

// Kernels of one phase that follow each other.
struct Stretch {
  std::string phase;
  std::size_t first = 0, last = 0;  // behind it
};
std::vector<Stretch> stretches(const std::vector<KernelRow>& kernels) {
  std::vector<Stretch> all;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (all.empty() || all.back().phase != kernels[i].info.phase)
      all.push_back({kernels[i].info.phase, i, i});
    all.back().last = i + 1;
  }
  return all;
}

}  // namespace

std::string curves(const std::vector<Curve>& all, const std::string& x_title, Unit unit) {
  double low = std::numeric_limits<double>::infinity(), high = -low, first = low, last = -low;
  for (const Curve& c : all)
    for (std::size_t i = 0; i < c.y.size(); ++i) {
      if (!std::isfinite(c.y[i])) continue;
      low = std::min(low, c.y[i]);
      high = std::max(high, c.y[i]);
      first = std::min(first, c.x[i]);
      last = std::max(last, c.x[i]);
    }
  if (low > high) return {};
  const SvgPlot plot{Axis{first, std::max(last, first + 1), false, Unit::kCount}, Axis::fit(low, high, unit),
                     260};
  std::string made = plot.grid(x_title);
  double legend = kLeft + 8;
  for (const Curve& c : all) {
    if (c.y.empty()) continue;
    if (!c.dots) made += path_of(plot, c);
    for (std::size_t i = 0; c.dots && i < c.y.size(); ++i)
      if (std::isfinite(c.y[i]))
        made += svg_circle(plot.at_x(c.x[i]), plot.at_y(c.y[i]), 3.5, "dot " + c.classes,
                           c.name + ": " + short_text(c.y[i]));
    if (all.size() < 2) continue;
    made += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"dot {}\"/>", legend, kTop + 2,
                        c.classes) +
            svg_label(legend + 9, kTop + 6, "start", c.name);
    legend += 26 + 7.0 * static_cast<double>(c.name.size());
  }
  return svg(plot.height, "curve over " + x_title, made);
}

std::string kernel_strip(const std::vector<KernelRow>& kernels) {
  double total = 0;
  for (const KernelRow& k : kernels) total += static_cast<double>(k.step_ns);
  if (total <= 0) return {};
  constexpr double kStrip = 44, kNarrowest = 0.0012;  // of the width
  std::string made;
  double x = 0;
  for (const Stretch& s : stretches(kernels)) {
    const double begin = x;
    double held = 0;
    std::size_t from = s.first;
    for (std::size_t i = s.first; i < s.last; ++i) {
      held += static_cast<double>(kernels[i].step_ns);
      if (held < kNarrowest * total && i + 1 < s.last) continue;
      const std::string told = i == from ? kernels[i].info.node + " (" + kernels[i].info.kernel + ")"
                                         : plural_text(static_cast<std::int64_t>(i - from + 1), "kernel");
      const double width = held / total * kWidth;
      made += svg_rect(x, 0, width, kStrip, "kernel " + s.phase,
                       s.phase + " \u00b7 " + told + " \u00b7 " + duration_text(held));
      x += width;
      held = 0;
      from = i + 1;
    }
    if (x - begin > 70) made += svg_label(begin + 2, kStrip + 16, "start", s.phase);
  }
  return svg(kStrip + 22, "the kernels of a step, in order, as wide as their time", made);
}

std::string memory_curve(const MemoryModel& memory, const std::vector<KernelRow>& kernels) {
  if (memory.live.empty()) return {};
  const auto peak = static_cast<double>(memory.live[static_cast<std::size_t>(memory.peak_step)]);
  const auto steps = static_cast<double>(memory.live.size());
  const SvgPlot plot{Axis{0, std::max(steps, 1.0), false, Unit::kCount},
                     Axis::fit(0, 1.1 * peak, Unit::kBytes, false, true), 260};
  std::string path = fmt::format("M{:.1f} {:.1f}", plot.at_x(0), plot.bottom());
  std::vector<double> live(memory.live.begin(), memory.live.end());
  for (const std::uint32_t i : decimate(live, 0, static_cast<std::uint32_t>(live.size()), 800))
    path += fmt::format("L{:.1f} {:.1f}L{:.1f} {:.1f}", plot.at_x(i), plot.at_y(live[i]), plot.at_x(i + 1.0),
                        plot.at_y(live[i]));
  path += fmt::format("L{:.1f} {:.1f}Z", plot.at_x(steps), plot.bottom());
  std::string made = plot.grid("kernel of the step") + fmt::format("<path d=\"{}\" class=\"area\"/>", path);
  for (const Stretch& s : stretches(kernels)) {
    if (s.last > memory.live.size()) break;
    const double from = plot.at_x(static_cast<double>(s.first)), to = plot.at_x(static_cast<double>(s.last));
    made += svg_rect(from, plot.bottom(), to - from, 4, "kernel " + s.phase, s.phase);
  }
  const double at = plot.at_x(memory.peak_step + 0.5);
  const bool left = at > kWidth / 2;
  made += svg_line(at, kTop, at, plot.bottom(), "mark") +
          svg_label(at + (left ? -6 : 6), kTop + 6, left ? "end" : "start",
                    "peak " + bytes_text(peak) +
                        (memory.step_names.empty()
                             ? ""
                             : " at " + memory.step_names[static_cast<std::size_t>(memory.peak_step)]),
                    "strong");
  return svg(plot.height, "bytes of the arena that are in use, over the kernels of a step", made);
}

}  // namespace gradloom::report
