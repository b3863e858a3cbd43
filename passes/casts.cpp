#include "passes/casts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/training/optimizer_inputs.h"

namespace gradloom {

bool widens(DType from, DType to) {
  if (from == to) return false;
  if (from == DType::boolean) return true;  // 0 and 1 are those of every type
  if (from == DType::i32 && to == DType::i64) return true;
  if (!is_float(from) || !is_float(to)) return false;
  return to == DType::f64 || (to == DType::f32 && from != DType::f64);
}

bool takes_low_gradient(const Node& node, std::size_t input) {
  if (is_op(node, "GlobalNorm")) return true;
  if (is_op(node, "Accumulate")) return input >= node.inputs.size() / 2 && input + 1 < node.inputs.size();
  const std::size_t first = optimizer_inputs::kFirst;
  const std::size_t n = is_op(node, "Optimizer") ? optimizer_inputs::parameter_count(node.attrs) : 0;
  return input >= first + n && input < first + 2 * n;
}

bool is_shared(const Rewriter& rw, ValueId next) {
  const std::vector<Use>& uses = rw.uses(next);
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
    return rw.graph().nodes[use.node].op->exchange == RankExchange::share;
  });
}

WeightCopy add_weight_copy(Rewriter& rw, GraphBuilder& b, NodeId update, std::size_t place, DType low,
                           Tensor initial) {
  const Node node = rw.graph().nodes[update];
  const Value& parameter = rw.graph().values[node.inputs[optimizer_inputs::kFirst + place]];
  const std::string name = b.unique_name(parameter.name + "/copy");
  const Type type{low, parameter.type.shape};
  const ValueId state =
      initial.defined() ? b.state(name, std::move(initial)) : b.input(name, type, Role::state);
  std::vector<ValueId> inputs = node.inputs;
  inputs.push_back(state);
  Attrs attrs = node.attrs;
  std::vector<std::int64_t> copies = attrs.integers("copies");
  copies.push_back(static_cast<std::int64_t>(place));
  attrs.set("copies", copies);
  rw.retype(update, std::move(inputs), std::move(attrs));
  return {state, b.add_output(update, node.outputs.size())};
}

}  // namespace gradloom
