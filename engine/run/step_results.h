// Steps that were submitted, and the way in which their results reach the host: a queued device writes
// them to pinned memory behind the step, and the host reads them when the step has finished.
#pragma once

#include <cstddef>
#include <deque>

#include "engine/ir/graph.h"
#include "engine/run/blocks.h"
#include "engine/run/executor.h"
#include "engine/train/train_graph.h"

namespace gradloom {

class StepResults {
 public:
  StepResults(const Graph& graph, Device& device, const Blocks& blocks)
      : graph_(graph), device_(device), blocks_(blocks), queued_(device.info().queued) {}
  ~StepResults();
  StepResults(const StepResults&) = delete;
  StepResults& operator=(const StepResults&) = delete;

  Status allocate();
  std::size_t size() const { return pending_.size(); }
  // The step whose launches are queued: its scalars follow them.
  Status push(const StepNames& names, StepOutcome outcome);
  StepOutcome& newest() { return pending_.back().outcome; }
  // Waits for the step; its outcome is complete then.
  Status finish_newest() { return finish(pending_.back()); }
  Status finish_all();
  Result<StepOutcome> pop();  // the oldest. REQUIRES size() > 0

 private:
  static constexpr std::size_t kScalars = StepNames::kReported.size();
  static constexpr std::size_t kScalarBytes = 64;  // per scalar and slot
  static constexpr std::size_t kOutcomes = 4;      // result slots; more than steps can be pending

  struct Pending {
    StepOutcome outcome;
    Fence done = 0;
    std::size_t result = 0;
    const Value* scalars[kScalars] = {};
    bool finished = false;  // outcome is complete
  };
  Status fetch(const StepNames& names, Pending& p);
  Status finish(Pending& p);
  std::byte* result_address(const Pending& p, std::size_t i) const {
    return results_ + (p.result * kScalars + i) * kScalarBytes;
  }

  const Graph& graph_;
  Device& device_;
  const Blocks& blocks_;
  const bool queued_;
  std::byte* results_ = nullptr;  // pinned: kOutcomes * kScalars scalars
  std::deque<Pending> pending_;
  std::size_t next_result_ = 0;
  std::int64_t last_end_ns_ = 0;
};

}  // namespace gradloom
