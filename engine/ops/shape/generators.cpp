// Values made from attributes, shapes or a few numbers: Constant, ConstantOfShape,
// EyeLike, Shape, Size, Range.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "engine/ops/input_roles.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// A kernel that writes bytes known when planning.
Result<Kernel> copy_of(const NodeTypes& types, const char* name, Tensor data) {
  const auto bytes = static_cast<std::int64_t>(data.bytes());
  if (kernels::shares_host_memory(types.target))
    return Kernel{name, 0, [data = std::move(data)](const LaunchArgs& launch) {
                    if (data.bytes() > 0) std::memcpy(launch.outputs[0], data.data(), data.bytes());
                  }};
  if (bytes > kernels::kStoreMaxBytes)
    return no_kernel("no GPU kernel stores " + std::to_string(bytes) +
                     " bytes; fold-constants makes them a constant");
  return Kernel{name, 0, [data = std::move(data), bytes](const LaunchArgs& launch) {
                  launch.on.store({bytes, data.data(), launch.outputs[0]});
                }};
}

// ---- Constant ---------------------------------------------------------------------------------------------

Result<Tensor> constant_of(const Attrs& attrs) {
  if (const Tensor* value = attrs.tensor("value")) return *value;
  if (attrs.has("value_float")) return Tensor::scalar(DType::f32, attrs.real("value_float"));
  if (attrs.has("value_int")) return Tensor::from_i64({attrs.integer("value_int")}).reshaped({});
  if (attrs.has("value_ints")) return Tensor::from_i64(attrs.integers("value_ints"));
  if (attrs.has("value_floats")) {
    const auto values = attrs.reals("value_floats");
    return Tensor::from_f64(DType::f32, {static_cast<std::int64_t>(values.size())}, values);
  }
  return infer_error("Constant without a value of a supported kind");
}

Status infer_constant(InferContext& ctx) {
  ctx.outputs[0] = TRY(constant_of(ctx.attrs)).type();
  return {};
}

Result<Kernel> prepare_constant(const NodeTypes& types) {
  return copy_of(types, "constant", TRY(constant_of(types.attrs)));
}

std::vector<Sample> constant_samples() {
  return {sample_of("integers", {{"value_ints", std::vector<std::int64_t>{3, -1, 7}}}, {}),
          sample_of("tensor", {{"value", Tensor::from_i64({2, 4})}}, {}),
          sample_of("integer", {{"value_int", std::int64_t{5}}}, {}),
          sample_of("i4", {{"value", Tensor::from_f64(DType::i4, {3}, {-8, 0, 7})}}, {}),
          sample_of("f8e4m3fn", {{"value", Tensor::from_f64(DType::f8e4m3fn, {3}, {-448, 0, 7})}}, {})};
}

// ---- ConstantOfShape --------------------------------------------------------------------------------------

Result<Tensor> fill_value(const Attrs& attrs) {
  const Tensor* value = attrs.tensor("value");
  if (value == nullptr) return Tensor::scalar(DType::f32, 0);
  if (value->count() != 1) return infer_error("ConstantOfShape: the value must have one element");
  return *value;
}

Status infer_constant_of_shape(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Tensor value = TRY(fill_value(ctx.attrs));
  if (ctx.shape(0).size() != 1) return infer_error("ConstantOfShape: the shape must be a vector");
  Shape out;
  if (const Tensor* shape = ctx.constant(0)) {
    out = shape->to_i64();
    for (std::int64_t d : out)
      if (d < 0) return infer_error("ConstantOfShape: the shape holds " + std::to_string(d));
  } else {
    const std::int64_t rank = ctx.shape(0)[0];
    if (rank < 0 || rank > 64) return infer_error("ConstantOfShape: the rank is not known");
    for (std::int64_t i = 0; i < rank; ++i) out.push_back(unknown_dim(ctx, 0, i));
  }
  ctx.outputs[0] = {value.dtype(), out};
  return {};
}

Result<Kernel> prepare_constant_of_shape(const NodeTypes& types) {
  const Type& out = types.outputs[0];
  Kernel kernel;
  kernel.name = "fill";
  kernel.run = [value = TRY(fill_value(types.attrs)),
                count = element_count(out.shape)](const LaunchArgs& launch) {
    launch.on.fill({dtype_bytes(value.dtype()), count, value.data(), launch.outputs[0]});
  };
  return kernel;
}

std::vector<Sample> constant_of_shape_samples() {
  return {
      sample_of("zeros", {{"value", Tensor::from_i64({0})}}, {known_ints({3, 5})}),
      sample_of("sevens", {{"value", Tensor::from_i64({7})}}, {known_ints({4})}),
      sample_of("scalar", {{"value", Tensor::from_i64({1})}}, {known_ints({})}),
      sample_of("floats", {}, {known_ints({2, 3})}),
      sample_of("u2", {{"value", Tensor::scalar(DType::u2, 3).reshaped({1})}}, {known_ints({5})}),
      sample_of("f4e2m1", {{"value", Tensor::scalar(DType::f4e2m1, 1.5).reshaped({1})}}, {known_ints({5})})};
}

// ---- EyeLike: 1 where column - row = k, else 0 ------------------------------------------------------------

Status infer_eye_like(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (ctx.shape(0).size() != 2) return infer_error("EyeLike: the input must be a matrix");
  const DType dtype =
      ctx.attrs.has("dtype") ? TRY(dtype_from_onnx(ctx.attrs.integer("dtype"))) : ctx.dtype(0);
  ctx.outputs[0] = {dtype, ctx.shape(0)};
  return {};
}

// Zeros, then a 1 at the first element of the diagonal, copied to its other elements.
Result<Kernel> prepare_eye_like(const NodeTypes& types) {
  const Type& out = types.outputs[0];
  const std::int64_t rows = out.shape[0], cols = out.shape[1], k = types.attrs.integer("k");
  const std::int64_t first_row = k >= -rows && k < 0 ? -k : 0, first_col = k > 0 && k <= cols ? k : 0;
  const bool outside = k < -rows || k > cols;
  const std::int64_t ones =
      outside ? 0 : std::max<std::int64_t>(0, std::min(rows - first_row, cols - first_col));
  Kernel kernel;
  kernel.name = "eye";
  kernel.run = [zero = Tensor::scalar(out.dtype, 0), one = Tensor::scalar(out.dtype, 1),
                bytes = dtype_bytes(out.dtype), ones, cols, count = rows * cols,
                first = first_row * cols + first_col](const LaunchArgs& launch) {
    launch.on.fill({bytes, count, zero.data(), launch.outputs[0]});
    if (ones == 0) return;
    char* const corner = static_cast<char*>(launch.outputs[0]) + static_cast<std::size_t>(first) * bytes;
    launch.on.fill({bytes, 1, one.data(), corner});
    if (ones == 1) return;
    kernels::StridedCopyArgs copy{};
    copy.element_bytes = bytes;
    copy.rank = 1;
    copy.dims[0] = ones - 1;
    copy.out_strides[0] = cols + 1;
    copy.in = corner;
    copy.out = corner + static_cast<std::size_t>(cols + 1) * bytes;
    launch.on.strided_copy(copy);
  };
  return kernel;
}

std::vector<Sample> eye_like_samples() {
  return {sample_of("square", {}, {floats({4, 4})}),
          sample_of("above", {{"k", std::int64_t{2}}}, {floats({3, 5})}),
          sample_of("below", {{"k", std::int64_t{-1}}, {"dtype", std::int64_t{7}}}, {floats({5, 3})}),
          sample_of("outside", {{"k", std::int64_t{9}}}, {ints({3, 3}, 0, 1)}),
          sample_of("booleans", {{"dtype", std::int64_t{9}}}, {floats({2, 7})})};
}

// ---- Shape (attributes start, end since opset 15), Size ---------------------------------------------------

Shape shape_part(const Attrs& attrs, const Shape& shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto place = [&](std::int64_t p) {
    return std::min(std::max<std::int64_t>(p < 0 ? p + rank : p, 0), rank);
  };
  const std::int64_t begin = place(attrs.integer("start", 0)), end = place(attrs.integer("end", rank));
  if (begin >= end) return {};
  return {shape.begin() + begin, shape.begin() + end};
}

Status infer_shape(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  ctx.outputs[0] = {DType::i64, {static_cast<std::int64_t>(shape_part(ctx.attrs, ctx.shape(0)).size())}};
  return {};
}

Result<Kernel> prepare_shape(const NodeTypes& types) {
  return copy_of(types, "shape", Tensor::from_i64(shape_part(types.attrs, types.inputs[0].shape)));
}

std::vector<Sample> shape_samples() {
  return {sample_of("all", {}, {floats({3, 1, 5})}),
          sample_of("part", {{"start", std::int64_t{-2}}, {"end", std::int64_t{2}}}, {floats({3, 4, 5})}),
          sample_of("scalar", {}, {floats({})}),
          sample_of("nothing", {{"start", std::int64_t{2}}}, {floats({3, 4})}),
          sample_of("i4", {}, {ints({3, 5}, -8, 7, DType::i4)})};
}

Status infer_size(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  ctx.outputs[0] = {DType::i64, {}};
  return {};
}

Result<Kernel> prepare_size(const NodeTypes& types) {
  return copy_of(types, "size", Tensor::from_i64({element_count(types.inputs[0].shape)}).reshaped({}));
}

std::vector<Sample> size_samples() {
  return {sample_of("matrix", {}, {floats({3, 5})}), sample_of("scalar", {}, {floats({})}),
          sample_of("f8e8m0", {}, {exact(DType::f8e8m0, {3}, {1, 2, 4})})};
}

// ---- Range: start, start + delta, .. below limit ----------------------------------------------------------

Result<std::int64_t> range_count(DType dtype, const Tensor& start, const Tensor& limit, const Tensor& delta) {
  if (start.count() != 1 || limit.count() != 1 || delta.count() != 1)
    return infer_error("Range: the inputs must be scalars");
  if (!is_float(dtype)) {
    const std::int64_t step = delta.int_at(0);
    if (step == 0) return infer_error("Range: delta is 0");
    const __int128 distance = static_cast<__int128>(limit.int_at(0)) - start.int_at(0), wide = step;
    const __int128 count = (distance + (wide > 0 ? wide - 1 : wide + 1)) / wide;
    if (distance == 0 || (distance > 0) != (wide > 0)) return std::int64_t{0};
    if (count > INT64_MAX) return infer_error("Range: too many elements");
    return static_cast<std::int64_t>(count);
  }
  const double count = std::ceil((limit.at(0) - start.at(0)) / delta.at(0));
  if (!(std::fabs(count) < 9e15)) return infer_error("Range: the number of elements is not finite");
  return std::max<std::int64_t>(static_cast<std::int64_t>(count), 0);
}

Status infer_range(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  for (std::size_t i = 0; i < 3; ++i)
    if (ctx.dtype(i) != ctx.dtype(0) || ctx.dtype(i) == DType::boolean || is_small(ctx.dtype(i)))
      return infer_error("Range: the inputs must have one number type");
  const Tensor *start = ctx.constant(0), *limit = ctx.constant(1), *delta = ctx.constant(2);
  const bool known = start != nullptr && limit != nullptr && delta != nullptr;
  ctx.outputs[0] = {
      ctx.dtype(0),
      {known ? TRY(range_count(ctx.dtype(0), *start, *limit, *delta)) : unknown_dim(ctx, 1, 0)}};
  return {};
}

template <class T>
Kernel range_kernel(std::int64_t count) {
  Kernel kernel;
  kernel.name = "range";
  kernel.run = [count](const LaunchArgs& launch) {
    const T start = *static_cast<const T*>(launch.inputs[0]),
            delta = *static_cast<const T*>(launch.inputs[2]);
    T* y = static_cast<T*>(launch.outputs[0]);
    for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(start + static_cast<T>(i) * delta);
  };
  return kernel;
}

Result<Kernel> prepare_range(const NodeTypes& types) {
  if (!kernels::shares_host_memory(types.target)) {
    if (types.constants[0] == nullptr || types.constants[2] == nullptr)
      return no_kernel("no GPU kernel for a Range whose start and delta are not known when planning");
    constexpr std::size_t kMaxBytes = 64 << 20;  // made here and kept until it is uploaded
    if (byte_size(types.outputs[0]) > kMaxBytes)
      return no_kernel("no GPU kernel for a Range of more than 64 MiB");
    const DType own = types.outputs[0].dtype, computed = is_half(own) ? DType::f32 : own;
    NodeTypes on_host = types;
    on_host.target = kernels::Target::cpu;
    on_host.outputs[0].dtype = computed;
    const Kernel make = TRY(prepare_range(on_host));
    const Tensor start = types.constants[0]->cast(computed), delta = types.constants[2]->cast(computed);
    Tensor data(computed, types.outputs[0].shape);
    const void* inputs[] = {start.data(), nullptr, delta.data()};
    void* outputs[] = {data.mutable_data()};
    make.run({inputs, outputs, nullptr, nullptr, kernels::cpu_launcher()});
    return copy_of(types, "range", data.cast(own));
  }
  const std::int64_t count = element_count(types.outputs[0].shape);
  switch (types.outputs[0].dtype) {
    case DType::f32: return range_kernel<float>(count);
    case DType::f64: return range_kernel<double>(count);
    case DType::i32: return range_kernel<std::int32_t>(count);
    case DType::i64: return range_kernel<std::int64_t>(count);
    case DType::i16: return range_kernel<std::int16_t>(count);
    default:
      return no_kernel(std::string("no CPU kernel makes a range of ") + dtype_name(types.outputs[0].dtype));
  }
}

std::vector<Sample> range_samples() {
  const auto n = [](double v) { return known_scalar(DType::i64, v); };
  const auto f = [](double v) { return known_scalar(DType::f32, v); };
  return {sample_of("up", {}, {n(0), n(7), n(1)}), sample_of("down", {}, {n(10), n(-3), n(-4)}),
          sample_of("nothing", {}, {n(3), n(1), n(1)}), sample_of("floats", {}, {f(0.5), f(2.25), f(0.5)})};
}

constexpr InputRole kRangeRoles[] = {{.input = 0, .use = InputUse::sizes},
                                     {.input = 1, .use = InputUse::sizes},
                                     {.input = 2, .use = InputUse::sizes}};

}  // namespace

const OpDef constant_op = {.name = "Constant",
                           .summary = "A tensor given as an attribute",
                           .traits = kNoGradient,
                           .min_inputs = 0,
                           .max_inputs = 0,
                           .infer = infer_constant,
                           .cost = copy_cost,
                           .cpu = prepare_constant,
                           .gpu = prepare_constant,
                           .samples = constant_samples};
const OpDef constant_of_shape_op = {.name = "ConstantOfShape",
                                    .since = 9,
                                    .summary = "One value in every element of a shape",
                                    .traits = kNoGradient,
                                    .infer = infer_constant_of_shape,
                                    .cost = copy_cost,
                                    .cpu = prepare_constant_of_shape,
                                    .gpu = prepare_constant_of_shape,
                                    .samples = constant_of_shape_samples,
                                    .roles = kSizesFirst};
const OpDef eye_like_op = {.name = "EyeLike",
                           .since = 9,
                           .summary = "1 on a diagonal, 0 elsewhere, in the shape of the input",
                           .traits = kNoGradient,
                           .infer = infer_eye_like,
                           .cost = copy_cost,
                           .cpu = prepare_eye_like,
                           .gpu = prepare_eye_like,
                           .samples = eye_like_samples};
const OpDef shape_op = {.name = "Shape",
                        .summary = "The dimensions of the input",
                        .traits = kShapeOnly | kNoGradient,
                        .infer = infer_shape,
                        .cost = no_cost,
                        .cpu = prepare_shape,
                        .gpu = prepare_shape,
                        .samples = shape_samples};
const OpDef size_op = {.name = "Size",
                       .summary = "The number of elements of the input",
                       .traits = kShapeOnly | kNoGradient,
                       .infer = infer_size,
                       .cost = no_cost,
                       .cpu = prepare_size,
                       .gpu = prepare_size,
                       .samples = size_samples};
const OpDef range_op = {.name = "Range",
                        .since = 11,
                        .summary = "start, start + delta, .. below limit",
                        .traits = kNoGradient,
                        .min_inputs = 3,
                        .max_inputs = 3,
                        .infer = infer_range,
                        .cost = copy_cost,
                        .cpu = prepare_range,
                        .gpu = prepare_range,
                        .samples = range_samples,
                        .precision = Precision::full,
                        .roles = kRangeRoles};

}  // namespace gradloom
