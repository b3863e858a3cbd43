// The chain of kernels, exchanges and pauses that a step's end waited for, found from the end backwards on the lanes of
// step_idle.h. Before a kernel comes what it began after:
//   - the kernel before it on its lane, with the pause between them, if there is one;
//   - where it waited for a kernel of another lane (IdleCause::kDependency): that one;
//   - where it stands still for an exchange between ranks: the transfer, and before that the rank that was ready last, with
//     what this one had done until then.
// What else ran meanwhile could take longer without the step taking longer. A step whose kernels are all on one lane, one
// after the other, is its critical path as a whole: that says nothing, and `alone` tells it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "viz/model/step_idle.h"

namespace gradloom {

struct PathPiece {
  enum class Kind : std::uint8_t { kKernel, kTransfer, kIdle } kind = Kind::kKernel;
  double start_ns = 0, end_ns = 0;
  std::int32_t lane = 0;     // index in StepIdle::lanes
  std::int32_t kernel = -1;  // index in the lane's kernels; of a pause the one that it stands before
  IdleCause cause = IdleCause::kLaunch;  // of a pause
};

struct CriticalPath {
  bool alone = false;                       // there is one lane only
  std::vector<PathPiece> pieces;            // by start, without gaps between them
  std::size_t kernels = 0, of_kernels = 0;  // on it; of the step
  std::size_t changes = 0;                  // from one lane to another
  double length_ns() const { return pieces.empty() ? 0 : pieces.back().end_ns - pieces.front().start_ns; }
  bool has(std::int32_t lane, std::int32_t kernel) const;
};
CriticalPath critical_path(const StepIdle& step, const TraceDocument& trace);

// Its time by operator, transfers and causes of pauses among them ("(transfer)", "(launch)"), the longest first.
std::vector<std::pair<std::string, double>> path_by_op(const CriticalPath& path, const StepIdle& step,
                                                       const TraceDocument& trace);
// "48 of 61 kernels are on the critical path, over 3 ranks"; of one lane why it says nothing.
std::string path_text(const CriticalPath& path, const StepIdle& step);

}  // namespace gradloom
