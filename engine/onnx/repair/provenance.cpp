#include "engine/onnx/repair/provenance.h"

#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "engine/onnx/file/newer_fields.h"

namespace gradloom {

namespace {

using Kind = Provenance::Kind;
using Kinds = std::map<std::string, Kind>;

constexpr const char *kSignature = "pkg.torch.export.ExportedProgram.graph_signature",
                     *kInputKind = "pkg.torch.export.graph_signature.InputSpec.kind",
                     *kFoldedFrom = "pkg.onnxscript.optimizer.folded_from",
                     *kClasses = "pkg.torch.onnx.class_hierarchy", *kDetach = "aten.detach.default";

void add_kind(std::string_view kind, const std::string& name, Kinds& kinds) {
  if (kind == "PARAMETER") kinds.emplace(name, Kind::parameter);
  if (kind == "BUFFER" || kind == "CONSTANT_TENSOR") kinds.emplace(name, Kind::buffer);
}

// body(placeholder, kind, target) for lines as "p_fc_weight: PARAMETER target='fc.weight'".
template <class Body>
void for_signature(const onnx::GraphProto& graph, const Body& body) {
  std::istringstream signature(metadata_of(graph, kSignature));
  for (std::string line; std::getline(signature, line);) {
    constexpr std::string_view kTarget = " target='";
    const std::size_t kind = line.find(": "), target = line.find(kTarget);
    if (kind == std::string::npos || target == std::string::npos || target < kind + 2) continue;
    const std::size_t name = target + kTarget.size(), end = line.find('\'', name);
    if (end != std::string::npos)
      body(line.substr(0, kind), line.substr(kind + 2, target - kind - 2), line.substr(name, end - name));
  }
}

// Also of what the optimizer has folded away.
Kinds kinds_of(const onnx::GraphProto& graph) {
  Kinds kinds;
  for (const auto& value : graph.value_info()) add_kind(metadata_of(value, kInputKind), value.name(), kinds);
  for_signature(graph, [&](const std::string&, const std::string& kind, const std::string& target) {
    add_kind(kind, target, kinds);
  });
  return kinds;
}

// What a value is the result of: torch.export names it after ATen's function, "expand_12", and the exporter
// calls its own constants and steps "val_12".
enum class Step : std::uint8_t { view, permutation, expansion, selection, gathering, unnamed, other };
Step step_of(const std::string& value) {
  static const NameMap<Step> steps = {
      {"view", Step::view},
      {"reshape", Step::view},
      {"_unsafe_view", Step::view},
      {"flatten", Step::view},
      {"unflatten", Step::view},
      {"squeeze", Step::view},
      {"unsqueeze", Step::view},
      {"clone", Step::view},
      {"alias", Step::view},
      {"contiguous", Step::view},
      {"permute", Step::permutation},
      {"transpose", Step::permutation},
      {"t", Step::permutation},
      {"movedim", Step::permutation},
      {"numpy_t", Step::permutation},
      {"flip", Step::permutation},
      {"cat", Step::permutation},
      {"stack", Step::permutation},
      {"expand", Step::expansion},
      {"repeat", Step::expansion},
      {"tile", Step::expansion},
      {"slice", Step::selection},
      {"select", Step::selection},
      {"narrow", Step::selection},
      {"split", Step::selection},
      {"split_with_sizes", Step::selection},
      {"chunk", Step::selection},
      {"unbind", Step::selection},
      {"getitem", Step::selection},
      {"index", Step::gathering},
      {"index_select", Step::gathering},
      {"embedding", Step::gathering},
      {"gather", Step::gathering},
      {"arange", Step::unnamed},  // constants alone, as those below
      {"zeros", Step::unnamed},
      {"ones", Step::unnamed},
      {"full", Step::unnamed},
      {"eye", Step::unnamed},
      {"scalar_tensor_default", Step::unnamed},
  };
  const std::size_t end = value.find_last_not_of("0123456789");
  const bool numbered = end != std::string::npos && value[end] == '_';
  const std::string function = numbered ? value.substr(0, end) : value;
  if (const auto known = steps.find(function); known != steps.end()) return known->second;
  return numbered && function == "val" ? Step::unnamed : Step::other;
}

NameSet initializers_of(const onnx::GraphProto& graph) {
  NameSet names;
  for (const auto& initializer : graph.initializer()) names.insert(initializer.name());
  return names;
}

// body(name, of what) for the initializers that were folded.
template <class Body>
void for_folded(const onnx::GraphProto& graph, const NameSet& initializers, const Body& body) {
  for (const auto& value : graph.value_info()) {
    if (initializers.count(value.name()) == 0) continue;
    const std::vector<std::string> sources = python_list(metadata_of(value, kFoldedFrom));
    if (!sources.empty()) body(value.name(), sources);
  }
}

}  // namespace

NameMap<Provenance> provenance_of(const onnx::GraphProto& graph) {
  const Kinds kinds = kinds_of(graph);
  NameMap<Provenance> all;
  if (kinds.empty()) return all;
  const NameSet initializers = initializers_of(graph);
  for (const auto& [name, kind] : kinds)
    for (const std::string& there : {name, name + kRows})
      if (initializers.count(there) != 0) all.emplace(there, Provenance{kind, {}});
  for_folded(graph, initializers, [&](const std::string& name, const std::vector<std::string>& sources) {
    Provenance from;
    std::set<Step> steps = {step_of(name)};
    from.named = *steps.begin() != Step::unnamed;
    for (const std::string& source : sources) {
      const auto it = kinds.find(source);
      const Step step = step_of(source);
      if (it != kinds.end() && it->second == Kind::parameter) {
        from.parameters.push_back(source);
      } else if (it == kinds.end() || step != Step::other) {  // a buffer "index" may bear the name of a step
        steps.insert(step);
      }
    }
    const auto has = [&](Step step) { return steps.count(step) != 0; };
    const bool moved = from.named && !has(Step::other),
               selected = has(Step::selection) || has(Step::gathering);
    from.gathered = moved && has(Step::gathering);
    from.repeated = moved && (has(Step::expansion) || has(Step::gathering));
    from.copied = moved && (selected || from.repeated);
    from.rearranged = moved && !from.copied;
    from.expanded = from.repeated && !selected && !has(Step::permutation);
    all.emplace(name, std::move(from));
  });
  return all;
}

NameMap<std::string> traced_names(const onnx::GraphProto& graph) {
  NameMap<std::string> names;
  for_signature(graph, [&](const std::string& placeholder, const std::string&, const std::string& target) {
    names.emplace(placeholder, target);
  });
  return names;
}

bool is_detach(const onnx::NodeProto& node) {
  const std::vector<std::string> classes = python_list(metadata_of(node, kClasses));
  return !classes.empty() && classes.back() == kDetach;
}

void mark_detach(onnx::NodeProto& node) { add_metadata(node, kClasses, std::string("['") + kDetach + "']"); }

Lost lost_values(const onnx::GraphProto& graph) {
  const NameSet initializers = initializers_of(graph);
  NameSet folded;
  for_folded(graph, initializers, [&](const std::string&, const std::vector<std::string>& sources) {
    folded.insert(sources.begin(), sources.end());
  });
  Lost lost;
  for (const auto& [name, kind] : kinds_of(graph))
    if (initializers.count(name) == 0 && initializers.count(name + kRows) == 0 && folded.count(name) == 0)
      (kind == Kind::parameter ? lost.parameters : lost.buffers).insert(name);
  return lost;
}

}  // namespace gradloom
