// Where a series of measurements changes its level.
//
// A place is looked for where the ranks of the values are divided most: the largest standardized Mann-Whitney statistic over all
// places (Pettitt 1979). It counts where so large a one comes up in less than `significance` of the series in another order
// (permutation test, fixed seed), and where the medians differ by `least_change`. The parts are looked at in turn (binary
// segmentation, Scott and Knott 1974). Where no place divides a part, a level that was left again is looked for: the values between
// two places against those on both sides (the epidemic alternative of Levin and Kline 1985), at half of `significance`.
#pragma once

#include <cstddef>
#include <vector>

namespace gradloom {

struct ChangePointOptions {
  double significance = 0.01;
  double least_change = 0.02;    // of the lower median
  std::size_t least_length = 2;  // of a level
};

struct ChangePoint {
  std::size_t at = 0;            // the first value of the new level
  double before = 0, after = 0;  // medians of the levels on both sides
  double p = 1;
};

// In order. REQUIRES finite values above 0.
std::vector<ChangePoint> change_points(const std::vector<double>& values, const ChangePointOptions& options);

}  // namespace gradloom
