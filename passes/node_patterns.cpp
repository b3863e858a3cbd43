#include "passes/node_patterns.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/custom/custom_ops.h"

namespace gradloom {
namespace {

bool is_type(const std::string& name) {
  const auto named = [&](const OpDef* op) { return name == op->name; };
  const auto ops = all_ops();
  const auto custom = custom_ops();
  return std::any_of(ops.begin(), ops.end(), named) || std::any_of(custom.begin(), custom.end(), named);
}

Status check_pattern(const Graph& graph, const std::string& pattern, const std::string& setting) {
  if (is_type(pattern)) return {};
  std::vector<std::string> names;
  for (const SourceNode& source : graph.sources) names.push_back(source.name);
  for (const Node& node : graph.nodes)
    if (node.alive()) names.push_back(node.name);
  if (std::any_of(names.begin(), names.end(),
                  [&](const std::string& name) { return glob_match(pattern, name); }))
    return {};
  for (const SourceNode& source : graph.sources)
    if (std::find(names.begin(), names.end(), source.op_type) == names.end()) names.push_back(source.op_type);
  return Error{Errc::usage, setting + ": '" + escaped(pattern) +
                                "' is no operator type and fits no node; the nearest is '" +
                                escaped(nearest_to_glob(pattern, names)) + "'"};
}

}  // namespace

bool names_itself(const std::string& name) {
  return !name.empty() && name.find_first_of("*? ") == std::string::npos && !is_type(name);
}

bool fits_node(const std::string& pattern, const Graph& graph, const Node& node) {
  if (is_type(pattern)) {
    if (pattern == node.op->name) return true;
    return std::any_of(node.origin.sources.begin(), node.origin.sources.end(),
                       [&](std::uint32_t source) { return graph.sources[source].op_type == pattern; });
  }
  if (glob_match(pattern, node.name)) return true;
  return std::any_of(node.origin.sources.begin(), node.origin.sources.end(),
                     [&](std::uint32_t source) { return glob_match(pattern, graph.sources[source].name); });
}

bool fits_wholly(const std::vector<std::string>& patterns, const Graph& graph, const Node& node) {
  const auto any = [&](const auto& fits) { return std::any_of(patterns.begin(), patterns.end(), fits); };
  const std::vector<std::uint32_t>& sources = node.origin.sources;
  if (sources.empty()) return any([&](const std::string& p) { return fits_node(p, graph, node); });
  return std::all_of(sources.begin(), sources.end(), [&](std::uint32_t id) {
    const SourceNode& source = graph.sources[id];
    return any([&](const std::string& p) {
      return is_type(p) ? p == source.op_type || p == node.op->name : glob_match(p, source.name);
    });
  });
}

Status check_node_patterns(const Graph& graph, const std::vector<std::string>& patterns,
                           const std::string& setting) {
  for (const std::string& pattern : patterns) TRY(check_pattern(graph, pattern, setting));
  return {};
}

}  // namespace gradloom
