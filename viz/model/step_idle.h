// Where a timed step's time goes besides kernels: lane by lane, each moment without one and what it waited for. The timeline's
// bar and tints, and `show --idle`, are made of it; critical_path.h goes back along it.
//
// A lane is a rank's stream on which kernels compute; streams that only copy between a GPU and its host are none. Its step
// begins where its step before ended, when that was timed too and no evaluation was made in between; else so much before
// its first kernel as the step took in all, which then counts as host. It ends with its last kernel, of a recorded loop with
// the loop's step.
//
// A moment of a lane is busy, or idle for one cause, looked for in this order:
//   imbalance   a kernel stands still for other ranks: until the last one is ready (what is not: copy); of a thread: it has no part of
//               the kernel that others compute
//   copy        a copy or fill has the stream; an exchange between ranks is being transferred, or has not begun although a kernel
//               waits for it
//   host        before the first kernel of the step and after its last one: batches, loss, what is not the engine's;
//               in a recorded loop also what its thread does outside the engine
//   in a gap before a kernel, by what was over last before it began, up to there: launch (the host had not launched it yet),
//   dependency (a kernel of another lane), copy (one on another stream); the rest, up to the kernel, is launch: the time
//   that engine and device need from one kernel to the next.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sessions/store.h"

namespace gradloom {

enum class IdleCause : std::uint8_t { kLaunch, kDependency, kCopy, kHost, kImbalance };
inline constexpr std::size_t kIdleCauses = 5;
inline constexpr std::array<const char*, kIdleCauses> kIdleCauseNames{"launch", "dependency", "copy", "host",
                                                                      "imbalance"};

// All times: ns from TraceStep::start_ns.
struct LaneKernel {
  double start_ns = 0, end_ns = 0;
  std::int32_t plan_step = -1;  // -1: a kernel of the device that belongs to none
  std::int32_t micro = 0;
  bool stands_still = false;  // for an exchange between ranks
};
// Whether an exchange of its rank is what a kernel stands still for; the exchange's times are on the step's clock.
bool stands_still_for(const LaneKernel& kernel, const TraceExchange& exchange, double start_ns,
                      double end_ns);
struct IdlePiece {
  double start_ns = 0, end_ns = 0;
  IdleCause cause = IdleCause::kLaunch;
  std::int32_t before = -1;                   // index of the lane's kernel that it stands before, or in
  std::int32_t by_lane = -1, by_kernel = -1;  // dependency: what was waited for
};
struct IdleSums {
  double wall_ns = 0;
  std::array<double, kIdleCauses> idle_ns{};
  double idle() const;
  double busy_ns() const { return wall_ns - idle(); }
};
struct IdleLane {
  std::string name;  // "Kernels", "Stream 1", "Rank 1"
  std::int32_t rank = 0, stream = 0;
  double start_ns = 0, end_ns = 0;
  std::vector<LaneKernel> kernels;                    // by start
  std::vector<IdlePiece> idle;                        // by start, not overlapping
  IdleSums sums(double from_ns, double to_ns) const;  // of what lies within
  IdleSums sums() const { return sums(start_ns, end_ns); }
};
// A thread of the CPU: idle when its first lane is and, as imbalance, while that lane's kernels run without a part for it.
struct IdleThread {
  std::int32_t thread = 0;
  IdleSums sums;
};
struct StepIdle {
  std::int64_t step = 0;
  std::vector<IdleLane> lanes;      // the run's own rank first
  std::vector<IdleThread> threads;  // where the run tells what they did, and there are several
};

// Keeps references: run and trace must outlive it.
class IdleReader {
 public:
  IdleReader(const RunRecord& run, const TraceDocument& trace);
  StepIdle step(std::int64_t step) const;  // without lanes where it is not timed
  // The step that took as long as half of the timed ones, without those of the warm-up where there are others; 0: none.
  std::int64_t median_step() const;
  struct Around;  // what a step has besides the kernels of its lanes

 private:
  void find_around(const TraceStep& step, Around& around) const;
  void set_bounds(const TraceStep& step, IdleLane& lane, bool first) const;
  std::vector<IdleThread> threads_of(std::int64_t step, const IdleLane& lane) const;
  const RunRecord& run_;
  const TraceDocument& trace_;
  std::map<std::int64_t, std::vector<const TraceRow*>> rows_;  // by step, of all ranks
  std::map<std::int64_t, std::vector<const TraceActivity*>> activities_;
  std::map<std::int64_t, std::vector<const TraceThread*>> threads_;
  std::map<std::int64_t, std::vector<const TraceExchange*>> exchanges_;
  std::map<std::int64_t, std::vector<const HostSpan*>> host_;
  std::set<std::int64_t> evaluated_;  // steps
};

// "busy 92.1 %, launch 4.0 %, host 3.9 %": what is there.
std::string idle_text(const IdleSums& sums);

}  // namespace gradloom
