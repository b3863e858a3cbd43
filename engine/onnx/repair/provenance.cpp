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
                     *kClasses = "pkg.torch.onnx.class_hierarchy";

void add_kind(std::string_view kind, const std::string& name, Kinds& kinds) {
  if (kind == "PARAMETER") kinds.emplace(name, Kind::parameter);
  if (kind == "BUFFER" || kind == "CONSTANT_TENSOR") kinds.emplace(name, Kind::buffer);
}

// Also of what the optimizer has folded away: "p_fc_weight: PARAMETER target='fc.weight'".
Kinds kinds_of(const onnx::GraphProto& graph) {
  Kinds kinds;
  for (const auto& value : graph.value_info()) add_kind(metadata_of(value, kInputKind), value.name(), kinds);
  std::istringstream signature(metadata_of(graph, kSignature));
  for (std::string line; std::getline(signature, line);) {
    constexpr std::string_view kTarget = " target='";
    const std::size_t kind = line.find(": "), target = line.find(kTarget);
    if (kind == std::string::npos || target == std::string::npos || target < kind + 2) continue;
    const std::size_t name = target + kTarget.size(), end = line.find('\'', name);
    if (end != std::string::npos)
      add_kind(line.substr(kind + 2, target - kind - 2), line.substr(name, end - name), kinds);
  }
  return kinds;
}

// What a value is the result of: torch.export names it after ATen's function, "expand_12", and the exporter
// calls its own constants and steps "val_12".
enum class Step : std::uint8_t { view, permutation, expansion, unnamed, other };
Step step_of(const std::string& value) {
  static const NameSet views = {"view",    "reshape",   "_unsafe_view", "flatten", "unflatten",
                                "squeeze", "unsqueeze", "clone",        "alias"};
  static const NameSet permutations = {"permute", "transpose", "t"},
                       expansions = {"expand", "repeat", "tile"};
  const std::size_t end = value.find_last_not_of("0123456789");
  const bool numbered = end != std::string::npos && value[end] == '_';
  const std::string function = numbered ? value.substr(0, end) : value;
  if (views.count(function) != 0) return Step::view;
  if (permutations.count(function) != 0) return Step::permutation;
  if (expansions.count(function) != 0) return Step::expansion;
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
    if (initializers.count(name) != 0) all.emplace(name, Provenance{kind, {}});
  for_folded(graph, initializers, [&](const std::string& name, const std::vector<std::string>& sources) {
    Provenance from;
    std::set<Step> steps = {step_of(name)};
    from.rearranged = from.expanded = *steps.begin() != Step::unnamed;
    for (const std::string& source : sources) {
      const auto it = kinds.find(source);
      if (it != kinds.end() && it->second == Kind::parameter) {
        from.parameters.push_back(source);
      } else {
        steps.insert(step_of(source));
      }
    }
    const bool permuted = steps.count(Step::permutation) != 0, repeated = steps.count(Step::expansion) != 0;
    from.rearranged = from.rearranged && !repeated && steps.count(Step::other) == 0;
    from.expanded = from.expanded && repeated && !permuted && steps.count(Step::other) == 0;
    all.emplace(name, std::move(from));
  });
  return all;
}

bool is_detach(const onnx::NodeProto& node) {
  const std::vector<std::string> classes = python_list(metadata_of(node, kClasses));
  return !classes.empty() && classes.back() == "aten.detach.default";
}

Lost lost_values(const onnx::GraphProto& graph) {
  const NameSet initializers = initializers_of(graph);
  NameSet folded;
  for_folded(graph, initializers, [&](const std::string&, const std::vector<std::string>& sources) {
    folded.insert(sources.begin(), sources.end());
  });
  Lost lost;
  for (const auto& [name, kind] : kinds_of(graph))
    if (initializers.count(name) == 0 && folded.count(name) == 0)
      (kind == Kind::parameter ? lost.parameters : lost.buffers).insert(name);
  return lost;
}

}  // namespace gradloom
