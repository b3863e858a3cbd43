#include "engine/train/weight_copies.h"

#include <cstdint>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ops/training/optimizer_inputs.h"

namespace gradloom {

std::map<ValueId, ValueId> weight_copies(const Graph& graph) {
  std::map<ValueId, ValueId> copies, shared;  // what every rank gets -> what it is a copy of
  for (const Node& node : graph.nodes) {
    if (node.alive() && gives_parameters(*node.op)) {
      const bool gathers = node.op == &gather_parameters_op();
      const std::vector<std::int64_t> masters = node.attrs.integers(kMasters);
      for (std::size_t i = 0; i < masters.size(); ++i)
        if (masters[i] >= 0)
          (gathers ? copies[node.inputs[i]] : shared[node.outputs[i]]) = static_cast<ValueId>(masters[i]);
    }
    if (!is_op(node, "Optimizer")) continue;
    const std::vector<std::int64_t> of = node.attrs.integers("copies");
    for (std::size_t i = 0; i < of.size(); ++i)
      copies[before_gather(graph, node.inputs[node.inputs.size() - of.size() + i])] =
          node.inputs[optimizer_inputs::kFirst + static_cast<std::size_t>(of[i])];
  }
  for (const Update& update : graph.updates)
    if (const auto of = shared.find(update.next); of != shared.end()) copies[update.state] = of->second;
  return copies;
}

}  // namespace gradloom
