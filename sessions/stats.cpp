// Medians, bootstrap intervals, verdicts, block order, rank test, Holm's adjustment.
#include "sessions/stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sessions/random.h"

namespace gradloom {
namespace {

constexpr std::uint64_t kSeed = 0x67726164;  // any fixed number: results must repeat

// Median of a scratch range, which is reordered.
double median_in_place(std::vector<double>& v) {
  const std::size_t n = v.size();
  if (n == 0) return 0;
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(n / 2);
  std::nth_element(v.begin(), middle, v.end());
  if (n % 2 == 1) return *middle;
  return 0.5 * (*std::max_element(v.begin(), middle) + *middle);
}

// Medians of resamples of one sample. Up to 4096 values they are drawn as they are defined. Of
// more, the sorted sample is read at the place where the median of n uniform numbers falls: a
// Beta((n + 1) / 2, (n + 1) / 2) number, for such n a normal one (David and Nagaraja 2003, 2.3),
// here the sum of twelve uniform numbers.
class ResampledMedian {
 public:
  explicit ResampledMedian(const std::vector<double>& values) : values_(values) {
    if (values_.size() <= kDrawn) return;
    std::sort(values_.begin(), values_.end());
    deviation_ = 0.5 / std::sqrt(static_cast<double>(values_.size()) + 2);
  }
  double draw(Pcg32& random) {
    const std::size_t n = values_.size();
    if (n <= kDrawn) {
      scratch_.resize(n);
      for (double& x : scratch_) x = values_[random.below(static_cast<std::uint32_t>(n))];
      return median_in_place(scratch_);
    }
    double normal = -6;
    for (int i = 0; i < 12; ++i) normal += random.next() * 0x1p-32;
    const double place = std::clamp(0.5 + deviation_ * normal, 0.0, 1.0) * static_cast<double>(n);
    return values_[std::min(static_cast<std::size_t>(place), n - 1)];
  }

 private:
  static constexpr std::size_t kDrawn = 4096;
  std::vector<double> values_, scratch_;
  double deviation_ = 0;
};

Interval percentiles(double value, std::vector<double>& draws, double confidence) {
  std::sort(draws.begin(), draws.end());
  const double tail = 0.5 * (1 - confidence) * static_cast<double>(draws.size());
  const auto low = static_cast<std::size_t>(std::floor(tail));
  const std::size_t high = draws.size() - 1 - low;
  return {value, draws[low], draws[high]};
}

}  // namespace

double median(std::vector<double> values) { return median_in_place(values); }

Interval bootstrap_median(const std::vector<double>& values, double confidence, int resamples) {
  if (values.empty()) return {};
  Pcg32 random(kSeed);
  std::vector<double> draws(static_cast<std::size_t>(std::max(resamples, 1)));
  ResampledMedian resampled(values);
  for (double& draw : draws) draw = resampled.draw(random);
  return percentiles(median(values), draws, confidence);
}

Interval bootstrap_ratio(const std::vector<double>& a, const std::vector<double>& b, double confidence,
                         int resamples) {
  if (a.empty() || b.empty() || median(b) == 0) return {};
  Pcg32 random(kSeed);
  std::vector<double> draws;
  draws.reserve(static_cast<std::size_t>(std::max(resamples, 1)));
  ResampledMedian of_a(a), of_b(b);
  for (int i = 0; i < std::max(resamples, 1); ++i) {
    const double top = of_a.draw(random);
    const double bottom = of_b.draw(random);
    draws.push_back(bottom > 0 ? top / bottom : HUGE_VAL);
  }
  return percentiles(median(a) / median(b), draws, confidence);
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster: return "FASTER";
    case Verdict::slower: return "SLOWER";
    case Verdict::same: return "SAME";
    case Verdict::unsure: return "UNSURE";
  }
  return "UNSURE";
}

Verdict decide(const Interval& ratio, double noise) {
  if (!(ratio.low > 0) || !std::isfinite(ratio.high)) return Verdict::unsure;
  if (ratio.low >= 1 - kSameMargin && ratio.high <= 1 + kSameMargin) return Verdict::same;
  const double needed = std::max(kSameMargin, noise);
  if (ratio.low > 1 && ratio.value - 1 > needed) return Verdict::faster;
  // Symmetric in A and B: 1 / ratio is judged by the same rule.
  if (ratio.high < 1 && 1 / ratio.value - 1 > needed) return Verdict::slower;
  return Verdict::unsure;
}

double mann_whitney_p(const std::vector<double>& a, const std::vector<double>& b) {
  const std::size_t n = a.size() + b.size();
  if (a.empty() || b.empty()) return 1;
  std::vector<std::pair<double, bool>> all;
  all.reserve(n);
  for (double x : a) all.emplace_back(x, true);
  for (double x : b) all.emplace_back(x, false);
  std::sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
  double rank_sum = 0, ties = 0;
  for (std::size_t i = 0; i < n;) {
    std::size_t j = i;
    while (j < n && all[j].first == all[i].first) ++j;
    const auto t = static_cast<double>(j - i);
    ties += t * t * t - t;
    const double rank = 0.5 * (static_cast<double>(i + 1) + static_cast<double>(j));
    for (std::size_t k = i; k < j; ++k) rank_sum += all[k].second ? rank : 0;
    i = j;
  }
  const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size()), total = na + nb;
  const double u = rank_sum - na * (na + 1) / 2, mean = na * nb / 2;
  const double variance = na * nb / 12 * ((total + 1) - ties / (total * (total - 1)));
  if (variance <= 0) return 1;
  const double z = std::max(0.0, std::abs(u - mean) - 0.5) / std::sqrt(variance);
  return std::erfc(z / std::sqrt(2.0));
}

std::vector<double> holm(const std::vector<double>& p_values) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t x, std::size_t y) { return p_values[x] < p_values[y]; });
  std::vector<double> adjusted(p_values.size());
  double running = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    running = std::max(running, p_values[order[i]] * static_cast<double>(order.size() - i));
    adjusted[order[i]] = std::min(1.0, running);
  }
  return adjusted;
}

}  // namespace gradloom
