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

// A part of the series that has another level than what is on both sides of it.
struct Episode {
  std::size_t from = 0, to = 0;  // behind its last value
  double statistic = -1;
};

// Of lengths that grow by a quarter: enough to see that there is one, in n log n.
Episode largest_episode(const std::vector<double>& ranks, std::size_t least_length) {
  Episode best;
  const std::size_t count = ranks.size();
  std::vector<double> sums(count + 1, 0);
  std::partial_sum(ranks.begin(), ranks.end(), sums.begin() + 1);
  const auto n = static_cast<double>(count);
  for (std::size_t length = least_length; length + 2 * least_length <= count;
       length = std::max(length + 1, length * 5 / 4)) {
    const auto inside = static_cast<double>(length);
    const double expected = inside * (n + 1) / 2, deviation = std::sqrt(inside * (n - inside) * (n + 1) / 12);
    for (std::size_t from = least_length; from + length + least_length <= count; ++from) {
      const double statistic = std::abs(sums[from + length] - sums[from] - expected) / deviation;
      if (statistic > best.statistic + 1e-9) best = {from, from + length, statistic};
    }
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

  // How often the ranks in another order have so large a statistic.
  template <class Statistic>
  double p_of(std::vector<double> ranks, double observed, const Statistic& statistic) {
    int as_large = 0;
    for (int i = 0; i < kPermutations; ++i) {
      for (std::size_t k = ranks.size() - 1; k > 0; --k) std::swap(ranks[k], ranks[random_() % (k + 1)]);
      if (statistic(ranks) >= observed - 1e-9) ++as_large;
    }
    return (1 + as_large) / (1.0 + kPermutations);
  }

  bool changes(double before, double after) const {
    return std::abs(after - before) >= options_.least_change * std::min(before, after);
  }

  void cut(std::size_t from, std::size_t to) {
    if (to - from < 2 * options_.least_length) return;
    const std::vector<double> ranks = ranks_of({values_.begin() + static_cast<std::ptrdiff_t>(from),
                                                values_.begin() + static_cast<std::ptrdiff_t>(to)});
    if (!cut_in_two(from, to, ranks)) cut_out(from, to, ranks);
  }

  bool cut_in_two(std::size_t from, std::size_t to, const std::vector<double>& ranks) {
    const Division division = largest_division(ranks, options_.least_length);
    if (division.statistic <= 0) return false;
    const double p = p_of(ranks, division.statistic, [&](const std::vector<double>& other) {
      return largest_division(other, options_.least_length).statistic;
    });
    const std::size_t at = from + division.at;
    const double before = median_of(from, at), after = median_of(at, to);
    if (p >= options_.significance || !changes(before, after)) return false;
    found_.push_back({at, before, after, p});
    cut(from, at);
    cut(at, to);
    return true;
  }

  // Where values between two places cease to be nearer to one level than to the next. Their ranks tell that there are two levels, but
  // many of the one and few of the other have their largest statistic beside the border.
  std::size_t border(std::size_t from, std::size_t to, double before, double after) const {
    double cost = 0, least = 0;  // against the border at the first place
    std::size_t best = from + options_.least_length;
    for (std::size_t i = best; i + options_.least_length < to; ++i) {
      cost += std::abs(values_[i] - before) - std::abs(values_[i] - after);
      if (cost >= least) continue;
      least = cost;
      best = i + 1;
    }
    return best;
  }

  // A level that was left again divides nothing in two: what is before it and what is behind it are alike.
  void cut_out(std::size_t from, std::size_t to, const std::vector<double>& ranks) {
    const Episode episode = largest_episode(ranks, options_.least_length);
    if (episode.statistic <= 0) return;
    const double p = p_of(ranks, episode.statistic, [&](const std::vector<double>& other) {
      return largest_episode(other, options_.least_length).statistic;
    });
    if (p >= options_.significance / 2) return;
    std::size_t begin = from + episode.from, end = from + episode.to;
    begin = border(from, end, median_of(from, begin), median_of(begin, end));
    end = border(begin, to, median_of(begin, end), median_of(end, to));
    const double before = median_of(from, begin), inside = median_of(begin, end), after = median_of(end, to);
    if (!changes(before, inside) || !changes(inside, after)) return;
    found_.push_back({begin, before, inside, p});
    found_.push_back({end, inside, after, p});
    cut(from, begin);
    cut(begin, end);
    cut(end, to);
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
