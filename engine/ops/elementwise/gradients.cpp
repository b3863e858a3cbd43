// The gradients of the elementwise operators, one rule each:
//   GRADIENT(name) { .. }   sets what the inputs get of ctx.grad(), out of operators (ctx is a GradContext)
//   ZERO_GRADIENT(name)     for what is flat wherever it is smooth
// An operator without either has no gradient, which `inspect` reports; results that are integers or booleans
// need none. In comments g is the gradient of the output y; a, b are the inputs.
#include "engine/ops/elementwise/gradients.h"

#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"

namespace gradloom {
namespace {

using kernels::EwOp;

// d(op) as ordinary nodes, in the letters of the formulas below.
struct Rule {
  GradContext& ctx;
  ValueId g = ctx.grad(), a = ctx.in(0), b = ctx.in(1), y = ctx.out(0);

  ValueId number(double v) const { return ctx.b.scalar(ctx.dtype(g), v); }
  ValueId op(const char* name, std::vector<ValueId> inputs) const {
    return ctx.b.op(name, std::move(inputs));
  }
  ValueId mul(ValueId p, ValueId q) const { return op("Mul", {p, q}); }
  ValueId scaled(ValueId p, double s) const { return mul(p, number(s)); }
  ValueId where(ValueId c, ValueId p, ValueId q) const { return op("Where", {c, p, q}); }
  ValueId one_minus_square() const { return mul(op("Sub", {number(1), a}), op("Add", {number(1), a})); }
  // The gradient of input i, summed over the axes it was broadcast along.
  void give(std::size_t i, ValueId value) const { ctx.set(i, ctx.reduce_to(value, ctx.in(i))); }
};

template <EwOp op>
constexpr EwGradient kGradient{};

#define GRADIENT(name)                                             \
  Status grad_##name(GradContext& ctx);                            \
  template <>                                                      \
  constexpr EwGradient kGradient<EwOp::name>{.rule = grad_##name}; \
  Status grad_##name(GradContext& ctx)
#define ZERO_GRADIENT(name) \
  template <>               \
  constexpr EwGradient kGradient<EwOp::name>{.zero = true};

// Max and Min: the winner takes the gradient, equal inputs half each.
Status extremum(GradContext& ctx, const char* first_wins, const char* second_wins) {
  const Rule r{ctx};
  const ValueId tie = r.where(r.op("Equal", {r.a, r.b}), r.scaled(r.g, 0.5), r.number(0));
  if (ctx.wants(0)) r.give(0, r.where(r.op(first_wins, {r.a, r.b}), r.g, tie));
  if (ctx.wants(1)) r.give(1, r.where(r.op(second_wins, {r.a, r.b}), r.g, tie));
  return {};
}

GRADIENT(Add) {
  const Rule r{ctx};
  if (ctx.wants(0)) r.give(0, r.g);
  if (ctx.wants(1)) r.give(1, r.g);
  return {};
}

GRADIENT(Sub) {
  const Rule r{ctx};
  if (ctx.wants(0)) r.give(0, r.g);
  // The sum first: the negation is then of the smaller tensor.
  if (ctx.wants(1)) ctx.set(1, r.op("Neg", {ctx.reduce_to(r.g, r.b)}));
  return {};
}

GRADIENT(Mul) {
  const Rule r{ctx};
  if (ctx.wants(0)) r.give(0, r.mul(r.g, r.b));
  if (ctx.wants(1)) r.give(1, r.mul(r.g, r.a));
  return {};
}

// da = g / b, db = -y g / b.
GRADIENT(Div) {
  const Rule r{ctx};
  const ValueId ratio = r.op("Div", {r.g, r.b});
  if (ctx.wants(0)) r.give(0, ratio);
  if (ctx.wants(1)) ctx.set(1, r.op("Neg", {ctx.reduce_to(r.mul(ratio, r.y), r.b)}));
  return {};
}

// da = g b a^(b-1), 0 where b = 0; db = g y log(a), 0 where a = 0 (torch.pow). Known scalar exponents 1, 2
// and 3 avoid the power.
GRADIENT(Pow) {
  const Rule r{ctx};
  const Graph& graph = ctx.b.graph();
  const bool same_type = ctx.dtype(r.a) == ctx.dtype(r.b);
  if (ctx.wants(0)) {
    const bool known =
        is_constant(graph, r.b) && graph.values[r.b].data.defined() && graph.values[r.b].data.count() == 1;
    const double n = known ? graph.values[r.b].data.at(0) : 0;
    if (known && n == 0) {
      ctx.set(0, full_like(ctx, r.a, 0));
    } else if (known && n == 1) {
      r.give(0, r.g);
    } else if (known && n == 2) {
      r.give(0, r.mul(r.g, r.scaled(r.a, 2)));
    } else if (known && n == 3) {
      r.give(0, r.mul(r.g, r.scaled(r.op("Square", {r.a}), 3)));
    } else if (known) {
      r.give(0, r.mul(r.g, r.scaled(r.op("Pow", {r.a, r.number(n - 1)}), n)));
    } else {
      ValueId exponent = r.b;
      if (!same_type) exponent = ctx.b.op("Cast", {r.b}, {{"to", onnx_from_dtype(ctx.dtype(r.a))}});
      const ValueId slope = r.mul(exponent, r.op("Pow", {r.a, r.op("Sub", {exponent, r.number(1)})}));
      const ValueId zero = r.op("Equal", {exponent, r.number(0)});
      r.give(0, r.mul(r.g, r.where(zero, r.number(0), slope)));
    }
  }
  if (ctx.wants(1) && is_float(ctx.dtype(r.b))) {
    const ValueId zero = r.op("Equal", {r.a, r.number(0)});
    const ValueId slope = r.mul(r.y, r.op("Log", {r.a}));
    ValueId db = ctx.reduce_to(r.mul(r.g, r.where(zero, r.number(0), slope)), r.b);
    if (!same_type) db = ctx.b.op("Cast", {db}, {{"to", onnx_from_dtype(ctx.dtype(r.b))}});
    ctx.set(1, db);
  }
  return {};
}

GRADIENT(Max) { return extremum(ctx, "Greater", "Less"); }
GRADIENT(Min) { return extremum(ctx, "Less", "Greater"); }

GRADIENT(Neg) {
  const Rule r{ctx};
  ctx.set(0, r.op("Neg", {r.g}));
  return {};
}

GRADIENT(Abs) {
  const Rule r{ctx};
  ctx.set(0, r.mul(r.g, r.op("Sign", {r.a})));
  return {};
}

GRADIENT(Exp) {
  const Rule r{ctx};
  ctx.set(0, r.mul(r.g, r.y));
  return {};
}

GRADIENT(Log) {
  const Rule r{ctx};
  ctx.set(0, r.op("Div", {r.g, r.a}));
  return {};
}

// g / (2 y)
GRADIENT(Sqrt) {
  const Rule r{ctx};
  ctx.set(0, r.op("Div", {r.scaled(r.g, 0.5), r.y}));
  return {};
}

// -g y^2
GRADIENT(Reciprocal) {
  const Rule r{ctx};
  ctx.set(0, r.op("Neg", {r.mul(r.g, r.op("Square", {r.y}))}));
  return {};
}

// g 2 / sqrt(pi) exp(-a^2)
GRADIENT(Erf) {
  const Rule r{ctx};
  const ValueId bell = r.op("Exp", {r.op("Neg", {r.op("Square", {r.a})})});
  ctx.set(0, r.mul(r.g, r.scaled(bell, 1.1283791670955125739)));
  return {};
}

GRADIENT(Tanh) {
  const Rule r{ctx};
  ctx.set(0, r.op("TanhGrad", {r.g, r.y}));
  return {};
}

GRADIENT(Sigmoid) {
  const Rule r{ctx};
  ctx.set(0, r.op("SigmoidGrad", {r.g, r.y}));
  return {};
}

GRADIENT(Sin) {
  const Rule r{ctx};
  ctx.set(0, r.mul(r.g, r.op("Cos", {r.a})));
  return {};
}

GRADIENT(Cos) {
  const Rule r{ctx};
  ctx.set(0, r.op("Neg", {r.mul(r.g, r.op("Sin", {r.a}))}));
  return {};
}

GRADIENT(Tan) {
  const Rule r{ctx};
  ctx.set(0, r.mul(r.g, r.op("Add", {r.op("Square", {r.y}), r.number(1)})));
  return {};
}

// g / sqrt((1 - a) (1 + a)), which keeps its digits near -1 and 1; acos has the negative.
GRADIENT(Asin) {
  const Rule r{ctx};
  ctx.set(0, r.op("Div", {r.g, r.op("Sqrt", {r.one_minus_square()})}));
  return {};
}

GRADIENT(Acos) {
  const Rule r{ctx};
  ctx.set(0, r.op("Neg", {r.op("Div", {r.g, r.op("Sqrt", {r.one_minus_square()})})}));
  return {};
}

GRADIENT(Atan) {
  const Rule r{ctx};
  ctx.set(0, r.op("Div", {r.g, r.op("Add", {r.op("Square", {r.a}), r.number(1)})}));
  return {};
}

GRADIENT(Sinh) {
  const Rule r{ctx};
  ctx.set(0, r.mul(r.g, r.op("Cosh", {r.a})));
  return {};
}

GRADIENT(Cosh) {
  const Rule r{ctx};
  ctx.set(0, r.mul(r.g, r.op("Sinh", {r.a})));
  return {};
}

GRADIENT(Asinh) {
  const Rule r{ctx};
  ctx.set(0, r.op("Div", {r.g, r.op("Sqrt", {r.op("Add", {r.op("Square", {r.a}), r.number(1)})})}));
  return {};
}

// g / sqrt((a - 1) (a + 1))
GRADIENT(Acosh) {
  const Rule r{ctx};
  const ValueId square = r.mul(r.op("Sub", {r.a, r.number(1)}), r.op("Add", {r.a, r.number(1)}));
  ctx.set(0, r.op("Div", {r.g, r.op("Sqrt", {square})}));
  return {};
}

GRADIENT(Atanh) {
  const Rule r{ctx};
  ctx.set(0, r.op("Div", {r.g, r.one_minus_square()}));
  return {};
}

// y = a - b trunc(a / b): da = g, db = -g trunc(a / b). The quotient is computed from
// y, whose rounding is exact.
GRADIENT(TruncMod) {
  const Rule r{ctx};
  if (ctx.wants(0)) r.give(0, r.g);
  if (ctx.wants(1)) {
    const ValueId quotient = r.op("Round", {r.op("Div", {r.op("Sub", {r.a, r.y}), r.b})});
    r.give(1, r.op("Neg", {r.mul(r.g, quotient)}));
  }
  return {};
}

GRADIENT(Softplus) {
  const Rule r{ctx};
  ctx.set(0, r.mul(r.g, r.op("Sigmoid", {r.a})));
  return {};
}

// g / (1 + |a|)^2
GRADIENT(Softsign) {
  const Rule r{ctx};
  const ValueId bottom = r.op("Add", {r.op("Abs", {r.a}), r.number(1)});
  ctx.set(0, r.op("Div", {r.g, r.op("Square", {bottom})}));
  return {};
}

GRADIENT(Relu) {
  const Rule r{ctx};
  ctx.set(0, r.op("ReluGrad", {r.g, r.y}));
  return {};
}

GRADIENT(Square) {
  const Rule r{ctx};
  ctx.set(0, r.mul(r.g, r.scaled(r.a, 2)));
  return {};
}

GRADIENT(Gelu) {
  const Rule r{ctx};
  ctx.set(0, r.op("GeluGrad", {r.g, r.a}));
  return {};
}

GRADIENT(GeluTanh) {
  const Rule r{ctx};
  ctx.set(0, r.op("GeluTanhGrad", {r.g, r.a}));
  return {};
}

GRADIENT(Where) {
  const Rule r{ctx};
  if (ctx.wants(1)) r.give(1, r.where(r.a, r.g, r.number(0)));
  if (ctx.wants(2)) r.give(2, r.where(r.a, r.number(0), r.g));
  return {};
}

// Between floats the gradient is cast back; integers and booleans have none. That of a small float is a float
// tensor (autodiff.cpp) and passes as it is.
GRADIENT(Cast) {
  const DType given = ctx.dtype(ctx.in(0)), from = is_small_float(given) ? ctx.dtype(ctx.grad()) : given;
  if (!is_float(from) || !is_float(ctx.dtype(ctx.grad()))) return {};
  if (from == ctx.dtype(ctx.grad())) {
    ctx.set(0, ctx.grad());
  } else {
    ctx.set(0, ctx.b.op("Cast", {ctx.grad()}, {{"to", onnx_from_dtype(from)}}));
  }
  return {};
}

ZERO_GRADIENT(Sign)
ZERO_GRADIENT(Floor)
ZERO_GRADIENT(Ceil)
ZERO_GRADIENT(Round)

constexpr EwGradient kGradients[] = {
#define EW(name, ...) kGradient<EwOp::name>,
#include "kernels/elementwise.def"
#undef EW
};

}  // namespace

EwGradient ew_gradient(EwOp op) {
  return op == EwOp::Cast ? kGradient<EwOp::Cast> : kGradients[static_cast<std::size_t>(op)];
}

}  // namespace gradloom
