// What the kernel of a plan's step is prepared for: the types of its node, and the strides of those operands and results that
// the plan has in rows (engine/ops/operand_rows.h).
#pragma once

#include "engine/ir/op.h"
#include "engine/plan/plan.h"

namespace gradloom {

NodeTypes planned_types(const Graph& graph, const Plan& plan, const Node& node);
// The same with these parts, of a value each.
NodeTypes types_with_parts(const Graph& graph, const Node& node, kernels::Target target, bool dnn_library,
                           const std::map<ValueId, BufferPart>& parts);

}  // namespace gradloom
