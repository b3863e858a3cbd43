// Both exporters of torch keep one of several equal tensors: by TorchScript with Identity nodes in between
// (unless it exports for training), by dynamo without a trace (unless with optimize=False).
#include "engine/onnx/repair/merged_weights.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

bool is_copy(const Tensor& a, const Tensor& b, bool transposed) {
  const std::int64_t rows = transposed ? a.shape()[0] : 1, columns = a.count() / rows;
  for (std::int64_t i = 0; i < a.count(); ++i)
    if (a.at(i) != b.at(i % columns * rows + i / columns)) return false;
  return true;
}

enum class Likeness : std::uint8_t { none, equal, transposed };

Likeness likeness(const Tensor& copy, const Tensor& original) {
  if (!copy.defined() || !original.defined() || copy.dtype() != original.dtype() ||
      copy.count() != original.count())
    return Likeness::none;
  if (copy.shape() == original.shape() && is_copy(copy, original, false)) return Likeness::equal;
  const Shape reversed(original.shape().rbegin(), original.shape().rend());
  return copy.shape().size() == 2 && copy.shape() == reversed && is_copy(copy, original, true)
             ? Likeness::transposed
             : Likeness::none;
}

// Equal for tensors of the same elements in any order: type, count and the sum of their bits.
using Contents = std::tuple<DType, std::int64_t, std::uint64_t>;
template <class Word>
std::uint64_t sum_of_words(const Tensor& tensor) {
  const auto* const words = static_cast<const Word*>(tensor.data());
  return std::accumulate(words, words + tensor.count(), std::uint64_t{0});
}
Contents contents_of(const Tensor& tensor) {
  std::uint64_t sum = 0;
  if (tensor.defined()) {
    switch (dtype_bytes(tensor.dtype())) {
      case 2: sum = sum_of_words<std::uint16_t>(tensor); break;
      case 4: sum = sum_of_words<std::uint32_t>(tensor); break;
      case 8: sum = sum_of_words<std::uint64_t>(tensor); break;
      default: sum = sum_of_words<std::uint8_t>(tensor);
    }
  }
  return {tensor.dtype(), tensor.count(), sum};
}

struct Match {
  Likeness like = Likeness::none;
  ValueId original = kNone;
};
// `originals`: those of the same contents.
Match match_of(const Graph& graph, const Tensor& copy, const std::vector<std::string>& from,
               const CopyCandidates& candidates, const std::vector<ValueId>& originals) {
  constexpr std::size_t kMostTries = 16;  // of tensors whose elements have the same sum
  for (std::size_t i = 0; i < std::min(originals.size(), kMostTries); ++i) {
    const Value& original = graph.value(originals[i]);
    const auto sibling = candidates.find(original.name);
    const bool possible =
        sibling != candidates.end()
            ? sibling->second == from
            : from.empty() || std::find(from.begin(), from.end(), original.name) != from.end();
    if (!possible) continue;
    if (const Likeness like = likeness(copy, original.data); like != Likeness::none)
      return {like, originals[i]};
  }
  return {};
}

// The parameter `id` becomes the result of a node that makes it of `original`, for the first of its
// readers.
void derive(Graph& graph, GraphBuilder& builder, ValueId id, ValueId original, bool transposed,
            const std::vector<Use>& readers) {
  Node node;
  node.op = &op_by_name(transposed ? "Transpose" : "Identity");
  node.inputs = {original};
  node.outputs = {id};
  node.name = builder.unique_name(graph.value(id).name + "/tied");
  if (!readers.empty()) {
    node.origin = graph.node(readers[0].node).origin;
    node.rank = graph.node(readers[0].node).rank;
  }
  Value& value = graph.values[id];
  value.role = Role::activation;
  value.producer = static_cast<NodeId>(graph.nodes.size());
  value.data = {};
  graph.nodes.push_back(std::move(node));
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

bool is_uniform(const Tensor& tensor) {
  if (!tensor.defined()) return false;
  for (std::int64_t i = 1, n = tensor.count(); i < n; ++i)
    if (tensor.at(i) != tensor.at(0)) return false;
  return true;
}

std::vector<TiedCopy> tie_copies(Graph& graph, const CopyCandidates& candidates) {
  std::vector<TiedCopy> tied;
  std::set<std::int64_t> counts;
  for (const ValueId id : graph.parameters)
    if (candidates.count(graph.value(id).name) != 0) counts.insert(element_count(graph.type(id).shape));
  if (counts.empty()) return tied;
  std::map<Contents, std::vector<ValueId>> originals;
  for (const ValueId id : graph.parameters) {
    const Value& value = graph.value(id);
    if (candidates.count(value.name) == 0 && counts.count(element_count(value.type.shape)) != 0)
      originals[contents_of(value.data)].push_back(id);
  }
  const auto uses = uses_of(graph);
  GraphBuilder builder(graph);  // of names
  std::vector<ValueId> kept;
  for (const ValueId id : graph.parameters) {
    const Value& copy = graph.value(id);
    const auto candidate = candidates.find(copy.name);
    Match match;
    if (candidate != candidates.end() && !is_uniform(copy.data)) {
      std::vector<ValueId>& alike = originals[contents_of(copy.data)];
      match = match_of(graph, copy.data, candidate->second, candidates, alike);
      if (match.like == Likeness::none) alike.push_back(id);
    }
    if (match.like == Likeness::none) {
      kept.push_back(id);
      continue;
    }
    const bool transposed = match.like == Likeness::transposed;
    tied.push_back({copy.name, graph.value(match.original).name, transposed});
    derive(graph, builder, id, match.original, transposed, uses[id]);
  }
  graph.parameters = std::move(kept);
  return tied;
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
