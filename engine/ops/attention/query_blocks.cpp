#include "engine/ops/attention/query_blocks.h"

#include <algorithm>

#include "engine/ops/copies.h"

namespace gradloom::attention {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kScoreBytes = 16 << 20;  // of one block
constexpr std::int64_t kRowStep = 16;           // blocks are whole multiples of it
constexpr std::int64_t kLeastRows = 64;         // of a block that could leave keys out
constexpr std::int64_t kMostBlocks = 1024;      // each has products of its own, prepared when planning

// Scores at or below are hidden: their probability is 0 beside any other. f16 ends at -65504.
double hidden(DType type) { return type == DType::f16 ? -3e4 : -1e9; }

// What a known mask does to one row of queries, in any part of the batch.
struct Row {
  std::int64_t end = 0;                   // keys from here on are hidden; all keys for a row that sees none
  std::int64_t first_masked = INT64_MAX;  // the first key that it does something to
  bool blind = false;                     // it hides every key
};

// Offsets of the parts of the batch in which the mask differs.
Ints parts_of(const Attention& a, const Ints& strides) {
  Ints offsets = {0};
  for (std::size_t i = 0; i < a.batch.size(); ++i) {
    if (strides[i] == 0) continue;
    Ints more;
    for (const std::int64_t offset : offsets)
      for (std::int64_t n = 0; n < a.batch[i]; ++n) more.push_back(offset + n * strides[i]);
    offsets = std::move(more);
  }
  return offsets;
}

// masked(i): whether element i of the mask does something to its score; `hides`: what it does hides the key.
template <class Masked, class Hides>
std::vector<Row> rows_of(const Attention& a, const Ints& strides, const Masked& masked, const Hides& hides) {
  const Ints parts = parts_of(a, strides);
  const std::int64_t row_step = strides[strides.size() - 2], step = strides.back();
  std::vector<Row> rows(static_cast<std::size_t>(row_step == 0 ? 1 : a.rows));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const std::int64_t part : parts) {
      std::int64_t at = part + static_cast<std::int64_t>(r) * row_step, end = 0;
      for (std::int64_t key = 0; key < a.keys; ++key, at += step) {
        if (!masked(at)) {
          end = key + 1;
          continue;
        }
        rows[r].first_masked = std::min(rows[r].first_masked, key);
        if (!hides(at)) end = key + 1;
      }
      rows[r].blind = rows[r].blind || end == 0;
      rows[r].end = std::max(rows[r].end, end == 0 ? a.keys : end);
    }
  }
  rows.resize(static_cast<std::size_t>(a.rows), rows[0]);
  return rows;
}

// zeros: whether adding 0 counts as doing something.
std::vector<Row> rows_of(const Attention& a, const Tensor& mask, bool zeros) {
  const Ints strides = mask_strides(a, mask.shape());
  const auto of_sums = [&, most = hidden(a.scores)](const auto& element) {
    return rows_of(
        a, strides, [&](std::int64_t i) { return zeros || element(i) != 0; },
        [&](std::int64_t i) { return element(i) <= most; });
  };
  if (a.mask == Mask::add && mask.dtype() == DType::f32)
    return of_sums([values = mask.as<float>()](std::int64_t i) { return double{values[i]}; });
  if (a.mask == Mask::add) return of_sums([&](std::int64_t i) { return mask.at(i); });
  const auto* const set = mask.as<std::uint8_t>();
  return rows_of(
      a, strides, [set, block = a.mask == Mask::block](std::int64_t at) { return (set[at] != 0) == block; },
      [hides = a.fill <= hidden(a.scores)](std::int64_t) { return hides; });
}

bool any_blind(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.blind; });
}

}  // namespace

std::vector<std::int64_t> mask_strides(const Attention& a, const Shape& mask) {
  Ints strides = dense_strides(mask);
  for (std::size_t i = 0; i < mask.size(); ++i)
    if (mask[i] == 1) strides[i] = 0;
  strides.insert(strides.begin(), a.batch.size() + 2 - mask.size(), 0);
  return strides;
}

Reach reach_of(const Attention& a, const Tensor& known) {
  const std::vector<Row> rows = rows_of(a, known, false);
  Reach reach{1, true};
  for (std::size_t r = 0; r < rows.size(); ++r)
    reach.keys = std::max(reach.keys, rows[r].end - static_cast<std::int64_t>(r));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::int64_t end = std::min(static_cast<std::int64_t>(r) + reach.keys, a.keys);
    reach.all = reach.all && !rows[r].blind && rows[r].end == end && rows[r].first_masked >= end;
  }
  return reach;
}

bool hides_the_future_only(const Attention& a, const Tensor& known) {
  const Reach reach = reach_of(a, known);
  return reach.all && reach.keys == 1;
}

bool hides_all_of_a_row(const Attention& a, const Tensor& known) {
  return any_blind(rows_of(a, known, false));
}

std::int64_t rounded(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

Schedule schedule_of(const Attention& a, const Tensor* known) {
  const std::int64_t row_bytes = std::max<std::int64_t>(
      1, element_count(a.batch) * a.keys * static_cast<std::int64_t>(dtype_bytes(a.scores)));
  std::int64_t size = std::max(kRowStep, kScoreBytes / row_bytes / kRowStep * kRowStep);
  size = std::max(size, rounded((a.rows + kMostBlocks - 1) / kMostBlocks, kRowStep));
  Schedule schedule;
  std::vector<Row> seen;
  if (known != nullptr && a.rows > 0) {
    size = std::min(size, std::max(kLeastRows, rounded(a.rows / 8, kRowStep)));
    seen = rows_of(a, *known, true);
  }
  schedule.masked_shares = (a.mask == Mask::keep || a.mask == Mask::block) &&
                           (known == nullptr || a.fill > hidden(a.scores) || any_blind(seen));
  for (std::int64_t row = 0; row < a.rows; row += size) {
    QueryBlock block{row, std::min(size, a.rows - row), a.keys, a.mask != Mask::none};
    if (known != nullptr) {
      std::int64_t end = 0, first_masked = INT64_MAX;
      for (std::int64_t r = row; r < row + block.rows; ++r) {
        end = std::max(end, seen[static_cast<std::size_t>(r)].end);
        first_masked = std::min(first_masked, seen[static_cast<std::size_t>(r)].first_masked);
      }
      block.keys = std::min(a.keys, rounded(end, kRowStep));
      block.masked = first_masked < block.keys;
    }
    schedule.blocks.push_back(block);
  }
  return schedule;
}

}  // namespace gradloom::attention
