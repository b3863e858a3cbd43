// What is new in trends that are read again and again: each level that is slower than the one before is told once.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "viz/model/trend.h"

namespace gradloom {

// "mlp on cpu (..): a step takes 1.50x as long since run 11: MatMul_1 +10 us (forward); clip_norm: 1 -> 0"
std::string regression_text(const Trend& trend, const TrendChange& change);

class TrendNews {
 public:
  // The texts of regressions that were not there before. The first time that a series is seen nothing of it is new; a change that
  // comes to lie up to kDrift runs elsewhere as runs are added is the one that it was. Other sessions than before: all is seen first.
  std::vector<std::string> of(const std::vector<std::string>& sessions, const std::vector<Trend>& trends);

  static constexpr std::size_t kDrift = 3;

 private:
  std::vector<std::string> sessions_;
  std::map<std::string, std::set<std::string>> known_;  // by series, the runs with which known levels begin
};

}  // namespace gradloom
