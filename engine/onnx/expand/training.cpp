// Optimizers as operators (domain ai.onnx.preview.training, version 1): Adagrad (Duchi et al. 2011), Adam
// (Kingma, Ba 2015), Momentum and Nesterov's (Sutskever et al. 2013). Inputs: R learning rate, T update
// count, both scalars, then one tensor per parameter: X parameters, G gradients, then the states; outputs:
// the new X and states. Every gradient is G + norm_coefficient X.
#include <string>

#include "engine/onnx/expand/expansion.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

using onnx::AttributeProto;

constexpr int kMostInputs = 1 << 16;

// The inputs in groups of one tensor per parameter.
struct Groups {
  Expander& e;
  std::size_t parameters;

  ValueId in(std::size_t group, std::size_t i) const { return e.in(2 + group * parameters + i); }
  ValueId& out(std::size_t group, std::size_t i) const { return e.outputs[group * parameters + i]; }
};

Result<Groups> groups_of(Expander& e, std::size_t groups) {
  const std::size_t tensors = e.input_count() - 2;
  if (tensors % groups != 0)
    return infer_error(std::to_string(tensors) + " tensors are no " + std::to_string(groups) + " groups");
  const Groups g{e, tensors / groups};
  if (e.outputs.size() > (groups - 1) * g.parameters) return infer_error("has more outputs than new tensors");
  for (std::size_t i = 0; i < tensors; ++i) {
    const ValueId x = g.in(0, i);
    if (x == kNone || !is_float(e.dtype(x)))
      return infer_error("input " + std::to_string(2 + i) + " is no float tensor");
  }
  e.outputs.resize((groups - 1) * g.parameters, kNone);
  return g;
}

// Short forms; numbers take the type of the tensor beside them.
struct Math {
  Expander& e;

  Result<ValueId> times(ValueId a, ValueId b) const { return e.op("Mul", {a, b}); }
  Result<ValueId> times(ValueId a, double b) const { return e.op("Mul", {a, e.scalar(e.dtype(a), b)}); }
  Result<ValueId> plus(ValueId a, ValueId b) const { return e.op("Add", {a, b}); }
  Result<ValueId> plus(ValueId a, double b) const { return e.op("Add", {a, e.scalar(e.dtype(a), b)}); }
  Result<ValueId> minus(ValueId a, ValueId b) const { return e.op("Sub", {a, b}); }
  Result<ValueId> over(ValueId a, ValueId b) const { return e.op("Div", {a, b}); }
  Result<ValueId> root(ValueId a) const { return e.op("Sqrt", {a}); }
  // a x + b y
  Result<ValueId> mix(double a, ValueId x, double b, ValueId y) const {
    return plus(TRY(times(x, a)), TRY(times(y, b)));
  }
  Result<ValueId> regularized(ValueId x, ValueId gradient) const {
    return mix(e.attrs.real("norm_coefficient", 0), x, 1, gradient);
  }
  // T > 0 ? later : first
  Result<ValueId> after_first(ValueId later, ValueId first) const {
    const ValueId updates = e.in(1);
    return e.op("Where", {TRY(e.op("Greater", {updates, e.scalar(e.dtype(updates), 0)})), later, first});
  }
};

// H' = H + G G, X' = X - R / (1 + T decay_factor) G / (sqrt(H') + epsilon). States: H.
Status adagrad(Expander& e) {
  const Groups g = TRY(groups_of(e, 3));
  const Math m{e};
  for (std::size_t i = 0; i < g.parameters; ++i) {
    const ValueId x = g.in(0, i), count = TRY(e.cast(e.in(1), e.dtype(x))),
                  rate = TRY(e.cast(e.in(0), e.dtype(x)));
    const ValueId decay = TRY(m.plus(TRY(m.times(count, e.attrs.real("decay_factor", 0))), 1.0));
    const ValueId gradient = TRY(m.regularized(x, g.in(1, i)));
    const ValueId h = TRY(m.plus(g.in(2, i), TRY(m.times(gradient, gradient))));
    const ValueId adapted = TRY(m.over(gradient, TRY(m.plus(TRY(m.root(h)), e.attrs.real("epsilon", 1e-6)))));
    g.out(0, i) = TRY(m.minus(x, TRY(m.times(adapted, TRY(m.over(rate, decay))))));
    g.out(1, i) = h;
  }
  return {};
}

// V' = alpha V + (1 - alpha) G, H' = beta H + (1 - beta) G G, X' = X - R' V' / (sqrt(H') + epsilon),
// R' = R sqrt(1 - beta^T) / (1 - alpha^T), or R where T is 0;
// X' times (1 - norm_coefficient_post). States: V, H.
Status adam(Expander& e) {
  const Groups g = TRY(groups_of(e, 4));
  const Math m{e};
  const double alpha = e.attrs.real("alpha", 0.9), beta = e.attrs.real("beta", 0.999);
  for (std::size_t i = 0; i < g.parameters; ++i) {
    const ValueId x = g.in(0, i), count = TRY(e.cast(e.in(1), e.dtype(x))),
                  rate = TRY(e.cast(e.in(0), e.dtype(x)));
    const auto left = [&](double base) -> Result<ValueId> {  // 1 - base^T
      return m.minus(e.scalar(e.dtype(x), 1), TRY(e.op("Pow", {e.scalar(e.dtype(x), base), count})));
    };
    const ValueId corrected = TRY(m.over(TRY(m.times(rate, TRY(m.root(TRY(left(beta)))))), TRY(left(alpha))));
    const ValueId gradient = TRY(m.regularized(x, g.in(1, i)));
    const ValueId v = TRY(m.mix(alpha, g.in(2, i), 1 - alpha, gradient));
    const ValueId h = TRY(m.mix(beta, g.in(3, i), 1 - beta, TRY(m.times(gradient, gradient))));
    const ValueId step = TRY(m.over(v, TRY(m.plus(TRY(m.root(h)), e.attrs.real("epsilon", 1e-6)))));
    const ValueId moved = TRY(m.minus(x, TRY(m.times(step, TRY(m.after_first(corrected, rate))))));
    g.out(0, i) = TRY(m.times(moved, 1 - e.attrs.real("norm_coefficient_post", 0)));
    g.out(1, i) = v;
    g.out(2, i) = h;
  }
  return {};
}

// V' = alpha V + beta G (at T = 0: alpha V + G); X' = X - R V', or X - R (G + alpha V') in
// mode nesterov. States: V.
Status momentum(Expander& e) {
  const Groups g = TRY(groups_of(e, 3));
  const Math m{e};
  const std::string mode = e.attrs.text("mode");
  if (mode != "standard" && mode != "nesterov")
    return infer_error("mode is '" + mode + "', it must be standard or nesterov");
  const double alpha = e.attrs.real("alpha", 0);
  for (std::size_t i = 0; i < g.parameters; ++i) {
    const ValueId x = g.in(0, i), rate = TRY(e.cast(e.in(0), e.dtype(x)));
    const ValueId weight =
        TRY(m.after_first(e.scalar(e.dtype(x), e.attrs.real("beta", 1)), e.scalar(e.dtype(x), 1)));
    const ValueId gradient = TRY(m.regularized(x, g.in(1, i)));
    const ValueId v = TRY(m.plus(TRY(m.times(g.in(2, i), alpha)), TRY(m.times(gradient, weight))));
    const ValueId step = mode == "nesterov" ? TRY(m.plus(gradient, TRY(m.times(v, alpha)))) : v;
    g.out(0, i) = TRY(m.minus(x, TRY(m.times(step, rate))));
    g.out(1, i) = v;
  }
  return {};
}

const char* const kTraining = "ai.onnx.preview.training";

}  // namespace

std::span<const Expansion> training_expansions() {
  static const std::vector<Expansion> kTable = {
      {"Adagrad",
       kTraining,
       1,
       kNewest,
       3,
       kMostInputs,
       kMostInputs,
       adagrad,
       {{"decay_factor", AttributeProto::FLOAT},
        {"epsilon", AttributeProto::FLOAT},
        {"norm_coefficient", AttributeProto::FLOAT}}},
      {"Adam",
       kTraining,
       1,
       kNewest,
       3,
       kMostInputs,
       kMostInputs,
       adam,
       {{"alpha", AttributeProto::FLOAT},
        {"beta", AttributeProto::FLOAT},
        {"epsilon", AttributeProto::FLOAT},
        {"norm_coefficient", AttributeProto::FLOAT},
        {"norm_coefficient_post", AttributeProto::FLOAT}}},
      {"Momentum",
       kTraining,
       1,
       kNewest,
       3,
       kMostInputs,
       kMostInputs,
       momentum,
       {{"alpha", AttributeProto::FLOAT},
        {"beta", AttributeProto::FLOAT},
        {"mode", AttributeProto::STRING},
        {"norm_coefficient", AttributeProto::FLOAT}}},
  };
  return kTable;
}

}  // namespace gradloom
