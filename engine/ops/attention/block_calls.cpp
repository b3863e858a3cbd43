#include "engine/ops/attention/block_calls.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/ops/operand_rows.h"
#include "engine/ops/preparation.h"
#include "kernels/launcher.h"

namespace gradloom::attention {
namespace {

using Ints = std::vector<std::int64_t>;
using Program = BlockCalls::Program;

Ints joined(Ints batch, std::int64_t row, std::int64_t column) {
  batch.push_back(row);
  batch.push_back(column);
  return batch;
}
Ints batch_of(const View& view) { return {view.strides.begin(), view.strides.end() - 2}; }
Ints swapped(const View& view) { return joined(batch_of(view), view.strides.back(), view.row()); }

// The scores of a block lie dense.
View dense_view(const Attention& a, std::int64_t rows, std::int64_t columns) {
  return {dense_strides(joined(a.batch, rows, columns))};
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

// Over tensors with these strides of [batch.., rows, columns]; its code is still to come.
kernels::EwProgram program_over(const Attention& a, std::int64_t rows, std::int64_t columns,
                                const std::vector<std::pair<DType, Ints>>& inputs) {
  kernels::EwProgram program;
  program.rank = static_cast<int>(a.batch.size()) + 2;
  const Shape dims = joined(a.batch, rows, columns);
  std::copy(dims.begin(), dims.end(), program.dims.begin());
  for (const auto& [dtype, strides] : inputs) {
    kernels::EwInput input{dtype, {}};
    for (std::size_t i = 0; i < dims.size(); ++i) input.strides[i] = dims[i] == 1 ? 0 : strides[i];
    program.inputs.push_back(input);
  }
  return program;
}

// Register `input` as the type of the scores: of this number, or of that of a cast that is added.
std::int16_t as_scores(const Attention& a, kernels::EwProgram& program, std::int16_t input) {
  if (a.dtype == a.scores) return input;
  program.code.push_back({kernels::EwOp::Cast, a.dtype, a.scores, {input, -1, -1}, 0});
  return static_cast<std::int16_t>(program.inputs.size() + program.code.size() - 1);
}

Program finished(kernels::EwProgram program, const Attention& a) {
  const std::size_t registers = program.inputs.size() + program.constants.size() + program.code.size();
  program.outputs = {{static_cast<std::int16_t>(registers - 1), a.scores}};
  kernels::ew_collapse_dims(program);
  return std::make_shared<const kernels::EwProgram>(std::move(program));
}

// Over the scores x of a block and the mask: what the mask makes of them, or (`zero`) 0 where it hides.
Program mask_program(const Attention& a, const Ints& strides, const QueryBlock& block, bool zero) {
  using kernels::EwOp;
  const bool adds = a.mask == Mask::add;
  kernels::EwProgram program = program_over(a, block.rows, block.keys,
                                            {{a.scores, dense_view(a, block.rows, block.keys).strides},
                                             {adds ? a.dtype : DType::boolean, strides}});
  if (adds) {
    const std::int16_t added = as_scores(a, program, 1);
    program.code.push_back({EwOp::Add, a.scores, a.scores, {0, added, -1}, 0});
  } else {
    program.constants = {{a.scores, zero ? 0 : a.fill}};
    const std::int16_t shown = a.mask == Mask::keep ? std::int16_t{0} : std::int16_t{2};
    program.code = {{EwOp::Where, a.scores, a.scores, {1, shown, static_cast<std::int16_t>(2 - shown)}, 0}};
  }
  return finished(std::move(program), a);
}

// dy * y of some rows.
Program slope_program(const Attention& a, std::int64_t rows) {
  kernels::EwProgram program = program_over(a, rows, a.e, {{a.dtype, a.dy.strides}, {a.dtype, a.y.strides}});
  const std::int16_t dy = as_scores(a, program, 0), y = as_scores(a, program, 1);
  program.code.push_back({kernels::EwOp::Mul, a.scores, a.scores, {dy, y, -1}, 0});
  return finished(std::move(program), a);
}

// What the sequence of kernels does with tensors in rows: products read and write them.
Status require_dense_sums(const NodeTypes& types, bool zeros, bool rounded_sums) {
  if (!in_rows(types, 1) && !in_rows(types, 2)) return {};
  if (zeros) return no_kernel("keys that nothing sees, whose gradients begin as dense zeros");
  if (rounded_sums) return no_kernel("sums over blocks of queries, which are rounded into dense tensors");
  return {};
}

std::byte* part(const LaunchArgs& args, std::size_t at) {
  return static_cast<std::byte*>(args.workspace) + at;
}

void convert(const LaunchArgs& args, const Program& program, const void* from, void* to) {
  args.on.elementwise({program.get(), &from, &to, nullptr});
}

}  // namespace

Result<BlockCalls> BlockCalls::of(const NodeTypes& types, Attention attention, const Attention& dense,
                                  bool backward) {
  const std::size_t mask = (backward ? kGradOperands : 0) + 3;
  BlockCalls p;
  p.a_ = std::move(attention);
  const Attention& a = p.a_;
  if (a.mask != Mask::none) {
    p.mask_shape_ = types.inputs[mask].shape;
    const Ints strides = mask_strides(a, p.mask_shape_);
    p.mask_row_ = strides[strides.size() - 2];
  }
  p.log_sums_ = !backward && types.wants(1);
  Schedule schedule = schedule_of(a, a.mask == Mask::none ? nullptr : types.constants[mask]);
  std::vector<QueryBlock>& blocks = schedule.blocks;
  if (backward) {
    std::reverse(blocks.begin(), blocks.end());  // the block that sees most keys first
    p.fill_grads_ = blocks.front().keys != a.keys;
    p.sums_ = p.fill_grads_ || blocks.size() > 1 ? a.scores : a.dtype;
    TRY(require_dense_sums(types, p.fill_grads_, p.sums_ != a.dtype));
  }
  for (const QueryBlock& block : blocks) TRY(p.add_step(types, block, schedule.masked_shares, backward));
  if (asks_for_bits(types)) TRY(p.require_bits_of(types, dense, backward));
  p.lay_out(types, backward);
  return p;
}

Status BlockCalls::add_step(const NodeTypes& types, const QueryBlock& block, bool masked_shares,
                            bool backward) {
  Step s;
  s.block = block;
  TRY(add_products(types, s, backward));
  TRY(add_row_numbers(types, s, backward));
  const std::int64_t scores = batches() * block.rows * block.keys;
  if (a_.scores != a_.dtype) s.narrow = conversion(a_.scores, a_.dtype, scores);
  if (block.masked) {
    const Ints strides = mask_strides(a_, mask_shape_);
    s.mask = mask_program(a_, strides, block, false);
    if (backward && masked_shares) s.mask_grad = mask_program(a_, strides, block, true);
  }
  score_bytes_ = std::max(score_bytes_, aligned_bytes(a_.scores, scores));
  steps_.push_back(std::move(s));
  return {};
}

// Where the tensors lie changes no bit. What the library throws in a trial leaves the tensors dense.
Status BlockCalls::require_bits_of(const NodeTypes& types, const Attention& dense, bool backward) const try {
  BlockCalls other;
  other.a_ = dense;
  other.sums_ = sums_;
  other.fill_grads_ = fill_grads_;
  for (const Step& s : steps_) {
    Step d;
    d.block = s.block;
    TRY(other.add_products(types, d, backward));
    for (const auto product :
         {&Step::scores, &Step::result, &Step::probability_grad, &Step::q_grad, &Step::k_grad, &Step::v_grad})
      if (!(s.*product).has_bits_of(d.*product))
        return no_kernel(
            "a product that the processor's library may add in another order where rows lie apart");
    other.steps_.push_back(std::move(d));
  }
  return {};
} catch (const std::exception& e) {
  return no_kernel(e.what());
}

Status BlockCalls::add_products(const NodeTypes& types, Step& s, bool backward) {
  const QueryBlock& block = s.block;
  const Attention& a = a_;
  const auto make = [&](SliceProduct& to, Result<SliceProduct> made) -> Status {
    to = TRY(std::move(made));
    product_bytes_ = std::max(product_bytes_, to.workspace_bytes());
    return {};
  };
  const View x = dense_view(a, block.rows, block.keys);
  TRY(make(s.scores, product(types, a, block.rows, block.keys, a.d, a.q.strides, swapped(a.k), x.strides,
                             a.scale, a.scores)));
  if (!backward)
    return make(s.result, product(types, a, block.rows, a.e, block.keys, x.strides, a.v.strides, a.y.strides,
                                  1, a.dtype));
  const bool more = fill_grads_ || !steps_.empty();
  TRY(make(s.probability_grad, product(types, a, block.rows, block.keys, a.e, a.dy.strides, swapped(a.v),
                                       x.strides, 1, a.scores)));
  TRY(make(s.q_grad, product(types, a, block.rows, a.d, block.keys, x.strides, a.k.strides, a.dq.strides,
                             a.scale, a.dtype)));
  TRY(make(s.k_grad, product(types, a, block.keys, a.d, block.rows, swapped(x), a.q.strides, a.dk.strides,
                             a.scale, sums_, more)));
  return make(s.v_grad, product(types, a, block.keys, a.e, block.rows, swapped(x), a.dy.strides, a.dv.strides,
                                1, sums_, more));
}

// Log-sum-exp of the block's rows, and of the gradient the sums of dy * y.
Status BlockCalls::add_row_numbers(const NodeTypes& types, Step& s, bool backward) {
  const QueryBlock& block = s.block;
  number_bytes_ = std::max(number_bytes_, aligned_bytes(a_.scores, batches() * block.rows));
  if ((backward || log_sums_) && block.rows != a_.rows) {
    const Ints among_all{a_.rows, 1}, apart{block.rows, 1};
    s.log_sum_places = {{batches(), block.rows}, backward ? among_all : apart, backward ? apart : among_all};
    (backward ? s.log_sum_places.in_offset : s.log_sum_places.out_offset) = block.row;
    s.log_sum_copy = TRY(strided_copy_args(s.log_sum_places, dtype_bytes(a_.scores)));
  }
  // A rounded y would add its errors to the slopes. With dropout y is of one mask of the probabilities. On the CPU, where a walk past a
  // block's keys costs little, the sums are of the very products that they are taken from: what the softmax cancels (a key's bias has
  // no gradient) then cancels here, too.
  const bool of_products = kernels::has_prepared_kernels(types.target);
  if (!backward || a_.dtype != a_.scores || of_products || a_.dropout > 0) return {};
  const std::int64_t rows = batches() * block.rows;
  s.result_slopes = slope_program(a_, block.rows);
  score_bytes_ = std::max(score_bytes_, aligned_bytes(a_.scores, rows * a_.e));
  product_bytes_ = std::max(
      product_bytes_,
      kernels::workspace_bytes(types.target, kernels::ReduceArgs{a_.scores, kernels::Reduction::sum, rows,
                                                                 a_.e, 1, nullptr, nullptr, nullptr}));
  return {};
}

void BlockCalls::lay_out(const NodeTypes& types, bool backward) {
  const auto take = [&](std::size_t bytes) { return std::exchange(at_.bytes, at_.bytes + bytes); };
  at_.scores = take(score_bytes_);
  if (backward) at_.grads = take(score_bytes_);
  if (a_.scores != a_.dtype) at_.narrow = take(aligned_bytes(score_bytes_ / 2));
  if (backward || log_sums_) at_.log_sums = take(number_bytes_);
  if (backward) at_.row_sums = take(number_bytes_);
  if (backward) {
    k_count_ = element_count(types.inputs[kGradOperands + 1].shape);
    v_count_ = element_count(types.inputs[kGradOperands + 2].shape);
    if (sums_ != a_.dtype) {
      at_.k_sum = take(aligned_bytes(sums_, k_count_));
      at_.v_sum = take(aligned_bytes(sums_, v_count_));
      narrow_k_ = conversion(sums_, a_.dtype, k_count_);
      narrow_v_ = conversion(sums_, a_.dtype, v_count_);
    }
  }
  at_.bytes = kernels::library_place(types.target, at_.bytes);
  at_.products = take(product_bytes_);
}

std::vector<Program> BlockCalls::programs() const {
  std::vector<Program> all;
  for (const Step& s : steps_)
    for (const Program& program : {s.mask, s.mask_grad, s.narrow, s.result_slopes})
      if (program) all.push_back(program);
  for (const Program& program : {narrow_k_, narrow_v_})
    if (program) all.push_back(program);
  return all;
}

// Dense at `scores`; operands: q, k, v, mask.
void BlockCalls::masked_scores(const Step& s, const LaunchArgs& args, const void* const* operands,
                               void* scores) const {
  s.scores.run(args, elements_at(operands[0], a_.dtype, s.block.row * a_.q.row()), operands[1], scores,
               part(args, at_.products));
  if (!s.mask) return;
  const DType type = a_.mask == Mask::add ? a_.dtype : DType::boolean;
  const void* inputs[] = {scores, elements_at(operands[3], type, s.block.row * mask_row_)};
  args.on.elementwise({s.mask.get(), inputs, &scores, nullptr});
}

void BlockCalls::probabilities_again(const Step& s, const LaunchArgs& args, const void* log_sum_exp,
                                     void* scores) const {
  if (s.log_sum_copy) {
    void* const of_block = part(args, at_.log_sums);
    run_copy(args.on, *s.log_sum_copy, s.log_sum_places, log_sum_exp, of_block);
    log_sum_exp = of_block;
  }
  args.on.softmax_again(
      {a_.scores, batches() * s.block.rows, s.block.keys, scores, log_sum_exp, scores, a_.safe});
}

const void* BlockCalls::row_sums(const Step& s, const LaunchArgs& args) const {
  if (!s.result_slopes) return nullptr;
  const void* inputs[] = {elements_at(args.inputs[0], a_.dtype, s.block.row * a_.dy.row()),
                          elements_at(args.inputs[1], a_.dtype, s.block.row * a_.y.row())};
  void *slopes = part(args, at_.grads), *const sums = part(args, at_.row_sums);
  args.on.elementwise({s.result_slopes.get(), inputs, &slopes, nullptr});
  args.on.reduce({a_.scores, kernels::Reduction::sum, batches() * s.block.rows, a_.e, 1, slopes, sums,
                  part(args, at_.products)});
  return sums;
}

// A block of scores as the products read it.
const void* BlockCalls::narrowed(const Step& s, const LaunchArgs& args, const void* scores) const {
  if (!s.narrow) return scores;
  void* const to = part(args, at_.narrow);
  convert(args, s.narrow, scores, to);
  return to;
}

// What dropout makes of a block of probabilities, or of their gradient. Of a part of the batch one run after the other.
void BlockCalls::drop(const QueryBlock& block, const LaunchArgs& args, const void* x, void* y) const {
  const std::int64_t run = a_.part.run == 0 ? batches() : a_.part.run, scores = a_.rows * a_.keys;
  for (std::int64_t begin = 0; begin < batches(); begin += run) {
    const std::int64_t in_whole = begin * a_.part.parts + a_.part.number * run,
                       at = begin * block.rows * block.keys;
    args.on.dropout({a_.scores, run, block.rows, block.keys, in_whole * scores + block.row * a_.keys, scores,
                     a_.keys, a_.dropout, a_.random_key, elements_at(x, a_.scores, at),
                     elements_at(y, a_.scores, at), args.random});
  }
}

void BlockCalls::attention(const LaunchArgs& args) const {
  void *const scores = part(args, at_.scores), *const workspace = part(args, at_.products);
  for (const Step& s : steps_) {
    masked_scores(s, args, args.inputs, scores);
    void* const log_sums = !log_sums_ ? nullptr : s.log_sum_copy ? part(args, at_.log_sums) : args.outputs[1];
    args.on.softmax(
        {a_.scores, false, batches() * s.block.rows, s.block.keys, 1, scores, scores, a_.safe, log_sums});
    if (s.log_sum_copy) run_copy(args.on, *s.log_sum_copy, s.log_sum_places, log_sums, args.outputs[1]);
    if (a_.dropout > 0) drop(s.block, args, scores, scores);
    s.result.run(args, narrowed(s, args, scores), args.inputs[2],
                 elements_at(args.outputs[0], a_.dtype, s.block.row * a_.y.row()), workspace);
  }
}

void BlockCalls::attention_grad(const LaunchArgs& args) const {
  const void* const* const operands = args.inputs + kGradOperands;
  const void *const q = operands[0], *const k = operands[1], *const v = operands[2];
  void *const shares = part(args, at_.scores), *const grads = part(args, at_.grads),
              *const workspace = part(args, at_.products);
  void* const dk = narrow_k_ ? part(args, at_.k_sum) : args.outputs[1];
  void* const dv = narrow_v_ ? part(args, at_.v_sum) : args.outputs[2];
  if (fill_grads_) {
    const double zero = 0;  // all bits zero in every type
    args.on.fill({dtype_bytes(sums_), k_count_, &zero, dk});
    args.on.fill({dtype_bytes(sums_), v_count_, &zero, dv});
  }
  for (const Step& s : steps_) {
    const void* const dy_rows = elements_at(args.inputs[0], a_.dtype, s.block.row * a_.dy.row());
    const void* const sums = row_sums(s, args);
    masked_scores(s, args, operands, shares);
    probabilities_again(s, args, args.inputs[2], shares);
    if (a_.dropout > 0) drop(s.block, args, shares, grads);
    s.v_grad.run(args, narrowed(s, args, a_.dropout > 0 ? grads : shares), dy_rows, dv, workspace);
    s.probability_grad.run(args, dy_rows, v, grads, workspace);
    if (a_.dropout > 0) drop(s.block, args, grads, grads);
    args.on.softmax_grad(
        {a_.scores, false, batches() * s.block.rows, s.block.keys, 1, grads, shares, grads, sums});
    if (s.mask_grad) {
      const void* inputs[] = {grads, elements_at(operands[3], DType::boolean, s.block.row * mask_row_)};
      args.on.elementwise({s.mask_grad.get(), inputs, const_cast<void* const*>(&grads), nullptr});
    }
    const void* const slopes = narrowed(s, args, grads);
    s.q_grad.run(args, slopes, k, elements_at(args.outputs[0], a_.dtype, s.block.row * a_.dq.row()),
                 workspace);
    s.k_grad.run(args, slopes, elements_at(q, a_.dtype, s.block.row * a_.q.row()), dk, workspace);
  }
  if (narrow_k_) convert(args, narrow_k_, dk, args.outputs[1]);
  if (narrow_v_) convert(args, narrow_v_, dv, args.outputs[2]);
}

}  // namespace gradloom::attention
