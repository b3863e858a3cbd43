#include "engine/ops/inference.h"

#include <algorithm>

#include "engine/ops/dims.h"

namespace gradloom {
namespace {

IntArgument from_tensor(const Tensor* tensor) {
  IntArgument argument{true, std::nullopt};
  if (tensor != nullptr && tensor->defined()) argument.values = tensor->to_i64();
  return argument;
}

struct OnnxType {
  std::int64_t code;
  DType dtype;
};
constexpr OnnxType kOnnxTypes[] = {
    {1, DType::f32},         {2, DType::u8},        {3, DType::i8},          {4, DType::u16},
    {5, DType::i16},         {6, DType::i32},       {7, DType::i64},         {9, DType::boolean},
    {10, DType::f16},        {11, DType::f64},      {12, DType::u32},        {13, DType::u64},
    {16, DType::bf16},       {17, DType::f8e4m3fn}, {18, DType::f8e4m3fnuz}, {19, DType::f8e5m2},
    {20, DType::f8e5m2fnuz}, {21, DType::u4},       {22, DType::i4},         {23, DType::f4e2m1},
    {24, DType::f8e8m0},     {25, DType::u2},       {26, DType::i2},
};
// Those without a DType.
struct OtherType {
  std::int64_t code;
  const char* name;
};
constexpr OtherType kOtherTypes[] = {
    {8, "string"}, {14, "complex64"}, {15, "complex128"}, {27, "float6e2m3"}, {28, "float6e3m2"}};

}  // namespace

IntArgument int_argument(const InferContext& ctx, const char* name, std::size_t input) {
  if (ctx.attrs.has(name)) return {true, ctx.attrs.integers(name)};
  if (!ctx.has(input)) return {};
  return from_tensor(ctx.constant(input));
}

IntArgument int_argument(const NodeTypes& types, const char* name, std::size_t input) {
  if (types.attrs.has(name)) return {true, types.attrs.integers(name)};
  if (!types.has(input)) return {};
  return from_tensor(types.constants[input]);
}

IntArgument int_argument(const GradContext& ctx, const char* name, std::size_t input) {
  if (ctx.node.attrs.has(name)) return {true, ctx.node.attrs.integers(name)};
  if (ctx.in(input) == kNone) return {};
  const Graph& graph = ctx.b.graph();
  return from_tensor(is_constant(graph, ctx.in(input)) ? &graph.values[ctx.in(input)].data : nullptr);
}

Result<std::vector<std::int64_t>> normalized_axes(const std::vector<std::int64_t>& axes, std::size_t rank) {
  std::vector<std::int64_t> result;
  for (std::int64_t axis : axes) result.push_back(TRY(normalized_axis(axis, rank)));
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end())
    return infer_error("an axis is given twice");
  return result;
}

Status require_inputs(const InferContext& ctx, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (!ctx.has(i)) return infer_error("input " + std::to_string(i) + " is missing");
  return {};
}

Status require_float(const InferContext& ctx, std::size_t i, const char* what) {
  const DType dtype = ctx.dtype(i);
  if (!is_float(ctx.dtype(0)))
    return infer_error(std::string("the input must be floating point, it is ") + dtype_name(ctx.dtype(0)));
  if (dtype == ctx.dtype(0)) return {};
  return infer_error(std::string(what) + " must be " + dtype_name(ctx.dtype(0)) + " like the input, it is " +
                     dtype_name(dtype));
}

Status require_shape(const InferContext& ctx, std::size_t i, const char* what, const Shape& wanted) {
  const Shape& given = ctx.shape(i);
  bool same = given.size() == wanted.size();
  for (std::size_t d = 0; same && d < wanted.size(); ++d) same = !dims_differ(given[d], wanted[d]);
  if (same) return {};
  return infer_error(std::string(what) + " must have shape " + to_string(wanted) + ", it has " +
                     to_string(given));
}

Status require_parameter(const InferContext& ctx, std::size_t i, const char* what, std::size_t scale) {
  const DType dtype = ctx.dtype(i), input = ctx.dtype(0);
  if (i != scale && dtype != ctx.dtype(scale))
    return infer_error(std::string(what) + " must be " + dtype_name(ctx.dtype(scale)) +
                       " like scale, it is " + dtype_name(dtype));
  const bool wider = is_float(input) && dtype == statistics_type(input);
  return wider ? Status{} : require_float(ctx, i, what);
}

DType statistics_type(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

Status require_statistic(const InferContext& ctx, std::size_t i, const char* what) {
  const DType want = statistics_type(ctx.dtype(0));
  if (ctx.dtype(i) == want) return {};
  return infer_error(std::string(what) + " must be " + dtype_name(want) + ", it is " +
                     dtype_name(ctx.dtype(i)));
}

Status set_outputs(InferContext& ctx, std::vector<Type> types) {
  const std::size_t wanted = static_cast<std::size_t>(ctx.output_count);
  if (types.size() > wanted) types.resize(wanted);
  ctx.outputs = std::move(types);
  return {};
}

Result<DType> dtype_from_onnx(std::int64_t code) {
  for (const OnnxType& t : kOnnxTypes)
    if (t.code == code) return t.dtype;
  for (const OtherType& t : kOtherTypes)
    if (t.code == code) return infer_error("element type " + std::string(t.name) + " is not supported");
  return infer_error("element type " + std::to_string(code) + " is unknown");
}

std::int64_t onnx_from_dtype(DType dtype) {
  for (const OnnxType& t : kOnnxTypes)
    if (t.dtype == dtype) return t.code;
  return 0;
}

}  // namespace gradloom
