// Statistics of timings. Medians, never means: one slow step in a thousand must not move a result.
// Interval: percentile bootstrap (Efron 1979) of the median, resampled with a fixed-seed PCG32, so results
// repeat bit for bit. Ratios of times are always A / B: above 1 means that B is faster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradloom {

double median(std::vector<double> values);  // 0 when empty

struct Interval {
  double value = 0, low = 0, high = 0;  // median and its confidence interval
};
constexpr int kResamples = 10'000;
Interval bootstrap_median(const std::vector<double>& values, double confidence = 0.95,
                          int resamples = kResamples);
// Median(a) / median(b) of two unpaired samples.
Interval bootstrap_ratio(const std::vector<double>& a, const std::vector<double>& b, double confidence = 0.95,
                         int resamples = kResamples);

enum class Verdict : std::uint8_t { faster, slower, same, unsure };
const char* verdict_name(Verdict verdict);  // "FASTER", ...
constexpr double kSameMargin = 0.02;
// `ratio` = time A / time B. FASTER (B is) or SLOWER: the interval excludes 1 and the median is further from
// 1 than max(kSameMargin, noise), noise being what A against A shows. SAME: the whole interval lies within 1
// +- kSameMargin. Else UNSURE.
Verdict decide(const Interval& ratio, double noise);

// Two-sided Mann-Whitney U test by normal approximation with tie correction (Mann and Whitney 1947).
double mann_whitney_p(const std::vector<double>& a, const std::vector<double>& b);
// Holm's step-down adjustment (Holm 1979): adjusted p-values in the order given.
std::vector<double> holm(const std::vector<double>& p_values);

}  // namespace gradloom
