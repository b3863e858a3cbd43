// Instances of a pass: what they are called, and which of them the user wants. An instance has the name of its
// anchor node, and a fingerprint of what was matched. Passes that ran before may rename the anchor or number it
// otherwise; the fingerprint stays while the matched operators and their ONNX nodes do.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "engine/ir/graph.h"

namespace gradloom {

// Entries are names of anchor nodes, globs over them, or fingerprints.
struct InstanceChoice {
  std::set<std::string> except;  // switched off
  std::set<std::string> only{};  // not empty: all others are switched off
  bool empty() const { return except.empty() && only.empty(); }
  bool wants(const std::string& name, const std::string& fingerprint) const;
  bool operator==(const InstanceChoice&) const = default;
};
bool fits_instance(const std::string& entry, const std::string& name, const std::string& fingerprint);
bool is_fingerprint(const std::string& entry);  // "@" and 12 hex digits, for equal ones ".2", ".3", ..

// "@3f9a1c20b7d4": a hash of the rule, the matched operators, their attributes and how they read each other, and the
// names of the ONNX nodes and parameters that they stand for. Names and ids of nodes and values, sizes and dtypes are
// not in it, so it is the same for another batch size or precision.
std::string fingerprint_of(const Graph& graph, const std::string& rule, NodeId anchor,
                           std::span<const NodeId> matched);

// The fingerprints that one pass gives; instances that would have the same are counted: ".2", ".3", ..
class InstanceNamer {
 public:
  const std::string& name(const Graph& graph, const std::string& rule, NodeId anchor,
                          std::span<const NodeId> matched);
  // The last one given to this anchor by this rule; empty: none.
  std::string known(const std::string& rule, NodeId anchor) const;

 private:
  std::map<std::pair<NodeId, std::string>, std::string> given_;
  std::map<std::string, std::map<NodeId, int>> equal_;  // numbers of the anchors that share a fingerprint
};

}  // namespace gradloom
