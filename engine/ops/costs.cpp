#include "engine/ops/costs.h"

namespace gradloom {

Cost cost_of(const NodeTypes& types, double flops) {
  Cost cost = default_cost(types);
  cost.flops = flops;
  return cost;
}

Cost no_cost(const NodeTypes&) { return {}; }

Cost input_cost(const NodeTypes& types) {
  Cost cost = default_cost(types);
  cost.flops = static_cast<double>(element_count(types.inputs[0].shape));
  return cost;
}

Cost copy_cost(const NodeTypes& types) {
  Cost cost;
  for (std::size_t i = 0; i < types.outputs.size(); ++i)
    if (types.wants(i)) cost.bytes_written += static_cast<double>(byte_size(types.outputs[i]));
  cost.bytes_read = cost.bytes_written;
  return cost;
}

}  // namespace gradloom
