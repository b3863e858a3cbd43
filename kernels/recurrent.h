// One element of a step of RNN, GRU and LSTM and of its gradient, the same text for every device (ONNX-22;
// Elman 1990, Cho et al. 2014, Hochreiter and Schmidhuber 1997, Gers et al. 2002). x, h, c: gate inputs from
// W x, R h and the biases; ' marks the state after the step.
//   rnn          h' = f(a),  a = x + h
//   gru          z = f(xz + hz)  r = f(xr + hr)  n = g(xn + R (r h))              h' = (1 - z) n + z h
//   gru_linear   the same with n = g(xn + r (R h))
//   lstm         i = f(xi + hi + Pi c)  f = f(xf + hf + Pf c)  n = g(xc + hc)  c' = f c + i n  o = f(xo + ho + Po c')  h' = o h(c')
// The inputs of the activations are kept; the gradient computes the activations again from them. Number:
// load(pointer, index) and store(pointer, index, value) of the storage type, A the type to compute in.
#pragma once

#include "kernels/arguments.h"
#include "kernels/math.h"

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

template <class A>
GRADLOOM_HD A recurrent_function(const RecurrentActivation& f, A x) {
  const A alpha = A(f.alpha), beta = A(f.beta);
  switch (f.function) {
    case RecurrentFunction::sigmoid: return A(1) / (A(1) + exp(-x));
    case RecurrentFunction::tanh: return tanh(x);
    case RecurrentFunction::relu: return max(x, A(0));
    case RecurrentFunction::affine: return alpha * x + beta;
    case RecurrentFunction::leaky_relu: return x < A(0) ? alpha * x : x;
    case RecurrentFunction::thresholded_relu: return x < alpha ? A(0) : x;
    case RecurrentFunction::scaled_tanh: return alpha * tanh(beta * x);
    case RecurrentFunction::hard_sigmoid: return min(max(alpha * x + beta, A(0)), A(1));
    case RecurrentFunction::elu: return x < A(0) ? alpha * (exp(x) - A(1)) : x;
    case RecurrentFunction::softsign: return x / (A(1) + abs(x));
    case RecurrentFunction::softplus: return softplus(x);
  }
  return x;
}

template <class A>
GRADLOOM_HD A recurrent_slope(const RecurrentActivation& f, A x) {
  const A alpha = A(f.alpha), beta = A(f.beta), y = recurrent_function(f, x);
  switch (f.function) {
    case RecurrentFunction::sigmoid: return y * (A(1) - y);
    case RecurrentFunction::tanh: return A(1) - y * y;
    case RecurrentFunction::relu: return x > A(0) ? A(1) : A(0);
    case RecurrentFunction::affine: return alpha;
    case RecurrentFunction::leaky_relu: return x < A(0) ? alpha : A(1);
    case RecurrentFunction::thresholded_relu: return x < alpha ? A(0) : A(1);
    case RecurrentFunction::scaled_tanh: {
      const A t = tanh(beta * x);
      return alpha * beta * (A(1) - t * t);
    }
    case RecurrentFunction::hard_sigmoid: return y > A(0) && y < A(1) ? alpha : A(0);
    case RecurrentFunction::elu: return x < A(0) ? alpha * exp(x) : A(1);
    case RecurrentFunction::softsign: return A(1) / ((A(1) + abs(x)) * (A(1) + abs(x)));
    case RecurrentFunction::softplus: return A(1) / (A(1) + exp(-x));
  }
  return A(0);
}

// A cell of which everything is known when running, and cells as they nearly always are: their activations
// known when compiling, biases but no peepholes, no clip; a loop over their units has no branches.
struct AnyCell {
  static constexpr bool kUsual = false;
};
template <RecurrentFunction f, RecurrentFunction g>
struct UsualCell {
  static constexpr bool kUsual = true;
  static constexpr RecurrentFunction function(int i) { return i == 0 ? f : g; }
};

// Where element (item, unit) is, and what its activations make of their inputs.
template <class A, class Cell>
struct RecurrentElement {
  const RecurrentCell& cell;
  std::int64_t item, unit, time;
  bool active;

  GRADLOOM_HD RecurrentElement(const RecurrentCell& cell_, std::int64_t step, std::int64_t element)
      : RecurrentElement(cell_, step, element / cell_.hidden, element % cell_.hidden) {}
  GRADLOOM_HD RecurrentElement(const RecurrentCell& cell_, std::int64_t step, std::int64_t item_,
                               std::int64_t unit_)
      : cell(cell_), item(item_), unit(unit_), time(step) {
    std::int64_t length = cell.steps;
    if (cell.lengths != nullptr && cell.lengths[item] < length) length = cell.lengths[item];
    active = step < length;
    if (active && cell.reverse) time = length - 1 - step;
  }
  GRADLOOM_HD std::int64_t state() const { return item * cell.hidden + unit; }
  GRADLOOM_HD std::int64_t gate(std::int64_t g) const { return g * cell.hidden + unit; }
  GRADLOOM_HD std::int64_t input(std::int64_t g) const {
    return time * cell.x_time + item * cell.x_batch + gate(g);
  }
  GRADLOOM_HD std::int64_t product(std::int64_t g) const { return item * cell.gates * cell.hidden + gate(g); }
  GRADLOOM_HD std::int64_t kept(std::int64_t slot) const {
    return item * cell.slots * cell.hidden + gate(slot);
  }
  GRADLOOM_HD std::int64_t output() const { return time * cell.y_time + item * cell.y_batch + unit; }
  GRADLOOM_HD A clipped(A x) const { return min(max(x, A(-cell.clip)), A(cell.clip)); }
  GRADLOOM_HD A value(int f, A x) const {
    if constexpr (Cell::kUsual) {
      return recurrent_function(RecurrentActivation{Cell::function(f), 0, 0}, x);
    } else {
      return recurrent_function(cell.activations[f], clipped(x));
    }
  }
  GRADLOOM_HD A slope(int f, A x) const {
    if constexpr (Cell::kUsual) {
      return recurrent_slope(RecurrentActivation{Cell::function(f), 0, 0}, x);
    } else {
      return abs(x) > A(cell.clip) ? A(0) : recurrent_slope(cell.activations[f], x);
    }
  }
};

// What steps forwards and backwards share: where they are, and which kind of cell runs. Step: pause() beyond
// the item's length, run_as<kind>(part) of an active one.
template <class Step, class Args, class A, class Cell>
class RecurrentSteps {
 public:
  // Where: the number of the element, or its item and unit.
  template <class... Where>
  GRADLOOM_HD explicit RecurrentSteps(const Args& args, Where... where)
      : a_(args), e_(args.cell, args.step, where...) {}

  GRADLOOM_HD bool active() const { return e_.active; }
  GRADLOOM_HD void run() const {
    const Step& step = static_cast<const Step&>(*this);
    if (!e_.active) return step.pause();
    switch (e_.cell.kind) {
      case RecurrentKind::rnn: return step.template run_as<RecurrentKind::rnn>(a_.part);
      case RecurrentKind::gru: return step.template run_as<RecurrentKind::gru>(a_.part);
      case RecurrentKind::gru_linear: return step.template run_as<RecurrentKind::gru_linear>(a_.part);
      case RecurrentKind::lstm: return step.template run_as<RecurrentKind::lstm>(a_.part);
    }
  }
  // Another unit of the same item.
  GRADLOOM_HD Step at(std::int64_t unit) const {
    Step other = static_cast<const Step&>(*this);
    other.e_.unit = unit;
    return other;
  }

 protected:
  const Args& a_;
  RecurrentElement<A, Cell> e_;
};

template <class Number, class Cell = AnyCell>
class RecurrentStep
    : public RecurrentSteps<RecurrentStep<Number, Cell>, RecurrentStepArgs, typename Number::A, Cell> {
  using Base = RecurrentSteps<RecurrentStep<Number, Cell>, RecurrentStepArgs, typename Number::A, Cell>;
  friend Base;
  using Base::a_, Base::e_;

 public:
  using A = typename Number::A;
  using Base::Base;

  // Of an active one.
  template <RecurrentKind kind>
  GRADLOOM_HD void run_as(int part) const {
    if constexpr (kind == RecurrentKind::rnn) rnn();
    if constexpr (kind == RecurrentKind::gru) part == 0 ? gates() : mix(input(2) + product(2) + bias(1, 2));
    if constexpr (kind == RecurrentKind::gru_linear) gru_linear();
    if constexpr (kind == RecurrentKind::lstm) lstm();
  }

 private:
  // Beyond the item's length.
  GRADLOOM_HD void pause() const {
    if (a_.part > 0) return;
    for (std::int64_t slot = 0; slot < e_.cell.slots; ++slot) keep(slot, A(0));
    Number::store(a_.h_next, e_.state(), Number::load(a_.h, e_.state()));
    if (e_.cell.kind == RecurrentKind::lstm)
      Number::store(a_.c_next, e_.state(), Number::load(a_.c, e_.state()));
    if (a_.y != nullptr) Number::store(a_.y, e_.output(), A(0));
  }
  GRADLOOM_HD A bias(int which, std::int64_t g) const {
    return !Cell::kUsual && a_.bias == nullptr
               ? A(0)
               : Number::load(a_.bias, which * e_.cell.gates * e_.cell.hidden + e_.gate(g));
  }
  GRADLOOM_HD A input(std::int64_t g) const { return Number::load(a_.input, e_.input(g)) + bias(0, g); }
  GRADLOOM_HD A product(std::int64_t g) const { return Number::load(a_.product, e_.product(g)); }
  GRADLOOM_HD A sum(std::int64_t g) const { return input(g) + (product(g) + bias(1, g)); }
  GRADLOOM_HD A peephole(std::int64_t g) const {
    return Cell::kUsual || a_.peepholes == nullptr ? A(0) : Number::load(a_.peepholes, e_.gate(g));
  }
  GRADLOOM_HD A h() const { return Number::load(a_.h, e_.state()); }
  GRADLOOM_HD A keep(std::int64_t slot, A v) const {
    Number::store(a_.kept, e_.kept(slot), v);
    return v;
  }
  GRADLOOM_HD void finish(A h_next) const {
    Number::store(a_.h_next, e_.state(), h_next);
    if (a_.y != nullptr) Number::store(a_.y, e_.output(), h_next);
  }

  GRADLOOM_HD void rnn() const { finish(e_.value(0, keep(0, sum(0)))); }
  GRADLOOM_HD void gates() const {
    keep(0, sum(0));
    keep(3, e_.value(0, keep(1, sum(1))) * h());
  }
  // h' from the hidden gate's input and the update gate, which part 0 kept.
  GRADLOOM_HD void mix(A hidden) const {
    const A z = e_.value(0, Number::load(a_.kept, e_.kept(0))), n = e_.value(1, keep(2, hidden));
    finish((A(1) - z) * n + z * h());
  }
  GRADLOOM_HD void gru_linear() const {
    keep(0, sum(0));
    const A r = e_.value(0, keep(1, sum(1))), q = keep(3, product(2) + bias(1, 2));
    mix(input(2) + r * q);
  }
  GRADLOOM_HD void lstm() const {
    const A c = Number::load(a_.c, e_.state());
    const A i = e_.value(0, keep(0, sum(0) + peephole(0) * c)), n = e_.value(1, keep(3, sum(3)));
    const A forget_input = keep(2, sum(2) + peephole(2) * c);
    const A f = !Cell::kUsual && e_.cell.coupled ? A(1) - i : e_.value(0, forget_input);
    const A c_next = f * c + i * n;
    const A o = e_.value(0, keep(1, sum(1) + peephole(1) * c_next));
    Number::store(a_.c_next, e_.state(), c_next);
    finish(o * e_.value(2, c_next));
  }
};

template <class Number, class Cell = AnyCell>
class RecurrentStepGrad : public RecurrentSteps<RecurrentStepGrad<Number, Cell>, RecurrentStepGradArgs,
                                                typename Number::A, Cell> {
  using Base =
      RecurrentSteps<RecurrentStepGrad<Number, Cell>, RecurrentStepGradArgs, typename Number::A, Cell>;
  friend Base;
  using Base::a_, Base::e_;

 public:
  using A = typename Number::A;
  using Base::Base;

  // Of an active one.
  template <RecurrentKind kind>
  GRADLOOM_HD void run_as(int part) const {
    if (part > 0) return reset();
    A dh = Number::load(a_.dh, e_.state());
    if (a_.dy != nullptr) dh += Number::load(a_.dy, e_.output());
    if constexpr (kind == RecurrentKind::rnn) {
      put(0, dh * e_.slope(0, kept(0)));
      pass(A(0));
    }
    if constexpr (kind == RecurrentKind::gru || kind == RecurrentKind::gru_linear)
      gru(dh, kind == RecurrentKind::gru);
    if constexpr (kind == RecurrentKind::lstm) lstm(dh);
  }

 private:
  // Beyond the item's length.
  GRADLOOM_HD void pause() const {
    for (std::int64_t g = 0; a_.part == 0 && g < e_.cell.gates; ++g) put(g, A(0), A(0));
  }
  GRADLOOM_HD A kept(std::int64_t slot) const { return Number::load(a_.kept, e_.kept(slot)); }
  GRADLOOM_HD A h() const { return Number::load(a_.h, e_.state()); }
  GRADLOOM_HD A peephole(std::int64_t g) const {
    return Cell::kUsual || a_.peepholes == nullptr ? A(0) : Number::load(a_.peepholes, e_.gate(g));
  }
  GRADLOOM_HD void put(std::int64_t g, A dinput, A dproduct) const {
    Number::store(a_.dinput, e_.input(g), dinput);
    Number::store(a_.dproduct, e_.product(g), dproduct);
  }
  GRADLOOM_HD void put(std::int64_t g, A d) const { put(g, d, d); }
  GRADLOOM_HD void pass(A dh) const { Number::store(a_.dh, e_.state(), dh); }

  GRADLOOM_HD void gru(A dh, bool two_parts) const {
    const A z = e_.value(0, kept(0)), n = e_.value(1, kept(2));
    put(0, dh * (h() - n) * e_.slope(0, kept(0)));
    const A dn = dh * (A(1) - z) * e_.slope(1, kept(2));
    pass(dh * z);
    if (two_parts) return put(2, dn);
    put(1, dn * kept(3) * e_.slope(0, kept(1)));
    put(2, dn, dn * e_.value(0, kept(1)));
  }
  GRADLOOM_HD void reset() const {
    const A d = Number::load(a_.dreset, e_.state()), r = e_.value(0, kept(1));
    put(1, d * h() * e_.slope(0, kept(1)));
    pass(Number::load(a_.dh, e_.state()) + d * r);
  }
  GRADLOOM_HD void lstm(A dh) const {
    const A c = Number::load(a_.c, e_.state()), c_next = Number::load(a_.c_next, e_.state());
    const A i = e_.value(0, kept(0)), o = e_.value(0, kept(1)), n = e_.value(1, kept(3));
    const A d_o = dh * e_.value(2, c_next) * e_.slope(0, kept(1));
    const A dc = Number::load(a_.dc, e_.state()) + dh * o * e_.slope(2, c_next) + d_o * peephole(1);
    const bool coupled = !Cell::kUsual && e_.cell.coupled;
    const A d_i = dc * (coupled ? n - c : n) * e_.slope(0, kept(0));
    const A d_f = coupled ? A(0) : dc * c * e_.slope(0, kept(2));
    const A f = coupled ? A(1) - i : e_.value(0, kept(2));
    put(0, d_i);
    put(1, d_o);
    put(2, d_f);
    put(3, dc * i * e_.slope(1, kept(3)));
    Number::store(a_.dc, e_.state(), dc * f + d_i * peephole(0) + d_f * peephole(2));
    pass(A(0));
  }
};

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
