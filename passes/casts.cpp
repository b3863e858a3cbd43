#include "passes/casts.h"

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

}  // namespace gradloom
