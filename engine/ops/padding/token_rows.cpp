#include "engine/ops/padding/token_rows.h"

#include <algorithm>

#include "engine/ops/inference.h"
#include "engine/ops/kernel_sequence.h"
#include "engine/ops/preparation.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMostPositions = 1 << 30;

Error says(const char* op, const std::string& what) { return infer_error(std::string(op) + ": " + what); }

Status infer_token_rows(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const Shape& mask = ctx.shape(0);
  if (mask.size() != 2)
    return says("TokenRows", "the mask is " + to_string(mask) + ", not [batch, position]");
  if (!is_static(mask)) return says("TokenRows", "the dims of its mask must be known");
  if (element_count(mask) > kMostPositions) return says("TokenRows", "too many positions");
  const Shape flat{element_count(mask)};
  return set_outputs(ctx, {{DType::i32, flat}, {DType::i32, mask}, {DType::i64, {1}}});
}

template <class T>
void find_tokens(const T* mask, bool inverted, std::int64_t positions, const LaunchArgs& args) {
  auto* const rows = static_cast<std::int32_t*>(args.outputs[0]);
  auto* const places = static_cast<std::int32_t*>(args.outputs[1]);
  const auto nowhere = static_cast<std::int32_t>(positions);
  std::int32_t count = 0;
  for (std::int64_t p = 0; p < positions; ++p) {
    const bool token = (mask[p] != T(0)) != inverted;
    places[p] = token ? count : nowhere;
    if (token) rows[count++] = static_cast<std::int32_t>(p);
  }
  std::fill(rows + count, rows + positions, nowhere);
  *static_cast<std::int64_t*>(args.outputs[2]) = count;
}

// The same of kernels that every device has: places from running sums, rows by scattering positions there.
Result<Kernel> token_rows_sequence(const NodeTypes& types) {
  KernelSequence k(types);
  const std::int64_t positions = element_count(types.inputs[0].shape);
  const auto i32 = [&](std::int64_t v) { return k.b().scalar(DType::i32, static_cast<double>(v)); };
  const auto shaped = [&](ValueId x, const Shape& shape) { return k.op("Reshape", {x, k.b().i64s(shape)}); };
  const auto running_sum = [&](ValueId x, std::int64_t exclusive) {
    return k.op("CumSum", {x, k.b().scalar(DType::i64, 0)}, {{"exclusive", exclusive}});
  };
  ValueId token = k.cast(shaped(k.in(0), {positions}), DType::boolean);
  if (types.attrs.integer("inverted", 0) != 0) token = k.op("Not", {token});
  const ValueId counted = k.cast(token, DType::i32),
                nowhere = k.op("Where", {token, i32(positions), i32(positions)}),
                numbers = running_sum(k.op("Where", {token, i32(1), i32(1)}), 1);
  const ValueId flat = k.op("Where", {token, running_sum(counted, 1), i32(positions)}),
                rows = k.op("ScatterElements", {nowhere, flat, numbers}),
                places = k.op("Where", {shaped(token, types.inputs[0].shape),
                                        shaped(flat, types.inputs[0].shape), i32(positions)}),
                count = k.op("ReduceSum", {k.cast(token, DType::i64), k.b().i64s({0})});
  return k.prepare("token rows", {rows, places, count});
}

Result<Kernel> prepare_token_rows(const NodeTypes& types) {
  if (!types.wants(0) || !types.wants(1) || !types.wants(2)) return no_kernel("TokenRows has three results");
  if (types.target != kernels::Target::cpu) return token_rows_sequence(types);
  const std::int64_t positions = element_count(types.inputs[0].shape);
  const bool inverted = types.attrs.integer("inverted", 0) != 0;
  const auto kernel = [&]<class T>() {
    return Kernel{"token rows", 0, [positions, inverted](const LaunchArgs& args) {
                    find_tokens(static_cast<const T*>(args.inputs[0]), inverted, positions, args);
                  }};
  };
  switch (types.inputs[0].dtype) {
    case DType::i64: return kernel.operator()<std::int64_t>();
    case DType::i32: return kernel.operator()<std::int32_t>();
    case DType::u8:
    case DType::boolean: return kernel.operator()<std::uint8_t>();
    case DType::f32: return kernel.operator()<float>();
    case DType::f64: return kernel.operator()<double>();
    default: return no_kernel(std::string("no kernel reads a mask of ") + dtype_name(types.inputs[0].dtype));
  }
}

// ---- PackRows, UnpackRows ----

Status check_rows(const InferContext& ctx, const char* op) {
  TRY(require_inputs(ctx, 4));
  if (ctx.dtype(1) != DType::i32 || ctx.shape(1).size() != 1 || ctx.dtype(2) != DType::i32 ||
      ctx.shape(2).size() != 2 || ctx.in(3) != Type{DType::i64, {1}})
    return says(op, "rows, places and count are those of TokenRows");
  if (!is_static(ctx.shape(1)) || !is_static(ctx.shape(2)) || ctx.shape(1)[0] != element_count(ctx.shape(2)))
    return says(op,
                "there are " + to_string(ctx.shape(1)) + " rows for " + to_string(ctx.shape(2)) + " places");
  return {};
}

Status infer_pack(InferContext& ctx) {
  TRY(check_rows(ctx, "PackRows"));
  const Shape &x = ctx.shape(0), &places = ctx.shape(2);
  if (x.size() < 2) return says("PackRows", "the first two dims of " + to_string(x) + " are not positions");
  for (std::size_t d = 0; d < 2; ++d)
    if (x[d] >= 0 && places[d] >= 0 && x[d] != places[d])
      return says("PackRows", to_string(x) + " has other positions than " + to_string(places));
  Shape y{ctx.shape(1)[0]};
  y.insert(y.end(), x.begin() + 2, x.end());
  return set_outputs(ctx, {{ctx.dtype(0), y}});
}

Status infer_unpack(InferContext& ctx) {
  TRY(check_rows(ctx, "UnpackRows"));
  const Shape& y = ctx.shape(0);
  if (y.empty() || (y[0] >= 0 && ctx.shape(1)[0] >= 0 && y[0] != ctx.shape(1)[0]))
    return says("UnpackRows", to_string(y) + " has another number of rows than " + to_string(ctx.shape(1)));
  Shape x = ctx.shape(2);
  x.insert(x.end(), y.begin() + 1, y.end());
  return set_outputs(ctx, {{ctx.dtype(0), x}});
}

Status grad_by(GradContext& ctx, const OpDef& op) {
  if (ctx.grad() != kNone && ctx.wants(0))
    ctx.set(0, ctx.b.op(op, {ctx.grad(), ctx.in(1), ctx.in(2), ctx.in(3)}));
  return {};
}
Status grad_pack(GradContext& ctx) { return grad_by(ctx, unpack_rows_op()); }
Status grad_unpack(GradContext& ctx) { return grad_by(ctx, pack_rows_op()); }

// out[i] = in[index[i]], 0 where there is no such row.
template <int kIndex>
Result<Kernel> prepare_rows(const NodeTypes& types) {
  const char* const name = kIndex == 1 ? "pack rows" : "unpack rows";
  const std::int64_t count = element_count(types.inputs[1].shape), all = element_count(types.inputs[0].shape);
  if (all == 0) return no_work(name);
  const kernels::GatherArgs args{.element_bytes = dtype_bytes(types.inputs[0].dtype),
                                 .index_dtype = DType::i32,
                                 .outer = 1,
                                 .axis_size = count,
                                 .inner = all / count,
                                 .count = count,
                                 .data = nullptr,
                                 .indices = nullptr,
                                 .out = nullptr};
  return Kernel{name, 0, [args](const LaunchArgs& launch) {
                  kernels::GatherArgs a = args;
                  a.data = launch.inputs[0];
                  a.indices = launch.inputs[kIndex];
                  a.out = launch.outputs[0];
                  launch.on.gather(a);
                }};
}

const OpDef token_rows{.name = "TokenRows",
                       .domain = "gradloom",
                       .summary = "Where a padded batch has tokens.",
                       .traits = kNoGradient,
                       .max_outputs = 3,
                       .infer = infer_token_rows,
                       .cpu = prepare_token_rows,
                       .gpu = prepare_token_rows,
                       .precision = Precision::full};

const OpDef pack_rows{.name = "PackRows",
                      .domain = "gradloom",
                      .summary = "The rows of tokens, without padding between them.",
                      .min_inputs = 4,
                      .max_inputs = 4,
                      .infer = infer_pack,
                      .grad = grad_pack,
                      .cpu = prepare_rows<1>,
                      .gpu = prepare_rows<1>};

const OpDef unpack_rows{.name = "UnpackRows",
                        .domain = "gradloom",
                        .summary = "Rows of tokens back at their positions, 0 at padding.",
                        .min_inputs = 4,
                        .max_inputs = 4,
                        .infer = infer_unpack,
                        .grad = grad_unpack,
                        .cpu = prepare_rows<2>,
                        .gpu = prepare_rows<2>};

}  // namespace

const OpDef& token_rows_op() { return token_rows; }
const OpDef& pack_rows_op() { return pack_rows; }
const OpDef& unpack_rows_op() { return unpack_rows; }

}  // namespace gradloom
