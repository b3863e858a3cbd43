// Where the time of a recorded loop goes, and what a faster engine would change. Of the steps that were timed kernel by kernel,
// so that all numbers are of the same steps and add up; without such steps of all. The first steps (kWarmupSteps) are left
// out where there are more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/host_spans.h"

namespace gradloom {

// The own time of all spans of a kind and name, per step.
struct LoopPart {
  std::string kind, name;
  double ns = 0, spans = 0;  // per step
};

struct LoopShares {
  std::int64_t steps = 0;       // that the numbers are of
  double step_ns = 0;           // mean
  double kernel_ns = 0;         // per step; 0 where no step was timed kernel by kernel
  std::vector<LoopPart> parts;  // by kind in the order of host_kinds(), then longest first

  double ns_of(const std::string& kind) const;
  double share(double ns) const { return step_ns > 0 ? ns / step_ns : 0; }
  std::string title_of(const HostKind& kind) const;  // of its own time
  bool has_engine() const;  // false: the kernels are of another program, as its profiler saw them
  double engine_share() const { return share(ns_of("engine")); }
  // Of what PyTorch computes in modules and their backward: what might be the engine's.
  double torch_share() const { return share(ns_of("outside") + ns_of("module") + ns_of("backward")); }
  // How many times as fast the loop would be with an engine so many times as fast.
  double loop_speedup(double engine_speedup) const;
};

// One row of what is shown: "engine: kernels", "engine: between kernels", "data", ..
struct LoopRow {
  std::string title;
  double ns = 0, share = 0;
};
// In the order of host_kinds(), without those of no time
std::vector<LoopRow> loop_rows(const LoopShares& loop);
// "the engine computes 61.0 % of a step: twice as fast would make the loop 1.44x", and where it is 1 % or more "; PyTorch
// computes 20.0 % in modules and autograd". Of another profiler's run: "the kernels' times add up to 83.0 % of a step"
std::string loop_verdict(const LoopShares& loop);

// Takes the spans of step after step.
class LoopSums {
 public:
  void add(const std::vector<HostSpan>& step);
  // `kernel_ns`: of all kernels in the added steps together.
  LoopShares shares(double kernel_ns) const;

 private:
  std::int64_t steps_ = 0;
  double step_ns_ = 0;
  std::vector<LoopPart> parts_;  // sums over the steps
};

}  // namespace gradloom
