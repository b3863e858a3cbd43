#include "viz/model/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"

namespace gradloom {
namespace {

// The smallest round step that cuts `span` into at most `most` parts.
double round_step(double span, int most, Unit unit) {
  const double rough = span / std::max(1, most);
  if (unit == Unit::kBytes && rough > 1) {
    return std::exp2(std::ceil(std::log2(rough)));
  }
  const double magnitude = std::pow(10, std::floor(std::log10(rough)));
  for (double m : {1.0, 2.0, 5.0, 10.0}) {
    if (m * magnitude >= rough * (1 - 1e-9)) {
      return unit == Unit::kCount ? std::max(1.0, m * magnitude) : m * magnitude;
    }
  }
  return 10 * magnitude;
}

// Plain numbers with as many digits as the step needs: 2 of a quarter.
std::string plain(double value, double step) {
  if (value == 0) return "0";
  if (std::abs(value) >= 1e6 || std::abs(step) < 1e-5) return fmt::format("{:.3g}", value);
  constexpr int kMostDigits = 6;
  const auto whole = [](double x) { return std::abs(x - std::round(x)) <= 1e-6 * std::abs(x); };
  int digits = 0;
  while (digits < kMostDigits && !whole(step * std::pow(10, digits))) ++digits;
  return fmt::format("{:.{}f}", value, digits);
}

std::string scaled_tick(double value, double step, double largest, double base, const char* const* units,
                        int count) {
  int i = 0;
  double scale = 1;
  while (largest / scale >= base && i + 1 < count) {
    scale *= base;
    ++i;
  }
  return plain(value / scale, step / scale) + " " + units[i];
}

std::string tick_label(double value, double step, double largest, Unit unit) {
  static constexpr const char* kBytes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  static constexpr const char* kFlop[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  static constexpr const char* kFlopRate[] = {"FLOP/s",  "kFLOP/s", "MFLOP/s",
                                              "GFLOP/s", "TFLOP/s", "PFLOP/s"};
  static constexpr const char* kTime[] = {"ns", "us", "ms", "s"};
  switch (unit) {
    case Unit::kBytes: return value == 0 ? "0" : scaled_tick(value, step, largest, 1024, kBytes, 5);
    case Unit::kFlop: return value == 0 ? "0" : scaled_tick(value, step, largest, 1000, kFlop, 6);
    case Unit::kFlopRate: return value == 0 ? "0" : scaled_tick(value, step, largest, 1000, kFlopRate, 6);
    case Unit::kNs: return value == 0 ? "0" : scaled_tick(value, step, largest, 1000, kTime, 4);
    case Unit::kPercent: return plain(value, step) + " %";
    default: return plain(value, step);
  }
}

}  // namespace

std::string format_value(double value, Unit unit) {
  if (std::isnan(value)) return "not measured";
  switch (unit) {
    case Unit::kNs: return duration_text(value);
    case Unit::kBytes: return bytes_text(value);
    case Unit::kFlop: return count_text(value, "FLOP");
    case Unit::kFlopRate: return count_text(value, "FLOP/s");
    case Unit::kPercent: return fmt::format("{:.1f} %", value);
    case Unit::kCount: return fmt::format("{:.0f}", value);
    case Unit::kPlain: break;
  }
  return fmt::format("{:.5g}", value);
}

std::string format_error(double value) {
  if (value < 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", value);
  return text;
}

std::string format_change(double value, Unit unit) {
  if (std::isnan(value)) return "not measured";
  if (value == 0) return "no change";
  return (value > 0 ? "+" : "\u2212") + format_value(std::abs(value), unit);
}

Axis Axis::fit(double lo, double hi, Unit unit, bool log, bool from_zero) {
  Axis axis;
  axis.unit = unit;
  axis.log = log && hi > 0;
  if (!(lo <= hi) || !std::isfinite(lo) || !std::isfinite(hi)) {
    lo = axis.log ? 1 : 0;
    hi = lo + 1;
  }
  if (axis.log) {
    lo = std::max(lo, hi * 1e-9);
    const double margin = std::max(std::log10(hi / lo) * 0.04, 0.02);
    axis.min = lo * std::pow(10, -margin);
    axis.max = hi * std::pow(10, margin);
    return axis;
  }
  if (from_zero && lo > 0) lo = 0;
  double margin = (hi - lo) * 0.06;
  if (margin <= 0) margin = std::max(std::abs(hi) * 0.1, 0.5);
  axis.min = from_zero && lo == 0 ? 0 : lo - margin;
  axis.max = hi + margin;
  return axis;
}

double Axis::to_fraction(double value) const {
  if (log) return std::log(std::max(value, min * 1e-3) / min) / std::log(max / min);
  return (value - min) / (max - min);
}

double Axis::from_fraction(double t) const {
  return log ? min * std::pow(max / min, t) : min + (max - min) * t;
}

std::vector<Tick> ticks(const Axis& axis, int most) {
  std::vector<Tick> out;
  most = std::max(1, most);
  if (axis.log) {
    const int first = static_cast<int>(std::ceil(std::log10(axis.min) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log10(axis.max) + 1e-9));
    if (last - first >= 1) {
      const auto label = [&](double v) {
        return axis.unit == Unit::kPlain ? fmt::format("{:.3g}", v) : format_value(v, axis.unit);
      };
      // Few decades have room for what is between them.
      if (3 * (last - first + 1) <= most) {
        for (int e = first - 1; e <= last; ++e)
          for (const double part : {1.0, 2.0, 5.0})
            if (const double v = part * std::pow(10, e); v >= axis.min && v <= axis.max)
              out.push_back({v, label(v)});
        return out;
      }
      const int stride = std::max(1, (last - first + most) / most);
      for (int e = first; e <= last; e += stride) out.push_back({std::pow(10, e), label(std::pow(10, e))});
      return out;
    }
  }
  const double largest = std::max(std::abs(axis.min), std::abs(axis.max));
  // One mark alone tells no scale.
  for (int parts = most; out.size() < 2 && parts <= 4 * most; parts *= 2) {
    out.clear();
    const double step = round_step(axis.max - axis.min, parts, axis.unit);
    for (double i = std::ceil(axis.min / step - 1e-9); i * step <= axis.max + step * 1e-9; ++i)
      out.push_back({i * step, tick_label(i * step, step, largest, axis.unit)});
  }
  return out;
}

std::vector<uint32_t> decimate(const std::vector<double>& y, uint32_t first, uint32_t last, uint32_t pixels) {
  std::vector<uint32_t> out;
  last = std::min<uint32_t>(last, static_cast<uint32_t>(y.size()));
  if (first >= last) return out;
  const uint32_t n = last - first;
  pixels = std::max(1u, pixels);
  if (n <= 2 * pixels) {
    for (uint32_t i = first; i < last; ++i) out.push_back(i);
    return out;
  }
  out.push_back(first);
  for (uint32_t p = 0; p < pixels; ++p) {
    const auto begin = first + static_cast<uint32_t>(uint64_t{n} * p / pixels);
    const auto end = first + static_cast<uint32_t>(uint64_t{n} * (p + 1) / pixels);
    uint32_t low = begin, high = begin;
    for (uint32_t i = begin; i < end; ++i) {
      if (y[i] < y[low]) low = i;
      if (y[i] > y[high]) high = i;
    }
    for (uint32_t i : {std::min(low, high), std::max(low, high)}) {
      if (i != out.back()) out.push_back(i);
    }
  }
  if (out.back() != last - 1) out.push_back(last - 1);
  return out;
}

}  // namespace gradloom
