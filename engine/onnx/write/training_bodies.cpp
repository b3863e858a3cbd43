// What happens between the gradients and the next parameters: formulas of kernels/optimizers.def.

#include "engine/ops/inference.h"
#include "engine/onnx/write/bodies.h"
#include "engine/ops/training/optimizer_inputs.h"

namespace gradloom {
namespace {

using Values = std::vector<ValueId>;
constexpr DType f64 = DType::f64;

// What an option of a row of kernels/optimizers.def is where a node does not say it.
struct Default {
  std::string_view kind, field;
  double value;
};
#define STATE(...)
#define NUMBER(field, name, fallback, ...) {kKind, #field, double(fallback)},
#define FLAG(field, name, fallback, help) {kKind, #field, double(fallback)},
#define OPTIMIZER(name, title, lr, states, reach, bare, operations, start, formula, source, options) \
  template <class Add>                                                                               \
  void name##_defaults(const Add& add) {                                                             \
    constexpr std::string_view kKind = #name;                                                        \
    for (const Default& d : std::initializer_list<Default>{options}) add(d);                         \
  }
#include "kernels/optimizers.def"
#undef OPTIMIZER
#undef FLAG
#undef NUMBER
#undef STATE

double default_of(std::string_view kind, std::string_view field) {
  double value = 0;
  const auto look = [&](const Default& d) {
    if (d.kind == kind && d.field == field) value = d.value;
  };
#define OPTIMIZER(name, ...) name##_defaults(look);
#include "kernels/optimizers.def"
#undef OPTIMIZER
  return value;
}

ValueId norm(Body& body, ValueId x) { return body.op("Sqrt", {body.sum_all(body.op("Mul", {x, x}))}); }

Result<Values> global_norm(Body& body) {
  ValueId total = kNone;
  DType type = body.attrs().integer("full") != 0 ? DType::f32 : body.dtype(body.in[0]);
  for (const ValueId x : body.in)
    if (!is_half(body.dtype(x))) type = body.dtype(x);
  for (const ValueId narrow : body.in) {
    const ValueId x = body.cast(narrow, type);
    const ValueId squares = body.sum_all(body.op("Mul", {x, x}));
    total = total == kNone ? squares : body.op("Add", {total, squares});
  }
  return Values{body.op("Sqrt", {total})};
}

ValueId clip_factor_of(Body& body, ValueId norm_of_all) {
  const ValueId ratio = body.op("Div", {body.number_like(norm_of_all, body.attrs().real("max_norm")),
                                        body.op("Add", {norm_of_all, body.number_like(norm_of_all, 1e-6)})});
  return body.op("Min", {ratio, body.number_like(norm_of_all, 1)});
}

Result<Values> clip_scale(Body& body) { return Values{clip_factor_of(body, body.in[0])}; }

// The rule of engine/ops/training/gradient_scaling.cpp.
Result<Values> loss_scale(Body& body) {
  const ValueId of_scaled = body.in[0], scale = body.in[1], good = body.in[2], skipped = body.in[3],
                steps = body.in[4];
  const auto option = [&](const char* name, double fallback) { return body.attrs().real(name, fallback); };
  const auto n = [&](double value) { return body.number_like(scale, value); };
  const auto counted = [&](double value) { return body.number(DType::i64, value); };
  const auto finite = [&](ValueId x) { return body.op("Equal", {body.op("Sub", {x, x}), n(0)}); };
  const auto where = [&](ValueId condition, ValueId a, ValueId b) {
    return body.op("Where", {condition, a, b});
  };
  const ValueId apply = finite(of_scaled), longer = body.op("Add", {good, counted(1)}),
                due = body.op("Equal",
                              {longer, counted(static_cast<double>(body.attrs().integer("interval", 1)))});
  ValueId grown = body.op("Mul", {scale, n(option("growth", 2))}),
          fallen = body.op("Mul", {scale, n(option("backoff", 0.5))});
  if (const double most = option("most", 0); most > 0) grown = body.op("Min", {grown, n(most)});
  if (const double least = option("least", 0); least > 0) fallen = body.op("Max", {fallen, n(least)});
  if (const std::int64_t hysteresis = body.attrs().integer("hysteresis", 1); hysteresis > 1)
    fallen = where(body.op("Less", {skipped, counted(static_cast<double>(hysteresis - 1))}), scale, fallen);
  const ValueId grows = body.op("And", {due, finite(grown)}), true_norm = body.op("Div", {of_scaled, scale});
  ValueId factor = body.op("Reciprocal", {scale});
  if (option("max_norm", 0) > 0) factor = body.op("Mul", {factor, clip_factor_of(body, true_norm)});
  const ValueId goes_on = body.op("And", {apply, body.op("Not", {due})});
  return Values{apply,
                factor,
                true_norm,
                where(apply, where(grows, grown, scale), fallen),
                where(goes_on, longer, counted(0)),
                where(apply, counted(0), body.op("Add", {skipped, counted(1)})),
                where(apply, body.op("Add", {steps, counted(1)}), steps)};
}

Result<Values> accumulate(Body& body) {
  const std::size_t n = body.in.size() / 2;
  const ValueId first = body.op("Equal", {body.in[2 * n], body.number(DType::i64, 0)});
  Values next;
  for (std::size_t i = 0; i < n; ++i) {
    const ValueId acc = body.in[i];
    const ValueId share =
        body.op("Div", {body.cast(body.in[n + i], body.dtype(acc)),
                        body.number_like(acc, static_cast<double>(body.attrs().integer("count", 1)))});
    next.push_back(body.op("Add", {body.op("Where", {first, body.number_like(acc, 0), acc}), share}));
  }
  return next;
}

Result<Values> moving_average(Body& body) {
  const ValueId average = body.in[0];
  const ValueId share = body.op("Mul", {body.number_like(average, 1 - body.attrs().real("decay")),
                                        body.op("Sub", {body.in[1], average})});
  const ValueId next = body.op("Add", {average, share});
  return Values{body.has(2) ? body.op("Where", {body.in[2], next, average}) : next};
}

// One parameter's update; `s` are its states, which become the next ones.
class Update {
 public:
  Update(Body& body, std::string kind, DType type) : body_(body), kind_(std::move(kind)), type_(type) {
    lr_ = body.op("Mul", {rate(body), body.number(f64, body.attrs().real("lr_factor", 1))});
    step_ = body.cast(body.in[1], f64);
  }

  Result<ValueId> next(ValueId p, ValueId g, Values& s) {
    if (kind_ == "sgd") return sgd(p, g, s);
    if (kind_ == "adam" || kind_ == "adamw") return adam(p, g, s, kind_ == "adamw");
    if (kind_ == "adamw_hf") return adamw_hf(p, g, s);
    if (kind_ == "adagrad") return adagrad(p, g, s);
    if (kind_ == "lion") return lion(p, g, s);
    if (kind_ == "lamb") return lamb(p, g, s);
    return infer_error("optimizer " + kind_);
  }

 private:
  // Of a table the first number of the node's row: other options are as the attributes say.
  static ValueId rate(Body& body) {
    const ValueId lr = body.in[0];
    if (body.b.type(lr).shape.empty()) return lr;
    const double at =
        static_cast<double>(body.attrs().integer("row", 0)) * static_cast<double>(optimizer_inputs::kColumns);
    const ValueId all = body.reshape(lr, {element_count(body.b.type(lr).shape)});
    return body.op("Gather", {all, body.number(DType::i64, at)}, {{"axis", std::int64_t{0}}});
  }
  double option(const char* field) const { return body_.attrs().real(field, default_of(kind_, field)); }
  ValueId n(double value) { return body_.number(type_, value); }
  ValueId d(double value) { return body_.number(f64, value); }
  ValueId low(ValueId x) { return body_.cast(x, type_); }
  ValueId add(ValueId a, ValueId b) { return body_.op("Add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return body_.op("Sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return body_.op("Mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return body_.op("Div", {a, b}); }
  ValueId root(ValueId a) { return body_.op("Sqrt", {a}); }
  ValueId first() { return body_.op("Equal", {body_.in[1], body_.number(DType::i64, 1)}); }
  // beta a + (1 - beta) b
  ValueId mixed(double beta, ValueId a, ValueId b) { return add(mul(n(beta), a), mul(n(1 - beta), b)); }
  // 1 - beta^t, in f64
  ValueId correction(double beta) { return sub(d(1), body_.op("Pow", {d(beta), step_})); }
  // 1 - lr weight_decay
  ValueId shrink() { return low(sub(d(1), mul(lr_, d(option("weight_decay"))))); }
  ValueId decayed(ValueId g, ValueId p) {
    const double decay = option("weight_decay");
    return decay == 0 ? g : add(g, mul(n(decay), p));
  }
  void moments(ValueId g, Values& s) {
    s[0] = mixed(option("beta1"), s[0], g);
    s[1] = mixed(option("beta2"), s[1], mul(g, g));
  }

  ValueId sgd(ValueId p, ValueId g, Values& s) {
    g = decayed(g, p);
    if (s.empty()) return sub(p, mul(low(lr_), g));
    const double momentum = option("momentum");
    s[0] = body_.op("Where", {first(), g, add(mul(n(momentum), s[0]), mul(n(1 - option("dampening")), g))});
    return sub(p, mul(low(lr_), option("nesterov") != 0 ? add(g, mul(n(momentum), s[0])) : s[0]));
  }
  ValueId adam(ValueId p, ValueId g, Values& s, bool decoupled) {
    if (decoupled)
      p = mul(p, shrink());
    else
      g = decayed(g, p);
    moments(g, s);
    const ValueId rate = low(div(lr_, correction(option("beta1")))),
                  inv_root = low(div(d(1), root(correction(option("beta2")))));
    return sub(p, mul(rate, div(s[0], add(mul(root(s[1]), inv_root), n(option("epsilon"))))));
  }
  ValueId adamw_hf(ValueId p, ValueId g, Values& s) {
    moments(g, s);
    const bool corrects = option("correct_bias") != 0;
    const ValueId rate =
        low(corrects ? div(mul(lr_, root(correction(option("beta2")))), correction(option("beta1"))) : lr_);
    return mul(sub(p, mul(rate, div(s[0], add(root(s[1]), n(option("epsilon")))))), shrink());
  }
  ValueId adagrad(ValueId p, ValueId g, Values& s) {
    g = decayed(g, p);
    s[0] = add(body_.op("Where", {first(), n(option("initial_sum")), s[0]}), mul(g, g));
    const ValueId slower = add(d(1), mul(sub(step_, d(1)), d(option("lr_decay"))));
    return sub(p, mul(low(div(lr_, slower)), div(g, add(root(s[0]), n(option("epsilon"))))));
  }
  ValueId lion(ValueId p, ValueId g, Values& s) {
    const ValueId sign = body_.op("Sign", {mixed(option("beta1"), s[0], g)});
    s[0] = mixed(option("beta2"), s[0], g);
    return sub(mul(p, shrink()), mul(low(lr_), sign));
  }
  ValueId lamb(ValueId p, ValueId g, Values& s) {
    moments(g, s);
    const ValueId m = div(s[0], low(correction(option("beta1")))),
                  v = div(root(s[1]), low(root(correction(option("beta2")))));
    const ValueId update = add(div(m, add(v, n(option("epsilon")))), mul(n(option("weight_decay")), p));
    if (body_.attrs().integer("ratio_in_lr", 0) != 0) return sub(p, mul(low(lr_), update));
    const ValueId size = norm(body_, p), change = norm(body_, update);
    const ValueId both =
        body_.op("And", {body_.op("Greater", {size, n(0)}), body_.op("Greater", {change, n(0)})});
    const ValueId ratio = body_.op("Where", {both, div(size, change), n(1)});
    return sub(p, mul(mul(low(lr_), ratio), update));
  }

  Body& body_;
  const std::string kind_;
  const DType type_;
  ValueId lr_, step_;  // f64
};

Result<Values> optimizer(Body& body) {
  using namespace optimizer_inputs;
  const std::size_t count = parameter_count(body.attrs());
  const std::vector<std::int64_t> copies = body.attrs().integers("copies");
  if (body.attrs().has("keys")) return infer_error("parameters are rounded at random");
  if (body.attrs().has("begins")) return infer_error("ranges of parameters are updated");
  if (body.attrs().integer("eight_bit_states") != 0) return infer_error("states are kept in 8 bits");
  const std::size_t states = (body.in.size() - kFirst - copies.size()) / count - 2;
  const std::string kind = body.attrs().text("kind", "sgd");
  Values outputs((1 + states) * count);
  for (std::size_t i = 0; i < count; ++i) {
    const ValueId p = body.in[kFirst + i];
    ValueId g = body.cast(body.in[kFirst + count + i], body.dtype(p));
    Values s, before;
    for (std::size_t k = 0; k < states; ++k) s.push_back(body.in[kFirst + (2 + k) * count + i]);
    before = s;
    Update update(body, kind, body.dtype(p));
    if (body.has(kScale)) g = body.op("Mul", {g, body.in[kScale]});
    if (const double limit = body.attrs().real("clip_value", 0); limit > 0)
      g = body.op("Max", {body.op("Min", {g, body.number_like(g, limit)}), body.number_like(g, -limit)});
    if (body.attrs().integer("maximize") != 0) g = body.op("Neg", {g});
    ValueId next = TRY(update.next(p, g, s));
    const auto applied = [&](ValueId now, ValueId old) {
      return body.has(kApply) ? body.op("Where", {body.in[kApply], now, old}) : now;
    };
    outputs[i] = applied(next, p);
    for (std::size_t k = 0; k < states; ++k) outputs[(1 + k) * count + i] = applied(s[k], before[k]);
  }
  for (std::size_t i = 0; i < copies.size(); ++i)
    outputs.push_back(body.cast(outputs[static_cast<std::size_t>(copies[i])],
                                body.dtype(body.in[body.in.size() - copies.size() + i])));
  return outputs;
}

}  // namespace

const Bodies& training_bodies() {
  static const Bodies bodies = {{"GlobalNorm", global_norm},       {"ClipScale", clip_scale},
                                {"LossScale", loss_scale},         {"Accumulate", accumulate},
                                {"MovingAverage", moving_average}, {"Optimizer", optimizer}};
  return bodies;
}

}  // namespace gradloom
