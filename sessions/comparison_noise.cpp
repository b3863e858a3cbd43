#include "sessions/comparison_noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/text.h"
#include "sessions/stats.h"

namespace gradloom {
namespace {

constexpr double kNormal =
    1.4826;                 // of the median absolute deviation: the standard deviation of normal numbers
constexpr double kFar = 5;  // deviations from the median: disturbed
constexpr double kFarAtLeast = 0.05;       // of the median
constexpr std::int64_t kGroupsForAll = 9;  // below it neither drift nor likeness of neighbours is told
constexpr double kFewest = 12;             // groups that a comparison makes at least, where it has time
constexpr double kMostSeconds = 24 * 3600;

double deviation_of(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> away;
  away.reserve(values.size());
  for (const double v : values) away.push_back(std::abs(v - middle));
  return kNormal * median(away);
}

// Places in ascending order, ties by position.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t x, std::size_t y) { return values[x] < values[y]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<double>(i);
  return ranks;
}

double likeness_of_neighbours(const std::vector<double>& values) {
  const std::vector<double> ranks = ranks_of(values);
  const double middle = static_cast<double>(ranks.size() - 1) / 2;
  double both = 0, all = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    all += (ranks[i] - middle) * (ranks[i] - middle);
    if (i > 0) both += (ranks[i] - middle) * (ranks[i - 1] - middle);
  }
  return all > 0 ? both / all : 0;
}

// Blocks of one side that took longer than the rest by more than chance makes them.
void mark_disturbed(const std::vector<ComparedGroup>& groups, const double (ComparedGroup::*side)[2],
                    std::vector<bool>& disturbed) {
  std::vector<double> blocks;
  for (const ComparedGroup& group : groups)
    for (const double ns : group.*side) blocks.push_back(ns);
  const double middle = median(blocks),
               limit = middle + std::max(kFar * deviation_of(blocks), kFarAtLeast * middle);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i] > limit) disturbed[i / 2] = true;
}

double drift_of(const std::vector<ComparedGroup>& groups) {
  std::vector<double> first, last;
  const std::size_t third = groups.size() / 3;
  const auto time = [](const ComparedGroup& g) { return g.a_ns[0] + g.a_ns[1] + g.b_ns[0] + g.b_ns[1]; };
  for (std::size_t i = 0; i < third; ++i) {
    first.push_back(time(groups[i]));
    last.push_back(time(groups[groups.size() - 1 - i]));
  }
  return median(last) / median(first) - 1;
}

std::string why(const Comparison& c) {
  const double away = std::abs(c.ratio.value - 1);
  const bool holds_one = !(c.ratio.low > 1) && !(c.ratio.high < 1);
  const std::string itself = c.interleaved ? "A against A" : "each run against itself";
  switch (c.verdict) {
    case Verdict::faster:
    case Verdict::slower:
      return fmt::format(
          "the whole interval lies {} 1, and {} of difference are more than the {} that {} shows",
          c.ratio.low > 1 ? "above" : "below", percent_text(away), percent_text(c.noise), itself);
    case Verdict::same:
      return fmt::format("the whole interval lies within {} of 1", percent_text(kSameMargin));
    case Verdict::unsure: break;
  }
  if (holds_one)
    return fmt::format("the interval holds 1, and differences of more than {} too",
                       percent_text(kSameMargin));
  if (away <= c.noise && c.noise > kSameMargin)
    return fmt::format("the difference of {} is not more than the {} that {} shows", percent_text(away),
                       percent_text(c.noise), itself);
  if (away <= kSameMargin)
    return fmt::format("the difference of {} counts for none (below {}), and the interval reaches further",
                       percent_text(away), percent_text(kSameMargin));
  return "there are too few measurements for a verdict";
}

// By what part the interval (and the noise, which shrinks with it) must become narrower for a verdict; 0: none can be named.
double shrinking_needed(const Comparison& c) {
  const double away = std::abs(c.ratio.value - 1);
  const double half = std::max(c.ratio.high - c.ratio.value, c.ratio.value - c.ratio.low);
  if (!(half > 0) || !std::isfinite(half)) return 0;
  if (away > kSameMargin) return std::min({1.0, away / half, c.noise > 0 ? away / c.noise : 1.0});
  return std::min(1.0, (kSameMargin - away) / half);
}

}  // namespace

std::vector<Interval> running_intervals(const std::vector<ComparedGroup>& groups) {
  std::vector<Interval> intervals;
  std::vector<double> sorted;
  for (const ComparedGroup& group : groups) {
    const double ratio = group.ratio();
    if (!std::isfinite(ratio)) continue;
    sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), ratio), ratio);
    const std::size_t n = sorted.size();
    if (n < kFewestForInterval) continue;
    const double root = std::sqrt(static_cast<double>(n));
    const auto below = static_cast<std::size_t>((static_cast<double>(n) - 1.96 * root) / 2);  // at least 1
    const double middle = n % 2 == 1 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
    intervals.push_back({middle, sorted[below - 1], sorted[n - below]});
  }
  return intervals;
}

std::optional<Interval> interval_so_far(const std::vector<ComparedGroup>& groups) {
  const std::vector<Interval> all = running_intervals(groups);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

ComparisonNoise explain_noise(const Comparison& c) {
  ComparisonNoise noise;
  noise.why = why(c);
  const std::vector<ComparedGroup>& groups = c.measured;
  if (!c.interleaved || groups.size() < 2) return noise;
  std::vector<double> ratios;
  for (const ComparedGroup& group : groups) ratios.push_back(group.ratio());
  noise.spread = deviation_of(ratios) / std::max(1e-9, median(ratios));
  noise.disturbed.assign(groups.size(), false);
  mark_disturbed(groups, &ComparedGroup::a_ns, noise.disturbed);
  mark_disturbed(groups, &ComparedGroup::b_ns, noise.disturbed);
  noise.disturbed_groups = std::count(noise.disturbed.begin(), noise.disturbed.end(), true);
  const auto count = static_cast<std::int64_t>(groups.size());
  if (count >= kGroupsForAll) {
    noise.drift = drift_of(groups);
    noise.lasting = likeness_of_neighbours(ratios);
  }
  const double part = c.verdict == Verdict::unsure ? shrinking_needed(c) : 0;
  if (part <= 0) return noise;
  // A quarter more, for the interval is a guess itself; and at least one group more than there are.
  const double needed =
      std::max({1.25 * static_cast<double>(count) / (part * part), static_cast<double>(count) + 1, kFewest});
  const double seconds = groups.back().at_s * needed / static_cast<double>(count);
  if (!(seconds < kMostSeconds)) return noise;
  noise.groups_needed = std::llround(needed);
  noise.seconds_needed = seconds;
  return noise;
}

std::vector<std::string> noise_lines(const ComparisonNoise& noise, const Comparison& c) {
  std::vector<std::string> lines;
  if (c.measured.size() < 2) return lines;
  std::string facts = fmt::format("one group strays by {}", percent_text(noise.spread));
  if (std::abs(noise.drift) >= kSameMargin)
    facts += fmt::format(", the machine became {} {} meanwhile (the order ABBA cancels it)",
                         percent_text(std::abs(noise.drift)), noise.drift > 0 ? "slower" : "faster");
  if (noise.disturbed_groups > 0)
    facts += fmt::format(", something disturbed {} of {} groups", noise.disturbed_groups, c.measured.size());
  lines.push_back(facts);
  if (noise.lasting > ComparisonNoise::kLasting)
    lines.emplace_back(
        "neighbouring groups are alike: what disturbs lasts longer than a group, and the interval is too narrow");
  if (noise.seconds_needed > 0) {
    const double seconds = std::ceil(noise.seconds_needed);
    lines.push_back(
        fmt::format("some {} groups would decide: --max-seconds {:.0f}", noise.groups_needed, seconds));
  } else if (c.verdict == Verdict::unsure) {
    lines.push_back(fmt::format("so near {} of difference no time can be named that would decide",
                                percent_text(kSameMargin)));
  }
  return lines;
}

}  // namespace gradloom
