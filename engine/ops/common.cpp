#include "engine/ops/common.h"

#include <algorithm>
#include <cmath>

#include "engine/base/hash.h"

namespace gradloom {
namespace {

// A product of dims: the static factor and the symbolic ones.
struct Product {
  std::int64_t factor = 1;
  std::vector<std::int64_t> symbols;  // sorted
};

Result<Product> product_of(const std::vector<std::int64_t>& dims) {
  Product p;
  for (std::int64_t d : dims) {
    if (d < 0) {
      p.symbols.push_back(d);
    } else if (__builtin_mul_overflow(p.factor, d, &p.factor)) {
      return infer_error("a product of dimensions does not fit in 63 bits");
    }
  }
  std::sort(p.symbols.begin(), p.symbols.end());
  return p;
}

std::string product_text(const Product& p) {
  std::string text = std::to_string(p.factor);
  for (std::int64_t s : p.symbols) text += "*" + std::to_string(s);
  return text;
}

std::int64_t dim_from(const Product& p) {
  if (p.symbols.empty() || p.factor == 0) return p.factor;
  if (p.symbols.size() == 1 && p.factor == 1) return p.symbols[0];
  return derived_dim(product_text(p));
}

IntArgument from_tensor(const Tensor* tensor) {
  IntArgument argument{true, std::nullopt};
  if (tensor != nullptr && tensor->defined()) argument.values = tensor->to_i64();
  return argument;
}

}  // namespace

std::int64_t derived_dim(std::string_view formula) {
  return kFirstDerivedDim - static_cast<std::int64_t>(fnv1a64(formula) >> 24);
}

std::int64_t unknown_dim(const InferContext& ctx, std::size_t input, std::int64_t index) {
  return derived_dim("contents " + std::to_string(ctx.inputs[input]) + "[" + std::to_string(index) + "]");
}

Result<std::int64_t> add_dims(const std::vector<std::int64_t>& dims) {
  std::int64_t sum = 0;
  std::vector<std::int64_t> symbols;
  for (std::int64_t d : dims) {
    if (d < 0) {
      symbols.push_back(d);
    } else if (__builtin_add_overflow(sum, d, &sum)) {
      return infer_error("a sum of dimensions does not fit in 63 bits");
    }
  }
  if (symbols.empty()) return sum;
  if (symbols.size() == 1 && sum == 0) return symbols[0];
  std::sort(symbols.begin(), symbols.end());
  std::string text = std::to_string(sum);
  for (std::int64_t s : symbols) text += "+" + std::to_string(s);
  return derived_dim(text);
}

Result<std::int64_t> multiply_dims(const std::vector<std::int64_t>& dims) {
  return dim_from(TRY(product_of(dims)));
}

Result<std::int64_t> divide_dims(const std::vector<std::int64_t>& total,
                                 const std::vector<std::int64_t>& part) {
  Product a = TRY(product_of(total)), b = TRY(product_of(part));
  for (auto it = b.symbols.begin(); it != b.symbols.end();) {
    const auto same = std::find(a.symbols.begin(), a.symbols.end(), *it);
    if (same == a.symbols.end()) {
      ++it;
    } else {
      a.symbols.erase(same);
      it = b.symbols.erase(it);
    }
  }
  if (b.factor == 0 && b.symbols.empty()) return infer_error("-1 cannot be computed: another dimension is 0");
  if (b.symbols.empty() && a.factor % b.factor == 0) return dim_from(Product{a.factor / b.factor, a.symbols});
  if (b.symbols.empty() && a.symbols.empty())
    return infer_error(std::to_string(a.factor) + " elements do not divide into parts of " +
                       std::to_string(b.factor));
  return derived_dim(product_text(a) + "/" + product_text(b));
}

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

namespace {
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

Error no_kernel(const std::string& message) { return Error{Errc::device, message}; }

std::vector<std::int64_t> dense_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Result<kernels::StridedCopyArgs> strided_copy_args(const CopyPlan& plan, std::size_t element_bytes) {
  std::vector<std::int64_t> dims, in, out;
  for (std::size_t d = 0; d < plan.dims.size(); ++d) {
    if (plan.dims[d] == 1) continue;
    if (!dims.empty() && in.back() == plan.in_strides[d] * plan.dims[d] &&
        out.back() == plan.out_strides[d] * plan.dims[d]) {
      dims.back() *= plan.dims[d];
      in.back() = plan.in_strides[d];
      out.back() = plan.out_strides[d];
      continue;
    }
    dims.push_back(plan.dims[d]);
    in.push_back(plan.in_strides[d]);
    out.push_back(plan.out_strides[d]);
  }
  if (dims.size() > static_cast<std::size_t>(kernels::kEwMaxRank))
    return no_kernel("a copy over " + std::to_string(dims.size()) + " separate dimensions; the kernel has " +
                     std::to_string(kernels::kEwMaxRank));
  kernels::StridedCopyArgs args{};
  args.element_bytes = element_bytes;
  args.rank = static_cast<int>(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    args.dims[d] = dims[d];
    args.in_strides[d] = in[d];
    args.out_strides[d] = out[d];
  }
  return args;
}

void copy_elements(const kernels::Launcher& on, DType dtype, std::int64_t count, const void* from, void* to) {
  if (count > 0 && from != to) on.strided_copy({dtype_bytes(dtype), 1, {count}, {1}, {1}, from, to});
}

void run_copy(const kernels::Launcher& on, kernels::StridedCopyArgs args, const CopyPlan& plan,
              const void* in, void* out) {
  const auto bytes = static_cast<std::int64_t>(args.element_bytes);
  for (int d = 0; d < args.rank; ++d)
    if (args.dims[d] == 0) return;
  args.in = static_cast<const char*>(in) + plan.in_offset * bytes;
  args.out = static_cast<char*>(out) + plan.out_offset * bytes;
  on.strided_copy(args);
}

AxisView axis_view(const Shape& shape, std::int64_t axis) {
  AxisView v;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto at = static_cast<std::int64_t>(d);
    (at < axis ? v.outer : at == axis ? v.size : v.inner) *= shape[d];
  }
  return v;
}

Cost no_cost(const NodeTypes&) { return {}; }

Cost input_cost(const NodeTypes& types) {
  Cost cost = default_cost(types);
  cost.flops = static_cast<double>(element_count(types.inputs[0].shape));
  return cost;
}

Cost copy_cost(const NodeTypes& types) {
  Cost cost;
  for (std::size_t i = 0; i < types.outputs.size(); ++i)
    if (types.wants(i)) cost.bytes_written += static_cast<double>(byte_size(types.outputs[i]));
  cost.bytes_read = cost.bytes_written;
  return cost;
}

std::uint64_t random_key(const Attrs& attrs, const std::string& node_name) {
  return attrs.has("key") ? static_cast<std::uint64_t>(attrs.integer("key")) : fnv1a64(node_name);
}

ValueId shape_of(GradContext& ctx, ValueId value) {
  const Shape shape = ctx.shape(value);
  if (is_static(shape)) return ctx.b.i64s(shape);
  return ctx.b.op("Shape", {value});
}

ValueId reshaped_like(GradContext& ctx, ValueId value, ValueId like) {
  Attrs attrs;
  for (std::int64_t d : ctx.shape(like))
    if (d <= 0) attrs.set("allowzero", std::int64_t{1});  // 0 is then a size, not "as before"
  return ctx.b.op("Reshape", {value, shape_of(ctx, like)}, attrs);
}

ValueId full_like(GradContext& ctx, ValueId value, double fill) {
  const ValueId shape = shape_of(ctx, value);
  return ctx.b.op("Expand", {ctx.b.scalar(ctx.dtype(value), fill), shape});
}

double kept_finite(DType type, double x) {
  if (!is_half(type) || !std::isfinite(x)) return x;
  const double largest = type == DType::f16 ? 65504 : 0x1.fep127;  // 0x7bff, 0x7f7f
  return std::clamp(x, -largest, largest);
}

ValueId cast_to(GraphBuilder& b, ValueId value, DType dtype) {
  return b.type(value).dtype == dtype ? value : b.op("Cast", {value}, {{"to", onnx_from_dtype(dtype)}});
}

Sample sample_of(const char* name, Attrs attrs, std::vector<SampleInput> inputs, int output_count) {
  return {.name = name, .attrs = std::move(attrs), .inputs = std::move(inputs), .output_count = output_count};
}

SampleInput floats(Shape shape, double low, double high) {
  SampleInput s;
  s.type = {DType::f32, std::move(shape)};
  s.low = low;
  s.high = high;
  return s;
}

SampleInput statistic(Shape shape, double low, double high) {
  SampleInput s = floats(std::move(shape), low, high);
  s.statistic = true;
  return s;
}

SampleInput ints(Shape shape, double low, double high, DType dtype) {
  SampleInput s = floats(std::move(shape), low, high);
  s.type.dtype = dtype;
  return s;
}

SampleInput bools(Shape shape) { return ints(std::move(shape), 0, 1, DType::boolean); }

SampleInput known_ints(const std::vector<std::int64_t>& values) {
  SampleInput s;
  s.type = {DType::i64, {static_cast<std::int64_t>(values.size())}};
  s.values.assign(values.begin(), values.end());
  s.constant = true;
  return s;
}

SampleInput known_scalar(DType dtype, double value) {
  SampleInput s;
  s.type = {dtype, {}};
  s.values = {value};
  s.constant = true;
  return s;
}

SampleInput exact(DType dtype, Shape shape, std::vector<double> values) {
  SampleInput s;
  s.type = {dtype, std::move(shape)};
  s.values = std::move(values);
  return s;
}

SampleInput omitted() {
  SampleInput s;
  s.omitted = true;
  return s;
}

}  // namespace gradloom
