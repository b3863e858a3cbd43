// FusedAttention (ours): y, log_sum_exp = softmax(mask(scale q k^T)) v without the probabilities in memory, and its
// gradient row, which computes them again from log-sum-exp. On GPUs, of half types, a library of the device is asked first
// (library_calls.h), and what it does not take is done by our own kernels of one piece (flash_calls.h), as bf16 is on CPUs that multiply
// it. All else, f32 and heads of more than 256 columns, is a sequence of kernels (block_calls.h): rows of queries are taken in blocks, whose scores
// fit a small workspace; keys that a known mask hides from all rows of a block are left out, which halves a causal attention.
// (The idea of keeping no probabilities: Rabe and Staats 2021, Dao et al. 2022.)
//   q' = transpose(q, perm_q) [batch.., rows, d], k' = transpose(k, perm_k) [batch.., keys, d], v' = transpose(v, perm_v)
//   [batch.., keys, e], y = transpose(y', perm_y), y' [batch.., rows, e]; absent: identity. Batch dims are equal.
//   mask, broadcast to [batch.., rows, keys]: mode "add": is added to the scores; "keep" (bool): where false the score is `fill`;
//   "block" (bool): where true.
//   safe: a row whose scores are all -inf has probabilities of 0, as Softmax's of that name (engine/ops/normalization/softmax.cpp).
//   dropout: this part of the probabilities is dropped with the random numbers of `key`, as by a Dropout between softmax and values; of
//   a rank's part of the batch (its heads), or of some rows, with attributes parts and run (and part), of [batch.., rows, keys], as there.
//   log_sum_exp [batch.., rows]: of the scores of each row, mask and all; f32, or f64 with f64. Optional: autodiff asks for it, a graph
//   without a gradient has none.
// FusedAttentionGrad(dy, y, log_sum_exp, q, k, v, mask) -> dq, dk, dv. With P the probabilities and D what dropout does:
//   P = exp(mask(scale q k^T) - log_sum_exp), dV = D(P)^T dY, dP = D(dY V^T), dS = P (dP - rowsum(P dP)), dQ = scale dS K, dK = scale dS^T Q
// Where log_sum_exp is beyond +-256 (kTellingLogSumExp), as of a row all of whose scores a mask hides by a large number, P is
// softmax(mask(scale q k^T)) instead; the library alone takes it at its word.
// y spares a walk past the keys, as rowsum(P dP) = rowsum(dY Y) (Dao et al. 2022): the library's, our own kernels' of one piece, which
// find what its rounding to half types makes wrong, and, of f32 and f64 on GPUs, softmax_grad's of the sequence. What is kept for the gradient is one
// number per row: y is read by the gradient of the product behind it, in all but models that freeze that product's weights.
// Products read half types as they are, on GPUs and on CPUs that multiply bf16; scores, probabilities and sums over blocks
// are f32.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/ops/attention/block_calls.h"
#include "engine/ops/attention/flash_calls.h"
#include "engine/ops/attention/library_calls.h"
#include "engine/ops/attention/query_blocks.h"
#include "engine/ops/attention/samples.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/operand_rows.h"
#include "engine/ops/preparation.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using namespace attention;
using Ints = std::vector<std::int64_t>;

Result<Mask> mask_of(const Attrs& attrs, bool given) {
  const std::string mode = attrs.text("mask");
  if (!given) return Mask::none;
  if (mode == "add") return Mask::add;
  if (mode == "keep") return Mask::keep;
  if (mode == "block") return Mask::block;
  return infer_error("mask is '" + mode + "', it must be add, keep or block");
}

Result<Shape> logical(const Attrs& attrs, const char* perm, const Shape& stored) {
  return permuted(stored, TRY(checked_perm(perm, attrs.integers(perm), stored.size())));
}

// Which part of the batch dims of q [batch.., rows, d] and k [batch.., keys, d] this rank has; run 0: all.
Result<RankPart> part_of_batch(const Attrs& attrs, const Shape& q, const Shape& k) {
  const std::size_t rank = q.size();
  const std::int64_t batch = dim_product(q, 0, rank - 2), scores = q[rank - 2] * k[rank - 2];
  const auto part = TRY(rank_part(attrs, batch * scores));
  if (!part) return RankPart{0};
  if (scores == 0 || part->run % scores != 0)
    return infer_error("a part of " + std::to_string(part->run) + " probabilities is none of the batch");
  return RankPart{part->run / scores, part->parts, part->number};
}

// Checks the shapes; dims may be symbolic. `type` and `has` of inputs 0.. are q, k, v, mask.
template <class Types>
Result<Shape> result_shape(const Types& shape_of, const Attrs& attrs) {
  const Shape q = TRY(logical(attrs, "perm_q", shape_of(0))), k = TRY(logical(attrs, "perm_k", shape_of(1))),
              v = TRY(logical(attrs, "perm_v", shape_of(2)));
  const std::size_t rank = q.size();
  if (rank < 2 || k.size() != rank || v.size() != rank)
    return infer_error("q, k and v must have the same number of dims");
  for (std::size_t i = 0; i + 2 < rank; ++i)
    if (dims_differ(q[i], k[i]) || dims_differ(q[i], v[i]))
      return infer_error("batch dims of " + to_string(q) + ", " + to_string(k) + " and " + to_string(v) +
                         " differ");
  if (dims_differ(q[rank - 1], k[rank - 1]))
    return infer_error("q has " + std::to_string(q[rank - 1]) + " columns, k " + std::to_string(k[rank - 1]));
  if (dims_differ(k[rank - 2], v[rank - 2]))
    return infer_error("k has " + std::to_string(k[rank - 2]) + " rows, v " + std::to_string(v[rank - 2]));
  Shape y = q;
  y[rank - 1] = v[rank - 1];
  const double dropout = attrs.real("dropout", 0);
  if (!(dropout >= 0 && dropout < 1))
    return infer_error("dropout " + std::to_string(dropout) + " is outside [0, 1)");
  if (is_static(q) && is_static(k)) TRY(part_of_batch(attrs, q, k));
  return permuted(y, TRY(checked_perm("perm_y", attrs.integers("perm_y"), rank)));
}

// log_sum_exp, of q as it lies.
Result<Type> log_sum_type(const Attrs& attrs, const Type& q) {
  Shape rows = TRY(logical(attrs, "perm_q", q.shape));
  rows.pop_back();
  return Type{statistics_type(q.dtype), std::move(rows)};
}

Status check_types(const InferContext& ctx, std::size_t first) {
  for (std::size_t i = first; i < first + 3; ++i) TRY(require_float(ctx, i, "every operand"));
  const Mask mask = TRY(mask_of(ctx.attrs, ctx.has(first + 3)));
  if (mask == Mask::none) return {};
  const DType wanted = mask == Mask::add ? ctx.dtype(first) : DType::boolean;
  if (ctx.dtype(first + 3) != wanted)
    return infer_error(std::string("the mask is ") + dtype_name(ctx.dtype(first + 3)) + ", it must be " +
                       dtype_name(wanted));
  const Shape q = TRY(logical(ctx.attrs, "perm_q", ctx.shape(first))),
              k = TRY(logical(ctx.attrs, "perm_k", ctx.shape(first + 1)));
  Shape scores = q;
  scores.back() = k[k.size() - 2];
  const auto broadcast = broadcast_shapes(scores, ctx.shape(first + 3));
  if (!broadcast.ok() || broadcast->size() != scores.size())
    return infer_error("the mask " + to_string(ctx.shape(first + 3)) + " does not broadcast to the scores " +
                       to_string(scores));
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (dims_differ((*broadcast)[i], scores[i]))
      return infer_error("the mask " + to_string(ctx.shape(first + 3)) + " is larger than the scores " +
                         to_string(scores));
  return {};
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  const Shape y = TRY(result_shape([&](std::size_t i) { return ctx.shape(i); }, ctx.attrs));
  TRY(check_types(ctx, 0));
  return set_outputs(ctx, {{ctx.dtype(0), y}, TRY(log_sum_type(ctx.attrs, ctx.in(0)))});
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, kGradOperands + 3));
  const Shape y = TRY(result_shape([&](std::size_t i) { return ctx.shape(i + kGradOperands); }, ctx.attrs));
  TRY(check_types(ctx, kGradOperands));
  TRY(require_float(ctx, 1, "y"));
  TRY(require_shape(ctx, 0, "dy", y));
  TRY(require_shape(ctx, 1, "y", y));
  TRY(require_statistic(ctx, 2, "log_sum_exp"));
  TRY(require_shape(ctx, 2, "log_sum_exp", TRY(log_sum_type(ctx.attrs, ctx.in(kGradOperands))).shape));
  return set_outputs(ctx, {ctx.in(kGradOperands), ctx.in(kGradOperands + 1), ctx.in(kGradOperands + 2)});
}

Status grad(GradContext& ctx) {
  if (ctx.wants(3)) return infer_error("no gradient: of the mask of FusedAttention");
  if (ctx.grad(1) != kNone) return infer_error("no gradient: through log_sum_exp of FusedAttention");
  std::vector<ValueId> inputs = {ctx.grad(), ctx.out(0), ctx.require_out(1), ctx.in(0), ctx.in(1), ctx.in(2)};
  if (ctx.node.inputs.size() > 3 && ctx.in(3) != kNone) inputs.push_back(ctx.in(3));
  Attrs attrs = ctx.node.attrs;
  if (attrs.real("dropout", 0) > 0)
    attrs.set("key", static_cast<std::int64_t>(random_key(attrs, ctx.node.name)));
  const auto grads = ctx.b.ops(op_by_name("FusedAttentionGrad"), inputs, std::move(attrs), 3);
  for (std::size_t i = 0; i < 3; ++i)
    if (ctx.wants(i)) ctx.set(i, grads[i]);
  return {};
}

// ---- what the kernels are made of -----------------------------------------------------------------------------------------------

Result<Attention> attention_of(const NodeTypes& types, bool backward) {
  const std::size_t first = backward ? kGradOperands : 0;
  const Attrs& attrs = types.attrs;
  const Shape &q = types.inputs[first].shape, &k = types.inputs[first + 1].shape,
              &v = types.inputs[first + 2].shape;
  const auto perm = [&](const char* name) { return checked_perm(name, attrs.integers(name), q.size()); };
  const Perm perm_q = TRY(perm("perm_q")), perm_k = TRY(perm("perm_k")), perm_v = TRY(perm("perm_v")),
             perm_y = TRY(perm("perm_y"));
  const Shape rows = permuted(q, perm_q), keys = permuted(k, perm_k), values = permuted(v, perm_v);
  Attention a;
  const std::size_t rank = q.size();
  a.batch.assign(rows.begin(), rows.end() - 2);
  a.rows = rows[rank - 2];
  a.d = rows[rank - 1];
  a.keys = keys[rank - 2];
  a.e = values[rank - 1];
  a.q = {permuted(input_strides(types, first), perm_q)};
  a.k = {permuted(input_strides(types, first + 1), perm_k)};
  a.v = {permuted(input_strides(types, first + 2), perm_v)};
  const Perm to_rows = perm_y.empty() ? perm_y : inverse(perm_y);
  a.y = {permuted(backward ? input_strides(types, 1) : output_strides(types, 0), to_rows)};
  if (backward) {
    a.dy = {permuted(input_strides(types, 0), to_rows)};
    a.dq = {permuted(output_strides(types, 0), perm_q)};
    a.dk = {permuted(output_strides(types, 1), perm_k)};
    a.dv = {permuted(output_strides(types, 2), perm_v)};
  }
  a.scale = attrs.real("scale", 1);
  a.mask = TRY(mask_of(attrs, types.has(first + 3)));
  a.dropout = attrs.real("dropout", 0);
  a.random_key = random_key(attrs, types.node_name);
  a.part = TRY(part_of_batch(attrs, rows, keys));
  a.dtype = types.inputs[first].dtype;
  a.scores = has_wide_results(types.target, a.dtype) ? DType::f32 : a.dtype;
  a.safe = attrs.integer("safe") != 0;
  // A row that sees nothing would have no shares of infinite scores.
  const double fill = attrs.real("fill", -INFINITY);
  a.fill = a.safe ? fill : kept_finite(a.scores, fill);
  return a;
}

Result<Attention> checked_attention(const NodeTypes& types, bool backward) {
  Attention a = TRY(attention_of(types, backward));
  if (a.batch.size() + 2 > static_cast<std::size_t>(kernels::kEwMaxRank))
    return no_kernel("no kernel for more than 8 dims");
  if (a.keys == 0 || a.d == 0) return no_kernel("attention over nothing");
  return a;
}

Status require_type(const NodeTypes& types) {
  const DType dtype = types.inputs[0].dtype;
  return require_kernel_type(types.target, dtype, multiplies_bf16(types.target, dtype));
}

Result<Kernel> prepare(const NodeTypes& types) {
  TRY(require_type(types));
  if (element_count(types.outputs[0].shape) == 0) return no_work("attention");
  const Attention attended = TRY(checked_attention(types, false));
  const auto library = LibraryCalls::of(types, 0, attended, false);
  const std::size_t library_bytes = library ? library->workspace_bytes() : 0;
  if (const auto flash = FlashCalls::of(types, 0, attended))
    return Kernel{"attention", library_bytes, [library, flash](const LaunchArgs& args) {
                    if (!library || !library->attention(args)) flash->attention(args);
                  }};
  const auto blocks = std::make_shared<const BlockCalls>(
      TRY(BlockCalls::of(types, attended, TRY(attention_of(dense_types(types), false)), false)));
  return Kernel{"attention", std::max(blocks->workspace_bytes(), library_bytes),
                [blocks, library](const LaunchArgs& args) {
                  if (!library || !library->attention(args)) blocks->attention(args);
                },
                blocks->programs()};
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  TRY(require_type(types));
  if (element_count(types.inputs[0].shape) == 0) return no_work("attention gradient");
  const Attention attended = TRY(checked_attention(types, true));
  const auto library = LibraryCalls::of(types, kGradOperands, attended, true);
  const std::size_t library_bytes = library ? library->workspace_bytes() : 0;
  if (const auto flash = FlashCalls::of(types, kGradOperands, attended))
    return Kernel{"attention gradient", std::max(library_bytes, flash->grad_workspace_bytes()),
                  [library, flash](const LaunchArgs& args) {
                    if (!library || !library->attention_grad(args)) flash->attention_grad(args);
                  }};
  const auto blocks = std::make_shared<const BlockCalls>(
      TRY(BlockCalls::of(types, attended, TRY(attention_of(dense_types(types), true)), true)));
  return Kernel{"attention gradient", std::max(blocks->workspace_bytes(), library_bytes),
                [blocks, library](const LaunchArgs& args) {
                  if (!library || !library->attention_grad(args)) blocks->attention_grad(args);
                },
                blocks->programs()};
}

// ---- cost -----------------------------------------------------------------------------------------------------------------------

template <bool backward>
Cost cost(const NodeTypes& types) {
  const std::size_t first = backward ? kGradOperands : 0;
  const auto a = attention_of(types, backward);
  CHECK(a.ok(), "cost of an invalid attention");
  double pairs = 0;
  for (const QueryBlock& block :
       schedule_of(*a, a->mask == Mask::none ? nullptr : types.constants[first + 3]).blocks)
    pairs += static_cast<double>(block.rows) * static_cast<double>(block.keys);
  pairs *= static_cast<double>(element_count(a->batch));
  const double d = static_cast<double>(a->d), e = static_cast<double>(a->e);
  if (!backward) return cost_of(types, pairs * (2 * (d + e) + 5));
  const double rows = static_cast<double>(element_count(a->batch) * a->rows);
  return cost_of(types, pairs * (2 * (3 * d + 2 * e) + 6) + rows * 2 * e);
}

}  // namespace

const OpDef fused_attention_op = {
    .name = "FusedAttention",
    .domain = "gradloom",
    .summary = "Attention that keeps no probabilities, but log-sum-exp of the scores for its gradient.",
    .traits = kRandom | kOptionalOutputs,
    .min_inputs = 3,
    .max_inputs = 4,
    .max_outputs = 2,
    .infer = infer,
    .grad = grad,
    .cost = cost<false>,
    .cpu = prepare,
    .gpu = prepare,
    .samples = attention::samples,
    .precision = Precision::low,
    .arithmetic = Arithmetic::attention,
};

const OpDef fused_attention_grad_op = {
    .name = "FusedAttentionGrad",
    .domain = "gradloom",
    .summary = "Gradient of FusedAttention: its probabilities are computed again, from log-sum-exp.",
    .traits = kRandom,
    .min_inputs = 6,
    .max_inputs = 7,
    .max_outputs = 3,
    .infer = infer_grad,
    .cost = cost<true>,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = attention::samples_grad,
    .arithmetic = Arithmetic::attention,
};

}  // namespace gradloom
