#include "engine/train/weight_copies.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

constexpr std::size_t kFirstParameter = 4;  // among Optimizer's inputs

std::map<ValueId, ValueId> weight_copies(const Graph& graph) {
  std::map<ValueId, ValueId> copies;
  for (const Node& node : graph.nodes) {
    if (!node.alive() || std::string_view(node.op->name) != "Optimizer") continue;
    const std::vector<std::int64_t> of = node.attrs.integers("copies");
    for (std::size_t i = 0; i < of.size(); ++i)
      copies[node.inputs[node.inputs.size() - of.size() + i]] =
          node.inputs[kFirstParameter + static_cast<std::size_t>(of[i])];
  }
  return copies;
}

}  // namespace gradloom
