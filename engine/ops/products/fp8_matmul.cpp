// Fp8Quantize (ours): the codes of 8 bits of a tensor, rounded to the nearest, of two to the even one; beyond the largest number they stay
// there. What is not finite becomes NaN.
//   inputs x (f32, f16, bf16; f64), scales [slots] of the type of statistics of x, or omitted
//   s = scales[slot], where that is above 0; else the format's largest number over the largest magnitude of x
//   outputs codes = round(s x) of the shape of x; inverse [1] = 1 / s; amax [1] = the largest magnitude of x over the format's largest number
// Attributes: format ("e4m3" | "e5m2"), slot (0). In between all is f32, also of f64: the codes are the same.
//
// Fp8MatMul (ours): Y = transpose(alpha A' B' inverse_a inverse_b, perm_y), A' = transpose(A, perm_a), B' = transpose(B, perm_b)
//   inputs codes A of at least 2 dims, B of 2, each of either format; inverse_a, inverse_b [1] of the type of sums (f32, f64)
// Attributes: perm_a, perm_b, perm_y (absent: identity), alpha (1), to: the type of Y (ONNX's number; f32). Products of codes are exact in f32;
// Y is rounded once.
// Source: OCP 8-bit Floating Point Specification 1.0; Micikevicius et al. 2022.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/products/fp8.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"
#include "kernels/library_kernels.h"

namespace gradloom {

const Fp8Format* find_fp8_format(const std::string& name) {
  for (const Fp8Format& format : kFp8Formats)
    if (name == format.name) return &format;
  return nullptr;
}

namespace {

using kernels::EwOp, kernels::EwProgram;
using SharedProgram = std::shared_ptr<const EwProgram>;

constexpr const char* kDefaultFormat = "e4m3";

// ---- programs of several types ------------------------------------------------------------------------------

// Registers: the inputs, then the constants, which are all there before the first instruction.
class TypedProgram {
 public:
  explicit TypedProgram(const Shape& dims) {
    program_.rank = static_cast<int>(dims.size());
    for (std::size_t d = 0; d < dims.size(); ++d) program_.dims[d] = dims[d];
  }
  int input(DType dtype, const std::vector<std::int64_t>& strides) {
    kernels::EwInput in{dtype, {}};
    for (std::size_t d = 0; d < strides.size(); ++d) in.strides[d] = program_.dims[d] == 1 ? 0 : strides[d];
    program_.inputs.push_back(in);
    return next_++;
  }
  int scalar_input(DType dtype) { return input(dtype, {}); }
  int constant(DType dtype, double value) {
    program_.constants.push_back({dtype, value});
    return next_++;
  }
  int op(EwOp op, DType operands, DType result, int a, int b = -1, int c = -1) {
    const auto reg = [](int r) { return static_cast<std::int16_t>(r); };
    program_.code.push_back({op, operands, result, {reg(a), reg(b), reg(c)}, 0});
    return next_++;
  }
  int op(EwOp kind, DType dtype, int a, int b = -1, int c = -1) { return op(kind, dtype, dtype, a, b, c); }
  int cast(int a, DType from, DType to) { return from == to ? a : op(EwOp::Cast, from, to, a); }
  void output(int reg, DType dtype) { program_.outputs.push_back({static_cast<std::int16_t>(reg), dtype}); }
  SharedProgram finish() {
    kernels::ew_collapse_dims(program_);
    return std::make_shared<const EwProgram>(std::move(program_));
  }

 private:
  EwProgram program_;
  int next_ = 0;
};

bool is_fp8(DType dtype) { return dtype == DType::f8e4m3fn || dtype == DType::f8e5m2; }

// ---- Fp8Quantize --------------------------------------------------------------------------------------------

Result<Fp8Format> format_of(const Attrs& attrs) {
  const std::string name = attrs.text("format", kDefaultFormat);
  const Fp8Format* const format = find_fp8_format(name);
  if (format == nullptr) return infer_error("format '" + name + "' is unknown");
  return *format;
}

Status infer_quantize(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  if (!is_float(ctx.dtype(0)))
    return infer_error("rounds floats, not " + std::string(dtype_name(ctx.dtype(0))));
  const Fp8Format format = TRY(format_of(ctx.attrs));
  const DType wide = statistics_type(ctx.dtype(0));
  const std::int64_t slot = ctx.attrs.integer("slot");
  if (ctx.has(1)) {
    if (ctx.dtype(1) != wide || ctx.shape(1).size() != 1)
      return infer_error("the scales must be a vector of " + std::string(dtype_name(wide)) + ", they are " +
                         to_string(ctx.in(1)));
    if (slot < 0 || (ctx.shape(1)[0] >= 0 && slot >= ctx.shape(1)[0]))
      return infer_error("there is no scale " + std::to_string(slot) + " of " +
                         std::to_string(ctx.shape(1)[0]));
  }
  return set_outputs(ctx, {{format.dtype, ctx.shape(0)}, {wide, {1}}, {wide, {1}}});
}

// From the extremes of x, and the given scale, to the scale that is used (f32), its inverse and amax.
SharedProgram scale_program(DType x, DType wide, bool given, double largest) {
  constexpr DType f32 = DType::f32;
  TypedProgram p(Shape{});
  const int high = p.scalar_input(x), low = p.scalar_input(x), old = given ? p.scalar_input(wide) : -1;
  const int most = p.constant(f32, largest), zero = p.constant(f32, 0), one = p.constant(f32, 1),
            least_scale = p.constant(f32, kLeastFp8Scale), most_scale = p.constant(f32, kMostFp8Scale);
  const int magnitude = p.op(EwOp::Max, f32, p.cast(high, x, f32), p.op(EwOp::Neg, f32, p.cast(low, x, f32)));
  const int part = p.op(EwOp::Div, f32, magnitude, most);
  const int own =
      p.op(EwOp::Max, f32, p.op(EwOp::Min, f32, p.op(EwOp::Reciprocal, f32, part), most_scale), least_scale);
  const auto above_zero = [&](int a) { return p.op(EwOp::Greater, f32, DType::boolean, a, zero); };
  int used = p.op(EwOp::Where, f32, above_zero(part), own, one);
  if (given) {
    const int scale = p.cast(old, wide, f32);
    used = p.op(EwOp::Where, f32, above_zero(scale), scale, used);
  }
  const int inverse = p.op(EwOp::Reciprocal, f32, used);
  p.output(used, f32);
  p.output(p.cast(inverse, f32, wide), wide);
  p.output(p.cast(part, f32, wide), wide);
  return p.finish();
}

SharedProgram code_program(DType x, DType codes, std::int64_t count) {
  constexpr DType f32 = DType::f32;
  TypedProgram p({count});
  const int in = p.input(x, {1}), scale = p.scalar_input(f32), zero = p.constant(f32, 0);
  const int wide = p.cast(in, x, f32);
  const int nothing = p.op(EwOp::Sub, f32, wide, wide);  // 0 of what is finite, else NaN
  const int finite = p.op(EwOp::Equal, f32, DType::boolean, nothing, zero);
  const int scaled = p.op(EwOp::Where, f32, finite, p.op(EwOp::Mul, f32, wide, scale), nothing);
  p.output(p.cast(scaled, f32, codes), codes);
  return p.finish();
}

// Some numbers in the workspace, then that of the reductions.
struct Quantization {
  enum QuantizationNumber : std::size_t { kHigh, kLow, kScale, kInverse, kAmax, kNumbers };
  SharedProgram scale, codes;
  kernels::ReduceArgs extreme{};
  std::size_t slot_bytes = 0;  // where the scale is among the scales

  void run(const LaunchArgs& args) const {
    const auto number = [&](std::size_t i) -> void* {
      return static_cast<std::byte*>(args.workspace) + i * kernels::at_library_boundary(1);
    };
    kernels::ReduceArgs reduce = extreme;
    reduce.in = args.inputs[0];
    reduce.workspace = number(kNumbers);
    for (const bool high : {true, false}) {
      reduce.op = high ? kernels::Reduction::max : kernels::Reduction::min;
      reduce.out = number(high ? kHigh : kLow);
      args.on.reduce(reduce);
    }
    const void* const given =
        scale->inputs.size() > 2 ? static_cast<const std::byte*>(args.inputs[1]) + slot_bytes : nullptr;
    const void* const from[] = {number(kHigh), number(kLow), given};
    void* const to[] = {number(kScale), args.outputs[1] != nullptr ? args.outputs[1] : number(kInverse),
                        args.outputs[2] != nullptr ? args.outputs[2] : number(kAmax)};
    args.on.elementwise({scale.get(), from, to, nullptr});
    const void* const scaled[] = {args.inputs[0], number(kScale)};
    args.on.elementwise({codes.get(), scaled, args.outputs, nullptr});
  }
};

Result<Kernel> prepare_quantize(const NodeTypes& types) {
  const DType x = types.inputs[0].dtype, wide = statistics_type(x);
  TRY(require_kernel_type(types.target, x));
  const std::int64_t count = element_count(types.inputs[0].shape);
  if (count == 0) return no_kernel("there is nothing to round");
  const Fp8Format format = TRY(format_of(types.attrs));
  Quantization q;
  q.scale = scale_program(x, wide, types.has(1), format.largest);
  q.codes = code_program(x, format.dtype, count);
  q.extreme = {x, kernels::Reduction::max, 1, count, 1, nullptr, nullptr, nullptr};
  q.slot_bytes = static_cast<std::size_t>(types.attrs.integer("slot")) * dtype_bytes(wide);
  Kernel kernel;
  kernel.name = std::string("fp8 quantize ") + format.name;
  kernel.workspace_bytes = Quantization::kNumbers * kernels::at_library_boundary(1) +
                           kernels::workspace_bytes(types.target, q.extreme);
  kernel.programs = {q.scale, q.codes};
  const std::size_t outputs = types.outputs.size();
  kernel.run = [q, outputs](const LaunchArgs& args) {
    void* to[3] = {};
    for (std::size_t i = 0; i < outputs; ++i) to[i] = args.outputs[i];
    q.run({args.inputs, to, args.workspace, args.random, args.on});
  };
  return kernel;
}

// The magnitude, the scaling and the rounding.
Cost cost_quantize(const NodeTypes& types) {
  return cost_of(types, 3.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}

SampleInput known_scales(std::vector<double> values) {
  SampleInput input = statistic({as_dim(values.size())}, 0, 0);
  input.values = std::move(values);
  return input;
}

std::vector<Sample> samples_quantize() {
  const Attrs low{{"format", std::string("e5m2")}};
  Attrs third = low;
  third.set("slot", std::int64_t{2});
  const double largest = 448, infinite = std::numeric_limits<double>::infinity();
  return {
      sample_of("own scale", {}, {floats({3, 5})}, 3),
      sample_of("own scale, e5m2", low, {floats({7}, -1e-6, 1e-6)}, 3),
      sample_of("given scale", {}, {floats({3, 5}, -2, 2), statistic({2}, 100, 200)}, 3),
      sample_of("third scale", third, {floats({2, 3, 4}), statistic({3}, 1e4, 2e4)}, 3),
      sample_of("no scale yet", {}, {floats({9}), known_scales({0})}, 3),
      sample_of("codes alone", {}, {floats({33}), statistic({1}, 100, 200)}),
      sample_of("zeros", {}, {exact(DType::f32, {4}, {0, 0, 0, 0})}, 3),
      // To even: 17 and 19 are between 16, 18 and 20.
      sample_of(
          "ties and ends", {},
          {exact(DType::f32, {8}, {17, 19, -17, largest, 464, -1e30, 0x1p-10, 0x1p-9}), known_scales({1})},
          3),
      sample_of("not finite", {}, {exact(DType::f32, {3}, {infinite, 1, -infinite}), known_scales({1})}),
      {.name = "layer",
       .inputs = {floats({1024, 2048}), statistic({1}, 100, 200)},
       .output_count = 3,
       .bench = true},
  };
}

// ---- Fp8MatMul ----------------------------------------------------------------------------------------------

Result<DType> result_type(const Attrs& attrs) {
  return dtype_from_onnx(attrs.integer("to", onnx_from_dtype(DType::f32)));
}

Status infer_product(InferContext& ctx) {
  TRY(require_inputs(ctx, 4));
  for (const std::size_t i : {0u, 1u})
    if (!is_fp8(ctx.dtype(i)))
      return infer_error("multiplies f8e4m3fn and f8e5m2, not " + std::string(dtype_name(ctx.dtype(i))));
  const DType to = TRY(result_type(ctx.attrs));
  if (!is_float(to)) return infer_error("the product cannot be " + std::string(dtype_name(to)));
  const DType sums = ctx.dtype(2);
  for (const std::size_t i : {2u, 3u})
    if ((sums != DType::f32 && sums != DType::f64) || ctx.in(i) != Type{sums, {1}})
      return infer_error("the inverse scales must be f32[1], or f64[1], they are " + to_string(ctx.in(2)) +
                         " and " + to_string(ctx.in(3)));
  if (ctx.shape(1).size() != 2) return infer_error("the second operand must have 2 dims");
  const ProductSpec spec = TRY(product_spec(ctx.attrs, ctx.shape(0).size(), ctx.shape(1).size()));
  const ProductShape s = TRY(product_shape(ctx.shape(0), ctx.shape(1), spec));
  return set_outputs(ctx, {{to, s.y}});
}

struct CodeProduct {
  ProductSpec spec;
  ProductShape shape;
};
CodeProduct product_of(const NodeTypes& types) {
  const Shape &a = types.inputs[0].shape, &b = types.inputs[1].shape;
  auto spec = product_spec(types.attrs, a.size(), b.size());
  CHECK(spec.ok(), "types of an invalid product");
  auto shape = product_shape(a, b, *spec);
  CHECK(shape.ok(), "types of an invalid product");
  return {std::move(spec).value(), std::move(shape).value()};
}

Cost cost_product(const NodeTypes& types) { return cost_of(types, product_flops(product_of(types).shape)); }

// Codes as numbers of type `to`, dense in the order of `dims`.
SharedProgram number_program(DType codes, DType to, const Shape& dims,
                             const std::vector<std::int64_t>& strides) {
  TypedProgram p(dims);
  p.output(p.cast(p.input(codes, strides), codes, to), to);
  return p.finish();
}

// From sums [rows, n], seen in the order of Y, to Y.
SharedProgram result_program(DType sums, DType to, const ProductShape& s, const ProductSpec& spec) {
  const Perm order = spec.perm_y;
  TypedProgram p(s.y);
  const int sum = p.input(sums, permuted(dense_strides(s.p), order)), a = p.scalar_input(sums),
            b = p.scalar_input(sums);
  const int alpha = spec.alpha == 1 ? -1 : p.constant(sums, spec.alpha);
  int factor = p.op(EwOp::Mul, sums, a, b);
  if (alpha >= 0) factor = p.op(EwOp::Mul, sums, factor, alpha);
  p.output(p.cast(p.op(EwOp::Mul, sums, sum, factor), sums, to), to);
  return p.finish();
}

// How a GPU's library multiplies the codes themselves: A' as [rows, k] and B' turned, as [n, k], both dense, copied where they lie
// otherwise; Y as it is, or dense and then copied.
struct LibraryProduct {
  bool offered = false;
  kernels::Fp8ProductArgs args{};
  CopyPlan a, b, y;
  kernels::StridedCopyArgs copy_a{}, copy_b{}, copy_y{};
  bool copies_a = false, copies_b = false, copies_y = false;
  std::size_t b_at = 0, y_at = 0, rest_at = 0;  // in the workspace, behind the copy of A'
  std::size_t workspace_bytes = 0;

  // False: the library has no such product, and nothing was done but copies.
  bool run(const LaunchArgs& launch) const {
    if (!offered) return false;
    auto* const base = static_cast<std::byte*>(launch.workspace);
    if (copies_a) run_copy(launch.on, copy_a, a, launch.inputs[0], base);
    if (copies_b) run_copy(launch.on, copy_b, b, launch.inputs[1], base + b_at);
    kernels::Fp8ProductArgs now = args;
    now.product.a = copies_a ? base : launch.inputs[0];
    now.product.b = copies_b ? base + b_at : launch.inputs[1];
    now.product.c = copies_y ? base + y_at : launch.outputs[0];
    now.product.workspace = base + rest_at;
    now.product.workspace_bytes = workspace_bytes - rest_at;
    now.a_inverse = static_cast<const float*>(launch.inputs[2]);
    now.b_inverse = static_cast<const float*>(launch.inputs[3]);
    if (!launch.on.fp8_product(now)) return false;
    if (copies_y) run_copy(launch.on, copy_y, y, base + y_at, launch.outputs[0]);
    return true;
  }
};

// A matrix [rows, cols], dense and of these elements, of what lies with other strides: whether it has to be copied.
Result<bool> plan_copy(const Shape& dims, const std::vector<std::int64_t>& from, std::size_t element_bytes,
                       CopyPlan& plan, kernels::StridedCopyArgs& args) {
  plan = {dims, from, dense_strides(dims)};
  args = TRY(strided_copy_args(plan, element_bytes));
  return args.rank > 1 || (args.rank == 1 && args.in_strides[0] != 1);
}

Result<LibraryProduct> library_product(const NodeTypes& types, const CodeProduct& of) {
  LibraryProduct p;
  const Type &a = types.inputs[0], &b = types.inputs[1], &y = types.outputs[0];
  const bool wide = types.inputs[2].dtype == DType::f64 || y.dtype == DType::f64;
  if (kernels::has_prepared_kernels(types.target) || wide) return p;
  const auto& [spec, s] = of;
  const std::int64_t rows = element_count(s.y) / s.n;
  p.copies_a = TRY(plan_copy(s.a, permuted(dense_strides(a.shape), spec.perm_a), 1, p.a, p.copy_a));
  const std::vector<std::int64_t> b_strides = permuted(dense_strides(b.shape), spec.perm_b);
  p.copies_b = TRY(plan_copy({s.n, s.k}, {b_strides[1], b_strides[0]}, 1, p.b, p.copy_b));
  kernels::GemmArgs& product = p.args.product;
  product.dtype = y.dtype;
  product.m = rows, product.n = s.n, product.k = s.k;
  product.a_row = s.k, product.a_col = 1, product.b_row = 1, product.b_col = s.k;
  product.c_row = s.n, product.c_col = 1;
  product.alpha = spec.alpha;
  p.args.a_codes = a.dtype;
  p.args.b_codes = b.dtype;
  if (s.y.size() == 2 && !spec.perm_y.empty()) {  // turned, which the library does itself
    product.c_row = 1, product.c_col = rows;
  } else {
    const Perm order = spec.perm_y;
    p.copies_y =
        TRY(plan_copy(s.y, permuted(dense_strides(s.p), order), dtype_bytes(y.dtype), p.y, p.copy_y));
  }
  const auto after = [](std::size_t at, DType type, std::int64_t count, bool there) {
    return kernels::at_library_boundary(at + (there ? aligned_bytes(type, count) : 0));
  };
  p.b_at = after(0, a.dtype, rows * s.k, p.copies_a);
  p.y_at = after(p.b_at, b.dtype, s.n * s.k, p.copies_b);
  p.rest_at = after(p.y_at, y.dtype, rows * s.n, p.copies_y);
  p.workspace_bytes =
      p.rest_at + (types.dnn_library ? kernels::library_workspace_bytes(product) : std::size_t{0});
  p.offered = true;
  return p;
}

// A' and B' turned, [rows, k] and [n, k], as numbers; their product; Y.
struct NumberProduct {
  SharedProgram a, b, y;
  SliceProduct product;
  std::size_t b_at = 0, sums_at = 0, rest_at = 0;  // in the workspace, behind A'

  void run(const LaunchArgs& args) const {
    auto* const base = static_cast<std::byte*>(args.workspace);
    void* left = base;
    void* right = base + b_at;
    args.on.elementwise({a.get(), &args.inputs[0], &left, nullptr});
    args.on.elementwise({b.get(), &args.inputs[1], &right, nullptr});
    product.run(args, left, right, base + sums_at, base + rest_at);
    const void* const from[] = {base + sums_at, args.inputs[2], args.inputs[3]};
    args.on.elementwise({y.get(), from, args.outputs, nullptr});
  }
};

Result<Kernel> prepare_product_of_codes(const NodeTypes& types) {
  const Type &a = types.inputs[0], &b = types.inputs[1], &y = types.outputs[0];
  const CodeProduct of = product_of(types);
  const auto& [spec, s] = of;
  if (s.k == 0 || element_count(s.y) == 0) return no_kernel("there is nothing to multiply");
  if (s.a.size() > kernels::kEwMaxRank) return no_kernel("no kernel for more than 8 dims");
  const DType sums = types.inputs[2].dtype;
  // Every code is a number of bf16.
  const DType number = kernels::has_prepared_kernels(types.target) || sums == DType::f64 ? sums : DType::bf16;
  const std::int64_t rows = element_count(s.y) / s.n;
  NumberProduct p;
  p.a = number_program(a.dtype, number, s.a, permuted(dense_strides(a.shape), spec.perm_a));
  const std::vector<std::int64_t> b_strides = permuted(dense_strides(b.shape), spec.perm_b);
  p.b = number_program(b.dtype, number, {s.n, s.k}, {b_strides[1], b_strides[0]});
  p.y = result_program(sums, y.dtype, s, spec);
  kernels::MatMulDesc desc;
  desc.dtype = number;
  desc.m = rows;
  desc.n = s.n;
  desc.k = s.k;
  desc.a_strides = {s.k, 1};
  desc.b_strides = {1, s.k};
  desc.c_strides = {s.n, 1};
  desc.wide_c = number != sums;
  p.product = TRY(SliceProduct::create(types.target, desc, types.dnn_library));
  const auto after = [](std::size_t at, DType type, std::int64_t count) {
    return kernels::at_library_boundary(at + aligned_bytes(type, count));
  };
  p.b_at = after(0, number, rows * s.k);
  p.sums_at = after(p.b_at, number, s.n * s.k);
  p.rest_at = after(p.sums_at, sums, rows * s.n);
  Kernel kernel;
  kernel.name = "fp8 product";
  const LibraryProduct library = TRY(library_product(types, of));
  kernel.workspace_bytes = std::max(p.rest_at + p.product.workspace_bytes(), library.workspace_bytes);
  kernel.programs = {p.a, p.b, p.y};
  kernel.run = [p, library](const LaunchArgs& args) {
    if (!library.run(args)) p.run(args);
  };
  return kernel;
}

std::vector<Sample> samples_product() {
  const auto codes = [](Shape shape, DType dtype = DType::f8e4m3fn) {
    return ints(std::move(shape), -16, 16, dtype);
  };
  const auto inverse = [](double low, double high) { return statistic({1}, low, high); };
  const Attrs weight{{"perm_b", Perm{1, 0}}};
  Attrs half = weight;
  half.set("to", onnx_from_dtype(DType::bf16));
  const Attrs gradient{{"perm_a", Perm{1, 0}}, {"perm_y", Perm{1, 0}}, {"alpha", 0.5}};
  return {
      sample_of("plain", {}, {codes({3, 5}), codes({5, 4}), inverse(0.01, 0.1), inverse(0.01, 0.1)}),
      sample_of("weight", weight,
                {codes({2, 3, 16}), codes({32, 16}), inverse(0.01, 0.1), inverse(0.001, 0.01)}),
      sample_of("gradient", gradient,
                {codes({16, 4}), codes({16, 5}, DType::f8e5m2), inverse(0.01, 0.1), inverse(1e-7, 1e-6)}),
      sample_of("heads", {{"perm_a", Perm{1, 0, 2}}, {"perm_y", Perm{1, 0, 2}}},
                {codes({2, 3, 5}, DType::f8e5m2), codes({5, 4}), inverse(0.01, 0.1), inverse(0.01, 0.1)}),
      // In whole packs, as libraries have them: as they lie, turned, and of two formats.
      sample_of("packs", weight,
                {codes({32, 64}), codes({48, 64}), inverse(0.01, 0.1), inverse(0.001, 0.01)}),
      sample_of("packs to bf16", half,
                {codes({2, 16, 64}), codes({48, 64}), inverse(0.01, 0.1), inverse(0.001, 0.01)}),
      sample_of("packs turned", gradient,
                {codes({64, 32}), codes({64, 48}, DType::f8e5m2), inverse(0.01, 0.1), inverse(1e-7, 1e-6)}),
      sample_of("packs of rows", {},
                {codes({2, 16, 64}, DType::f8e5m2), codes({64, 32}), inverse(0.01, 0.1), inverse(0.01, 0.1)}),
      {.name = "linear",
       .attrs = weight,
       .inputs = {codes({1024, 512}), codes({2048, 512}), inverse(0.01, 0.1), inverse(0.01, 0.1)},
       .bench = true},
  };
}

}  // namespace

const OpDef fp8_quantize_op = {
    .name = "Fp8Quantize",
    .domain = "gradloom",
    .summary = "Codes of 8 bits of a scaled tensor, its inverse scale and its largest magnitude.",
    .traits = kNoGradient | kOptionalOutputs,
    .min_inputs = 1,
    .max_inputs = 2,
    .max_outputs = 3,
    .infer = infer_quantize,
    .cost = cost_quantize,
    .cpu = prepare_quantize,
    .gpu = prepare_quantize,
    .samples = samples_quantize,
};

const OpDef fp8_matmul_op = {
    .name = "Fp8MatMul",
    .domain = "gradloom",
    .summary = "Matrix product of codes of 8 bits through axis permutations, times inverse scales.",
    .traits = kNoGradient,
    .min_inputs = 4,
    .max_inputs = 4,
    .infer = infer_product,
    .cost = cost_product,
    .cpu = prepare_product_of_codes,
    .gpu = prepare_product_of_codes,
    .samples = samples_product,
    .arithmetic = Arithmetic::products,
};

}  // namespace gradloom
