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

// As decide() sees it: twice as fast and twice as slow are equally far from no difference.
double away_of(const Comparison& c) { return c.ratio.value < 1 ? 1 / c.ratio.value - 1 : c.ratio.value - 1; }

std::string why(const Comparison& c) {
  const double away = away_of(c);
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
  const bool decides = decide(c.ratio, c.noise) != Verdict::unsure;  // if only there were more of them
  if (!decides && holds_one)
    return fmt::format("the interval holds 1, and differences of more than {} too",
                       percent_text(kSameMargin));
  if (!decides && away <= c.noise && c.noise > kSameMargin)
    return fmt::format("the difference of {} is not more than the {} that {} shows", percent_text(away),
                       percent_text(c.noise), itself);
  if (!decides && away <= kSameMargin)
    return fmt::format("the difference of {} counts for none (below {}), and the interval reaches further",
                       percent_text(away), percent_text(kSameMargin));
  return "there are too few measurements for a verdict";
}

// By what part the interval (and the noise, which shrinks with it) must become narrower for a verdict; 0: none can be named.
double shrinking_needed(const Comparison& c) {
  const double away = away_of(c);
  const double half = std::max(c.ratio.high - c.ratio.value, c.ratio.value - c.ratio.low);
  if (!(half > 0) || !std::isfinite(half)) return 0;
  if (away > kSameMargin) return std::min({1.0, away / half, c.noise > 0 ? away / c.noise : 1.0});
  return std::min(1.0, (kSameMargin - away) / half);
}

}  // namespace

void RunningIntervals::add(const ComparedGroup& group) {
  const double ratio = group.ratio();
  sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), ratio), ratio);
  const std::size_t n = sorted_.size();
  if (n < kFewestForInterval) return;
  const double root = std::sqrt(static_cast<double>(n));
  const auto below = static_cast<std::size_t>((static_cast<double>(n) - 1.96 * root) / 2);  // at least 1
  const double middle = n % 2 == 1 ? sorted_[n / 2] : 0.5 * (sorted_[n / 2 - 1] + sorted_[n / 2]);
  intervals_.push_back({middle, sorted_[below - 1], sorted_[n - below]});
}

RunningIntervals running_intervals(const std::vector<ComparedGroup>& groups) {
  RunningIntervals intervals;
  for (const ComparedGroup& group : groups) intervals.add(group);
  return intervals;
}

namespace {

// What would decide a comparison that did not.
void name_time(const Comparison& c, ComparisonNoise& noise) {
  const auto count = static_cast<double>(c.measured.size());
  const double part = shrinking_needed(c);
  if (part <= 0) {
    noise.no_time = "too few groups to tell how many would decide";
    return;
  }
  // A quarter more, for the interval is a guess itself; and at least one group more than there are.
  const double needed = std::max({1.25 * count / (part * part), count + 1, kFewest});
  const double seconds = c.measured.back().at_s * needed / count;
  if (!(seconds < kMostSeconds)) {
    const double left = std::abs(away_of(c) - kSameMargin);
    noise.no_time = left < 0.1 * kSameMargin
                        ? fmt::format("so near {} of difference no time can be named that would decide",
                                      percent_text(kSameMargin))
                        : "groups stray so far that it would take more than a day";
    return;
  }
  noise.groups_needed = std::llround(needed);
  noise.seconds_needed = seconds;
}

}  // namespace

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
  if (c.verdict == Verdict::unsure) name_time(c, noise);
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
  const double limit =
      std::max(ComparisonNoise::kLasting, 2 / std::sqrt(static_cast<double>(c.measured.size())));
  if (noise.lasting > limit)
    lines.emplace_back(
        "neighbouring groups are alike: what disturbs lasts longer than a group, and the interval is probably too narrow");
  if (noise.seconds_needed > 0) {
    const double seconds = std::ceil(noise.seconds_needed);
    lines.push_back(
        fmt::format("some {} groups would decide: --max-seconds {:.0f}", noise.groups_needed, seconds));
  } else if (!noise.no_time.empty()) {
    lines.push_back(noise.no_time);
  }
  return lines;
}

}  // namespace gradloom
