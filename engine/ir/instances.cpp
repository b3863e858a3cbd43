#include "engine/ir/instances.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

constexpr std::size_t kDigits = 12;

// Nodes of the match as text, producers inside of it first: an operand from outside is what it is to the model,
// not how it is called.
class Describer {
 public:
  Describer(const Graph& graph, std::span<const NodeId> matched)
      : graph_(graph), inside_(matched.begin(), matched.end()) {}

  const std::string& hash_of(NodeId id) {
    const auto known = hashes_.find(id);
    if (known != hashes_.end()) return known->second;
    const Node& node = graph_.nodes[id];
    std::string text = std::string(node.op->domain) + "." + node.op->name + to_string(node.attrs);
    for (const ValueId v : node.inputs) text += "|" + operand(v);
    return hashes_[id] = hash_hex(text);
  }

 private:
  std::string operand(ValueId id) {
    if (id == kNone) return "";
    const Value& value = graph_.values[id];
    if (value.producer != kNone && inside_.count(value.producer) != 0)
      return hash_of(value.producer) + "." + std::to_string(value.output_index);
    if (value.role == Role::parameter) return "parameter " + value.name;
    double number = 0;
    if (is_float(value.type.dtype) && scalar_constant(graph_, id, &number)) {
      char text[32];
      std::snprintf(text, sizeof text, "%.5g", number);
      return text;
    }
    return "value";
  }

  const Graph& graph_;
  const std::set<NodeId> inside_;
  std::map<NodeId, std::string> hashes_;
};

}  // namespace

bool is_fingerprint(const std::string& entry) {
  if (entry.size() < kDigits + 1 || entry[0] != '@') return false;
  const std::size_t end = entry.find_first_not_of("0123456789abcdef", 1);
  if (end == std::string::npos) return entry.size() == kDigits + 1;
  return end == kDigits + 1 && entry[end] == '.' && entry.size() > end + 1 &&
         entry.find_first_not_of("0123456789", end + 1) == std::string::npos;
}

bool fits_instance(const std::string& entry, const std::string& name, const std::string& fingerprint) {
  return entry == name || entry == fingerprint || glob_match(entry, name);
}

bool InstanceChoice::wants(const std::string& name, const std::string& fingerprint) const {
  const auto listed = [&](const std::set<std::string>& entries) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const std::string& entry) { return fits_instance(entry, name, fingerprint); });
  };
  return !listed(except) && (only.empty() || listed(only));
}

std::string fingerprint_of(const Graph& graph, const std::string& rule, NodeId anchor,
                           std::span<const NodeId> matched) {
  if (matched.empty()) matched = {&anchor, 1};
  Describer describer(graph, matched);
  std::vector<std::string> nodes;
  std::set<std::string> sources;
  for (const NodeId id : matched) {
    nodes.push_back(describer.hash_of(id));
    for (const std::uint32_t source : graph.nodes[id].origin.sources)
      sources.insert(graph.sources[source].name);
  }
  std::sort(nodes.begin(), nodes.end());
  std::string text = rule + "\n" + phase_name(graph.nodes[anchor].origin.phase);
  for (const std::string& node : nodes) text += "\n" + node;
  for (const std::string& source : sources) text += "\n" + source;
  return "@" + hash_hex(text).substr(0, kDigits);
}

const std::string& InstanceNamer::name(const Graph& graph, const std::string& rule, NodeId anchor,
                                       std::span<const NodeId> matched) {
  std::string fingerprint = fingerprint_of(graph, rule, anchor, matched);
  std::map<NodeId, int>& anchors = equal_[fingerprint];
  const int number = anchors.emplace(anchor, static_cast<int>(anchors.size()) + 1).first->second;
  if (number > 1) fingerprint += "." + std::to_string(number);
  return given_[{anchor, rule}] = std::move(fingerprint);
}

std::string InstanceNamer::known(const std::string& rule, NodeId anchor) const {
  const auto given = given_.find({anchor, rule});
  return given == given_.end() ? "" : given->second;
}

}  // namespace gradloom
