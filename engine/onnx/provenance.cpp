#include "engine/onnx/provenance.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/onnx/newer_fields.h"

namespace gradloom {

namespace {

using Kind = Provenance::Kind;

constexpr const char *kSignature = "pkg.torch.export.ExportedProgram.graph_signature",
                     *kInputKind = "pkg.torch.export.graph_signature.InputSpec.kind",
                     *kFoldedFrom = "pkg.onnxscript.optimizer.folded_from";

// body(line) for each line of the text.
template <class Body>
void for_lines(std::string_view text, const Body& body) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    body(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// body(word) for each word between quotes: "['a', 'b']".
template <class Body>
void for_quoted(std::string_view text, const Body& body) {
  for (std::size_t begin; (begin = text.find_first_of("'\"")) != std::string_view::npos;) {
    const std::size_t end = text.find(text[begin], begin + 1);
    if (end == std::string_view::npos) return;
    body(std::string(text.substr(begin + 1, end - begin - 1)));
    text.remove_prefix(end + 1);
  }
}

void add_kind(std::string_view kind, const std::string& name, NameMap<Kind>& kinds) {
  if (kind == "PARAMETER") kinds.emplace(name, Kind::parameter);
  if (kind == "BUFFER" || kind == "CONSTANT_TENSOR") kinds.emplace(name, Kind::buffer);
}

// Also of what the optimizer has folded away: "p_fc_weight: PARAMETER target='fc.weight'".
NameMap<Kind> kinds_of(const onnx::GraphProto& graph) {
  NameMap<Kind> kinds;
  for (const auto& value : graph.value_info()) add_kind(metadata_of(value, kInputKind), value.name(), kinds);
  for_lines(metadata_of(graph, kSignature), [&](std::string_view line) {
    constexpr std::string_view kTarget = " target=";
    const std::size_t kind = line.find(": "), target = line.find(kTarget);
    if (kind == std::string_view::npos || target == std::string_view::npos || target < kind + 2) return;
    bool first = true;
    for_quoted(line.substr(target + kTarget.size()), [&](const std::string& name) {
      if (std::exchange(first, false)) add_kind(line.substr(kind + 2, target - kind - 2), name, kinds);
    });
  });
  return kinds;
}

// body(name) for what went into the value; false: it was not folded.
template <class Body>
bool for_folded(const onnx::ValueInfoProto& value, const Body& body) {
  const std::string folded = metadata_of(value, kFoldedFrom);
  for_quoted(folded, body);
  return !folded.empty();
}

}  // namespace

NameMap<Provenance> provenance_of(const onnx::GraphProto& graph) {
  const NameMap<Kind> kinds = kinds_of(graph);
  NameMap<Provenance> all;
  if (kinds.empty()) return all;
  for (const auto& initializer : graph.initializer())
    if (const auto it = kinds.find(initializer.name()); it != kinds.end())
      all.emplace(initializer.name(), Provenance{it->second, {}});
  for (const auto& value : graph.value_info()) {
    Provenance from;
    const bool folded = for_folded(value, [&](const std::string& name) {
      const auto it = kinds.find(name);
      if (it != kinds.end() && it->second == Kind::parameter) from.parameters.push_back(name);
    });
    if (folded) all.emplace(value.name(), std::move(from));
  }
  return all;
}

Lost lost_values(const onnx::GraphProto& graph) {
  NameSet initializers, folded;
  for (const auto& initializer : graph.initializer()) initializers.insert(initializer.name());
  for (const auto& value : graph.value_info())
    if (initializers.count(value.name()) != 0)
      for_folded(value, [&](const std::string& name) { folded.insert(name); });
  Lost lost;
  for (const auto& [name, kind] : kinds_of(graph))
    if (initializers.count(name) == 0 && folded.count(name) == 0)
      (kind == Kind::parameter ? lost.parameters : lost.buffers).insert(name);
  return lost;
}

}  // namespace gradloom
