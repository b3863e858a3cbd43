// Helpers that several operator rows share: dimensions of symbolic shapes, axes, arguments that are
// attributes in one opset and inputs in another, dense copies, and short forms for samples and gradient
// rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ops/op.h"
#include "kernels/cpu.h"

namespace gradloom {

#define OP(symbol) extern const OpDef symbol##_op;
#include "engine/ops/ops.def"
#undef OP

// ---- symbolic dimensions ----------------------------------------------------------------------------------
// A dimension computed from symbolic ones is named by its formula: a negative number far below those of
// Graph::symbols that is a hash of the text. The same formula gives the same dimension, so inference is
// repeatable without a table.
constexpr std::int64_t kFirstDerivedDim = -(std::int64_t{1} << 40);
std::int64_t derived_dim(std::string_view formula);
// Dimension `index` of something whose size is in the contents of input `input`, unknown before running.
std::int64_t unknown_dim(const InferContext& ctx, std::size_t input, std::int64_t index);
Result<std::int64_t> add_dims(const std::vector<std::int64_t>& dims);  // error on overflow
Result<std::int64_t> multiply_dims(const std::vector<std::int64_t>& dims);
// total / part, both products of dims; error when it is known not to divide.
Result<std::int64_t> divide_dims(const std::vector<std::int64_t>& total,
                                 const std::vector<std::int64_t>& part);

// ---- arguments --------------------------------------------------------------------------------------------
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
Result<DType> dtype_from_onnx(std::int64_t code);                   // TensorProto.DataType
std::int64_t onnx_from_dtype(DType dtype);

Error no_kernel(const std::string& message);  // Errc::device

// ---- kernels ----------------------------------------------------------------------------------------------
// A strided copy of any rank: drops dims of size 1, merges dims, error when more than kEwMaxRank remain.
struct CopyPlan {
  std::vector<std::int64_t> dims, in_strides, out_strides;  // in elements
  std::int64_t in_offset = 0, out_offset = 0;               // first element
};
Result<kernels::StridedCopyArgs> strided_copy_args(const CopyPlan& plan, std::size_t element_bytes);
// `count` elements that lie dense; nothing where they are already.
void copy_elements(const kernels::Launcher& on, DType dtype, std::int64_t count, const void* from, void* to);
void run_copy(const kernels::Launcher& on, kernels::StridedCopyArgs args, const CopyPlan& plan,
              const void* in, void* out);
std::vector<std::int64_t> dense_strides(const Shape& shape);

// [outer, size, inner] around one axis.
struct AxisView {
  std::int64_t outer = 1, size = 1, inner = 1;
};
AxisView axis_view(const Shape& shape, std::int64_t axis);

Cost no_cost(const NodeTypes& types);  // views and shapes
// Cost of one FLOP per element of input 0 (reductions, gradients of gathers).
Cost input_cost(const NodeTypes& types);
// Moves the output's bytes once in and once out, no arithmetic.
Cost copy_cost(const NodeTypes& types);

// What a half type can hold of x: what is finite stays so (masks are made of the largest number there is).
// Other types: x.
double kept_finite(DType type, double x);
// The random stream of a node: attribute key, else its name. Attribute seed of ONNX is not used: runs have
// one seed.
std::uint64_t random_key(const Attrs& attrs, const std::string& node_name);

// ---- gradient rules ---------------------------------------------------------------------------------------
ValueId shape_of(GradContext& ctx, ValueId value);  // i64 contents: a constant when static
ValueId reshaped_like(GradContext& ctx, ValueId value, ValueId like);
ValueId full_like(GradContext& ctx, ValueId value, double fill);  // Expand of a scalar
ValueId cast_to(GraphBuilder& b, ValueId value, DType dtype);     // the value itself where it has the type

// ---- samples ----------------------------------------------------------------------------------------------
Sample sample_of(const char* name, Attrs attrs, std::vector<SampleInput> inputs, int output_count = 1);
SampleInput floats(Shape shape, double low = -1, double high = 1);
// Floats that stay f32 where the sample runs in f16 or bf16.
SampleInput statistic(Shape shape, double low, double high);
SampleInput ints(Shape shape, double low, double high, DType dtype = DType::i64);
SampleInput bools(Shape shape);
SampleInput known_ints(const std::vector<std::int64_t>& values);  // 1-d i64, known when planning
SampleInput known_scalar(DType dtype, double value);
SampleInput exact(DType dtype, Shape shape, std::vector<double> values);
SampleInput omitted();

}  // namespace gradloom
