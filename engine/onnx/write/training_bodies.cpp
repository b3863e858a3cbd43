// What happens between the gradients and the next parameters: formulas of kernels/optimizers.def.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>

#include "engine/onnx/write/bodies.h"
#include "engine/ops/inference.h"
#include "engine/ops/products/fp8.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "kernels/nadam.h"

namespace gradloom {
namespace {

using Values = std::vector<ValueId>;
constexpr DType f64 = DType::f64;

// What an option of a row of kernels/optimizers.def is where a node does not say it, and what users call it.
struct Default {
  std::string_view kind, field, name;
  double value;
};
#define STATE(...)
#define NUMBER(field, name, fallback, ...) {kKind, #field, name, double(fallback)},
#define FLAG(field, name, fallback, help) {kKind, #field, name, double(fallback)},
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

Default default_of(std::string_view kind, std::string_view field) {
  Default found{kind, field, field, 0};
  const auto look = [&](const Default& d) {
    if (d.kind == kind && d.field == field) found = d;
  };
#define OPTIMIZER(name, ...) name##_defaults(look);
#include "kernels/optimizers.def"
#undef OPTIMIZER
  return found;
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
  Values next;
  for (std::size_t i = 0; i < n; ++i)
    next.push_back(body.accumulated(body.in[i], body.in[2 * n], body.in[n + i]));
  return next;
}

Result<Values> moving_average(Body& body) {
  const ValueId average = body.in[0];
  const ValueId share = body.op("Mul", {body.number_like(average, 1 - body.attrs().real("decay")),
                                        body.op("Sub", {body.in[1], average})});
  const ValueId next = body.op("Add", {average, share});
  return Values{body.has(2) ? body.op("Where", {body.in[2], next, average}) : next};
}

// The options of a node: numbers that its attributes say, or its row of a table (optimizer_inputs.h).
class FollowedOptions {
 public:
  FollowedOptions(Body& body, std::string kind, DType type)
      : body_(body), kind_(std::move(kind)), type_(type) {
    const ValueId lr = body.in[0];
    if (!body.b.type(lr).shape.empty()) table_ = body.reshape(lr, {element_count(body.b.type(lr).shape)});
    rate_ =
        body.op("Mul", {table_ == kNone ? lr : cell(0), body.number(f64, body.attrs().real("lr_factor", 1))});
  }

  ValueId rate() const { return rate_; }  // f64
  double said(const char* field) const { return body_.attrs().real(field, default_of(kind_, field).value); }
  bool may_change(const char* field) const { return column_of(field).has_value(); }
  ValueId wide(const char* field) {  // f64
    const std::optional<std::size_t> column = column_of(field);
    const ValueId attribute = body_.number(f64, said(field));
    if (!column) return attribute;
    const ValueId number = cell(*column);
    return body_.op("Where", {body_.op("IsNaN", {number}), attribute, number});
  }
  ValueId rest_wide(const char* field) {
    return body_.op("Sub", {body_.number(f64, 1), wide(field)});
  }  // 1 - option
  // The same, of the parameter's type.
  ValueId operator()(const char* field) {
    return column_of(field) ? body_.cast(wide(field), type_) : body_.number(type_, said(field));
  }
  ValueId rest(const char* field) {
    return column_of(field) ? body_.cast(rest_wide(field), type_) : body_.number(type_, 1 - said(field));
  }

 private:
  // In a table; none: the attribute holds.
  std::optional<std::size_t> column_of(const char* field) const {
    const auto* const names = optimizer_inputs::kFollowed;
    const auto* const end = names + std::size(optimizer_inputs::kFollowed);
    const auto* const at = std::find(names, end, default_of(kind_, field).name);
    if (table_ == kNone || at == end) return std::nullopt;
    return static_cast<std::size_t>(1 + (at - names));
  }
  ValueId cell(std::size_t column) {
    const auto row = static_cast<std::size_t>(body_.attrs().integer("row", 0));
    const ValueId at =
        body_.number(DType::i64, static_cast<double>(row * optimizer_inputs::kColumns + column));
    return body_.op("Gather", {table_, at}, {{"axis", std::int64_t{0}}});
  }

  Body& body_;
  const std::string kind_;
  const DType type_;
  ValueId table_ = kNone, rate_ = kNone;  // f64
};

// One parameter's update; `s` are its states, which become the next ones.
class Update {
 public:
  Update(Body& body, std::string kind, DType type)
      : body_(body), kind_(std::move(kind)), type_(type), option_(body, kind_, type), lr_(option_.rate()) {
    step_ = body.cast(body.in[1], f64);
  }

  Result<ValueId> next(ValueId p, ValueId g, Values& s) {
    if (kind_ == "sgd") return sgd(p, g, s);
    if (kind_ == "adam" || kind_ == "adamw") return adam(p, g, s, kind_ == "adamw");
    if (kind_ == "adamw_hf") return adamw_hf(p, g, s);
    if (kind_ == "adagrad") return adagrad(p, g, s);
    if (kind_ == "lion") return lion(p, g, s);
    if (kind_ == "lamb") return lamb(p, g, s);
    if (kind_ == "rmsprop") return rmsprop(p, g, s);
    if (kind_ == "nadam") return nadam(p, g, s);
    if (kind_ == "radam") return radam(p, g, s);
    if (kind_ == "adadelta") return adadelta(p, g, s);
    return infer_error("optimizer " + kind_);
  }

 private:
  ValueId n(double value) { return body_.number(type_, value); }
  ValueId d(double value) { return body_.number(f64, value); }
  ValueId low(ValueId x) { return body_.cast(x, type_); }
  ValueId add(ValueId a, ValueId b) { return body_.op("Add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return body_.op("Sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return body_.op("Mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return body_.op("Div", {a, b}); }
  ValueId root(ValueId a) { return body_.op("Sqrt", {a}); }
  ValueId where(ValueId condition, ValueId a, ValueId b) { return body_.op("Where", {condition, a, b}); }
  ValueId first() { return body_.op("Equal", {body_.in[1], body_.number(DType::i64, 1)}); }
  // beta a + (1 - beta) b
  ValueId mixed(const char* beta, ValueId a, ValueId b) {
    return add(mul(option_(beta), a), mul(option_.rest(beta), b));
  }
  // 1 - beta^t, in f64
  ValueId correction(const char* beta) { return sub(d(1), body_.op("Pow", {option_.wide(beta), step_})); }
  // 1 - lr weight_decay
  ValueId shrink() { return low(sub(d(1), mul(lr_, option_.wide("weight_decay")))); }
  ValueId decayed(ValueId g, ValueId p) {
    return option_.said("weight_decay") == 0 && !option_.may_change("weight_decay")
               ? g
               : add(g, mul(option_("weight_decay"), p));
  }
  void moments(ValueId g, Values& s) {
    s[0] = mixed("beta1", s[0], g);
    s[1] = mixed("beta2", s[1], mul(g, g));
  }

  // Where weight decay goes.
  void decay(ValueId& p, ValueId& g, bool decoupled) {
    if (decoupled)
      p = mul(p, shrink());
    else
      g = decayed(g, p);
  }

  ValueId sgd(ValueId p, ValueId g, Values& s) {
    g = decayed(g, p);
    if (s.empty()) return sub(p, mul(low(lr_), g));
    const ValueId momentum = option_("momentum"), rest = option_.rest("dampening");
    const ValueId next = where(first(), g, add(mul(momentum, s[0]), mul(rest, g)));
    const ValueId direction = option_.said("nesterov") != 0 ? add(g, mul(momentum, next)) : next;
    if (!option_.may_change("momentum")) {
      s[0] = next;
      return sub(p, mul(low(lr_), direction));
    }
    const ValueId plain = body_.op("Equal", {momentum, n(0)});  // then the state stays what it is
    s[0] = where(plain, s[0], next);
    return sub(p, mul(low(lr_), where(plain, g, direction)));
  }
  ValueId adam(ValueId p, ValueId g, Values& s, bool decoupled) {
    decay(p, g, decoupled);
    moments(g, s);
    if (option_.said("amsgrad") != 0) s[2] = body_.op("Max", {s[2], s[1]});
    const ValueId rate = low(div(lr_, correction("beta1"))),
                  inv_root = low(div(d(1), root(correction("beta2"))));
    return sub(p, mul(rate, div(s[0], add(mul(root(s.back()), inv_root), option_("epsilon")))));
  }
  ValueId adamw_hf(ValueId p, ValueId g, Values& s) {
    moments(g, s);
    const bool corrects = option_.said("correct_bias") != 0;
    const ValueId rate = low(corrects ? div(mul(lr_, root(correction("beta2"))), correction("beta1")) : lr_);
    return mul(sub(p, mul(rate, div(s[0], add(root(s[1]), option_("epsilon"))))), shrink());
  }
  ValueId adagrad(ValueId p, ValueId g, Values& s) {
    g = decayed(g, p);
    s[0] = add(where(first(), option_("initial_sum"), s[0]), mul(g, g));
    const ValueId slower = add(d(1), mul(sub(step_, d(1)), option_.wide("lr_decay")));
    return sub(p, mul(low(div(lr_, slower)), div(g, add(root(s[0]), option_("epsilon")))));
  }
  ValueId lion(ValueId p, ValueId g, Values& s) {
    const ValueId sign = body_.op("Sign", {mixed("beta1", s[0], g)});
    s[0] = mixed("beta2", s[0], g);
    return sub(mul(p, shrink()), mul(low(lr_), sign));
  }
  ValueId lamb(ValueId p, ValueId g, Values& s) {
    moments(g, s);
    const ValueId m = div(s[0], low(correction("beta1"))),
                  v = div(root(s[1]), low(root(correction("beta2"))));
    const ValueId update = add(div(m, add(v, option_("epsilon"))), mul(option_("weight_decay"), p));
    if (body_.attrs().integer("ratio_in_lr", 0) != 0) return sub(p, mul(low(lr_), update));
    const ValueId size = norm(body_, p), change = norm(body_, update);
    const ValueId both =
        body_.op("And", {body_.op("Greater", {size, n(0)}), body_.op("Greater", {change, n(0)})});
    return sub(p, mul(mul(low(lr_), where(both, div(size, change), n(1))), update));
  }

  ValueId rmsprop(ValueId p, ValueId g, Values& s) {
    g = decayed(g, p);
    s[0] = mixed("alpha", s[0], mul(g, g));
    ValueId spread = s[0];
    if (option_.said("centered") != 0) {
      s.back() = mixed("alpha", s.back(), g);
      spread = body_.op("Max", {sub(s[0], mul(s.back(), s.back())), n(0)});
    }
    ValueId update = div(g, add(root(spread), option_("epsilon")));
    if (option_.said("momentum") != 0) {
      const ValueId average = add(mul(option_("momentum"), s[1]), update);
      const bool may_stop = option_.may_change("momentum");  // then the average stays what it is
      const ValueId plain = may_stop ? body_.op("Equal", {option_("momentum"), n(0)}) : kNone;
      update = may_stop ? where(plain, update, average) : average;
      s[1] = may_stop ? where(plain, s[1], average) : average;
    }
    return sub(p, mul(low(lr_), update));
  }
  // mu(t) of kernels/nadam.h
  ValueId momentum(ValueId t) {
    const double rate = kernels::portable::kLogOfBase * option_.said("momentum_decay");
    return mul(option_.wide("beta1"), sub(d(1), div(body_.op("Exp", {mul(d(rate), t)}), d(2))));
  }
  // mu(1) .. mu(t), as there; the terms are a vector over k.
  ValueId momenta() {
    constexpr std::int64_t kTerms = kernels::portable::kMomentumTerms;
    // So small that Exp(rate k t) - 1 would lose its digits: all powers of the base are 1.
    const double said = kernels::portable::kLogOfBase * option_.said("momentum_decay"),
                 rate = std::fabs(said) * kTerms < 1e-12 ? 0 : said;
    std::vector<double> rates, factors;
    for (std::int64_t k = 1; k <= kTerms; ++k) {
      const double x = rate * static_cast<double>(k),
                   of_term = std::ldexp(1.0, -static_cast<int>(k)) / static_cast<double>(k);
      rates.push_back(x);
      factors.push_back(-of_term * (rate == 0 ? 1 : std::exp(x) / std::expm1(x)));
    }
    const auto vector = [&](const std::vector<double>& numbers) {
      return body_.b.constant(Tensor::from_f64(f64, {kTerms}, numbers));
    };
    const ValueId powers = rate == 0 ? step_ : sub(body_.op("Exp", {mul(vector(rates), step_)}), d(1));
    const ValueId logarithms = body_.sum_all(mul(vector(factors), powers));
    return mul(body_.op("Pow", {option_.wide("beta1"), step_}), body_.op("Exp", {logarithms}));
  }
  ValueId nadam(ValueId p, ValueId g, Values& s) {
    decay(p, g, option_.said("decoupled") != 0);
    moments(g, s);
    const ValueId now = momentum(step_), then = momentum(add(step_, d(1))), product = momenta();
    const ValueId of_gradient = low(div(mul(lr_, sub(d(1), now)), sub(d(1), product))),
                  of_moment = low(div(mul(lr_, then), sub(d(1), mul(product, then))));
    const ValueId divisor = add(div(root(s[1]), low(root(correction("beta2")))), option_("epsilon"));
    return sub(p, div(add(mul(of_gradient, g), mul(of_moment, s[0])), divisor));
  }
  ValueId radam(ValueId p, ValueId g, Values& s) {
    decay(p, g, option_.said("decoupled") != 0);
    moments(g, s);
    const ValueId all = sub(div(d(2), option_.rest_wide("beta2")), d(1)), corrected = correction("beta2");
    const ValueId left = sub(d(1), corrected);
    const ValueId length = sub(all, div(mul(mul(d(2), step_), left), corrected));
    const ValueId adapts = body_.op("Greater", {length, d(5)});
    const ValueId square = div(mul(mul(sub(length, d(4)), sub(length, d(2))), mul(all, corrected)),
                               mul(mul(sub(all, d(4)), sub(all, d(2))), length));
    const ValueId rate = div(lr_, correction("beta1")),
                  rectified = mul(rate, root(where(adapts, square, d(1))));
    const ValueId divided = div(s[0], add(root(s[1]), option_("epsilon")));
    return sub(p, mul(low(rectified), where(adapts, divided, s[0])));
  }
  ValueId adadelta(ValueId p, ValueId g, Values& s) {
    g = decayed(g, p);
    s[0] = mixed("alpha", s[0], mul(g, g));
    const ValueId epsilon = option_("epsilon");
    const ValueId update = mul(div(root(add(s[1], epsilon)), root(add(s[0], epsilon))), g);
    s[1] = mixed("alpha", s[1], mul(update, update));
    return sub(p, mul(low(lr_), update));
  }

  Body& body_;
  const std::string kind_;
  const DType type_;
  FollowedOptions option_;
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

// The rule of engine/ops/training/fp8_scales.cpp.
Result<Values> fp8_scales(Body& body) {
  const ValueId history = body.in[0], scales = body.in[1];
  const Shape shape = body.shape(history);
  const auto n = [&](double value) { return body.number_like(history, value); };
  const auto rows = [&](std::int64_t count) {
    return body.op("Slice", {history, body.b.i64s({0}), body.b.i64s({count}), body.b.i64s({0})});
  };
  const ValueId amax = body.reshape(body.in[2], {1, shape[1]});
  const ValueId finite = body.op("Equal", {body.op("Sub", {amax, amax}), n(0)});
  ValueId all = body.op("Where", {finite, amax, rows(1)});
  if (shape[0] > 1) all = body.op("Concat", {all, rows(shape[0] - 1)}, {{"axis", std::int64_t{0}}});
  const ValueId largest = body.op("ReduceMax", {all, body.b.i64s({0})}, {{"keepdims", std::int64_t{0}}});
  const double factor = std::ldexp(1.0, -static_cast<int>(body.attrs().integer("margin")));
  const ValueId wanted = body.op(
      "Max", {body.op("Min", {body.op("Div", {n(factor), largest}), n(kMostFp8Scale)}), n(kLeastFp8Scale)});
  return Values{all, body.op("Where", {body.op("Greater", {largest, n(0)}), wanted, scales})};
}

}  // namespace

const Bodies& training_bodies() {
  static const Bodies bodies = {{"GlobalNorm", global_norm},       {"ClipScale", clip_scale},
                                {"LossScale", loss_scale},         {"Accumulate", accumulate},
                                {"MovingAverage", moving_average}, {"Optimizer", optimizer},
                                {"Fp8Scales", fp8_scales}};
  return bodies;
}

}  // namespace gradloom
