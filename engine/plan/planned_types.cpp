#include "engine/plan/planned_types.h"

#include "engine/base/text.h"
#include "engine/ops/operand_rows.h"

namespace gradloom {

NodeTypes types_with_parts(const Graph& graph, const Node& node, kernels::Target target, bool dnn_library,
                           const std::map<ValueId, BufferPart>& parts) {
  NodeTypes types = node_types(graph, node, target, dnn_library);
  const auto strides = [&](ValueId v) -> std::optional<std::vector<std::int64_t>> {
    const auto part = v == kNone ? parts.end() : parts.find(v);
    if (part == parts.end() || part->second.dense()) return std::nullopt;
    const Type& type = graph.type(v);
    const auto element = static_cast<std::int64_t>(dtype_bytes(type.dtype));
    auto made = row_strides(type.shape, part->second.row_bytes / element, part->second.pitch_bytes / element);
    CHECK(made.has_value(), "the dims of a part in rows end where rows do");
    return made;
  };
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (auto given = strides(node.inputs[i])) set_input_strides(types, i, std::move(*given));
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    if (auto given = strides(node.outputs[i])) set_output_strides(types, i, std::move(*given));
  return types;
}

NodeTypes planned_types(const Graph& graph, const Plan& plan, const Node& node) {
  return types_with_parts(graph, node, plan.target, plan.dnn_library, plan.pieces);
}

}  // namespace gradloom
