#include "engine/train/weight_copies.h"

#include <cstdint>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/training/optimizer_inputs.h"

namespace gradloom {

std::map<ValueId, ValueId> weight_copies(const Graph& graph) {
  std::map<ValueId, ValueId> copies;
  for (const Node& node : graph.nodes) {
    if (!is_op(node, "Optimizer")) continue;
    const std::vector<std::int64_t> of = node.attrs.integers("copies");
    for (std::size_t i = 0; i < of.size(); ++i)
      copies[node.inputs[node.inputs.size() - of.size() + i]] =
          node.inputs[optimizer_inputs::kFirst + static_cast<std::size_t>(of[i])];
  }
  return copies;
}

}  // namespace gradloom
