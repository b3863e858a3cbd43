#include "engine/train/lamb_rate.h"

#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/inference.h"

namespace gradloom {
namespace {

ValueId as_type(GraphBuilder& b, ValueId x, DType type) {
  return b.type(x).dtype == type ? x : b.op("Cast", {x}, {{"to", onnx_from_dtype(type)}});
}

// What the optimizer makes of a gradient first.
ValueId taken_gradient(GraphBuilder& b, const TrainSpec& spec, const LambOperands& of, DType type) {
  ValueId g = as_type(b, of.gradient, type);
  if (of.scale != kNone) g = b.op("Mul", {g, of.scale});
  if (spec.clip_value > 0)
    g = b.op("Max", {b.op("Min", {g, b.scalar(type, spec.clip_value)}), b.scalar(type, -spec.clip_value)});
  return spec.optimizer.maximize ? b.op("Neg", {g}) : g;
}

// 1 - beta^t in f64.
ValueId correction(GraphBuilder& b, double beta, ValueId step) {
  const ValueId t = as_type(b, step, DType::f64);
  return b.op("Sub", {b.scalar(DType::f64, 1), b.op("Pow", {b.scalar(DType::f64, beta), t})});
}

ValueId update_of(GraphBuilder& b, const TrainSpec& spec, double weight_decay, const LambOperands& of) {
  const DType type = b.type(of.parameter).dtype;
  const auto number = [&](double x) { return b.scalar(type, x); };
  const ValueId g = taken_gradient(b, spec, of, type);
  const auto next = [&](ValueId state, double beta, ValueId x) {
    return b.op("Add", {b.op("Mul", {state, number(beta)}), b.op("Mul", {x, number(1 - beta)})});
  };
  const ValueId m = next(of.m, spec.optimizer.beta1, g),
                v = next(of.v, spec.optimizer.beta2, b.op("Mul", {g, g}));
  const ValueId first = as_type(b, correction(b, spec.optimizer.beta1, of.step), type),
                root = as_type(b, b.op("Sqrt", {correction(b, spec.optimizer.beta2, of.step)}), type);
  const ValueId below = b.op("Add", {b.op("Div", {b.op("Sqrt", {v}), root}), number(spec.optimizer.epsilon)});
  return b.op("Add", {b.op("Div", {b.op("Div", {m, first}), below}),
                      b.op("Mul", {of.parameter, number(weight_decay)})});
}

ValueId square_of(GraphBuilder& b, ValueId x) {
  const ValueId pieces = b.ops(gradient_squares_op(), {x}, {}, 1)[0];
  return b.op("ReduceSum", {pieces, b.i64s({0})}, {{"keepdims", std::int64_t{1}}});
}

}  // namespace

ValueId lamb_rate(GraphBuilder& b, const TrainSpec& spec, double weight_decay, const LambOperands& of,
                  const Attrs& exchange) {
  const ValueId own =
      b.op("Concat", {square_of(b, of.parameter), square_of(b, update_of(b, spec, weight_decay, of))},
           {{"axis", std::int64_t{0}}});
  const ValueId all = b.ops(all_reduce_sum_op(), {own}, exchange, 1)[0];
  const std::vector<ValueId> squares =
      b.ops(op_by_name("Split"), {all, b.i64s({1, 1})}, {{"axis", std::int64_t{0}}}, 2);
  const ValueId none = b.scalar(DType::f64, 0);
  const ValueId known =
      b.op("And", {b.op("Greater", {squares[0], none}), b.op("Greater", {squares[1], none})});
  const ValueId ratio =
      b.op("Where", {known, b.op("Div", {b.op("Sqrt", {squares[0]}), b.op("Sqrt", {squares[1]})}),
                     b.scalar(DType::f64, 1)});
  return b.op("Mul", {of.lr, b.reshape(ratio, {})});
}

}  // namespace gradloom
