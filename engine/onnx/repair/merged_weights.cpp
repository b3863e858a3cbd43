// Both exporters of torch keep one of several equal tensors: by TorchScript with Identity nodes in between
// (unless it exports for training), by dynamo without a trace (unless with optimize=False).
#include "engine/onnx/repair/merged_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

constexpr std::size_t kTileBytes = 4 << 20;  // of a tensor that are in memory while two are compared

// Calls `work` with a number as wide as the elements.
template <class Work>
auto by_width(DType dtype, const Work& work) {
  switch (dtype_bytes(dtype)) {
    case 2: return work(std::uint16_t{});
    case 4: return work(std::uint32_t{});
    case 8: return work(std::uint64_t{});
    default: return work(std::uint8_t{});
  }
}

Result<bool> is_same(const Tensor& a, const Tensor& b) {
  std::vector<std::byte> of_a(std::min(a.bytes(), kTileBytes)), of_b(of_a.size());
  for (std::size_t from = 0; from < a.bytes(); from += kTileBytes) {
    const std::size_t bytes = std::min(kTileBytes, a.bytes() - from);
    TRY(a.read(from, of_a.data(), bytes));
    TRY(b.read(from, of_b.data(), bytes));
    if (std::memcmp(of_a.data(), of_b.data(), bytes) != 0) return false;
  }
  return true;
}

// `b` is `a` transposed. Of the one with more rows a tile of whole rows is in memory, of the other a part of a
// row, which is a part of a column of the tile.
template <class Word>
Result<bool> is_transposed(const Tensor& a, const Tensor& b) {
  const Tensor &tall = a.shape()[0] >= a.shape()[1] ? a : b, &wide = &tall == &a ? b : a;
  const auto rows = static_cast<std::size_t>(tall.shape()[0]),
             columns = static_cast<std::size_t>(tall.shape()[1]);
  const std::size_t most = std::max<std::size_t>(1, kTileBytes / (columns * sizeof(Word)));
  std::vector<Word> tile(std::min(most, rows) * columns), part(std::min(most, rows));
  for (std::size_t row = 0; row < rows; row += most) {
    const std::size_t count = std::min(most, rows - row);
    TRY(tall.read(row * columns * sizeof(Word), tile.data(), count * columns * sizeof(Word)));
    for (std::size_t column = 0; column < columns; ++column) {
      TRY(wide.read((column * rows + row) * sizeof(Word), part.data(), count * sizeof(Word)));
      for (std::size_t i = 0; i < count; ++i)
        if (tile[i * columns + column] != part[i]) return false;
    }
  }
  return true;
}

enum class Likeness : std::uint8_t { none, equal, transposed };

Result<Likeness> likeness(const Tensor& copy, const Tensor& original) {
  if (!copy.defined() || !original.defined() || copy.dtype() != original.dtype() ||
      copy.count() != original.count())
    return Likeness::none;
  if (copy.shape() == original.shape() && TRY(is_same(copy, original))) return Likeness::equal;
  const Shape reversed(original.shape().rbegin(), original.shape().rend());
  if (copy.shape().size() != 2 || copy.shape() != reversed || copy.count() == 0) return Likeness::none;
  const bool transposed =
      TRY(by_width(copy.dtype(), [&](auto word) { return is_transposed<decltype(word)>(copy, original); }));
  return transposed ? Likeness::transposed : Likeness::none;
}

// Equal for tensors of the same elements in any order: type, count and the sum of their bits.
using Contents = std::tuple<DType, std::int64_t, std::uint64_t>;
Result<Contents> contents_of(const Tensor& tensor) {
  std::uint64_t sum = 0;
  if (!tensor.defined()) return Contents{tensor.dtype(), 0, 0};
  TRY(tensor.visit([&](const std::byte* piece, std::size_t, std::size_t bytes) -> Result<bool> {
    by_width(tensor.dtype(), [&](auto word) {
      const auto* const words = reinterpret_cast<const decltype(word)*>(piece);
      sum = std::accumulate(words, words + bytes / sizeof word, sum);
    });
    return true;
  }));
  return Contents{tensor.dtype(), tensor.count(), sum};
}

struct Match {
  Likeness like = Likeness::none;
  ValueId original = kNone;
};
// `originals`: those of the same contents.
Result<Match> match_of(const Graph& graph, const Tensor& copy, const std::vector<std::string>& from,
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
    if (const Likeness like = TRY(likeness(copy, original.data)); like != Likeness::none)
      return Match{like, originals[i]};
  }
  return Match{};
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

Result<bool> is_uniform(const Tensor& tensor) {
  if (!tensor.defined()) return false;
  double first = 0;
  bool uniform = true;
  TRY(tensor.visit([&](const std::byte* piece, std::size_t from, std::size_t bytes) -> Result<bool> {
    const auto count = static_cast<std::int64_t>(bytes / dtype_bytes(tensor.dtype()));
    Tensor numbers;
    if (tensor.in_memory()) {
      numbers = tensor;
    } else {
      numbers = Tensor(tensor.dtype(), {count});
      std::memcpy(numbers.mutable_data(), piece, bytes);
    }
    if (from == 0 && count > 0) first = numbers.at(0);
    for (std::int64_t i = 0; uniform && i < count; ++i) uniform = numbers.at(i) == first;
    return uniform;
  }));
  return uniform;
}

Result<std::vector<TiedCopy>> tie_copies(Graph& graph, const CopyCandidates& candidates) {
  std::vector<TiedCopy> tied;
  std::set<std::int64_t> counts;
  for (const ValueId id : graph.parameters)
    if (candidates.count(graph.value(id).name) != 0) counts.insert(element_count(graph.type(id).shape));
  if (counts.empty()) return tied;
  std::map<Contents, std::vector<ValueId>> originals;
  for (const ValueId id : graph.parameters) {
    const Value& value = graph.value(id);
    if (candidates.count(value.name) == 0 && counts.count(element_count(value.type.shape)) != 0)
      originals[TRY(contents_of(value.data))].push_back(id);
  }
  const auto uses = uses_of(graph);
  GraphBuilder builder(graph);  // of names
  std::vector<ValueId> kept;
  for (const ValueId id : graph.parameters) {
    const Value& copy = graph.value(id);
    const auto candidate = candidates.find(copy.name);
    Match match;
    if (candidate != candidates.end() && !TRY(is_uniform(copy.data))) {
      std::vector<ValueId>& alike = originals[TRY(contents_of(copy.data))];
      match = TRY(match_of(graph, copy.data, candidate->second, candidates, alike));
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

Result<std::vector<std::string>> merged_parameters(const Graph& graph) {
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
    if (are_several(modules[id]) && TRY(is_uniform(graph.value(id).data)))
      names.push_back(graph.value(id).name);
  return names;
}

}  // namespace gradloom
