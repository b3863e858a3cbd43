// Why a comparison is as sure as it is: what the interval lacks for a verdict, how much single groups stray, whether the machine became
// slower or faster meanwhile, which groups something else disturbed, and how long a comparison that did not decide would have to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sessions/compare.h"

namespace gradloom {

struct ComparisonNoise {
  std::string why;  // the verdict, in one sentence
  // The rest is of interleaved comparisons that keep their groups; all zero for others.
  double spread =
      0;  // of the groups' ratios, as a part of their median: 1.4826 x the median absolute deviation
  double drift =
      0;  // time of a step of either side in the last third of the groups against the first, less 1
  std::vector<bool> disturbed;  // of each group: a block took far longer than its side's blocks usually do
  std::int64_t disturbed_groups = 0;
  double lasting =
      0;  // how alike neighbouring groups are: lag-1 correlation of their ranks; above kLasting (2 / root of the groups, where they are few) the
          // interval is probably too narrow
  // Of UNSURE: what would probably decide, if the scatter stays as it is (an interval shrinks with the root of the groups).
  // 0: no time can be named, for the reason that `no_time` says, or the verdict stands.
  std::int64_t groups_needed = 0;
  double seconds_needed = 0;
  std::string no_time;

  static constexpr double kLasting = 0.4;
};

// The median of the first so many groups' ratios with its 95 % interval, by order statistics of the binomial distribution
// (Conover, Practical Nonparametric Statistics, 1999, 3.2): cheap, and a little wider than the bootstrap's.
constexpr std::size_t kFewestForInterval = 8;
class RunningIntervals {
 public:
  void add(const ComparedGroup& group);
  // From kFewestForInterval groups on, one for each.
  const std::vector<Interval>& all() const { return intervals_; }

 private:
  std::vector<double> sorted_;
  std::vector<Interval> intervals_;
};
RunningIntervals running_intervals(const std::vector<ComparedGroup>& groups);

ComparisonNoise explain_noise(const Comparison& comparison);
// One to three lines, without the sentence `why`; empty where nothing is known.
std::vector<std::string> noise_lines(const ComparisonNoise& noise, const Comparison& comparison);

}  // namespace gradloom
