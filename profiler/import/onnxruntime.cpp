#include "profiler/import/onnxruntime.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "engine/base/text.h"
#include "engine/onnx/file/scope.h"
#include "profiler/import/kernel_rows.h"
#include "profiler/import/kineto_calls.h"

namespace gradloom {
namespace {

using Kind = ChromeEvent::Kind;

constexpr std::string_view kKernelTime = "_kernel_time";

std::string phase_of(const std::string& op, const std::string& node) {
  for (const std::string_view word :
       {"AdamOptimizer", "AdamWOptimizer", "SGDOptimizer", "SGDOptimizerV2", "LambOptimizer"})
    if (op == word) return "optimizer";
  const bool gradient = op.ends_with("Grad") || op.find("Grad_") != std::string::npos ||
                        node.find("_Grad/") != std::string::npos || op == "InPlaceAccumulatorV2" ||
                        op == "InPlaceAccumulator";
  return gradient ? "backward" : "forward";
}

class OnnxRuntimeRun {
 public:
  explicit OnnxRuntimeRun(ChromeEvents& events) : events_(events), rows_(trace_, events.texts) {}
  Result<ImportedTrace> make();

 private:
  void find_steps();
  ImportedStep* step_of(std::int64_t start_ns);
  KernelPlace describe(const ChromeEvent& e);

  ChromeEvents& events_;
  ImportedTrace trace_;
  KernelRows rows_;
};

void OnnxRuntimeRun::find_steps() {
  for (const ChromeEvent& e : events_.events)
    if (e.kind == Kind::session && events_.texts[e.name] == "model_run")
      trace_.steps.push_back({e.start_ns, e.duration_ns, {}, {}, {}});
  std::stable_sort(trace_.steps.begin(), trace_.steps.end(),
                   [](const ImportedStep& a, const ImportedStep& b) { return a.start_ns < b.start_ns; });
}

ImportedStep* OnnxRuntimeRun::step_of(std::int64_t start_ns) {
  const auto after =
      std::upper_bound(trace_.steps.begin(), trace_.steps.end(), start_ns,
                       [](std::int64_t ns, const ImportedStep& step) { return ns < step.start_ns; });
  if (after == trace_.steps.begin()) return nullptr;
  ImportedStep& step = *(after - 1);
  return start_ns <= step.start_ns + step.duration_ns ? &step : nullptr;
}

KernelPlace OnnxRuntimeRun::describe(const ChromeEvent& e) {
  std::string node = events_.texts[e.name];
  node.resize(node.size() - kKernelTime.size());
  TextTable& texts = events_.texts;
  KernelPlace place;
  place.kernel = place.op = place.source = e.detail != 0 ? e.detail : texts.add("node");
  place.phase = texts.add(phase_of(texts[e.detail], node));
  place.scope = texts.add(scope_of_node(node).value_or(""));
  place.inputs = e.inputs;
  place.node = texts.add(node);
  return place;
}

Result<ImportedTrace> OnnxRuntimeRun::make() {
  trace_.origin = "onnxruntime";
  trace_.device = "cpu";
  find_steps();
  if (trace_.steps.empty())
    return Error{Errc::bad_input, "the profile has no run of its session (model_run)"};
  if (trace_.steps.size() > kMostImportSteps)
    return Error{Errc::limit, fmt::format("it has more than {} steps", kMostImportSteps)};
  std::erase_if(events_.events, [&](const ChromeEvent& e) {
    return e.kind != Kind::node || !events_.texts[e.name].ends_with(kKernelTime);
  });
  // Loop, If and Scan take the time of what lies in them, which has rows of its own: they keep what is theirs.
  const KinetoCalls nested = nest_calls(events_);
  const auto event_of = [&](const KinetoCall& node) -> const ChromeEvent& {
    return events_.events[static_cast<std::size_t>(node.event)];
  };
  std::vector<std::int64_t> executions(trace_.steps.size());
  for (const KinetoCall& node : nested.calls)
    if (const ImportedStep* step = step_of(event_of(node).start_ns))
      ++executions[static_cast<std::size_t>(step - trace_.steps.data())];
  if (const std::int64_t left_out = fit_steps(trace_, executions); left_out > 0)
    trace_.notes.push_back(fmt::format("at most {} executions of kernels are taken: {} left out",
                                       kMostImportExecutions, plural_text(left_out, "later step")));
  for (const KinetoCall& node : nested.calls)
    if (ImportedStep* step = step_of(event_of(node).start_ns))
      rows_.add(*step, describe(event_of(node)), node.own_start_ns, node.own_ns);
  if (trace_.kernels.empty()) return Error{Errc::bad_input, "the profile has no nodes in its runs"};
  for (const auto& [name, value] : events_.facts) trace_.environment[name] = value;
  const std::string& providers = trace_.environment["trace.providers"];
  if (providers.find("CUDA") != std::string::npos || providers.find("ROCM") != std::string::npos ||
      providers.find("MIGraphX") != std::string::npos || providers.find("Tensorrt") != std::string::npos)
    trace_.notes.push_back("nodes on a GPU have the time of the call on the host, not that of their kernels");
  if (events_.unreadable > 0)
    trace_.notes.push_back(plural_text(events_.unreadable, "event") + " without a time");
  return std::move(trace_);
}

}  // namespace

Result<ImportedTrace> import_onnxruntime(ChromeEvents& events) { return OnnxRuntimeRun(events).make(); }

}  // namespace gradloom
