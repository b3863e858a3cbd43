#include "engine/train/module_graph.h"

#include <algorithm>

#include "engine/autodiff/autodiff.h"
#include "engine/base/text.h"
#include "engine/ir/builder.h"
#include "engine/train/inference_form.h"

namespace gradloom {
namespace {

Status choose_outputs(Graph& graph, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::vector<std::string> known;
  for (const ValueId id : graph.outputs) known.push_back(graph.values[id].name);
  std::vector<ValueId> chosen;
  for (const std::string& name : names) {
    const auto at = std::find(known.begin(), known.end(), name);
    if (at == known.end()) return Error{Errc::usage, unknown_name("output", name, known)};
    chosen.push_back(graph.outputs[static_cast<std::size_t>(at - known.begin())]);
  }
  graph.outputs = std::move(chosen);
  return {};
}

// Each glob fits one of the values, whose names they are over.
Status check_globs_fit(const Graph& graph, const char* flag, const char* nothing,
                       const std::vector<std::string>& globs, const std::vector<ValueId>& values) {
  std::vector<std::string> names;
  for (const ValueId id : values) names.push_back(graph.values[id].name);
  for (const std::string& glob : globs)
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return glob_match(glob, name); }))
      return Error{Errc::usage,
                   std::string(flag) + " '" + escaped(glob) + "' fits " + nothing +
                       (names.empty() ? std::string()
                                      : "; the nearest is '" + escaped(nearest_to_glob(glob, names)) + "'")};
  return {};
}

// What gradients are wanted of: trained parameters, then inputs.
Result<std::vector<ValueId>> sources_of_gradients(const Graph& graph, const ModuleSpec& spec) {
  std::vector<ValueId> wanted, inputs;
  for (const ValueId id : graph.parameters)
    if (is_trained(graph, id) && is_float(graph.type(id).dtype)) wanted.push_back(id);
  for (const ValueId id : graph.inputs)
    if (is_float(graph.type(id).dtype)) inputs.push_back(id);
  TRY(check_globs_fit(graph, "--input-grad", "no input of floats", spec.input_gradients, inputs));
  for (const ValueId id : inputs)
    if (fits_any(spec.input_gradients, graph.values[id].name)) wanted.push_back(id);
  return wanted;
}

// Places of the outputs whose gradients are given.
Result<std::vector<std::size_t>> outputs_with_gradient(const Graph& graph, const ModuleSpec& spec,
                                                       const std::vector<ValueId>& wanted) {
  const std::vector<bool> leave = gradients_leave(graph, graph.outputs, wanted);
  TRY(check_globs_fit(graph, "--output-grad", "no output", spec.output_gradients, graph.outputs));
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Value& output = graph.values[graph.outputs[i]];
    if (!leave[i] || !is_float(output.type.dtype)) continue;
    if (spec.output_gradients.empty() || fits_any(spec.output_gradients, output.name)) places.push_back(i);
  }
  return places;
}

}  // namespace

Result<std::vector<RewriteRecord>> make_module_forward(Graph& graph, const ModuleSpec& spec,
                                                       const TrainSpec& freezing) {
  graph.loss = kNone;
  TRY(choose_outputs(graph, spec.outputs));
  freeze_parameters(graph, freezing);
  for (const ValueId id : graph.inputs)
    graph.values[id].wanted = spec.gradients && is_float(graph.type(id).dtype) &&
                              fits_any(spec.input_gradients, graph.values[id].name);
  if (!spec.training) return make_inference_form_of_outputs(graph);
  Rewriter rw(graph, "module");
  TRY(remove_unneeded(rw, "not an output"));
  return rw.take_log();
}

Result<ModuleGradients> add_module_gradients(Graph& graph, const ModuleSpec& spec) {
  ModuleGradients result;
  const std::vector<ValueId> wanted = TRY(sources_of_gradients(graph, spec));
  const std::vector<std::size_t> places = TRY(outputs_with_gradient(graph, spec, wanted));
  if (places.empty()) return result;
  std::vector<GivenGradient> given;
  GraphBuilder b(graph);
  for (const std::size_t place : places) {
    const ValueId output = graph.outputs[place];
    const ValueId gradient =
        b.input(b.unique_name(graph.values[output].name + "/grad"), graph.type(output), Role::input);
    given.push_back({output, gradient});
    result.given.push_back({place, gradient});
  }
  const std::map<ValueId, ValueId> gradients = TRY(add_gradients(graph, given, wanted));
  for (const ValueId id : wanted) {
    if (gradients.at(id) == kNone) continue;
    result.made.push_back({graph.values[id].name, graph.outputs.size()});
    graph.outputs.push_back(gradients.at(id));
  }
  return result;
}

}  // namespace gradloom
