// The whole way from an imported forward graph to a plan.
#include "passes/compile.h"

#include <algorithm>

#include "engine/autodiff/autodiff.h"
#include "engine/base/text.h"
#include "passes/planners.h"

namespace gradloom {
namespace {

Status check_stop(const std::stop_token& stop) {
  if (stop.stop_requested()) return Error{Errc::interrupted, "compilation was cancelled"};
  return {};
}

Status set_gradient_loss(Graph& graph, const std::string& name) {
  if (graph.outputs.empty()) return Error{Errc::bad_input, "the model has no outputs"};
  graph.loss = graph.outputs[0];
  if (name.empty()) return {};
  for (ValueId id : graph.outputs) {
    if (graph.values[id].name != name) continue;
    graph.loss = id;
    return {};
  }
  return Error{Errc::usage, "the model has no output '" + escaped(name) + "'"};
}

std::size_t output_index(Graph& graph, ValueId id) {
  const auto at = std::find(graph.outputs.begin(), graph.outputs.end(), id);
  const auto index = static_cast<std::size_t>(at - graph.outputs.begin());
  if (at == graph.outputs.end()) graph.outputs.push_back(id);
  return index;
}

// Passes replace values; positions in Graph::outputs stay. The gradients of check, by position.
struct GradientOutput {
  std::string name;
  bool exists = false;
  std::size_t index = 0;
};

Result<std::vector<GradientOutput>> add_gradient_outputs(Graph& graph) {
  std::vector<ValueId> wrt;
  for (ValueId id : graph.parameters) {
    if (is_float(graph.type(id).dtype)) wrt.push_back(id);
  }
  for (ValueId id : graph.inputs) {
    if (is_float(graph.type(id).dtype)) wrt.push_back(id);
  }
  const std::map<ValueId, ValueId> gradients = TRY(add_gradients(graph, graph.loss, wrt));
  std::vector<GradientOutput> outputs;
  for (ValueId id : wrt) {
    const ValueId gradient = gradients.at(id);
    GradientOutput output{graph.values[id].name, gradient != kNone};
    if (output.exists) output.index = output_index(graph, gradient);
    outputs.push_back(output);
  }
  return outputs;
}

}  // namespace

Result<Compiled> compile(const Graph& imported, const CompileOptions& options, std::stop_token stop) {
  const std::int64_t start_ns = monotonic_ns();
  const PlannerDef* planner = find_planner(options.planner);
  if (planner == nullptr) {
    std::string known;
    for (const PlannerDef& def : all_planners()) known += (known.empty() ? "" : ", ") + std::string(def.name);
    return Error{Errc::usage,
                 "unknown memory planner '" + escaped(options.planner) + "' (known: " + known + ")"};
  }
  Compiled compiled;
  compiled.forward = imported;
  if (options.gradients_only)
    TRY(set_gradient_loss(compiled.forward, options.loss_for_gradients));
  else
    TRY(add_loss(compiled.forward, options.train.loss));
  TRY(check_stop(stop));

  Graph graph = compiled.forward;
  TRY(run_passes(graph, options.pipeline, PassPhase::pre_gradient, compiled.reports, options.target));
  TRY(check_stop(stop));

  const std::size_t forward_nodes = live_node_count(graph);
  std::vector<GradientOutput> gradients;
  std::vector<std::pair<ValueId*, std::size_t>> reported;
  StepNames& names = compiled.train.names;
  if (options.gradients_only) {
    gradients = TRY(add_gradient_outputs(graph));
    compiled.train.graph = std::move(graph);
    names.loss = compiled.train.graph.loss;
  } else {
    compiled.train = TRY(add_training(std::move(graph), options.train));
  }
  Graph& whole = compiled.train.graph;
  compiled.nodes_before_passes = live_node_count(compiled.forward) + live_node_count(whole) - forward_nodes;
  for (ValueId StepNames::*value : StepNames::kReported)
    if (names.*value != kNone) reported.emplace_back(&(names.*value), output_index(whole, names.*value));
  TRY(check_stop(stop));

  TRY(run_passes(whole, options.pipeline, PassPhase::post_gradient, compiled.reports, options.target));
  for (const auto& [value, index] : reported) *value = whole.outputs[index];
  for (const GradientOutput& g : gradients)
    compiled.gradients.emplace_back(g.name, g.exists ? whole.outputs[g.index] : kNone);
  TRY(check_stop(stop));

  compiled.plan = TRY(make_plan(
      whole, {planner->plan, planner->name, options.in_place, options.target, options.dnn_library}));
  compiled.compile_ms = static_cast<double>(monotonic_ns() - start_ns) / 1e6;
  return compiled;
}

}  // namespace gradloom
