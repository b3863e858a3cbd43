#include "viz/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/text.h"
#include "viz/report/html.h"

namespace gradloom::report {
namespace {

constexpr double kWidth = 960, kLeft = 70, kRight = 16, kTop = 14, kBottom = 34;

// `told`: to who does not see it.
std::string svg(double height, const std::string& told, const std::string& inside) {
  return fmt::format(
      "<div class=\"scroll\"><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg></div>\n",
      kWidth, height, html::text(told), inside);
}

std::string label(double x, double y, const char* anchor, std::string_view text,
                  std::string_view classes = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>", x, y,
                     anchor, classes, html::text(text));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view classes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>", x1, y1,
                     x2, y2, classes);
}

// A plot's area and what its axes say.
struct Plot {
  Axis x, y;
  double height;
  double bottom() const { return height - kBottom; }
  double at_x(double v) const { return kLeft + x.to_fraction(v) * (kWidth - kLeft - kRight); }
  double at_y(double v) const { return bottom() - y.to_fraction(v) * (bottom() - kTop); }

  std::string grid(const std::string& x_title) const {
    std::string made;
    for (const Tick& t : ticks(y, 5)) {
      made += line(kLeft, at_y(t.value), kWidth - kRight, at_y(t.value), "grid");
      made += label(kLeft - 8, at_y(t.value) + 4, "end", t.label);
    }
    for (const Tick& t : ticks(x, 8)) {
      if (t.value != std::floor(t.value)) continue;
      made += label(at_x(t.value), bottom() + 16, "middle", t.label);
    }
    return made + label(kWidth - kRight, height - 4, "end", x_title);
  }
};

std::string path_of(const Plot& plot, const Curve& curve) {
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

std::string rect(double x, double y, double width, double height, std::string_view classes,
                 std::string_view told) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"{}\"><title>{}</title></rect>",
      x, y, width, height, html::text(classes), html::text(told));
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
  const Plot plot{Axis{first, std::max(last, first + 1), false, Unit::kCount}, Axis::fit(low, high, unit),
                  260};
  std::string made = plot.grid(x_title);
  double legend = kLeft + 8;
  for (const Curve& c : all) {
    if (c.y.empty()) continue;
    if (!c.dots) made += path_of(plot, c);
    for (std::size_t i = 0; c.dots && i < c.y.size(); ++i)
      if (std::isfinite(c.y[i]))
        made += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" class=\"dot {}\"><title>{}: {}</title></circle>",
            plot.at_x(c.x[i]), plot.at_y(c.y[i]), c.classes, html::text(c.name), short_text(c.y[i]));
    if (all.size() < 2) continue;
    made += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"dot {}\"/>", legend, kTop + 2,
                        c.classes) +
            label(legend + 9, kTop + 6, "start", c.name);
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
      made += rect(x, 0, width, kStrip, "kernel " + s.phase,
                   s.phase + " \u00b7 " + told + " \u00b7 " + duration_text(held));
      x += width;
      held = 0;
      from = i + 1;
    }
    if (x - begin > 70) made += label(begin + 2, kStrip + 16, "start", s.phase);
  }
  return svg(kStrip + 22, "the kernels of a step, in order, as wide as their time", made);
}

std::string memory_curve(const MemoryModel& memory, const std::vector<KernelRow>& kernels) {
  if (memory.live.empty()) return {};
  const auto peak = static_cast<double>(memory.live[static_cast<std::size_t>(memory.peak_step)]);
  const auto steps = static_cast<double>(memory.live.size());
  const Plot plot{Axis{0, std::max(steps, 1.0), false, Unit::kCount},
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
    made += rect(from, plot.bottom(), to - from, 4, "kernel " + s.phase, s.phase);
  }
  const double at = plot.at_x(memory.peak_step + 0.5);
  const bool left = at > kWidth / 2;
  made += line(at, kTop, at, plot.bottom(), "mark") +
          label(at + (left ? -6 : 6), kTop + 6, left ? "end" : "start",
                "peak " + bytes_text(peak) +
                    (memory.step_names.empty()
                         ? ""
                         : " at " + memory.step_names[static_cast<std::size_t>(memory.peak_step)]),
                "strong");
  return svg(plot.height, "bytes of the arena that are in use, over the kernels of a step", made);
}

}  // namespace gradloom::report
