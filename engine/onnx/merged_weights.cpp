// Both exporters of torch keep one of several equal tensors: by TorchScript with Identity nodes in between
// (unless it exports for training), by dynamo without a trace (unless with optimize=False).
#include "engine/onnx/merged_weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "engine/ops/op.h"

namespace gradloom {

namespace {

bool is_uniform(const Tensor& tensor) {
  if (!tensor.defined()) return false;
  for (std::int64_t i = 1, n = tensor.count(); i < n; ++i)
    if (tensor.at(i) != tensor.at(0)) return false;
  return true;
}

}  // namespace

std::vector<std::string> merged_parameters(const Graph& graph) {
  std::map<ValueId, ValueId> parameter_of;  // also of its copies by Identity
  for (const ValueId id : graph.parameters) parameter_of[id] = id;
  std::map<ValueId, std::set<std::string>> modules;
  for (const Node& node : graph.nodes) {
    if (!node.alive() || node.origin.sources.empty()) continue;
    for (const ValueId input : node.inputs) {
      const auto found = parameter_of.find(input);
      if (found == parameter_of.end()) continue;
      if (std::string_view(node.op->name) == "Identity") {
        parameter_of[node.outputs[0]] = found->second;
      } else {
        modules[found->second].insert(graph.sources[node.origin.sources[0]].scope);
      }
    }
  }
  std::vector<std::string> names;
  for (const ValueId id : graph.parameters)
    if (modules[id].size() > 1 && is_uniform(graph.value(id).data)) names.push_back(graph.value(id).name);
  return names;
}

}  // namespace gradloom
