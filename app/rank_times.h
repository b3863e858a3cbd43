// What every rank of a training does in its timed steps, brought together at rank 0, whose session keeps it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/job.h"
#include "profiler/environment.h"
#include "sessions/rank_rows.h"

namespace gradloom {

class RankTimes {
 public:
  // Of the other ranks, too: all call. Nothing with one rank.
  static Result<std::optional<RankTimes>> meet(const Job& job, const Environment& own);
  const std::vector<RankRow>& ranks() const { return ranks_; }  // at rank 0
  // The environments of all ranks as they are now, at rank 0; all call.
  static Result<std::vector<std::map<std::string, std::string>>> environments(const Environment& own);
  // Before and after a step that is timed on every rank. What they did, on this rank's clock; nothing at the others.
  void begin_step();
  Result<RankStep> end_step(const StepResult& result);

 private:
  RankTimes() = default;
  std::vector<ExchangeRow> own_exchanges(const StepResult& result) const;
  const Job* job_ = nullptr;
  std::string machine_;  // the same for ranks that share a clock
  std::vector<RankRow> ranks_;
  std::vector<std::vector<std::int32_t>> steps_;  // by rank: of rank 0's plan by its own; empty: the same
};

}  // namespace gradloom
