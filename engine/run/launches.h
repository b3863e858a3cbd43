// The kernels and copies of a plan, prepared with their operands, and the ways to launch them: one by one, or
// as a recording that the device makes once. Streams of the plan are queues of the device, waits between them its events.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/run/blocks.h"
#include "engine/run/executor.h"
#include "engine/run/row_counts.h"

namespace gradloom {

class Launches {
 public:
  explicit Launches(Device& device) : device_(device), queued_(device.info().queued) {}
  ~Launches();
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  // `random`: where kernels read the random state.
  Status prepare(const Graph& graph, const Plan& plan, const Blocks& blocks,
                 const kernels::RandomState* random);
  std::size_t size() const { return steps_.size(); }
  // The plan step is of those that run for every micro-batch.
  bool in_micro(std::int32_t plan_step) const { return steps_[static_cast<std::size_t>(plan_step)].micro; }
  Queue queue_of(std::int32_t plan_step) const { return steps_[static_cast<std::size_t>(plan_step)].queue; }
  // Some kernel of them: PreparedKernel::host_meets_ranks.
  bool host_meets_ranks() const;

  // Launches the steps of the micro-batch or those after the last one. `timed`: where what was
  // measured goes, or null: on the CPU the kernels, on a queued device the launches themselves.
  Status launch_range(bool micro_range, std::int32_t micro_index, StepOutcome* timed) const;
  Status launch(std::int32_t plan_step) const;
  Status tune(std::int32_t candidates);  // Device::tune of each

  // The same with an event behind every kernel: for devices that have no trace. Waits for the end, and adds samples.
  Status launch_range_by_events(bool micro_range, std::int32_t micro_index, StepOutcome& timed);

  // On a queued device: what kernels of the plan that count rows are told from here on (RowCounts::rows).
  void set_rows(std::int64_t rows) { rows_ = rows; }

  // One recording for the whole step, or with accumulation one per micro-batch and one for what
  // comes after the last.
  struct Recordings {
    std::unique_ptr<Recording> whole, micro, once;
  };
  Recordings& recorded() { return recorded_[rows_]; }  // with so many rows
  void forget_recordings() { recorded_.clear(); }
  bool launched() const { return launched_.count(rows_) != 0; }  // one by one, with so many rows
  std::vector<Implementations> implementations() const;          // by plan step

  // Makes what is missing. The first step, and the first of so many rows (launched), is never recorded: it lets libraries
  // choose their algorithms.
  Status record_missing(Recordings& r, bool one_range);
  // A micro-batch, and what comes after the last: as recorded, else one by one. `one_range`: both
  // are one.
  Status run_micro(Recordings& r, bool one_range, std::int32_t micro_index, StepOutcome* timed) const;
  Status run_once(Recordings& r, bool one_range, StepOutcome* timed) const;

 private:
  struct Step {
    std::unique_ptr<PreparedKernel> kernel;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* workspace = nullptr;
    bool micro = true;
    Queue queue = Queue::compute;
    std::size_t bytes = 0;           // of a copy
    std::vector<std::size_t> waits;  // steps
    std::optional<Event> event;      // noted behind it: others wait for it
  };
  Operands operands(const Step& s) const { return {s.inputs.data(), s.outputs.data(), s.workspace, random_}; }
  std::int32_t first_of(bool micro_range) const;
  Status queue(std::size_t plan_step) const;  // with its waits
  Status run(std::size_t plan_step) const;    // without
  Status join_queues(bool micro_range) const;

  Device& device_;
  const bool queued_;
  const kernels::RandomState* random_ = nullptr;
  std::vector<Step> steps_;
  std::int64_t rows_ = RowCounts::kAll;
  std::map<std::int64_t, Recordings> recorded_;  // by rows
  mutable std::set<std::int64_t> launched_;
  // That do so until a library of the devices has joined the ranks
  std::vector<const PreparedKernel*> meeting_;
  std::vector<Event> clock_;      // of launch_range_by_events
  std::map<Queue, Event> joins_;  // behind the last step of each queue but the compute queue
  // The first step of such a queue in each range (micro)
  std::map<std::pair<Queue, bool>, std::size_t> first_;
};

}  // namespace gradloom
