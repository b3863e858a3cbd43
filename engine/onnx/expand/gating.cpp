// Operators that opsets 24 to 28 gave to language models.
//   SwiGLU               a sigmoid(alpha a) b
//   CumProd              running products along an axis
//   CausalConvWithState  depthwise convolution over the past and the present; its last k - 1 inputs are the next past
//   TensorScatter        writes into a cache of keys or values at a position per row
//   LinearAttention      a state S per head, one step per token: S = exp(g) S + k (beta (v - S^T k))^T, y = scale S^T q;
//                        which of g and beta there are is the update rule, without beta v is taken as it is
// Source: ONNX SwiGLU-28, CumProd-26, CausalConvWithState-27, TensorScatter-24, LinearAttention-27.
#include <algorithm>
#include <cmath>

#include "engine/onnx/expand/expansion.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

Status swiglu(Expander& e) {
  const ValueId gate = TRY(e.op("Swish", {e.in(0)}, {{"alpha", e.attrs.real("alpha", 1)}}));
  e.outputs[0] = TRY(e.op("Mul", {gate, e.in(1)}));
  return {};
}

// One product per element of the axis: exact gradients where factors are 0.
Status cum_prod(Expander& e) {
  constexpr std::int64_t kLongest = 1024;
  const ValueId x = e.in(0);
  const Tensor* given = e.known(e.in(1));
  if (given == nullptr) return e.unsupported("its axis is not known before running");
  if (given->count() != 1) return infer_error("its axis must be one number");
  const std::int64_t axis = TRY(normalized_axis(static_cast<std::int64_t>(given->at(0)), e.rank(x)));
  const std::int64_t length = e.shape(x)[static_cast<std::size_t>(axis)];
  if (length < 0 || length > kLongest)
    return e.unsupported("an axis that is not known or longer than " + std::to_string(kLongest));
  if (length == 0) {
    e.outputs[0] = TRY(e.op("Identity", {x}));
    return {};
  }
  const bool exclusive = e.attrs.integer("exclusive") != 0, reverse = e.attrs.integer("reverse") != 0;
  std::vector<ValueId> parts{x};
  if (length > 1) parts = TRY(e.ops("Split", {x}, {{"axis", axis}}, static_cast<int>(length)));
  if (reverse) std::reverse(parts.begin(), parts.end());
  if (exclusive) {
    const ValueId one = e.scalar(e.dtype(x), 1);
    parts.insert(parts.begin(), TRY(e.op("Expand", {one, TRY(e.op("Shape", {parts[0]}))})));
    parts.pop_back();
  }
  for (std::size_t i = 1; i < parts.size(); ++i) parts[i] = TRY(e.op("Mul", {parts[i - 1], parts[i]}));
  if (reverse) std::reverse(parts.begin(), parts.end());
  e.outputs[0] =
      parts.size() == 1 ? TRY(e.op("Identity", {parts[0]})) : TRY(e.op("Concat", parts, {{"axis", axis}}));
  return {};
}

// Inputs: x [b, c, n], weight [c, 1, k], bias [c], past [b, c, k - 1] (zeros without it).
Status causal_conv(Expander& e) {
  ValueId x = e.in(0);
  const ValueId weight = e.in(1);
  if (e.rank(x) != 3 || e.rank(weight) != 3) return infer_error("input and weight must have rank 3");
  const std::int64_t channels = e.shape(x)[1], length = e.shape(x)[2], kernel = e.shape(weight)[2];
  if (channels < 1 || length < 0 || kernel < 1) return e.unsupported("its sizes are not known");
  x = e.has(3) ? TRY(e.op("Concat", {e.in(3), x}, {{"axis", std::int64_t{2}}}))
               : TRY(e.op("Pad", {x, e.ints({0, 0, kernel - 1, 0, 0, 0})}));
  std::vector<ValueId> inputs{x, weight};
  if (e.has(2)) inputs.push_back(e.in(2));
  ValueId y = TRY(e.op("Conv", std::move(inputs), {{"group", channels}}));
  const std::string activation = e.attrs.text("activation", "none");
  if (activation != "none") y = TRY(e.op("Swish", {y}));  // silu is its other name
  e.outputs[0] = y;
  if (e.wants(1)) e.outputs[1] = TRY(e.slice(x, length, length + kernel - 1, 2));
  return {};
}

// Inputs: cache, update (its length along `axis` is what is written), positions [b].
Status tensor_scatter(Expander& e) {
  const ValueId cache = e.in(0), update = e.in(1);
  const std::size_t rank = e.rank(cache);
  if (rank < 2 || e.rank(update) != rank)
    return infer_error("cache and update must have one rank, 2 or more");
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(e.attrs.integer("axis", -2), rank)));
  if (axis == 0) return infer_error("the axis is that of the batch");
  const std::int64_t length = e.shape(update)[axis], most = e.shape(cache)[axis];
  if (length < 0 || most < 1) return e.unsupported("its lengths are not known");
  if (length > std::int64_t{1} << 24) return e.unsupported("more than 2^24 positions are written");
  const std::string mode = e.attrs.text("mode", "linear");
  std::vector<std::int64_t> along, shape(rank, 1);
  for (std::int64_t i = 0; i < length; ++i) along.push_back(i);
  shape[axis] = length;
  ValueId at = TRY(e.reshape(e.ints(along), shape));
  if (e.has(2)) {
    shape[axis] = 1;
    shape[0] = -1;
    at = TRY(e.op("Add", {TRY(e.reshape(TRY(e.cast(e.in(2), DType::i64)), shape)), at}));
  }
  if (mode == "circular") at = TRY(e.op("Mod", {at, e.scalar(DType::i64, static_cast<double>(most))}));
  const ValueId places = TRY(e.op("Expand", {at, TRY(e.op("Shape", {update}))}));
  e.outputs[0] =
      TRY(e.op("ScatterElements", {cache, places, update}, {{"axis", static_cast<std::int64_t>(axis)}}));
  return {};
}

// [B, T, H D] -> T tensors [B, H, 1, D]
Result<std::vector<ValueId>> steps_of(Expander& e, ValueId x, std::int64_t heads, std::int64_t steps) {
  if (e.rank(x) != 3) return infer_error("an input has rank " + std::to_string(e.rank(x)) + ", it needs 3");
  const std::int64_t size = e.shape(x)[2];
  if (size < 1 || size % heads != 0)
    return infer_error(std::to_string(size) + " elements in " + std::to_string(heads) + " heads");
  const ValueId apart = TRY(e.reshape(x, {0, 0, heads, size / heads}));
  const ValueId first = TRY(e.transpose(apart, {0, 2, 1, 3}));
  if (steps == 1) return std::vector<ValueId>{first};
  return e.ops("Split", {first}, {{"axis", std::int64_t{2}}}, static_cast<int>(steps));
}

// Inputs: query, key, value, past state [B, H, Dk, Dv], decay, beta.
// Outputs: y [B, T, Hq Dv], the last state.
Status linear_attention(Expander& e) {
  constexpr std::int64_t kLongest = 1024;
  const std::string rule = e.attrs.text("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta",
             delta = rule == "delta" || rule == "gated_delta";
  if ((gated && !e.has(4)) || (delta && !e.has(5))) return infer_error("its update rule needs decay or beta");
  const std::int64_t q_heads = e.attrs.integer("q_num_heads"), heads = e.attrs.integer("kv_num_heads");
  if (e.rank(e.in(0)) != 3 || heads < 1 || q_heads < 1 || q_heads % heads != 0)
    return infer_error("the query must have rank 3, its heads must be a multiple of the others'");
  const std::int64_t batch = e.shape(e.in(0))[0], steps = e.shape(e.in(0))[1];
  if (batch < 0 || steps < 1 || steps > kLongest)
    return e.unsupported("sizes that are not known, or more than " + std::to_string(kLongest) + " tokens");
  // Halves are computed in f32 between the inputs and the outputs.
  const DType stored = e.dtype(e.in(0)), type = stored == DType::f64 ? DType::f64 : DType::f32;
  const auto wide = [&](std::size_t i) { return e.cast(e.in(i), type); };
  const auto q = TRY(steps_of(e, TRY(wide(0)), q_heads, steps)),
             k = TRY(steps_of(e, TRY(wide(1)), heads, steps)),
             v = TRY(steps_of(e, TRY(wide(2)), heads, steps));
  std::vector<ValueId> decay, beta;
  if (gated) decay = TRY(steps_of(e, TRY(e.op("Exp", {TRY(wide(4))})), heads, steps));
  if (delta)
    beta = TRY(
        steps_of(e, TRY(wide(5)), e.rank(e.in(5)) > 0 && e.shape(e.in(5)).back() == 1 ? 1 : heads, steps));
  const std::int64_t key_size = e.shape(k[0])[3], value_size = e.shape(v[0])[3], group = q_heads / heads;
  double scale = e.attrs.real("scale");
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(e.shape(q[0])[3]));
  const DType kept = e.has(3) ? e.dtype(e.in(3)) : stored;
  ValueId state = e.has(3) ? TRY(wide(3)) : kNone;
  if (state == kNone)
    state = TRY(e.op("Expand", {e.scalar(type, 0), e.ints({batch, heads, key_size, value_size})}));
  std::vector<ValueId> results;
  for (std::size_t t = 0; t < q.size(); ++t) {
    const ValueId column = TRY(e.transpose(k[t], {0, 1, 3, 2}));  // [B, H, Dk, 1]
    if (gated) state = TRY(e.op("Mul", {state, TRY(e.transpose(decay[t], {0, 1, 3, 2}))}));
    ValueId added = v[t];
    if (delta) {
      added = TRY(e.op("Sub", {v[t], TRY(e.op("MatMul", {k[t], state}))}));
      added = TRY(e.op("Mul", {added, beta[t]}));
    }
    state = TRY(e.op("Add", {state, TRY(e.op("MatMul", {column, added}))}));
    const ValueId grouped = TRY(e.reshape(q[t], {0, heads, group, -1}));
    const ValueId y = TRY(e.op("MatMul", {TRY(e.op("Mul", {grouped, e.scalar(type, scale)})), state}));
    results.push_back(TRY(e.reshape(y, {0, 1, q_heads * value_size})));
  }
  const ValueId all =
      results.size() == 1 ? results[0] : TRY(e.op("Concat", results, {{"axis", std::int64_t{1}}}));
  e.outputs[0] = TRY(e.cast(all, stored));
  if (e.wants(1)) e.outputs[1] = TRY(e.cast(state, kept));
  return {};
}

}  // namespace

std::span<const Expansion> gating_expansions() {
  static const std::vector<Expansion> kTable = {
      {"SwiGLU", "", 28, kNewest, 2, 2, 1, swiglu, {}},
      {"CumProd", "", 26, kNewest, 2, 2, 1, cum_prod, {}},
      {"CausalConvWithState", "", 27, kNewest, 2, 4, 2, causal_conv, {}},
      {"TensorScatter", "", 24, kNewest, 2, 3, 1, tensor_scatter, {}},
      {"LinearAttention", "", 27, kNewest, 3, 6, 2, linear_attention, {}},
  };
  return kTable;
}

}  // namespace gradloom
