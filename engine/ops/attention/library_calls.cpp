#include "engine/ops/attention/library_calls.h"

#include <algorithm>

#include "engine/ops/products/matrix_product.h"
#include "kernels/library_kernels.h"

namespace gradloom::attention {
namespace {

// Strides of [batch, heads, rows, columns]; how far apart the elements of a missing dim would be says nothing.
void set_strides(const Attention& a, const View& view, std::int64_t (&to)[4]) {
  const std::size_t rank = a.batch.size();
  const std::vector<std::int64_t>& of = view.strides;
  to[2] = of[rank];
  to[3] = of[rank + 1];
  to[0] = rank > 0 ? of[0] : std::max(a.rows, a.keys) * to[2];
  to[1] = rank > 1 ? of[1] : to[0];
}

// The whole attention in the library's terms.
std::optional<kernels::AttentionArgs> form_of(const NodeTypes& types, std::size_t first, const Attention& a) {
  const std::size_t rank = a.batch.size();
  if (!types.dnn_library || a.dropout > 0 || rank > 2) return std::nullopt;
  kernels::AttentionArgs l{};
  l.dtype = a.dtype;
  l.batch = rank > 0 ? a.batch[0] : 1;
  l.heads = rank > 1 ? a.batch[1] : 1;
  l.rows = a.rows;
  l.keys = a.keys;
  l.d = a.d;
  l.e = a.e;
  l.scale = a.scale;
  set_strides(a, a.q, l.q_strides);
  set_strides(a, a.k, l.k_strides);
  set_strides(a, a.v, l.v_strides);
  set_strides(a, a.y, l.y_strides);
  if (a.mask == Mask::none) return l;
  const Tensor* const known = types.constants[first + 3];
  l.causal = known != nullptr && hides_the_future_only(a, *known);
  if (l.causal) return l;
  if (known != nullptr ? hides_all_of_a_row(a, *known) : a.safe) return std::nullopt;
  Shape mask = types.inputs[first + 3].shape;
  if (a.mask != Mask::add || mask.empty() || mask.back() != a.keys) return std::nullopt;
  mask.insert(mask.begin(), rank + 2 - mask.size(), 1);
  mask.insert(mask.begin() + static_cast<std::ptrdiff_t>(rank), 2 - rank, 1);
  std::copy(mask.begin(), mask.end(), l.mask_dims);
  return l;
}

std::int64_t parts_of(std::int64_t whole, std::int64_t parts) { return (whole + parts - 1) / parts; }

}  // namespace

std::optional<LibraryCalls> LibraryCalls::of(const NodeTypes& types, std::size_t first, const Attention& a,
                                             bool backward) {
  const auto form = form_of(types, first, a);
  if (!form) return std::nullopt;
  LibraryCalls calls;
  calls.form_.forward = *form;
  calls.log_sums_ = !backward && types.wants(1);
  if (backward) {
    set_strides(a, a.dy, calls.form_.dy_strides);
    set_strides(a, a.dq, calls.form_.dq_strides);
    set_strides(a, a.dk, calls.form_.dk_strides);
    set_strides(a, a.dv, calls.form_.dv_strides);
  }
  calls.batch_ = form->batch;
  calls.heads_ = form->heads;
  kernels::AttentionArgs& one = calls.form_.forward;
  const auto fits = [&] {
    one.workspace_bytes =
        backward ? kernels::library_workspace_bytes(calls.form_) : kernels::library_workspace_bytes(one);
    return one.workspace_bytes > 0;
  };
  // Whole images as long as one has room, else heads of an image.
  for (std::int64_t parts = 2; !fits() && one.batch > 1; ++parts) one.batch = parts_of(calls.batch_, parts);
  for (std::int64_t parts = 2; !fits() && one.heads > 1; ++parts) one.heads = parts_of(calls.heads_, parts);
  if (!fits()) return std::nullopt;
  const std::int64_t matrix = form->mask_dims[2] * form->mask_dims[3];
  if (form->mask_dims[1] > 1) calls.mask_head_ = matrix;
  if (form->mask_dims[0] > 1) calls.mask_image_ = matrix * form->mask_dims[1];
  return calls;
}

LibraryCalls::Part LibraryCalls::part(std::int64_t image, std::int64_t head) const {
  Part p{form_, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  kernels::AttentionArgs& form = p.form.forward;
  form.batch = std::min(form.batch, batch_ - image);
  form.heads = std::min(form.heads, heads_ - head);
  if (mask_image_ > 0) form.mask_dims[0] = form.batch;
  if (mask_head_ > 0) form.mask_dims[1] = form.heads;
  const auto begin = [&](const std::int64_t(&strides)[4]) { return image * strides[0] + head * strides[1]; };
  p.q = begin(form.q_strides);
  p.k = begin(form.k_strides);
  p.v = begin(form.v_strides);
  p.y = begin(form.y_strides);
  p.log_sum = (image * heads_ + head) * form.rows;
  p.dy = begin(form_.dy_strides);
  p.dq = begin(form_.dq_strides);
  p.dk = begin(form_.dk_strides);
  p.dv = begin(form_.dv_strides);
  return p;
}

template <class Call>
bool LibraryCalls::all_parts(const LaunchArgs& args, const void* const* inputs, const Call& call) const {
  const kernels::AttentionArgs& largest = form_.forward;
  for (std::int64_t image = 0; image < batch_; image += largest.batch)
    for (std::int64_t head = 0; head < heads_; head += largest.heads) {
      Part p = part(image, head);
      kernels::AttentionArgs& form = p.form.forward;
      form.q = elements_at(inputs[0], form.dtype, p.q);
      form.k = elements_at(inputs[1], form.dtype, p.k);
      form.v = elements_at(inputs[2], form.dtype, p.v);
      if (form.mask_dims[3] > 0)  // left out of a causal one
        form.mask = elements_at(inputs[3], form.dtype, image * mask_image_ + head * mask_head_);
      form.workspace = args.workspace;
      if (!call(p)) return false;
    }
  return true;
}

bool LibraryCalls::attention(const LaunchArgs& args) const {
  return all_parts(args, args.inputs, [&](Part& p) {
    kernels::AttentionArgs& form = p.form.forward;
    form.y = elements_at(args.outputs[0], form.dtype, p.y);
    form.log_sum_exp = log_sums_ ? static_cast<float*>(args.outputs[1]) + p.log_sum : nullptr;
    return args.on.attention(form);
  });
}

bool LibraryCalls::attention_grad(const LaunchArgs& args) const {
  return all_parts(args, args.inputs + kGradOperands, [&](Part& p) {
    kernels::AttentionArgs& form = p.form.forward;
    const DType dtype = form.dtype;
    form.y = elements_at(const_cast<void*>(args.inputs[1]), dtype, p.y);
    form.log_sum_exp = static_cast<float*>(const_cast<void*>(args.inputs[2])) + p.log_sum;
    p.form.dy = elements_at(args.inputs[0], dtype, p.dy);
    p.form.dq = elements_at(args.outputs[0], dtype, p.dq);
    p.form.dk = elements_at(args.outputs[1], dtype, p.dk);
    p.form.dv = elements_at(args.outputs[2], dtype, p.dv);
    return args.on.attention_grad(p.form);
  });
}

}  // namespace gradloom::attention
