// Sparse matrices along axes: y[.., j, ..] = sum over e in [begin[j], begin[j + 1]) of weight[e] * x[..,
// index[e], ..]. Padding that repeats and interpolation are made of them; a gradient is the same with the
// matrix transposed (row Resample).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom::resampling {

struct AxisTable {
  std::int64_t in = 0;  // size of the axis of x
  std::vector<std::int32_t> begin{0}, index;
  std::vector<double> weight;

  std::int64_t out() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  void add(std::int64_t at, double w) {
    index.push_back(static_cast<std::int32_t>(at));
    weight.push_back(w);
  }
  void end_row() { begin.push_back(static_cast<std::int32_t>(index.size())); }
  bool selects() const;   // every row is one element of x as it is
  bool identity() const;  // y is x
  AxisTable transposed() const;
};

// Axis d of x by tables[d]; no table: as it is.
using Tables = std::vector<std::optional<AxisTable>>;
// Output positions whose coordinate is outside, per axis: they get `value` instead. Empty: none.
struct Outside {
  double value = 0;
  std::vector<std::vector<bool>> rows;
};

// Input 0 to output 0, axis after axis, those that shrink first. Selections work for every type, weights for
// the floats that kernels have.
Result<Kernel> prepare(const char* name, const NodeTypes& types, Tables tables, const Outside& outside = {});
// The gradient of the input: a node per axis.
ValueId gradient(GraphBuilder& b, ValueId dy, const Tables& tables);
double flops(const Shape& x, const Tables& tables);

}  // namespace gradloom::resampling
