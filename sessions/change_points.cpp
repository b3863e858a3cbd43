#include "sessions/change_points.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "sessions/stats.h"

namespace gradloom {
namespace {

constexpr int kPermutations = 2000;

// Ties share the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i + 1;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t k = i; k < end; ++k) ranks[order[k]] = static_cast<double>(i + end + 1) / 2;
    i = end;
  }
  return ranks;
}

struct Division {
  std::size_t at = 0;
  double statistic = -1;
};

Division largest_division(const std::vector<double>& ranks, std::size_t least_length) {
  Division best;
  const auto n = static_cast<double>(ranks.size());
  double sum = 0;
  for (std::size_t i = 0; i + least_length < ranks.size(); ++i) {
    sum += ranks[i];
    const std::size_t length = i + 1;
    if (length < least_length) continue;
    const auto left = static_cast<double>(length);
    const double deviation = std::sqrt(left * (n - left) * (n + 1) / 12);
    const double statistic = std::abs(sum - left * (n + 1) / 2) / deviation;
    if (statistic > best.statistic + 1e-9) best = {length, statistic};
  }
  return best;
}

class Segmentation {
 public:
  Segmentation(const std::vector<double>& values, const ChangePointOptions& options)
      : values_(values), options_(options) {
    cut(0, values.size());
    std::sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  }

  std::vector<ChangePoint> points() {
    for (std::size_t i = 0; i < found_.size(); ++i) {
      const std::size_t from = i > 0 ? found_[i - 1].at : 0,
                        to = i + 1 < found_.size() ? found_[i + 1].at : values_.size();
      found_[i].before = median_of(from, found_[i].at);
      found_[i].after = median_of(found_[i].at, to);
    }
    return std::move(found_);
  }

 private:
  double median_of(std::size_t from, std::size_t to) const {
    return median({values_.begin() + static_cast<std::ptrdiff_t>(from),
                   values_.begin() + static_cast<std::ptrdiff_t>(to)});
  }

  void cut(std::size_t from, std::size_t to) {
    if (to - from < 2 * options_.least_length) return;
    std::vector<double> ranks = ranks_of({values_.begin() + static_cast<std::ptrdiff_t>(from),
                                          values_.begin() + static_cast<std::ptrdiff_t>(to)});
    const Division division = largest_division(ranks, options_.least_length);
    if (division.statistic <= 0) return;
    int as_large = 0;
    for (int i = 0; i < kPermutations; ++i) {
      for (std::size_t k = ranks.size() - 1; k > 0; --k) std::swap(ranks[k], ranks[random_() % (k + 1)]);
      if (largest_division(ranks, options_.least_length).statistic >= division.statistic - 1e-9) ++as_large;
    }
    const double p = (1 + as_large) / (1.0 + kPermutations);
    const std::size_t at = from + division.at;
    const double before = median_of(from, at), after = median_of(at, to);
    if (p >= options_.significance) return;
    if (std::abs(after - before) < options_.least_change * std::min(before, after)) return;
    found_.push_back({at, before, after, p});
    cut(from, at);
    cut(at, to);
  }

  const std::vector<double>& values_;
  const ChangePointOptions& options_;
  std::mt19937 random_{1};
  std::vector<ChangePoint> found_;
};

}  // namespace

std::vector<ChangePoint> change_points(const std::vector<double>& values, const ChangePointOptions& options) {
  return Segmentation(values, options).points();
}

}  // namespace gradloom
