#include "engine/onnx/repair/buffer_contents.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace gradloom {

namespace {

constexpr std::int64_t kMostSamples = 4096;
constexpr std::int64_t kMostRows = 48, kMostColumns = 512;
constexpr double kHidden = -50;  // what is added to a hidden score; Swin's masks have -100

bool has_contents(const Tensor& tensor) {
  return tensor.defined() && is_float(tensor.dtype()) && tensor.count() > 0;
}

// body(element) for all elements or, of many, for some that are spread by a step prime to usual widths; ends
// when it returns false.
template <class Body>
bool for_samples(const Tensor& tensor, const Body& body) {
  const std::int64_t count = tensor.count();
  const std::int64_t step = count <= kMostSamples ? 1 : (count / kMostSamples) | 1;
  for (std::int64_t i = 0; i < count; i += step)
    if (!body(tensor.at(i))) return false;
  return true;
}

Shape squeezed(const Shape& shape) {
  Shape dims;
  for (const std::int64_t dim : shape)
    if (dim != 1) dims.push_back(dim);
  return dims;
}

// How far numbers of a table are from what was rounded to them: f32, or one of the half types, whose numbers
// an import may have widened.
double rounding_of(const Tensor& tensor) {
  bool bf16 = true, f16 = true;
  for_samples(tensor, [&](double x) {
    const auto fits = [&](int bits) {
      int exponent = 0;
      const double mantissa = std::ldexp(std::frexp(x, &exponent), bits);
      return mantissa == std::floor(mantissa);
    };
    bf16 = bf16 && fits(8);
    f16 = f16 && fits(11);
    return bf16 || f16;
  });
  return bf16 ? 2e-2 : f16 ? 2e-3 : 1e-4;
}

// A tensor as rows along one axis: element (t, c).
struct Table {
  const Tensor& tensor;
  std::int64_t rows, inner, columns;
  double at(std::int64_t t, std::int64_t c) const {
    return tensor.at((c / inner * rows + t) * inner + c % inner);
  }
};
Table table_along(const Tensor& tensor, const Shape& dims, std::size_t axis) {
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < dims.size(); ++i) inner *= dims[i];
  return {tensor, dims[axis], inner, tensor.count() / dims[axis]};
}

bool is_zero_row(const Table& table, std::int64_t t) {
  for (std::int64_t c = 0; c < std::min(table.columns, kMostColumns); ++c)
    if (table.at(t, c) != 0) return false;
  return true;
}

struct Wave {
  bool oscillates = false;  // through enough of a period to be no line
  double square = 0;        // of the amplitude, where it does
};
// x(t - 1) + x(t + 1) = 2 cos(w) x(t) of every wave of frequency w. `gap`: a position without a value, or -1.
std::optional<Wave> wave_of(const std::vector<double>& x, std::int64_t gap, double tolerance) {
  double products = 0, squares = 0, largest = 0;
  const auto triple = [&](std::size_t t) {
    const auto at = static_cast<std::int64_t>(t);
    return gap < 0 || at + 1 < gap || at - 1 > gap;
  };
  for (std::size_t t = 1; t + 1 < x.size(); ++t) {
    if (!triple(t)) continue;
    products += x[t] * (x[t - 1] + x[t + 1]);
    squares += x[t] * x[t];
  }
  for (const double value : x) largest = std::max(largest, std::fabs(value));
  if (!std::isfinite(largest) || !std::isfinite(products)) return std::nullopt;
  const double twice = squares > 0 ? products / squares : 2;
  if (std::fabs(twice) > 2 + tolerance) return std::nullopt;
  double amplitude = 0;
  for (std::size_t t = 1; t + 1 < x.size(); ++t) {
    if (!triple(t)) continue;
    if (std::fabs(x[t - 1] + x[t + 1] - twice * x[t]) > tolerance * std::max(largest, 1e-6))
      return std::nullopt;
    if (std::fabs(twice) < 1.96)
      amplitude = (x[t] * x[t] + x[t + 1] * x[t + 1] - twice * x[t] * x[t + 1]) / (1 - twice * twice / 4);
  }
  return Wave{std::fabs(twice) < 1.96 && largest > 0, amplitude};
}

struct Columns {
  std::int64_t oscillating = 0, columns = 0;
  double least = 0, most = 0;  // square of amplitude
  bool add(const std::optional<Wave>& wave) {
    ++columns;
    if (!wave) return false;
    if (!wave->oscillates) return true;
    least = oscillating == 0 ? wave->square : std::min(least, wave->square);
    most = oscillating == 0 ? wave->square : std::max(most, wave->square);
    ++oscillating;
    return true;
  }
  bool are_waves(std::int64_t positions, double tolerance) const {
    const double spread = std::max(0.02, 4 * tolerance);
    return oscillating > 0 && (positions - 3) * oscillating >= 4 && most - least <= spread * most &&
           oscillating * 16 >= columns;
  }
};

Waves kind_of_first(const std::vector<double>& first) {
  double most = 0;
  for (const double x : first) most = std::max(most, std::fabs(x));
  const auto all = [&](double want) {
    return std::all_of(first.begin(), first.end(),
                       [&](double x) { return std::fabs(x - want) <= 1e-3 * std::max(most, 1e-3); });
  };
  return most < 1e-6 ? Waves::sines : all(first[0]) && first[0] > 0 ? Waves::cosines : Waves::both;
}

Waves waves_along(const Table& table, double tolerance) {
  const std::int64_t rows = std::min(table.rows, kMostRows), columns = std::min(table.columns, kMostColumns);
  std::int64_t gap = -1;
  for (std::int64_t t = 0; t < std::min<std::int64_t>(rows, 3); ++t)
    if (table.at(t, 0) == 0 && table.at(t, columns - 1) == 0 && is_zero_row(table, t)) gap = t;
  Columns found;
  std::vector<double> first, x(static_cast<std::size_t>(rows));
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t t = 0; t < rows; ++t) x[static_cast<std::size_t>(t)] = table.at(t, c);
    first.push_back(x[0]);
    std::optional<Wave> wave = wave_of(x, -1, tolerance);  // sines alone begin with a row of zeros
    if (!wave && gap >= 0) wave = wave_of(x, gap, tolerance);
    if (!found.add(wave)) return Waves::none;
  }
  return found.are_waves(rows, tolerance) ? kind_of_first(first) : Waves::none;
}

// Positions of a square image in rows: every column is a wave along one axis and constant along the other.
bool waves_of_image(const Table& table, double tolerance) {
  const auto side_of = [](std::int64_t n) { return static_cast<std::int64_t>(std::llround(std::sqrt(n))); };
  std::int64_t skipped = 0;
  while (skipped < 3 && table.rows > skipped && is_zero_row(table, skipped)) ++skipped;
  // The first position of the image has a cosine in it: it is no row of zeros.
  const std::int64_t side = side_of(table.rows - skipped);
  if (side < 4 || side * side != table.rows - skipped) return false;
  Columns found;
  std::vector<double> x(static_cast<std::size_t>(side));
  for (std::int64_t c = 0; c < std::min(table.columns, kMostColumns); ++c) {
    const auto at = [&](std::int64_t i, std::int64_t j) { return table.at(skipped + i * side + j, c); };
    bool along_rows = true, along_columns = true;
    for (std::int64_t k = 0; k < side; ++k) {
      along_columns = along_columns && at(k, 1) == at(0, 1) && at(k, side - 1) == at(0, side - 1);
      along_rows = along_rows && at(1, k) == at(1, 0) && at(side - 1, k) == at(side - 1, 0);
    }
    if (!along_rows && !along_columns) return false;
    for (std::int64_t k = 0; k < side; ++k)
      x[static_cast<std::size_t>(k)] = along_columns ? at(0, k) : at(k, 0);
    if (!found.add(wave_of(x, -1, tolerance))) return false;
  }
  return found.are_waves(side, tolerance);
}

}  // namespace

bool is_additive_mask(const Tensor& tensor) {
  if (!has_contents(tensor) || tensor.count() < 4) return false;
  bool kept = false, hidden = false;
  const bool fits = for_samples(tensor, [&](double x) {
    kept = kept || x == 0;
    hidden = hidden || x <= kHidden;
    return x == 0 || x <= kHidden;
  });
  return fits && kept && hidden;
}

bool is_zero_one(const Tensor& tensor) {
  if (!has_contents(tensor) || tensor.count() < 4) return false;
  bool zero = false, one = false;
  const bool fits = for_samples(tensor, [&](double x) {
    zero = zero || x == 0;
    one = one || x == 1;
    return x == 0 || x == 1;
  });
  return fits && zero && one;
}

bool is_triangle(const Tensor& tensor) {
  if (!is_zero_one(tensor) || tensor.shape().size() < 2) return false;
  const std::int64_t columns = tensor.shape().back(), rows = tensor.shape()[tensor.shape().size() - 2];
  if (rows < 3 || columns < rows) return false;
  const double corner = tensor.at((rows - 1) * columns);  // of the last row: 1 below the diagonal
  std::int64_t edge = 0;                                  // of the first row
  while (edge < columns && tensor.at(edge) == corner) ++edge;
  const std::int64_t step = std::max<std::int64_t>(1, rows * columns / kMostSamples) | 1;
  for (std::int64_t i = 0; i < tensor.count(); i += step) {
    const std::int64_t row = i / columns % rows, column = i % columns;
    if (tensor.at(i) != (column < row + edge ? corner : 1 - corner)) return false;
  }
  return true;
}

bool is_range(const Tensor& tensor, double first) {
  if (!has_contents(tensor)) return false;
  const Shape dims = squeezed(tensor.shape());
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] < 4) continue;
    const Table table = table_along(tensor, dims, axis);
    const std::int64_t step = std::max<std::int64_t>(1, tensor.count() / kMostSamples) | 1;
    bool fits = true;
    for (std::int64_t i = 0; fits && i < tensor.count(); i += step)
      fits = table.at(i % table.rows, i / table.rows) == first + static_cast<double>(i % table.rows);
    if (fits) return true;
  }
  return false;
}

Waves waves_of(const Tensor& tensor) {
  if (!has_contents(tensor)) return Waves::none;
  const Shape dims = squeezed(tensor.shape());
  const double tolerance = dims.size() < 2 ? 0 : rounding_of(tensor);
  for (std::size_t axis = 0; axis < dims.size() && dims.size() > 1; ++axis) {
    if (dims[axis] < 4) continue;
    const Table table = table_along(tensor, dims, axis);
    if (const Waves waves = waves_along(table, tolerance); waves != Waves::none) return waves;
    if (axis == 0 && waves_of_image(table, tolerance)) return Waves::both;
  }
  return Waves::none;
}

bool is_frequencies(const Tensor& tensor) {
  if (!has_contents(tensor) || squeezed(tensor.shape()).size() != 1) return false;
  const std::int64_t count = std::min(tensor.count(), kMostSamples);
  if (tensor.at(0) != 1) return false;
  const double ratio = tensor.at(1), tolerance = rounding_of(tensor);
  bool falls = true, geometric = true;
  for (std::int64_t i = 1; i < count; ++i) {
    const double x = tensor.at(i), before = tensor.at(i - 1);
    falls = falls && x > 0 && x < before;
    geometric = geometric && std::fabs(x - ratio * before) <= tolerance * before;
  }
  return falls && (geometric || count >= 4);
}

bool is_distance_bias(const Tensor& tensor) {
  if (!has_contents(tensor)) return false;
  const Shape dims = squeezed(tensor.shape());
  if (dims.size() < 2 || dims[0] < 2 || dims.back() < 4) return false;
  const std::int64_t head = tensor.count() / dims[0], keys = std::min(dims.back(), kMostRows);
  const double tolerance = rounding_of(tensor);
  std::vector<double> slopes;
  for (std::int64_t h = 0; h < std::min(dims[0], kMostColumns); ++h) {
    const double slope = tensor.at(h * head + 1) - tensor.at(h * head);
    if (!std::isfinite(slope) || slope == 0) return false;
    for (std::int64_t j = 1; j < keys; ++j) {
      const double line = tensor.at(h * head) + slope * static_cast<double>(j);
      if (std::fabs(tensor.at(h * head + j) - line) >
          tolerance * std::fabs(slope) * static_cast<double>(keys))
        return false;
    }
    slopes.push_back(slope);
  }
  const double ratio = slopes[1] / slopes[0];
  for (std::size_t h = 1; h < slopes.size(); ++h)
    if (std::fabs(slopes[h] - ratio * slopes[h - 1]) > 10 * tolerance * std::fabs(slopes[h - 1]))
      return false;
  return ratio > 0 && ratio < 1;
}

bool is_shared_filter(const Tensor& tensor) {
  const Shape& dims = tensor.shape();
  if (!has_contents(tensor) || dims.size() < 3 || dims[0] < 2 || dims[1] != 1) return false;
  const std::int64_t taps = tensor.count() / dims[0];
  bool uniform = true;
  for (std::int64_t i = 0; i < std::min(tensor.count(), kMostSamples); ++i) {
    if (tensor.at(i) != tensor.at(i % taps)) return false;
    uniform = uniform && tensor.at(i) == tensor.at(0);
  }
  return !uniform && taps > 1;
}

bool is_root_of_integer(double number) {
  const double square = number * number;
  return square > 3.5 && square < 1e6 && std::fabs(square - std::round(square)) <= 1e-5 * square;
}

}  // namespace gradloom
