#include "engine/onnx/write/bodies.h"

#include <numeric>

#include "engine/ops/inference.h"

namespace gradloom {

ValueId Body::cast(ValueId x, DType to) {
  return dtype(x) == to ? x : op("Cast", {x}, {{"to", onnx_from_dtype(to)}});
}

ValueId Body::transpose(ValueId x, const std::vector<std::int64_t>& perm) {
  return perm.empty() ? x : op("Transpose", {x}, {{"perm", perm}});
}

ValueId Body::reshape(ValueId x, const Shape& to) { return shape(x) == to ? x : b.reshape(x, to); }

ValueId Body::sum(ValueId x, const std::vector<std::int64_t>& axes, bool keeps_dims) {
  if (axes.empty()) return x;
  return op("ReduceSum", {x, b.i64s(axes)}, {{"keepdims", std::int64_t{keeps_dims}}});
}

ValueId Body::sum_all(ValueId x) {
  std::vector<std::int64_t> axes(shape(x).size());
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  return sum(x, axes);
}

ValueId Body::accumulated(ValueId acc, ValueId micro, ValueId part) {
  const ValueId share =
      op("Div", {cast(part, dtype(acc)), number_like(acc, static_cast<double>(attrs().integer("count", 1)))});
  if (micro == kNone) return op("Add", {acc, share});
  const ValueId first = op("Equal", {micro, number(DType::i64, 0)});
  return op("Add", {op("Where", {first, number_like(acc, 0), acc}), share});
}

ValueId Body::mean(ValueId x, const std::vector<std::int64_t>& axes) {
  double count = 1;
  for (const std::int64_t axis : axes) count *= static_cast<double>(shape(x)[static_cast<std::size_t>(axis)]);
  return op("Div", {sum(x, axes, true), number_like(x, count)});
}

ValueId Body::zeros(DType type, const Shape& shape) { return op("Expand", {number(type, 0), b.i64s(shape)}); }

ValueId Body::dropped(ValueId x, double ratio, std::uint64_t key) {
  const auto [at, fresh] = keep.try_emplace(key);
  if (fresh) at->second = {b.input("keep" + std::to_string(keep.size()), {DType::boolean, shape(x)}), ratio};
  return op("Where", {at->second.value, op("Mul", {x, number_like(x, 1 / (1 - ratio))}), number_like(x, 0)});
}

BodyFn find_body(const OpDef& op) {
  for (const Bodies* bodies : {&elementwise_bodies(), &product_bodies(), &normalization_bodies(),
                               &window_bodies(), &loss_bodies(), &training_bodies()}) {
    const auto found = bodies->find(op.name);
    if (found != bodies->end()) return found->second;
  }
  return nullptr;
}

}  // namespace gradloom
