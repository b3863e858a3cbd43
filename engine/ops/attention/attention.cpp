// FusedAttention (ours): y = softmax(mask(scale q k^T)) v without the probabilities in memory, and its
// gradient row, which computes them again. On GPUs, of half types, a library of the device is asked first
// (library_calls.h), and what it does not take is done by our own kernels of one piece (flash_calls.h). All else, the CPU's,
// f32 and heads of more than 256 columns, is a sequence of kernels: rows of queries are taken in blocks, whose scores fit
// a small workspace; keys that a known mask hides from all rows of a block are left out, which halves a causal attention.
// (The idea of keeping no probabilities: Rabe and Staats 2021, Dao et al. 2022.)
//   q' = transpose(q, perm_q) [batch.., rows, d], k' = transpose(k, perm_k) [batch.., keys, d], v' = transpose(v, perm_v)
//   [batch.., keys, e], y = transpose(y', perm_y), y' [batch.., rows, e]; absent: identity. Batch dims are equal.
//   mask, broadcast to [batch.., rows, keys]: mode "add": is added to the scores; "keep" (bool): where false the score is `fill`;
//   "block" (bool): where true.
//   safe: a row whose scores are all -inf has probabilities of 0, as Softmax's of that name (engine/ops/normalization/softmax.cpp).
//   dropout: this part of the probabilities is dropped with the random numbers of `key`, as by a Dropout between softmax and values; of
//   a rank's part of the batch (its heads) with attributes parts and run, of [batch.., rows, keys], as there.
// FusedAttentionGrad(dy, q, k, v, mask) -> dq, dk, dv. With P the probabilities and D what dropout does:
//   dV = D(P)^T dY, dP = D(dY V^T), dS = P (dP - rowsum(P dP)), dQ = scale dS K, dK = scale dS^T Q
// Products read half types as they are, on GPUs and on CPUs that multiply bf16; scores, probabilities and sums over blocks
// are f32.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

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
  return set_outputs(ctx, {{ctx.dtype(0), y}});
}

Status infer_grad(InferContext& ctx) {
  TRY(require_inputs(ctx, 4));
  TRY(result_shape([&](std::size_t i) { return ctx.shape(i + 1); }, ctx.attrs));
  TRY(check_types(ctx, 1));
  return set_outputs(ctx, {ctx.in(1), ctx.in(2), ctx.in(3)});
}

Status grad(GradContext& ctx) {
  if (ctx.wants(3)) return infer_error("no gradient: of the mask of FusedAttention");
  std::vector<ValueId> inputs = {ctx.grad(), ctx.in(0), ctx.in(1), ctx.in(2)};
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

// `first`: which input q is.
Result<Attention> attention_of(const NodeTypes& types, std::size_t first) {
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
  const bool backward = first > 0;
  a.y = {permuted(backward ? input_strides(types, 0) : output_strides(types, 0),
                  perm_y.empty() ? perm_y : inverse(perm_y))};
  if (backward) {
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

Ints joined(Ints batch, std::int64_t row, std::int64_t column) {
  batch.push_back(row);
  batch.push_back(column);
  return batch;
}
Ints batch_of(const View& view) { return {view.strides.begin(), view.strides.end() - 2}; }
Ints swapped(const View& view) { return joined(batch_of(view), view.strides.back(), view.row()); }

// The scores of a block lie dense.
View dense_view(const Attention& a, std::int64_t rows, std::int64_t columns) {
  Shape shape = a.batch;
  shape.push_back(rows);
  shape.push_back(columns);
  return {dense_strides(shape)};
}

// type: of the result.
Result<SliceProduct> product(const NodeTypes& types, const Attention& a, std::int64_t m, std::int64_t n,
                             std::int64_t k, Ints left, Ints right, Ints result, double alpha, DType type,
                             bool accumulate = false) {
  kernels::MatMulDesc desc;
  desc.dtype = a.dtype;
  desc.wide_c = type != a.dtype;
  desc.batch = a.batch;
  desc.m = m;
  desc.n = n;
  desc.k = k;
  desc.a_strides = std::move(left);
  desc.b_strides = std::move(right);
  desc.c_strides = std::move(result);
  desc.alpha = alpha;
  desc.accumulate = accumulate;
  return SliceProduct::create(types.target, desc, types.dnn_library);
}

using Program = std::shared_ptr<const kernels::EwProgram>;

// Over the scores x of a block and the mask: what the mask makes of them, or (`zero`) 0 where it hides.
Program mask_program(const Attention& a, const Ints& strides, const QueryBlock& block, bool zero) {
  using kernels::EwOp;
  auto program = std::make_shared<kernels::EwProgram>();
  program->rank = static_cast<int>(a.batch.size()) + 2;
  Shape dims = a.batch;
  dims.push_back(block.rows);
  dims.push_back(block.keys);
  const Ints dense = dense_strides(dims);
  kernels::EwInput x{a.scores, {}}, mask{a.mask == Mask::add ? a.dtype : DType::boolean, {}};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    program->dims[i] = dims[i];
    x.strides[i] = dims[i] == 1 ? 0 : dense[i];
    mask.strides[i] = dims[i] == 1 ? 0 : strides[i];
  }
  program->inputs = {x, mask};
  if (a.mask == Mask::add) {
    std::int16_t added = 1;
    if (a.dtype != a.scores) {
      program->code = {{EwOp::Cast, a.dtype, a.scores, {1, -1, -1}, 0}};
      added = 2;
    }
    program->code.push_back({EwOp::Add, a.scores, a.scores, {0, added, -1}, 0});
    program->outputs = {{static_cast<std::int16_t>(added + 1), a.scores}};
  } else {
    program->constants = {{a.scores, zero ? 0 : a.fill}};
    const std::int16_t shown = a.mask == Mask::keep ? std::int16_t{0} : std::int16_t{2};
    program->code = {{EwOp::Where, a.scores, a.scores, {1, shown, static_cast<std::int16_t>(2 - shown)}, 0}};
    program->outputs = {{3, a.scores}};
  }
  kernels::ew_collapse_dims(*program);
  return program;
}

// One block, prepared; products that the row does not need stay empty.
struct Step {
  QueryBlock block;
  SliceProduct scores, result, probability_grad, q_grad, k_grad, v_grad;
  Program mask, mask_grad;
  Program narrow;  // where the products read another type than that of the scores
};

// Where the parts of the workspace begin. Scores: two buffers for the gradient.
struct Parts {
  std::size_t scores = 0, grads = 0;
  std::size_t narrow = 0;            // a block of scores in the type of the operands
  std::size_t k_sum = 0, v_sum = 0;  // of dK and dV, which several blocks add to
  std::size_t products = 0, bytes = 0;
};

struct Plan {
  Attention a;
  std::vector<Step> steps;  // in the order they run
  std::int64_t mask_row = 0;
  std::size_t score_bytes = 0, product_bytes = 0;  // of one buffer of scores, of the products
  bool fill_grads = false;
  bool keeps_bits = true;      // of every product, whatever the strides of its operands
  DType sums = DType::f32;     // of dK and dV while blocks add to them
  Program narrow_k, narrow_v;  // where that is not their type
  Parts at;
};

void lay_out(Plan& p, const NodeTypes& types, bool backward) {
  const Attention& a = p.a;
  const auto take = [&](std::size_t bytes) { return std::exchange(p.at.bytes, p.at.bytes + bytes); };
  p.at.scores = take(p.score_bytes);
  if (backward) p.at.grads = take(p.score_bytes);
  if (a.scores != a.dtype) p.at.narrow = take(aligned_bytes(p.score_bytes / 2));
  if (backward && p.sums != a.dtype) {
    const std::int64_t k_count = element_count(types.inputs[2].shape),
                       v_count = element_count(types.inputs[3].shape);
    p.at.k_sum = take(aligned_bytes(p.sums, k_count));
    p.at.v_sum = take(aligned_bytes(p.sums, v_count));
    p.narrow_k = conversion(p.sums, a.dtype, k_count);
    p.narrow_v = conversion(p.sums, a.dtype, v_count);
  }
  p.at.bytes = kernels::library_place(types.target, p.at.bytes);
  p.at.products = take(p.product_bytes);
}

Result<Attention> checked_attention(const NodeTypes& types, bool backward) {
  Attention a = TRY(attention_of(types, backward ? 1 : 0));
  if (a.batch.size() + 2 > static_cast<std::size_t>(kernels::kEwMaxRank))
    return no_kernel("no kernel for more than 8 dims");
  if (a.keys == 0 || a.d == 0) return no_kernel("attention over nothing");
  return a;
}

// What the sequence of kernels does with tensors in rows: products read and write them.
Status require_kept_bits(const NodeTypes& types, const Plan& p) {
  if (p.keeps_bits || !has_rows(types)) return {};
  return no_kernel("a product that the processor's library may add in another order where rows lie apart");
}
Status require_dense_sums(const NodeTypes& types, const Plan& p) {
  if (!in_rows(types, 1) && !in_rows(types, 2)) return {};
  if (p.fill_grads) return no_kernel("keys that nothing sees, whose gradients begin as dense zeros");
  if (p.sums != p.a.dtype)
    return no_kernel("sums over blocks of queries, which are rounded into dense tensors");
  return {};
}

// The sequence of kernels.
Result<Plan> plan_of(const NodeTypes& types, Attention attention, bool backward) {
  const std::size_t first = backward ? 1 : 0;
  Plan p;
  p.a = std::move(attention);
  const Attention& a = p.a;
  const Tensor* known = a.mask == Mask::none ? nullptr : types.constants[first + 3];
  const Ints strides = a.mask == Mask::none ? Ints{} : mask_strides(a, types.inputs[first + 3].shape);
  Schedule schedule = schedule_of(a, known);
  p.mask_row = strides.empty() ? 0 : strides[strides.size() - 2];
  std::vector<QueryBlock>& blocks = schedule.blocks;
  if (backward) std::reverse(blocks.begin(), blocks.end());  // the block that sees most keys first
  p.fill_grads = backward && blocks.front().keys != a.keys;
  p.sums = p.fill_grads || blocks.size() > 1 ? a.scores : a.dtype;
  if (backward) TRY(require_dense_sums(types, p));
  for (const QueryBlock& block : blocks) {
    Step s;
    s.block = block;
    const auto make = [&](SliceProduct& to, Result<SliceProduct> made) -> Status {
      to = TRY(std::move(made));
      p.product_bytes = std::max(p.product_bytes, to.workspace_bytes());
      p.keeps_bits = p.keeps_bits && to.keeps_bits();
      return {};
    };
    const View x = dense_view(a, block.rows, block.keys);
    TRY(make(s.scores, product(types, a, block.rows, block.keys, a.d, a.q.strides, swapped(a.k), x.strides,
                               a.scale, a.scores)));
    if (!backward) {
      TRY(make(s.result, product(types, a, block.rows, a.e, block.keys, x.strides, a.v.strides, a.y.strides,
                                 1, a.dtype)));
    } else {
      const bool more = p.fill_grads || !p.steps.empty();
      TRY(make(s.probability_grad, product(types, a, block.rows, block.keys, a.e, a.y.strides, swapped(a.v),
                                           x.strides, 1, a.scores)));
      TRY(make(s.q_grad, product(types, a, block.rows, a.d, block.keys, x.strides, a.k.strides, a.dq.strides,
                                 a.scale, a.dtype)));
      TRY(make(s.k_grad, product(types, a, block.keys, a.d, block.rows, swapped(x), a.q.strides, a.dk.strides,
                                 a.scale, p.sums, more)));
      TRY(make(s.v_grad, product(types, a, block.keys, a.e, block.rows, swapped(x), a.y.strides, a.dv.strides,
                                 1, p.sums, more)));
    }
    const std::int64_t scores = element_count(a.batch) * block.rows * block.keys;
    if (a.scores != a.dtype) s.narrow = conversion(a.scores, a.dtype, scores);
    if (block.masked) s.mask = mask_program(a, strides, block, false);
    if (backward && block.masked && schedule.masked_shares)
      s.mask_grad = mask_program(a, strides, block, true);
    p.score_bytes = std::max(p.score_bytes, aligned_bytes(a.scores, scores));
    p.steps.push_back(std::move(s));
  }
  TRY(require_kept_bits(types, p));
  lay_out(p, types, backward);
  return p;
}

// The probabilities of a block, dense at `scores`.
void probabilities(const Plan& p, const Step& s, const LaunchArgs& args, const void* q, const void* k,
                   const void* mask, void* scores, void* workspace) {
  const Attention& a = p.a;
  s.scores.run(args, elements_at(q, a.dtype, s.block.row * a.q.row()), k, scores, workspace);
  if (s.mask) {
    const DType type = a.mask == Mask::add ? a.dtype : DType::boolean;
    const void* inputs[] = {scores, elements_at(mask, type, s.block.row * p.mask_row)};
    args.on.elementwise({s.mask.get(), inputs, &scores, nullptr});
  }
  args.on.softmax(
      {a.scores, false, element_count(a.batch) * s.block.rows, s.block.keys, 1, scores, scores, a.safe});
}

void convert(const LaunchArgs& args, const Program& program, const void* from, void* to) {
  args.on.elementwise({program.get(), &from, &to, nullptr});
}

// A block of scores as the products read it.
const void* narrowed(const Step& s, const LaunchArgs& args, const void* scores, void* to) {
  if (!s.narrow) return scores;
  convert(args, s.narrow, scores, to);
  return to;
}

// What dropout makes of a block of probabilities, or of their gradient. Of a part of the batch one run after the other.
void drop(const Attention& a, const QueryBlock& block, const LaunchArgs& args, const void* x, void* y) {
  const std::int64_t batch = element_count(a.batch), run = a.part.run == 0 ? batch : a.part.run,
                     scores = a.rows * a.keys;
  for (std::int64_t begin = 0; begin < batch; begin += run) {
    const std::int64_t in_whole = begin * a.part.parts + a.part.number * run,
                       at = begin * block.rows * block.keys;
    args.on.dropout({a.scores, run, block.rows, block.keys, in_whole * scores + block.row * a.keys, scores,
                     a.keys, a.dropout, a.random_key, elements_at(x, a.scores, at),
                     elements_at(y, a.scores, at), args.random});
  }
}

Kernel kernel_of(const char* name, std::size_t workspace_bytes, const Plan& p,
                 std::function<void(const LaunchArgs&)> run) {
  Kernel kernel{name, workspace_bytes, std::move(run)};
  for (const Step& s : p.steps)
    for (const Program& program : {s.mask, s.mask_grad, s.narrow})
      if (program) kernel.programs.push_back(program);
  for (const Program& program : {p.narrow_k, p.narrow_v})
    if (program) kernel.programs.push_back(program);
  return kernel;
}

Status require_type(const NodeTypes& types) {
  const DType dtype = types.inputs[0].dtype;
  return require_kernel_type(types.target, dtype, multiplies_bf16(types.target, dtype));
}

std::byte* part(const LaunchArgs& args, std::size_t at) {
  return static_cast<std::byte*>(args.workspace) + at;
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
  const auto p = std::make_shared<const Plan>(TRY(plan_of(types, attended, false)));
  const std::size_t bytes = std::max(p->at.bytes, library_bytes);
  return kernel_of("attention", bytes, *p, [p, library](const LaunchArgs& args) {
    const Attention& a = p->a;
    if (library && library->attention(args)) return;
    void *const scores = part(args, p->at.scores), *const workspace = part(args, p->at.products);
    for (const Step& s : p->steps) {
      probabilities(*p, s, args, args.inputs[0], args.inputs[1],
                    a.mask == Mask::none ? nullptr : args.inputs[3], scores, workspace);
      if (a.dropout > 0) drop(a, s.block, args, scores, scores);
      s.result.run(args, narrowed(s, args, scores, part(args, p->at.narrow)), args.inputs[2],
                   elements_at(args.outputs[0], a.dtype, s.block.row * a.y.row()), workspace);
    }
  });
}

Result<Kernel> prepare_grad(const NodeTypes& types) {
  TRY(require_type(types));
  if (element_count(types.inputs[0].shape) == 0) return no_work("attention gradient");
  const Attention attended = TRY(checked_attention(types, true));
  const auto library = LibraryCalls::of(types, 1, attended, true);
  const std::size_t library_bytes = library ? library->workspace_bytes() : 0;
  if (const auto flash = FlashCalls::of(types, 1, attended))
    return Kernel{"attention gradient", std::max(library_bytes, flash->grad_workspace_bytes()),
                  [library, flash](const LaunchArgs& args) {
                    if (!library || !library->attention_grad(args)) flash->attention_grad(args);
                  }};
  const auto p = std::make_shared<const Plan>(TRY(plan_of(types, attended, true)));
  const std::int64_t k_count = element_count(types.inputs[2].shape),
                     v_count = element_count(types.inputs[3].shape);
  const std::size_t bytes = std::max(p->at.bytes, library_bytes);
  return kernel_of("attention gradient", bytes, *p, [p, library, k_count, v_count](const LaunchArgs& args) {
    const Attention& a = p->a;
    if (library && library->attention_grad(args)) return;
    const void *const dy = args.inputs[0], *const q = args.inputs[1], *const k = args.inputs[2],
                      *const v = args.inputs[3];
    const void* const mask = a.mask == Mask::none ? nullptr : args.inputs[4];
    void *const shares = part(args, p->at.scores), *const grads = part(args, p->at.grads),
                *const narrow = part(args, p->at.narrow), *const workspace = part(args, p->at.products);
    void* const dk = p->narrow_k ? part(args, p->at.k_sum) : args.outputs[1];
    void* const dv = p->narrow_v ? part(args, p->at.v_sum) : args.outputs[2];
    if (p->fill_grads) {
      const double zero = 0;  // all bits zero in every type
      args.on.fill({dtype_bytes(p->sums), k_count, &zero, dk});
      args.on.fill({dtype_bytes(p->sums), v_count, &zero, dv});
    }
    for (const Step& s : p->steps) {
      const void* const dy_rows = elements_at(dy, a.dtype, s.block.row * a.y.row());
      const std::int64_t q_at = s.block.row * a.q.row();
      probabilities(*p, s, args, q, k, mask, shares, workspace);
      if (a.dropout > 0) drop(a, s.block, args, shares, grads);
      s.v_grad.run(args, narrowed(s, args, a.dropout > 0 ? grads : shares, narrow), dy_rows, dv, workspace);
      s.probability_grad.run(args, dy_rows, v, grads, workspace);
      if (a.dropout > 0) drop(a, s.block, args, grads, grads);
      args.on.softmax_grad(
          {a.scores, false, element_count(a.batch) * s.block.rows, s.block.keys, 1, grads, shares, grads});
      if (s.mask_grad) {
        const void* inputs[] = {grads, elements_at(mask, DType::boolean, s.block.row * p->mask_row)};
        args.on.elementwise({s.mask_grad.get(), inputs, const_cast<void* const*>(&grads), nullptr});
      }
      const void* const slopes = narrowed(s, args, grads, narrow);
      s.q_grad.run(args, slopes, k, elements_at(args.outputs[0], a.dtype, s.block.row * a.dq.row()),
                   workspace);
      s.k_grad.run(args, slopes, elements_at(q, a.dtype, q_at), dk, workspace);
    }
    if (p->narrow_k) convert(args, p->narrow_k, dk, args.outputs[1]);
    if (p->narrow_v) convert(args, p->narrow_v, dv, args.outputs[2]);
  });
}

// ---- cost -----------------------------------------------------------------------------------------------------------------------

// `products`: [rows, keys] products with d, with e columns.
template <bool backward>
Cost cost(const NodeTypes& types) {
  const std::size_t first = backward ? 1 : 0;
  const auto a = attention_of(types, first);
  CHECK(a.ok(), "cost of an invalid attention");
  double pairs = 0;
  for (const QueryBlock& block :
       schedule_of(*a, a->mask == Mask::none ? nullptr : types.constants[first + 3]).blocks)
    pairs += static_cast<double>(block.rows) * static_cast<double>(block.keys);
  pairs *= static_cast<double>(element_count(a->batch));
  const double d = static_cast<double>(a->d), e = static_cast<double>(a->e);
  return cost_of(types, pairs * (backward ? 2 * (3 * d + 2 * e) + 9 : 2 * (d + e) + 5));
}

}  // namespace

const OpDef fused_attention_op = {
    .name = "FusedAttention",
    .domain = "gradloom",
    .summary = "Attention that keeps no probabilities.",
    .traits = kRandom,
    .min_inputs = 3,
    .max_inputs = 4,
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
    .summary = "Gradient of FusedAttention, from probabilities computed again.",
    .traits = kRandom,
    .min_inputs = 4,
    .max_inputs = 5,
    .max_outputs = 3,
    .infer = infer_grad,
    .cost = cost<true>,
    .cpu = prepare_grad,
    .gpu = prepare_grad,
    .samples = attention::samples_grad,
    .arithmetic = Arithmetic::attention,
};

}  // namespace gradloom
