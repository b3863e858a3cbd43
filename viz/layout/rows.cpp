#include "viz/layout/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace gradloom {
namespace {

// Compressed adjacency: neighbours of slot s in one direction are other[first[s] .. first[s+1]).
struct Adjacency {
  std::vector<int32_t> first, other;
  std::vector<float> shift;  // desired x(s) = x(other) + shift
};

Adjacency make_adjacency(size_t slot_count, const std::vector<RowLink>& links, bool towards_upper) {
  Adjacency adjacency;
  adjacency.first.assign(slot_count + 1, 0);
  for (const RowLink& link : links) ++adjacency.first[(towards_upper ? link.lower : link.upper) + 1];
  std::partial_sum(adjacency.first.begin(), adjacency.first.end(), adjacency.first.begin());
  adjacency.other.resize(links.size());
  adjacency.shift.resize(links.size());
  std::vector<int32_t> cursor(adjacency.first.begin(), adjacency.first.end() - 1);
  for (const RowLink& link : links) {
    const int32_t self = towards_upper ? link.lower : link.upper;
    const int32_t at = cursor[self]++;
    adjacency.other[at] = towards_upper ? link.upper : link.lower;
    adjacency.shift[at] = towards_upper ? link.upper_dx - link.lower_dx : link.lower_dx - link.upper_dx;
  }
  return adjacency;
}

class Rows {
 public:
  Rows(const std::vector<RowSlot>& slots, const std::vector<RowLink>& links, int32_t row_count, float gap)
      : slots_(slots),
        gap_(gap),
        rows_(row_count),
        position_(slots.size()),
        x_(slots.size(), 0.f),
        above_(make_adjacency(slots.size(), links, true)),
        below_(make_adjacency(slots.size(), links, false)),
        anchor_(anchors(slots.size(), links)) {
    for (int32_t i = 0; i < static_cast<int32_t>(slots.size()); ++i) rows_[slots[i].row].push_back(i);
  }

  std::vector<float> place(uint64_t* steps) {
    initial_order();
    if (above_.other.empty()) {
      for (const auto& row : rows_) pack(row);
      centre_rows();
    } else {
      for (int sweep = 0; sweep < 4; ++sweep) order_sweep(sweep % 2 == 0);
      for (const auto& row : rows_) pack(row);
      centre_rows();
      for (int sweep = 0; sweep < 8; ++sweep) position_sweep(sweep);
      keep_near_axis();
      // Boxes stay where they are now; the bends between them straighten.
      boxes_fixed_ = true;
      for (int sweep = 4; sweep < 7; ++sweep) position_sweep(sweep);
    }
    float left = std::numeric_limits<float>::max();
    for (size_t i = 0; i < x_.size(); ++i) left = std::min(left, x_[i] - slots_[i].width / 2);
    for (float& x : x_) x -= left;
    if (steps) *steps += steps_;
    return std::move(x_);
  }

 private:
  void initial_order() {
    for (auto& row : rows_) {
      std::stable_sort(row.begin(), row.end(),
                       [&](int32_t a, int32_t b) { return slots_[a].order < slots_[b].order; });
      number(row);
    }
  }

  void number(const std::vector<int32_t>& row) {
    for (size_t i = 0; i < row.size(); ++i) position_[row[i]] = static_cast<float>(i);
  }

  void order_sweep(bool down) {
    const int32_t n = static_cast<int32_t>(rows_.size());
    std::vector<std::pair<float, int32_t>> keyed;
    for (int32_t k = 1; k < n; ++k) {
      auto& row = rows_[down ? k : n - 1 - k];
      const auto& fixed = rows_[down ? k - 1 : n - k];
      steps_ += row.size();
      if (row.size() < 2) continue;
      const Adjacency& adjacency = down ? above_ : below_;
      // A slot without neighbours keeps its relative place: its own position scaled
      // to the fixed row's length.
      const float scale =
          static_cast<float>(std::max<size_t>(fixed.size(), 1)) / static_cast<float>(row.size());
      keyed.clear();
      for (int32_t slot : row) {
        const int32_t begin = adjacency.first[slot], end = adjacency.first[slot + 1];
        float key = position_[slot] * scale;
        if (begin < end) {
          float sum = 0;
          for (int32_t i = begin; i < end; ++i) sum += position_[adjacency.other[i]];
          key = sum / static_cast<float>(end - begin);
        }
        keyed.emplace_back(key, slot);
      }
      std::stable_sort(keyed.begin(), keyed.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t i = 0; i < row.size(); ++i) row[i] = keyed[i].second;
      number(row);
    }
  }

  float separation(int32_t a, int32_t b) const {
    const float gap = slots_[a].bend && slots_[b].bend ? gap_ * 0.5f : gap_;
    return (slots_[a].width + slots_[b].width) / 2 + gap;
  }

  void pack(const std::vector<int32_t>& row) {
    float x = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      x = i == 0 ? slots_[row[0]].width / 2 : x + separation(row[i - 1], row[i]);
      x_[row[i]] = x;
    }
  }

  void centre_rows() {
    for (const auto& row : rows_) {
      if (row.empty()) continue;
      const float middle =
          (x_[row.front()] - slots_[row.front()].width / 2 + x_[row.back()] + slots_[row.back()].width / 2) /
          2;
      for (int32_t slot : row) x_[slot] -= middle;
    }
  }

  // Rows follow one another, so a lopsided pattern that repeats carries each repetition
  // a little farther to one side: thousands of rows end many screens away from the
  // first. A row of one slot stands on the axis, and whatever follows it moves along;
  // edges between other rows are only bent where the rows have come too far.
  void keep_near_axis() {
    constexpr float kFar = 240;
    float shift = 0;
    for (const auto& row : rows_) {
      if (row.empty()) continue;
      ++steps_;
      const float left = x_[row.front()] - slots_[row.front()].width / 2,
                  right = x_[row.back()] + slots_[row.back()].width / 2;
      const bool single = row.size() == 1;
      const float at = (single ? x_[row[0]] + anchor_[row[0]] : (left + right) / 2) + shift;
      if (single || std::abs(at) > kFar + (right - left) / 2) shift -= at;
      for (int32_t slot : row) x_[slot] += shift;
    }
  }

  // Where the edges of a slot run, from its middle: those that come from above, else those that go below. A
  // group's ports are seldom in its middle.
  static std::vector<float> anchors(size_t slot_count, const std::vector<RowLink>& links) {
    std::vector<float> sum(slot_count, 0.f), below(slot_count, 0.f);
    std::vector<int32_t> count(slot_count, 0), count_below(slot_count, 0);
    for (const RowLink& link : links) {
      sum[link.lower] += link.lower_dx;
      ++count[link.lower];
      below[link.upper] += link.upper_dx;
      ++count_below[link.upper];
    }
    for (size_t i = 0; i < slot_count; ++i) {
      if (count[i] == 0) sum[i] = below[i], count[i] = count_below[i];
      if (count[i] > 0) sum[i] /= static_cast<float>(count[i]);
    }
    return sum;
  }

  void position_sweep(int sweep) {
    const int32_t n = static_cast<int32_t>(rows_.size());
    const bool down = sweep % 2 == 0;
    const bool both = sweep >= 4;  // the later sweeps balance both neighbour rows
    for (int32_t k = 0; k < n; ++k) place_row(rows_[down ? k : n - 1 - k], both || down, both || !down);
  }

  // min sum w_i (x_i - d_i)^2  s.t.  x_{i+1} - x_i >= sep_i.  With z_i = x_i - sum of separations, z is
  // non-decreasing.
  void place_row(const std::vector<int32_t>& row, bool use_above, bool use_below) {
    if (row.empty()) return;
    pools_.clear();
    steps_ += row.size();
    float offset = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) offset += separation(row[i - 1], row[i]);
      float sum = 0, weight = 0;
      if (use_above) gather(row[i], above_, sum, weight);
      if (use_below) gather(row[i], below_, sum, weight);
      float desired = x_[row[i]];
      if (boxes_fixed_ && !slots_[row[i]].bend) {
        weight = 1e6f;
      } else if (weight > 0) {
        desired = sum / weight;
      } else {
        weight = 0.05f;
      }
      Pool pool{weight, weight * (desired - offset), 1};
      while (!pools_.empty() && pools_.back().value() > pool.value()) {
        pool.weight += pools_.back().weight;
        pool.sum += pools_.back().sum;
        pool.count += pools_.back().count;
        pools_.pop_back();
      }
      pools_.push_back(pool);
    }
    offset = 0;
    size_t i = 0;
    for (const Pool& pool : pools_) {
      for (int32_t k = 0; k < pool.count; ++k, ++i) {
        if (i > 0) offset += separation(row[i - 1], row[i]);
        x_[row[i]] = pool.value() + offset;
      }
    }
  }

  void gather(int32_t slot, const Adjacency& adjacency, float& sum, float& weight) const {
    for (int32_t i = adjacency.first[slot]; i < adjacency.first[slot + 1]; ++i) {
      const int32_t other = adjacency.other[i];
      const float w =
          slots_[slot].bend ? (slots_[other].bend ? 8.f : 2.f) : (slots_[other].bend ? 0.5f : 1.f);
      sum += w * (x_[other] + adjacency.shift[i]);
      weight += w;
    }
  }

  struct Pool {
    float weight, sum;
    int32_t count;
    float value() const { return sum / weight; }
  };

  const std::vector<RowSlot>& slots_;
  const float gap_;
  std::vector<std::vector<int32_t>> rows_;
  std::vector<float> position_, x_;
  Adjacency above_, below_;
  std::vector<float> anchor_;
  std::vector<Pool> pools_;
  bool boxes_fixed_ = false;
  uint64_t steps_ = 0;
};

}  // namespace

std::vector<float> place_rows(const std::vector<RowSlot>& slots, const std::vector<RowLink>& links,
                              int32_t row_count, float gap, uint64_t* steps) {
  if (slots.empty()) return {};
  if (slots.size() == 1) return {slots[0].width / 2};
  return Rows(slots, links, row_count, gap).place(steps);
}

}  // namespace gradloom
