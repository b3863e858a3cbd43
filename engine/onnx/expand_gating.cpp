// Operators that opsets 24 to 28 gave to language models.
//   SwiGLU               a sigmoid(alpha a) b
//   CumProd              running products along an axis
//   CausalConvWithState  depthwise convolution over the past and the present; its last k - 1 inputs are the next past
//   TensorScatter        writes into a cache of keys or values at a position per row
// Source: ONNX SwiGLU-28, CumProd-26, CausalConvWithState-27, TensorScatter-24.
#include <algorithm>

#include "engine/onnx/expansion.h"
#include "engine/ops/common.h"

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
  if (activation == "silu" || activation == "swish") {
    y = TRY(e.op("Swish", {y}));
  } else if (activation != "none") {
    return infer_error("activation '" + activation + "'");
  }
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
  const std::string mode = e.attrs.text("mode", "linear");
  if (mode != "linear" && mode != "circular") return infer_error("mode '" + mode + "'");
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

constexpr int kNewest = 1000;

}  // namespace

std::span<const Expansion> gating_expansions() {
  static const std::vector<Expansion> kTable = {
      {"SwiGLU", "", 28, kNewest, 2, 2, 1, swiglu, {}},
      {"CumProd", "", 26, kNewest, 2, 2, 1, cum_prod, {}},
      {"CausalConvWithState", "", 27, kNewest, 2, 4, 2, causal_conv, {}},
      {"TensorScatter", "", 24, kNewest, 2, 3, 1, tensor_scatter, {}},
  };
  return kTable;
}

}  // namespace gradloom
