#include "engine/ops/attention/flash_calls.h"

#include <algorithm>
#include <vector>

#include "engine/ops/products/matrix_product.h"
#include "kernels/launcher.h"
#include "kernels/prepared/bf16.h"

namespace gradloom::attention {
namespace {

using Ints = std::vector<std::int64_t>;

// Strides of [batch.., row, column].
void set_strides(const Ints& strides, std::int64_t (&batch)[kernels::kEwMaxRank], std::int64_t& row,
                 std::int64_t& column) {
  std::copy(strides.begin(), strides.end() - 2, batch);
  row = strides[strides.size() - 2];
  column = strides.back();
}

// On the CPU a block of rows has probabilities and slopes of all keys.
constexpr std::int64_t kMostKeys = 16384;

bool takes(kernels::Target target, const Attention& a) {
  if (!kernels::takes_flash_attention(a.dtype, a.rows, a.keys, a.d, a.e)) return false;
  return kernels::computes_halves(target) ||
         (multiplies_bf16(target, a.dtype) && kernels::pair_products() && a.keys <= kMostKeys);
}

}  // namespace

std::optional<FlashCalls> FlashCalls::of(const NodeTypes& types, std::size_t first, const Attention& a) {
  if (!takes(types.target, a)) return std::nullopt;
  FlashCalls calls;
  calls.target_ = types.target;
  kernels::FlashAttentionArgs& f = calls.form_.forward;
  f.dtype = a.dtype;
  f.batch_rank = static_cast<int>(a.batch.size());
  std::copy(a.batch.begin(), a.batch.end(), f.batch_dims);
  f.rows = a.rows;
  f.keys = f.reach = a.keys;
  f.d = a.d;
  f.e = a.e;
  set_strides(a.q.strides, f.q_batch, f.q_row, f.q_col);
  set_strides(a.k.strides, f.k_batch, f.k_row, f.k_col);
  set_strides(a.v.strides, f.v_batch, f.v_row, f.v_col);
  set_strides(a.y.strides, f.y_batch, f.y_row, f.y_col);
  if (first > 0) {
    kernels::FlashAttentionGradArgs& g = calls.form_;
    set_strides(a.dy.strides, g.dy_batch, g.dy_row, g.dy_col);
    set_strides(a.dq.strides, g.dq_batch, g.dq_row, g.dq_col);
    set_strides(a.dk.strides, g.dk_batch, g.dk_row, g.dk_col);
    set_strides(a.dv.strides, g.dv_batch, g.dv_row, g.dv_col);
  }
  f.scale = a.scale;
  f.mask_mode = a.mask;
  f.fill = a.fill;
  f.safe = a.safe;
  f.dropout = a.dropout;
  f.key = a.random_key;
  f.part_run = a.part.run;
  f.parts = a.part.parts;
  f.part = a.part.number;
  calls.log_sums_ = first == 0 && types.wants(1);
  if (a.mask == Mask::none) return calls;
  set_strides(mask_strides(a, types.inputs[first + 3].shape), f.mask_batch, f.mask_row, f.mask_col);
  if (const Tensor* const known = types.constants[first + 3]) {
    const Reach reach = reach_of(a, *known);
    f.reach = std::min(reach.keys, a.keys);
    if (reach.all) f.mask_mode = Mask::none;
  }
  return calls;
}

std::size_t FlashCalls::grad_workspace_bytes() const { return kernels::workspace_bytes(target_, form_); }

kernels::FlashAttentionArgs FlashCalls::form(const LaunchArgs& args, const void* const* inputs) const {
  kernels::FlashAttentionArgs f = form_.forward;
  f.q = inputs[0];
  f.k = inputs[1];
  f.v = inputs[2];
  if (f.mask_mode != Mask::none) f.mask = inputs[3];
  if (f.dropout > 0) f.random = args.random;
  return f;
}

void FlashCalls::attention(const LaunchArgs& args) const {
  kernels::FlashAttentionArgs f = form(args, args.inputs);
  f.y = args.outputs[0];
  f.log_sum_exp = log_sums_ ? static_cast<float*>(args.outputs[1]) : nullptr;
  args.on.flash_attention(f);
}

void FlashCalls::attention_grad(const LaunchArgs& args) const {
  kernels::FlashAttentionGradArgs g = form_;
  g.forward = form(args, args.inputs + kGradOperands);
  g.forward.y = const_cast<void*>(args.inputs[1]);
  g.forward.log_sum_exp = static_cast<float*>(const_cast<void*>(args.inputs[2]));
  g.dy = args.inputs[0];
  g.dq = args.outputs[0];
  g.dk = args.outputs[1];
  g.dv = args.outputs[2];
  g.workspace = args.workspace;
  args.on.flash_attention_grad(g);
}

}  // namespace gradloom::attention
