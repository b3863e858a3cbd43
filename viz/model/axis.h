// Plot axes without a GUI: units, ticks on round values, value <-> pixel transforms, min/max decimation.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gradloom {

enum class Unit : uint8_t { kPlain, kNs, kBytes, kFlop, kFlopRate, kPercent, kCount };

// "1.23 ms", "3.2 MiB", "2.7 GFLOP"; "not measured" for NaN.
std::string format_value(double value, Unit unit);
// Signed change: "+12.0 %", "\u22123.1 MiB"; "no change" for zero.
std::string format_change(double value, Unit unit);
std::string format_error(double value);  // of numerics: "1.2e-07"; empty below 0: not measured

struct Axis {
  double min = 0, max = 1;  // max > min after nice()
  bool log = false;
  Unit unit = Unit::kPlain;

  // Widens to hold [lo, hi] with a margin; a single value gets room around it; log needs positive values.
  static Axis fit(double lo, double hi, Unit unit, bool log = false, bool from_zero = false);
  double to_fraction(double value) const;  // 0 at min, 1 at max
  double from_fraction(double t) const;
};

struct Tick {
  double value;
  std::string label;
};

// At most `most` ticks at 1, 2, 5 x 10^k (powers of two for bytes, decades for log).
std::vector<Tick> ticks(const Axis& axis, int most);

// Indices to draw for `n` samples on `pixels` columns: first, last,
// and per column the lowest and highest sample.
std::vector<uint32_t> decimate(const std::vector<double>& y, uint32_t first, uint32_t last, uint32_t pixels);

}  // namespace gradloom
