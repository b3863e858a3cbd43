#include "viz/model/compare_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace gradloom {
namespace {

// What a numeric column orders by; nothing: the row has no such number.
std::optional<double> number_of(const ComparedRow& row, CompareColumn by) {
  switch (by) {
    case CompareColumn::kA: return row.a_kernels > 0 ? std::optional(row.a_ns) : std::nullopt;
    case CompareColumn::kB: return row.b_kernels > 0 ? std::optional(row.b_ns) : std::nullopt;
    case CompareColumn::kChange: return row.b_ns - row.a_ns;
    case CompareColumn::kKernels: return static_cast<double>(row.b_kernels - row.a_kernels);
    case CompareColumn::kP: return row.p < 1 ? std::optional(row.p) : std::nullopt;
    case CompareColumn::kName:
    case CompareColumn::kPhase: break;
  }
  return std::nullopt;
}

}  // namespace

std::vector<int32_t> order_of_rows(const std::vector<ComparedRow>& rows, CompareColumn by, bool descending) {
  std::vector<int32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  const bool by_text = by == CompareColumn::kName || by == CompareColumn::kPhase;
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    const ComparedRow &a = rows[static_cast<size_t>(x)], &b = rows[static_cast<size_t>(y)];
    if (by_text) {
      const int order_of_text =
          by == CompareColumn::kName ? a.name.compare(b.name) : a.phase.compare(b.phase);
      return descending ? order_of_text > 0 : order_of_text < 0;
    }
    const auto p = number_of(a, by), q = number_of(b, by);
    if (p.has_value() != q.has_value()) return p.has_value();
    return p && (descending ? *p > *q : *p < *q);
  });
  return order;
}

}  // namespace gradloom
