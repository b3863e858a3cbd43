// Random tensors: Bernoulli, RandomUniform, RandomNormal (and the Like forms), Multinomial. All draw from
// Philox4x32-10 keyed by seed, step and attribute "key" (else the node's name), as Dropout does; attribute
// seed of ONNX is not used: runs have one seed.
//   uniform:     low + u (high - low), u a multiple of 2^-24 in [0, 1)
//   normal:      mean + scale sqrt(-2 log(1 - u)) cos(2 pi v), u and v from two streams (Box and Muller 1958): at most 5.8 scales out
//   Bernoulli:   u < p
//   Multinomial: the class of the largest log-probability plus Gumbel noise -log(-log(u)) (Gumbel 1954)
#include <cmath>

#include "engine/ops/elementwise/code.h"
#include "engine/ops/kernel_sequence.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

using kernels::EwOp;
using namespace elementwise_code;

constexpr std::uint64_t kSecondStream = 0x9e3779b97f4a7c15u;
constexpr double kTwoPi = 6.28318530717958647693;

// The type of the output: attribute dtype, else `otherwise`.
Result<DType> float_type(const Attrs& attrs, DType otherwise) {
  const DType dtype = attrs.has("dtype") ? TRY(dtype_from_onnx(attrs.integer("dtype"))) : otherwise;
  if (!is_float(dtype))
    return infer_error(std::string("random numbers are floating point, not ") + dtype_name(dtype));
  return dtype;
}

Status infer_random(InferContext& ctx) {
  const std::vector<std::int64_t> shape = ctx.attrs.integers("shape");
  for (const std::int64_t d : shape)
    if (d < 0) return infer_error("the shape holds " + std::to_string(d));
  ctx.outputs[0] = {TRY(float_type(ctx.attrs, DType::f32)), shape};
  return {};
}

Status infer_random_like(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  ctx.outputs[0] = {TRY(float_type(ctx.attrs, ctx.dtype(0))), ctx.shape(0)};
  return {};
}

// f16 and bf16 are drawn in f32.
DType work_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Result<Kernel> prepare_uniform(const NodeTypes& types) {
  Code code(types);
  const DType dtype = types.outputs[0].dtype, work = work_type(dtype);
  const FusedOperand low = code.scalar(work, types.attrs.real("low", 0)),
                     high = code.scalar(work, types.attrs.real("high", 1));
  const FusedOperand u = code.random(EwOp::Uniform, random_key(types.attrs, types.node_name), {low, high});
  return code.prepare(work == dtype ? u : code.cast(u, dtype));
}

Result<Kernel> prepare_normal(const NodeTypes& types) {
  Code code(types);
  const DType dtype = types.outputs[0].dtype, work = work_type(dtype);
  const std::uint64_t key = random_key(types.attrs, types.node_name);
  const FusedOperand zero = code.scalar(work, 0), one = code.scalar(work, 1);
  const FusedOperand u = code.random(EwOp::Uniform, key, {one, zero});  // in (0, 1]: its logarithm is finite
  const FusedOperand angle =
      code.random(EwOp::Uniform, key ^ kSecondStream, {zero, code.scalar(work, kTwoPi)});
  const FusedOperand square = code.op(EwOp::Mul, {code.op(EwOp::Log, {u}), code.scalar(work, -2)});
  const FusedOperand normal =
      code.op(EwOp::Mul, {code.op(EwOp::Sqrt, {square}), code.op(EwOp::Cos, {angle})});
  const FusedOperand scaled = code.op(EwOp::Mul, {normal, code.scalar(work, types.attrs.real("scale", 1))});
  const FusedOperand y = code.op(EwOp::Add, {scaled, code.scalar(work, types.attrs.real("mean", 0))});
  return code.prepare(work == dtype ? y : code.cast(y, dtype));
}

const Attrs kKey{{"key", std::int64_t{81985529216486895}}};
Attrs keyed(Attrs attrs) {
  attrs.set("key", kKey.integer("key"));
  return attrs;
}

std::vector<Sample> random_samples() {
  const std::vector<std::int64_t> shape{3, 5}, large{64, 1024};
  std::vector<Sample> list = {
      with("default", keyed({{"shape", shape}}), {}),
      with("range", keyed({{"shape", std::vector<std::int64_t>{7}}, {"low", -2.0}, {"high", 3.0}}), {}),
      with("moments", keyed({{"shape", std::vector<std::int64_t>{2, 1, 9}}, {"mean", 4.0}, {"scale", 0.5}}),
           {}),
      with("f16", keyed({{"shape", shape}, {"dtype", std::int64_t{10}}}), {}),
      with("large", keyed({{"shape", large}}), {})};
  list.back().bench = true;
  return list;
}

std::vector<Sample> random_like_samples() {
  return {with("default", keyed({}), {floats({3, 5})}),
          with("of integers", keyed({{"dtype", std::int64_t{1}}}), {ints({7}, 0, 1)})};
}

// ---- Bernoulli --------------------------------------------------------------------------------------------

Status infer_bernoulli(InferContext& ctx) {
  TRY(infer_float(ctx));
  if (ctx.attrs.has("dtype")) ctx.outputs[0].dtype = TRY(dtype_from_onnx(ctx.attrs.integer("dtype")));
  return {};
}

// The mask of Dropout keeps where u >= p.
Result<Kernel> prepare_bernoulli(const NodeTypes& types) {
  Code code(types);
  const std::uint64_t key = random_key(types.attrs, types.node_name);
  const FusedOperand keep =
      code.random(EwOp::DropoutMask, key, {Code::in(0), code.scalar(DType::boolean, 1)});
  return code.prepare(code.cast(code.op(EwOp::Not, {keep}), types.outputs[0].dtype));
}

std::vector<Sample> bernoulli_samples() {
  return {with("default", keyed({}), {floats({3, 5}, 0, 1)}),
          with("booleans", keyed({{"dtype", onnx_from_dtype(DType::boolean)}}), {floats({37}, 0, 1)}),
          with("certain", keyed({{"dtype", onnx_from_dtype(DType::i64)}}),
               {exact(DType::f32, {4}, {0, 1, 0, 1})})};
}

// ---- Multinomial: x: [batch, classes] log-probabilities -> [batch, sample_size] ---------------------------

Status infer_multinomial(InferContext& ctx) {
  TRY(infer_float(ctx));
  const DType dtype = TRY(dtype_from_onnx(ctx.attrs.integer("dtype", onnx_from_dtype(DType::i32))));
  if (dtype != DType::i32 && dtype != DType::i64)
    return infer_error("Multinomial draws 32-bit or 64-bit integers");
  const std::int64_t samples = ctx.attrs.integer("sample_size", 1);
  if (ctx.shape(0).size() != 2 || ctx.shape(0)[1] == 0)
    return infer_error("Multinomial: the input must be [batch, classes]");
  if (samples < 0) return infer_error("Multinomial: sample_size is " + std::to_string(samples));
  ctx.outputs[0] = {dtype, {ctx.shape(0)[0], samples}};
  return {};
}

Result<Kernel> prepare_multinomial(const NodeTypes& types) {
  const Shape& in = types.inputs[0].shape;
  const std::int64_t batch = in[0], classes = in[1], samples = types.outputs[0].shape[1];
  const DType work = work_type(types.inputs[0].dtype);
  KernelSequence s(types);
  GraphBuilder& b = s.b();
  const ValueId u = s.op("RandomUniform", {},
                         {{"shape", std::vector<std::int64_t>{batch, samples, classes}},
                          {"dtype", onnx_from_dtype(work)},
                          {"key", static_cast<std::int64_t>(random_key(types.attrs, types.node_name))}});
  const ValueId noise = s.op("Neg", {s.op("Log", {s.op("Neg", {s.op("Log", {u})})})});
  const ValueId logits = s.op("Reshape", {s.cast(s.in(0), work), b.i64s({batch, 1, classes})});
  const ValueId score = s.op("Add", {logits, noise});
  const ValueId best = s.first_largest(score, 2);
  // A row of NaN has no largest element.
  const ValueId index = s.op("Min", {best, b.scalar(DType::i32, static_cast<double>(classes - 1))});
  return s.prepare("multinomial", {s.cast(index, types.outputs[0].dtype)});
}

Cost multinomial_cost(const NodeTypes& types) {
  Cost cost = default_cost(types);
  cost.flops = 30.0 * static_cast<double>(element_count(types.inputs[0].shape)) *
               static_cast<double>(types.outputs[0].shape[1]);
  return cost;
}

std::vector<Sample> multinomial_samples() {
  return {with("one", keyed({}), {floats({4, 5}, -2, 0)}),
          with("many", keyed({{"sample_size", std::int64_t{33}}, {"dtype", onnx_from_dtype(DType::i64)}}),
               {floats({3, 7}, -2, 0)})};
}

}  // namespace

const OpDef random_uniform_op = {.name = "RandomUniform",
                                 .summary = "Uniform random numbers of a given shape",
                                 .traits = kRandom | kNoGradient,
                                 .min_inputs = 0,
                                 .max_inputs = 0,
                                 .infer = infer_random,
                                 .cpu = prepare_uniform,
                                 .gpu = prepare_uniform,
                                 .samples = random_samples};
const OpDef random_uniform_like_op = {.name = "RandomUniformLike",
                                      .summary = "Uniform random numbers in the shape of the input",
                                      .traits = kRandom | kNoGradient,
                                      .infer = infer_random_like,
                                      .cpu = prepare_uniform,
                                      .gpu = prepare_uniform,
                                      .samples = random_like_samples};
const OpDef random_normal_op = {.name = "RandomNormal",
                                .summary = "Normal random numbers of a given shape",
                                .traits = kRandom | kNoGradient,
                                .min_inputs = 0,
                                .max_inputs = 0,
                                .infer = infer_random,
                                .cpu = prepare_normal,
                                .gpu = prepare_normal,
                                .samples = random_samples};
const OpDef random_normal_like_op = {.name = "RandomNormalLike",
                                     .summary = "Normal random numbers in the shape of the input",
                                     .traits = kRandom | kNoGradient,
                                     .infer = infer_random_like,
                                     .cpu = prepare_normal,
                                     .gpu = prepare_normal,
                                     .samples = random_like_samples};
const OpDef bernoulli_op = {.name = "Bernoulli",
                            .since = 15,
                            .summary = "1 with the probability of the input, else 0",
                            .traits = kRandom | kNoGradient,
                            .infer = infer_bernoulli,
                            .cpu = prepare_bernoulli,
                            .gpu = prepare_bernoulli,
                            .samples = bernoulli_samples,
                            .precision = Precision::full};
const OpDef multinomial_op = {.name = "Multinomial",
                              .summary = "Classes drawn with given log-probabilities",
                              .traits = kRandom | kNoGradient,
                              .infer = infer_multinomial,
                              .cost = multinomial_cost,
                              .cpu = prepare_multinomial,
                              .gpu = prepare_multinomial,
                              .samples = multinomial_samples,
                              .precision = Precision::full};

}  // namespace gradloom
