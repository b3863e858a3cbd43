// What inference functions share: arguments that are attributes in one opset and inputs in another, axes,
// and checks of input types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

// The integers of attribute `name`, or else the known contents of input `input`; no value: given but
// unknown before running, or absent (`present` tells which).
struct IntArgument {
  bool present = false;
  std::optional<std::vector<std::int64_t>> values;
};
IntArgument int_argument(const InferContext& ctx, const char* name, std::size_t input);
IntArgument int_argument(const NodeTypes& types, const char* name, std::size_t input);
IntArgument int_argument(const GradContext& ctx, const char* name, std::size_t input);

// Normalized, sorted, distinct axes.
Result<std::vector<std::int64_t>> normalized_axes(const std::vector<std::int64_t>& axes, std::size_t rank);

Status require_inputs(const InferContext& ctx, std::size_t count);  // the first `count` inputs are present
// "bias must be f32 like the input, it is i64" unless input i has the floating type of input 0.
Status require_float(const InferContext& ctx, std::size_t i, const char* what);
// "the addend must have shape [2, 3], it has [2]" unless input i may have this shape.
Status require_shape(const InferContext& ctx, std::size_t i, const char* what, const Shape& wanted);
// Scale or bias of a normalization, input i: the type of input 0, or f32 where that is bf16 or f16; the same
// for both. `scale`: the input that it must agree with.
Status require_parameter(const InferContext& ctx, std::size_t i, const char* what, std::size_t scale = 1);
// Means and deviations of a tensor: its type, f32 where that is bf16 or f16.
DType statistics_type(DType dtype);
Status require_statistic(const InferContext& ctx, std::size_t i, const char* what);
// The first `output_count` of `types` become the outputs.
Status set_outputs(InferContext& ctx, std::vector<Type> types);

Result<DType> dtype_from_onnx(std::int64_t code);  // TensorProto.DataType
std::int64_t onnx_from_dtype(DType dtype);

}  // namespace gradloom
