#include "engine/run/launches.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/plan/planned_types.h"

namespace gradloom {
namespace {

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
  std::vector<KernelRequest> requests;
  for (const PlanStep& from : plan.steps) {
    const Node& node = graph.nodes[from.node];
    requests.push_back({node.op, planned_types(graph, plan, node), node.name});
  }
  std::vector<std::unique_ptr<PreparedKernel>> kernels = TRY(device_.prepare(requests));
  steps_.reserve(plan.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& from = plan.steps[i];
    const Node& node = graph.nodes[from.node];
    Step step;
    step.kernel = std::move(kernels[i]);
    for (ValueId in : node.inputs) step.inputs.push_back(blocks.address(in));
    for (ValueId out : node.outputs) step.outputs.push_back(blocks.address(out));
    if (from.workspace_bytes > 0) step.workspace = blocks.of(Place::arena) + from.workspace_offset;
    step.micro = from.micro;
    steps_.push_back(std::move(step));
  }
  return {};
}

Status Launches::launch_range(bool micro_range, std::int32_t micro_index, StepOutcome* timed) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    if (s.micro != micro_range) continue;
    const auto plan_step = static_cast<std::int32_t>(i);
    if (timed == nullptr) {
      TRY(device_.launch(*s.kernel, operands(s), plan_step));
      continue;
    }
    const std::int64_t start_ns = monotonic_ns();
    TRY(device_.launch(*s.kernel, operands(s), plan_step));
    const std::int64_t end_ns = monotonic_ns();
    if (queued_)
      timed->activities.push_back(
          {Activity::Kind::api, plan_step, 0, start_ns, end_ns, 0, "launch", micro_index});
    else
      timed->samples.push_back({plan_step, micro_index, start_ns, end_ns - start_ns});
  }
  return {};
}

Status Launches::launch(std::int32_t plan_step) const {
  const Step& s = steps_[static_cast<std::size_t>(plan_step)];
  return device_.launch(*s.kernel, operands(s), plan_step);
}

Status Launches::tune(std::int32_t candidates) {
  for (const Step& s : steps_) TRY(device_.tune(*s.kernel, operands(s), candidates));
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
