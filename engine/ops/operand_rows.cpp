#include "engine/ops/operand_rows.h"

#include <string>

#include "engine/ops/copies.h"

namespace gradloom {
namespace {

std::string key(std::size_t input) { return "strides of input " + std::to_string(input); }

}  // namespace

std::optional<std::vector<std::int64_t>> row_strides(const Shape& shape, std::int64_t row,
                                                     std::int64_t pitch) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  std::int64_t inside = 1;  // elements of the dims so far, in tensors that are dense
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (inside < row ? row % (inside * shape[d]) != 0 : inside % row != 0) return std::nullopt;
    strides[d] = inside < row ? inside : inside / row * pitch;
    inside *= shape[d];
  }
  return strides;
}

bool reads_rows(const Node& node, std::size_t input, kernels::Target target) {
  if (target != kernels::Target::cpu) return false;
  if (is_op(node, "Transpose")) return input == 0;
  return is_op(node, "Concat") || node.op->has(kElementwise) || is_op(node, "FusedElementwise");
}

void set_input_strides(NodeTypes& types, std::size_t input, std::vector<std::int64_t> strides) {
  types.attrs.set(key(input), std::move(strides));
}
std::vector<std::int64_t> input_strides(const NodeTypes& types, std::size_t input) {
  return types.attrs.integers(key(input), dense_strides(types.inputs[input].shape));
}
bool reads_rows(const NodeTypes& types) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    if (types.attrs.has(key(i))) return true;
  return false;
}

}  // namespace gradloom
