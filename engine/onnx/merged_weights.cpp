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

bool is_copy(const Tensor& a, const Tensor& b, bool transposed) {
  const std::int64_t rows = transposed ? a.shape()[0] : 1, columns = a.count() / rows;
  for (std::int64_t i = 0; i < a.count(); ++i)
    if (a.at(i) != b.at(i % columns * rows + i / columns)) return false;
  return true;
}

bool holds_the_numbers_of(const Value& copy, const Value& original) {
  const Tensor &a = copy.data, &b = original.data;
  if (!a.defined() || !b.defined() || a.dtype() != b.dtype() || a.count() != b.count()) return false;
  if (a.shape() == b.shape() && is_copy(a, b, false)) return true;
  const Shape reversed(b.shape().rbegin(), b.shape().rend());
  return a.shape().size() == 2 && a.shape() == reversed && is_copy(a, b, true);
}

// Where "_12" that begins at `at` ends, or `at`.
std::size_t after_number(std::string_view text, std::size_t at) {
  if (at >= text.size() || text[at] != '_') return at;
  const std::size_t end = std::min(text.find_first_not_of("0123456789", at + 1), text.size());
  return end > at + 1 ? end : at;
}

// Of a module that is called again, exporters number the scopes: "d/d.0" is then "d/d.0_1".
bool is_later_call(std::string_view scope, std::string_view first) {
  std::size_t at = 0;
  for (const char c : first) {
    if (c == '/') at = after_number(scope, at);
    if (at >= scope.size() || scope[at++] != c) return false;
  }
  return after_number(scope, at) == scope.size();
}

bool are_several(const std::set<std::string>& modules) {
  if (modules.size() < 2) return false;
  const std::string& first =
      *std::min_element(modules.begin(), modules.end(),
                        [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
  return std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& scope) { return !is_later_call(scope, first); });
}

}  // namespace

std::vector<std::string> copied_parameters(const Graph& graph) {
  std::vector<std::string> found;
  for (const ValueId id : graph.parameters) {
    const Value& copy = graph.value(id);
    if (copy.name.compare(0, 4, "val_") != 0 || is_uniform(copy.data)) continue;
    const auto original = std::find_if(graph.parameters.begin(), graph.parameters.end(), [&](ValueId other) {
      return other != id && holds_the_numbers_of(copy, graph.value(other));
    });
    if (original != graph.parameters.end()) found.push_back(copy.name + " of " + graph.value(*original).name);
  }
  return found;
}

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
    if (are_several(modules[id]) && is_uniform(graph.value(id).data)) names.push_back(graph.value(id).name);
  return names;
}

}  // namespace gradloom
