#include "engine/ops/operand_rows.h"

#include <string>

#include "engine/ops/copies.h"

namespace gradloom {
namespace {

constexpr const char* kBitsKey = "bits of dense tensors";
std::string input_key(std::size_t input) { return "strides of input " + std::to_string(input); }
std::string output_key(std::size_t output) { return "strides of output " + std::to_string(output); }

bool is_product(const Node& node) {
  return is_op(node, "MatMul") || is_op(node, "Gemm") || is_op(node, "FusedMatMul") ||
         is_op(node, "FusedMatMulGrad");
}
// Operands and results, but for the mask and log-sum-exp.
bool reads_rows_as_attention(const Node& node, std::size_t input) {
  return (is_op(node, "FusedAttention") && input < 3) ||
         (is_op(node, "FusedAttentionGrad") && input < 6 && input != 2);
}
bool writes_rows_as_attention(const Node& node, std::size_t output) {
  return (is_op(node, "FusedAttention") && output == 0) || is_op(node, "FusedAttentionGrad");
}

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
  if (is_product(node)) return input < 2;
  if (reads_rows_as_attention(node, input)) return true;
  if (is_op(node, "Transpose")) return input == 0;
  if (target != kernels::Target::cpu) return false;
  return is_op(node, "Concat") || node.op->has(kElementwise) || is_op(node, "FusedElementwise");
}

bool writes_rows(const Node& node, std::size_t output, kernels::Target) {
  return writes_rows_as_attention(node, output) ||
         ((is_product(node) || is_op(node, "Transpose")) && output == 0);
}

void set_input_strides(NodeTypes& types, std::size_t input, std::vector<std::int64_t> strides) {
  types.attrs.set(input_key(input), std::move(strides));
}
void set_output_strides(NodeTypes& types, std::size_t output, std::vector<std::int64_t> strides) {
  types.attrs.set(output_key(output), std::move(strides));
}
std::vector<std::int64_t> input_strides(const NodeTypes& types, std::size_t input) {
  return types.attrs.integers(input_key(input), dense_strides(types.inputs[input].shape));
}
std::vector<std::int64_t> output_strides(const NodeTypes& types, std::size_t output) {
  return types.attrs.integers(output_key(output), dense_strides(types.outputs[output].shape));
}
bool in_rows(const NodeTypes& types, std::size_t output) { return types.attrs.has(output_key(output)); }
bool has_rows(const NodeTypes& types) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    if (types.attrs.has(input_key(i))) return true;
  for (std::size_t i = 0; i < types.outputs.size(); ++i)
    if (in_rows(types, i)) return true;
  return false;
}

NodeTypes dense_types(NodeTypes types) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i) types.attrs.erase(input_key(i));
  for (std::size_t i = 0; i < types.outputs.size(); ++i) types.attrs.erase(output_key(i));
  return types;
}

void ask_for_bits(NodeTypes& types) { types.attrs.set(kBitsKey, std::int64_t{1}); }
bool asks_for_bits(const NodeTypes& types) { return types.attrs.has(kBitsKey); }

}  // namespace gradloom
