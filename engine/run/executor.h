// Runs a plan on a device. All tensor memory is taken once in `create`.
//
// On a device that queues its work a step is submitted while the one before still
// runs: batches go up from pinned memory on a queue of their own, losses come back
// without stopping it, and the launches are recorded once and run again as one graph.
// The order of all that is the executor's; the plan is the same on every device.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/train/train_graph.h"
#include "kernels/thread_watch.h"

namespace gradloom {

struct LentMemory;  // engine/run/blocks.h

// One timed execution of a plan step: index into Plan::steps, monotonic clock. Where it is several kernels
// their busy time adds up.
struct KernelSample {
  std::int32_t plan_step = 0;
  std::int32_t micro = 0;
  std::int64_t start_ns = 0, duration_ns = 0;
  std::vector<kernels::ThreadTime> threads = {};  // of a CPU: who computed it
};

struct StepOptions {
  std::int64_t step = 1;  // 1-based; feeds Graph hyper input and random numbers
  double lr = 0;
  std::vector<double> options;  // the table of optimizer_inputs.h, where lr is one; empty: lr for all rows
  std::uint64_t seed = 0;
  std::int64_t micro_batches = 1;
  std::int64_t rank = 0,
               ranks = 1;  // N ranks draw the random numbers of one rank with N times the micro-batches
  bool timed = false;      // time every kernel: on a queued device nothing else runs meanwhile
  bool record = true;      // one graph per step where the device can
};

struct StepOutcome {
  std::int64_t step = 0;
  double loss = 0, grad_norm = -1;  // -1: not computed
  // With loss scaling: the next step's scale (else 0), and how many steps in a row were skipped up to this
  // one (0: it was made).
  double loss_scale = 0, skipped = 0;
  // monotonic: submitted (or the step before ended, if that was later); finished.
  std::int64_t start_ns = 0, end_ns = 0;
  std::vector<KernelSample> samples;  // when timed, in order of their start
  // When timed on a queued device: where the samples are from; "trace", "events: WHY" (between kernels, because there is
  // no trace; with what launching adds to them), "none: WHY".
  std::string times_from;
  // When timed on a queued device: copies, and the host's launches (kind api)
  std::vector<Activity> activities;
};

// Sees a kernel of the plan before it is launched, and again when it has run; false ends the step there.
using Observer = std::function<Result<bool>(std::int32_t plan_step, std::int64_t micro, bool after)>;

class Executor {
 public:
  // Keeps references to graph and plan: they must outlive the executor. Errc::io: initial contents that are in
  // a file which has changed.
  // `lent`: memory of another executor (lend), which must outlive this one and has nothing pending when it works.
  static Result<std::unique_ptr<Executor>> create(const Graph& graph, const Plan& plan, Device& device,
                                                  const LentMemory* lent = nullptr);
  ~Executor();

  Status feed(ValueId input, const Tensor& data);  // type-checked
  // Queues one optimizer step. `feed_micro(k)` is called before micro-batch k to feed
  // its inputs (may be empty).
  Status submit(const StepNames& names, const StepOptions& options,
                const std::function<Status(std::int64_t)>& feed_micro);
  std::size_t pending() const;    // submitted, not collected
  Result<StepOutcome> collect();  // of the oldest; waits for it. REQUIRES pending() > 0
  // Steps that should be pending so that the device never waits for the host: 0 on the CPU, and where a GPU's host exchanges with
  // other ranks.
  std::size_t depth() const;
  // submit and collect; REQUIRES pending() == 0.
  Result<StepOutcome> step(const StepNames& names, const StepOptions& options,
                           const std::function<Status(std::int64_t)>& feed_micro);
  // The step kernel by kernel: every value holds what it has at that moment. REQUIRES pending() == 0.
  Status observe(const StepNames& names, const StepOptions& options,
                 const std::function<Status(std::int64_t)>& feed_micro, const Observer& observer);
  // All steps once, without hyper inputs (check, evaluation)
  Status run_forward(std::uint64_t seed = 0, std::uint64_t step = 0);

  // Contents after everything that was submitted.
  Result<Tensor> read(ValueId value) const;  // any materialized value (outputs and states always are)
  // The same without a copy where the host reads the device's memory (the CPU): what a later step writes there
  // is seen, and nothing is once the executor is gone.
  Result<Tensor> view(ValueId value) const;
  Status write(ValueId state, const Tensor& data);  // of a parameter with a 16-bit copy: that too
  bool holds(ValueId state) const;                  // it has memory here; with zero another rank may keep it
  Result<double> read_scalar(ValueId value) const;
  // Lets the device find the fastest of `candidates` algorithms of its libraries for every kernel, after
  // which states are back to their initial contents. REQUIRES pending() == 0.
  Status tune(std::int32_t candidates);
  // Contents of all states after everything that was submitted, and back. REQUIRES pending() == 0 to restore.
  Result<std::vector<std::byte>> states() const;
  Status restore(const std::vector<std::byte>& states);
  Status reset();                       // states back to their initial contents, but lent ones
  Status load(const LentMemory& lent);  // the initial contents of these alone
  std::vector<Implementations> implementations() const;  // by plan step, as launched last
  std::int64_t measured_peak_bytes() const;              // bytes really taken from the device
  // The arena, and the memory of these values for those of another graph: {its value, ours}.
  LentMemory lend(const std::vector<std::pair<ValueId, ValueId>>& values) const;
  // Fills arena and host block with a byte (tests): 0xff makes NaN of every float, 0x7f the largest, 0x01 nearly zero.
  void poison(std::uint8_t byte = 0xff);
  const std::byte* memory(Place place) const;  // the block that the plan's offsets count from; null: none

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradloom
