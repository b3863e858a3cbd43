#include "engine/run/launches.h"

#include <algorithm>
#include <optional>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/padding/packed_rows.h"
#include "engine/run/prepared_kernels.h"
#include "kernels/signals.h"

namespace gradloom {
namespace {

bool is_copy(Queue queue) { return queue == Queue::upload || queue == Queue::download; }

// `first`: plan step of its first launch.
Status run_recorded(Recording& recording, std::int32_t first, std::int32_t micro_index, StepOutcome* timed) {
  const std::int64_t start_ns = monotonic_ns();
  TRY(recording.run());
  if (timed != nullptr)
    timed->activities.push_back({Activity::Kind::api, first, 0, start_ns, monotonic_ns(), 0,
                                 "launch of the recorded step", micro_index});
  return {};
}

}  // namespace

Status Launches::prepare(const Graph& graph, const Plan& plan, const Blocks& blocks,
                         const kernels::RandomState* random) {
  random_ = random;
  std::vector<std::unique_ptr<PreparedKernel>> kernels = TRY(prepared_kernels(graph, plan, device_));
  steps_.reserve(plan.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& from = plan.steps[i];
    const Node& node = graph.nodes[from.node];
    Step step;
    step.kernel = std::move(kernels[i]);
    for (ValueId in : node.inputs) step.inputs.push_back(blocks.address(in));
    if (queued_ && counts_rows(node)) step.inputs[0] = &rows_;
    for (ValueId out : node.outputs) step.outputs.push_back(blocks.address(out));
    if (from.workspace_bytes > 0) step.workspace = blocks.of(Place::arena) + from.workspace_offset;
    step.micro = from.micro;
    step.queue = static_cast<Queue>(from.stream);
    if (is_copy(step.queue)) step.bytes = byte_size(graph.type(node.outputs[0]));
    step.waits.assign(from.waits.begin(), from.waits.end());
    for (const std::size_t other : step.waits)
      if (!steps_[other].event) steps_[other].event = TRY(device_.make_event());
    if (step.queue != Queue::compute) {
      if (!joins_.count(step.queue)) joins_[step.queue] = TRY(device_.make_event());
      first_.emplace(std::pair(step.queue, step.micro), i);
    }
    if (step.kernel->host_meets_ranks()) meeting_.push_back(step.kernel.get());
    steps_.push_back(std::move(step));
  }
  return {};
}

Launches::~Launches() {
  for (const Step& s : steps_)
    if (s.event) device_.release_event(*s.event);
  for (const auto& [_, event] : joins_) device_.release_event(event);
  for (const Event event : clock_) device_.release_event(event);
}

Status Launches::run(std::size_t plan_step) const {
  const Step& s = steps_[plan_step];
  const auto number = static_cast<std::int32_t>(plan_step);
  if (s.queue == Queue::compute) return device_.launch(*s.kernel, operands(s), number);
  if (s.queue == Queue::exchange) return device_.launch_exchange(*s.kernel, operands(s), number);
  return device_.transfer(s.queue, s.outputs[0], s.inputs[0], s.bytes, number);
}

Status Launches::queue(std::size_t plan_step) const {
  const Step& s = steps_[plan_step];
  for (const std::size_t other : s.waits) TRY(device_.wait_for(*steps_[other].event, s.queue));
  if (s.queue != Queue::compute && s.waits.empty() && first_.at({s.queue, s.micro}) == plan_step)
    TRY(device_.order(Queue::compute, s.queue));  // it begins with its range
  TRY(run(plan_step));
  return s.event ? device_.note(*s.event, s.queue) : Status();
}

// A range ends when all queues have.
Status Launches::join_queues(bool micro_range) const {
  for (const auto& [queue, event] : joins_) {
    if (!first_.count({queue, micro_range})) continue;
    TRY(device_.note(event, queue));
    TRY(device_.wait_for(event, Queue::compute));
  }
  return {};
}

Status Launches::launch_range(bool micro_range, std::int32_t micro_index, StepOutcome* timed) const {
  kernels::NoSignals no_signals;
  std::optional<kernels::ThreadWatch> threads;
  if (timed != nullptr && !queued_) threads.emplace();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    if (s.micro != micro_range) continue;
    no_signals.let_through();
    const auto plan_step = static_cast<std::int32_t>(i);
    if (timed == nullptr) {
      TRY(queue(i));
      continue;
    }
    if (threads) threads->begin();
    const std::int64_t start_ns = monotonic_ns();
    TRY(queue(i));
    const std::int64_t end_ns = monotonic_ns();
    if (queued_)
      timed->activities.push_back(
          {Activity::Kind::api, plan_step, 0, start_ns, end_ns, 0, "launch", micro_index});
    else
      timed->samples.push_back({plan_step, micro_index, start_ns, end_ns - start_ns, threads->end()});
  }
  launched_.insert(rows_);
  return join_queues(micro_range);
}

Status Launches::launch_range_by_events(bool micro_range, std::int32_t micro_index, StepOutcome& timed) {
  kernels::NoSignals no_signals;
  std::vector<std::int32_t> behind;  // plan steps, by their event less one
  const auto tick = [&]() -> Status {
    if (clock_.size() <= behind.size()) clock_.push_back(TRY(device_.make_event()));
    return device_.note(clock_[behind.size()], Queue::compute);
  };
  std::int64_t start_ns = monotonic_ns();  // the device is idle
  TRY(tick());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].micro != micro_range) continue;
    no_signals.let_through();
    TRY(queue(i));
    if (steps_[i].queue != Queue::compute) continue;
    behind.push_back(static_cast<std::int32_t>(i));
    TRY(tick());
  }
  launched_.insert(rows_);
  TRY(join_queues(micro_range));
  TRY(device_.synchronize());
  for (std::size_t k = 0; k < behind.size(); ++k) {
    const std::int64_t ns = TRY(device_.elapsed_ns(clock_[k], clock_[k + 1]));
    timed.samples.push_back({behind[k], micro_index, start_ns, ns});
    start_ns += ns;
  }
  return {};
}

bool Launches::host_meets_ranks() const {
  return std::any_of(meeting_.begin(), meeting_.end(),
                     [](const PreparedKernel* kernel) { return kernel->host_meets_ranks(); });
}

std::vector<Implementations> Launches::implementations() const {
  std::vector<Implementations> all;
  for (const Step& s : steps_) all.push_back(s.kernel->implementations());
  return all;
}

Status Launches::launch(std::int32_t plan_step) const { return run(static_cast<std::size_t>(plan_step)); }

Status Launches::tune(std::int32_t candidates) {
  for (const Step& s : steps_)
    if (s.queue == Queue::compute) TRY(device_.tune(*s.kernel, operands(s), candidates));
  return {};
}

std::int32_t Launches::first_of(bool micro_range) const {
  const auto first =
      std::find_if(steps_.begin(), steps_.end(), [&](const Step& s) { return s.micro == micro_range; });
  return first == steps_.end() ? -1 : static_cast<std::int32_t>(first - steps_.begin());
}

Status Launches::record_missing(Recordings& r, bool one_range) {
  if (one_range && r.whole == nullptr)
    r.whole = TRY(device_.record([&]() -> Status {
      TRY(launch_range(true, 0, nullptr));
      return launch_range(false, 0, nullptr);
    }));
  if (!one_range && r.micro == nullptr)
    r.micro = TRY(device_.record([&] { return launch_range(true, 0, nullptr); }));
  if (!one_range && r.once == nullptr)
    r.once = TRY(device_.record([&] { return launch_range(false, 0, nullptr); }));
  return {};
}

Status Launches::run_micro(Recordings& r, bool one_range, std::int32_t micro_index,
                           StepOutcome* timed) const {
  if (one_range && r.whole) return run_recorded(*r.whole, first_of(true), 0, timed);
  if (!one_range && r.micro) return run_recorded(*r.micro, first_of(true), micro_index, timed);
  return launch_range(true, micro_index, timed);
}

Status Launches::run_once(Recordings& r, bool one_range, StepOutcome* timed) const {
  if (!one_range && r.once) return run_recorded(*r.once, first_of(false), 0, timed);
  if (!one_range || !r.whole) return launch_range(false, 0, timed);
  return {};
}

}  // namespace gradloom
