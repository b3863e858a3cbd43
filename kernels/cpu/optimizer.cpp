// Optimizer updates of many tensors in one pass, the global norm and the accumulation of many tensors. Tensors are cut into
// pieces of a fixed size; a piece is read and written once (LAMB: norms first, then the update). The formulas
// and their sources stand in kernels/optimizers.def, whose rows choose the function of their name here.
#include "kernels/cpu/optimizer_pieces.h"
#include "kernels/nadam.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

template <class T>
void sgd(const OptimizerArgs& args) {
  const T lr = T(learning_rate(args)), decay = T(args.weight_decay), momentum = T(args.momentum),
          scale = gradient_scale<T>(args);
  const bool first = *args.step <= 1;
  const T keep = first ? T(0) : momentum, take = first ? T(1) : T(1.0 - args.dampening);
  for_pieces(args.count, args.sizes, 3, [&](i64, const Piece& piece) {
    T held[kTensorPiece];
    const T* const grad = gradients(args, piece, held);
    const Parameter<T> parameter(args, piece);
    const T* const param = parameter.from;
    T* const param_out = parameter.to;
    KeptState<T, StateRange::any> momenta(args, args.state1, args.state1_out, piece);
    const T* const state = momenta.from;
    T* const state_out = momenta.to;
    if (args.momentum == 0.0) {
#pragma GCC ivdep
      for (i64 i = 0; i < piece.count; ++i) {
        const T g = grad[i] * scale + decay * param[i];
        param_out[i] = param[i] - lr * g;
      }
      if (state_out != nullptr && state != nullptr && state_out != state) {
        for (i64 i = 0; i < piece.count; ++i) state_out[i] = state[i];
      }
      momenta.finish();
      return parameter.finish(args, piece);
    }
    const bool nesterov = args.nesterov;
#pragma GCC ivdep
    for (i64 i = 0; i < piece.count; ++i) {
      const T g = grad[i] * scale + decay * param[i];
      const T old = first ? T(0) : state[i];  // the first state may be anything
      const T buffer = keep * old + take * g;
      state_out[i] = buffer;
      param_out[i] = param[i] - lr * (nesterov ? g + momentum * buffer : buffer);
    }
    momenta.finish();
    parameter.finish(args, piece);
  });
}

template <class T>
struct AdamFactors {
  T scale, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  T correction1, root_correction2;  // 1 - b1^t, sqrt(1 - b2^t)
};

template <class T>
AdamFactors<T> adam_factors(const OptimizerArgs& args) {
  return {gradient_scale<T>(args),
          T(args.beta1),
          T(1.0 - args.beta1),
          T(args.beta2),
          T(1.0 - args.beta2),
          T(args.epsilon),
          T(1.0 - power(args.beta1, *args.step)),
          T(sqrt(1.0 - power(args.beta2, *args.step)))};
}

// body(parameter, gradient, state) changes parameter and state of an element, for optimizers with one state.
template <class T, StateRange range, class Body>
GRADLOOM_INLINE void update_with_state(const OptimizerArgs& args, i64 work_per_element, const Body& body) {
  const T scale = gradient_scale<T>(args);
  for_pieces(args.count, args.sizes, work_per_element, [&](i64, const Piece& piece) {
    T held[kTensorPiece];
    const T* const grad = gradients(args, piece, held);
    const Parameter<T> parameter(args, piece);
    const T* const param = parameter.from;
    T* const param_out = parameter.to;
    KeptState<T, range> states(args, args.state1, args.state1_out, piece);
    const T* const state = states.from;
    T* const state_out = states.to;
#pragma GCC ivdep
    for (i64 i = 0; i < piece.count; ++i) {
      T p = param[i], s = state[i];
      body(p, grad[i] * scale, s);
      state_out[i] = s;
      param_out[i] = p;
    }
    states.finish();
    parameter.finish(args, piece);
  });
}

// body(parameter, gradient, m, v): the same for optimizers with two, of which the second is positive.
template <class T, StateRange range, class Body>
GRADLOOM_INLINE void update_with_states(const OptimizerArgs& args, i64 work_per_element, const Body& body) {
  const T scale = gradient_scale<T>(args);
  for_pieces(args.count, args.sizes, work_per_element, [&](i64, const Piece& piece) {
    T held[kTensorPiece];
    const T* const grad = gradients(args, piece, held);
    const Parameter<T> parameter(args, piece);
    const T* const param = parameter.from;
    T* const param_out = parameter.to;
    KeptState<T, range> moment1(args, args.state1, args.state1_out, piece);
    KeptState<T, StateRange::positive> moment2(args, args.state2, args.state2_out, piece);
    const T *const state1 = moment1.from, *const state2 = moment2.from;
    T *const state1_out = moment1.to, *const state2_out = moment2.to;
#pragma GCC ivdep
    for (i64 i = 0; i < piece.count; ++i) {
      T p = param[i], m = state1[i], v = state2[i];
      body(p, grad[i] * scale, m, v);
      state1_out[i] = m;
      state2_out[i] = v;
      param_out[i] = p;
    }
    moment1.finish();
    moment2.finish();
    parameter.finish(args, piece);
  });
}

// body(parameter, gradient, state1, state2, state3): the same for optimizers with a third state, or none, a second or none; none of
// them is of 8 bits. What is not there means nothing.
template <class T, bool second, bool third, class Body>
GRADLOOM_INLINE void update_with_plain_states(const OptimizerArgs& args, i64 work_per_element,
                                              const Body& body) {
  const T scale = gradient_scale<T>(args);
  for_pieces(args.count, args.sizes, work_per_element, [&](i64, const Piece& piece) {
    T held[kTensorPiece];
    const T* const grad = gradients(args, piece, held);
    const Parameter<T> parameter(args, piece);
    const T* const param = parameter.from;
    T* const param_out = parameter.to;
    const T *const state1 = input<T>(args.state1, piece), *const state2 = input<T>(args.state2, piece),
                   *const state3 = input<T>(args.state3, piece);
    T *const state1_out = output<T>(args.state1_out, piece),
             *const state2_out = output<T>(args.state2_out, piece),
             *const state3_out = output<T>(args.state3_out, piece);
#pragma GCC ivdep
    for (i64 i = 0; i < piece.count; ++i) {
      T p = param[i], a = state1[i], b = 0, c = 0;
      if constexpr (second) b = state2[i];
      if constexpr (third) c = state3[i];
      body(p, grad[i] * scale, a, b, c);
      state1_out[i] = a;
      if constexpr (second) state2_out[i] = b;
      if constexpr (third) state3_out[i] = c;
      param_out[i] = p;
    }
    parameter.finish(args, piece);
  });
}

template <class T, bool decoupled>
GRADLOOM_INLINE void adam_update(const OptimizerArgs& args) {
  const AdamFactors<T> f = adam_factors<T>(args);
  const double lr = learning_rate(args);
  const T rate = T(lr / (1.0 - power(args.beta1, *args.step)));
  const T decay = T(args.weight_decay), shrink = T(1.0 - lr * args.weight_decay);
  const T inv_root = T(1.0 / sqrt(1.0 - power(args.beta2, *args.step)));
  const auto next_moments = [&](T& p, T g, T& m, T& v) {
    if constexpr (decoupled) {
      p = p * shrink;
    } else {
      g = g + decay * p;
    }
    m = f.beta1 * m + f.one_minus_beta1 * g;
    v = f.beta2 * v + f.one_minus_beta2 * (g * g);
  };
  const auto next = [&](T p, T m, T v) { return p - rate * (m / (sqrt(v) * inv_root + f.epsilon)); };
  if (args.amsgrad) {
    return update_with_plain_states<T, true, true>(args, 7, [&](T& p, T g, T& m, T& v, T& most) {
      next_moments(p, g, m, v);
      most = max(most, v);
      p = next(p, m, most);
    });
  }
  update_with_states<T, StateRange::any>(args, 6, [&](T& p, T g, T& m, T& v) {
    next_moments(p, g, m, v);
    p = next(p, m, v);
  });
}

template <class T>
void adam(const OptimizerArgs& args) {
  adam_update<T, false>(args);
}
template <class T>
void adamw(const OptimizerArgs& args) {
  adam_update<T, true>(args);
}

template <class T>
void adamw_hf(const OptimizerArgs& args) {
  const AdamFactors<T> f = adam_factors<T>(args);
  const double lr = learning_rate(args), root2 = sqrt(1.0 - power(args.beta2, *args.step));
  const T rate = T(args.correct_bias ? lr * root2 / (1.0 - power(args.beta1, *args.step)) : lr);
  const T shrink = T(1.0 - lr * args.weight_decay);
  update_with_states<T, StateRange::any>(args, 6, [&](T& p, T g, T& m, T& v) {
    m = f.beta1 * m + f.one_minus_beta1 * g;
    v = f.beta2 * v + f.one_minus_beta2 * (g * g);
    p = (p - rate * (m / (sqrt(v) + f.epsilon))) * shrink;
  });
}

template <class T>
void adagrad(const OptimizerArgs& args) {
  const T decay = T(args.weight_decay), epsilon = T(args.epsilon), initial = T(args.initial_sum);
  const bool first = *args.step <= 1;
  const T rate = T(learning_rate(args) / (1.0 + double(*args.step - 1) * args.lr_decay));
  update_with_state<T, StateRange::positive>(args, 5, [&](T& p, T grad, T& sum) {
    const T g = grad + decay * p;
    sum = (first ? initial : sum) + g * g;  // the first state may be anything
    p = p - rate * (g / (sqrt(sum) + epsilon));
  });
}

template <class T>
void lion(const OptimizerArgs& args) {
  const T beta1 = T(args.beta1), one_minus_beta1 = T(1.0 - args.beta1), beta2 = T(args.beta2),
          one_minus_beta2 = T(1.0 - args.beta2);
  const T rate = T(learning_rate(args)), shrink = T(1.0 - learning_rate(args) * args.weight_decay);
  update_with_state<T, StateRange::any>(args, 4, [&](T& p, T g, T& m) {
    const T direction = beta1 * m + one_minus_beta1 * g;
    // Neither a NaN nor a zero has a sign: they stay what they are.
    const T sign = direction > T(0) ? T(1) : direction < T(0) ? T(-1) : direction;
    m = beta2 * m + one_minus_beta2 * g;
    p = p * shrink - rate * sign;
  });
}

template <class T>
void lamb(const OptimizerArgs& args) {
  const AdamFactors<T> f = adam_factors<T>(args);
  const T decay = T(args.weight_decay);
  double* const param_squares = static_cast<double*>(args.workspace);
  double* const update_squares = param_squares + pieces_of(args.count, args.sizes);
  const auto update = [&](T m, T v, T p) {
    return (m / f.correction1) / (sqrt(v) / f.root_correction2 + f.epsilon) + decay * p;
  };
  for_pieces(args.count, args.sizes, 8, [&](i64 number, const Piece& piece) {
    T held[kTensorPiece];
    const T* const grad = gradients(args, piece, held);
    const Parameter<T> parameter(args, piece);
    const T* const param = parameter.from;
    KeptState<T, StateRange::any> moment1(args, args.state1, args.state1_out, piece);
    KeptState<T, StateRange::positive> moment2(args, args.state2, args.state2_out, piece);
    const T *const state1 = moment1.from, *const state2 = moment2.from;
    T *const state1_out = moment1.to, *const state2_out = moment2.to;
#pragma GCC ivdep
    for (i64 i = 0; i < piece.count; ++i) {
      const T g = grad[i] * f.scale;
      state1_out[i] = f.beta1 * state1[i] + f.one_minus_beta1 * g;
      state2_out[i] = f.beta2 * state2[i] + f.one_minus_beta2 * (g * g);
    }
    moment1.settle();
    moment2.settle();
    T updates[kTensorPiece];
#pragma GCC ivdep
    for (i64 i = 0; i < piece.count; ++i) updates[i] = update(state1_out[i], state2_out[i], param[i]);
    const auto square = [](const auto& a, const auto& b) { return a * b; };
    param_squares[number] = sum_of(param, param, piece.count, square);
    update_squares[number] = sum_of(updates, updates, piece.count, square);
  });
  add_pieces(args.count, args.sizes, param_squares);
  add_pieces(args.count, args.sizes, update_squares);
  const double lr = learning_rate(args);
  for_pieces(args.count, args.sizes, 6, [&](i64 number, const Piece& piece) {
    const i64 first = number - piece.begin / kTensorPiece;
    const double p2 = param_squares[first], u2 = update_squares[first];
    const double trust = p2 > 0 && u2 > 0 && !args.ratio_in_lr ? sqrt(p2) / sqrt(u2) : 1.0;
    const T rate = T(lr * trust);
    const Parameter<T> parameter(args, piece);
    const T* const param = parameter.from;
    const KeptState<T, StateRange::any> moment1(args, args.state1_out, args.state1_out, piece);
    const KeptState<T, StateRange::positive> moment2(args, args.state2_out, args.state2_out, piece);
    const T *const m = moment1.from, *const v = moment2.from;
    T* const param_out = parameter.to;
#pragma GCC ivdep
    for (i64 i = 0; i < piece.count; ++i) param_out[i] = param[i] - rate * update(m[i], v[i], param[i]);
    parameter.finish(args, piece);
  });
}

template <class T, bool momentum, bool centered>
GRADLOOM_INLINE void rmsprop_update(const OptimizerArgs& args) {
  const T alpha = T(args.alpha), rest = T(1.0 - args.alpha), decay = T(args.weight_decay),
          epsilon = T(args.epsilon), keep = T(args.momentum), rate = T(learning_rate(args));
  const bool moves = args.momentum != 0.0;
  update_with_plain_states<T, momentum, centered>(args, 6, [&](T& p, T grad, T& square, T& buffer, T& mean) {
    const T g = grad + decay * p;
    square = alpha * square + rest * (g * g);
    T spread = square;
    if constexpr (centered) {
      mean = alpha * mean + rest * g;
      spread = max(square - mean * mean, T(0));
    }
    T update = g / (sqrt(spread) + epsilon);
    if constexpr (momentum) {
      const T average = keep * buffer + update;
      buffer = moves ? average : buffer;
      update = moves ? average : update;
    }
    p = p - rate * update;
  });
}

template <class T>
void rmsprop(const OptimizerArgs& args) {
  const bool momentum = args.state2 != nullptr;
  if (args.centered)
    momentum ? rmsprop_update<T, true, true>(args) : rmsprop_update<T, false, true>(args);
  else
    momentum ? rmsprop_update<T, true, false>(args) : rmsprop_update<T, false, false>(args);
}

// Weight decay of the gradient or of the parameter.
template <class T>
struct Decay {
  T of_gradient, of_parameter;
};
template <class T>
Decay<T> decay_of(const OptimizerArgs& args) {
  return {args.decoupled ? T(0) : T(args.weight_decay),
          args.decoupled ? T(1.0 - learning_rate(args) * args.weight_decay) : T(1)};
}

// The factor of RAdam's rate with sqrt(1 - beta2^t) in it; 0 where the second moment is too young to divide.
double rectified_rate(double beta2, i64 t) {
  const double correction2 = 1.0 - power(beta2, t), all = 2.0 / (1.0 - beta2) - 1.0,
               length = all - 2.0 * double(t) * power(beta2, t) / correction2;
  if (!(length > 5.0)) return 0;
  return sqrt((length - 4.0) * (length - 2.0) * all / ((all - 4.0) * (all - 2.0) * length) * correction2);
}

template <class T>
void nadam(const OptimizerArgs& args) {
  const AdamFactors<T> f = adam_factors<T>(args);
  const Decay<T> decay = decay_of<T>(args);
  const double lr = learning_rate(args), t = double(*args.step),
               now = nadam_momentum(args.beta1, args.momentum_decay, t),
               then = nadam_momentum(args.beta1, args.momentum_decay, t + 1),
               product = power(args.beta1, *args.step) * exp(momentum_logarithms(args.momentum_decay, t));
  const T of_gradient = T(lr * (1.0 - now) / (1.0 - product)),
          of_moment = T(lr * then / (1.0 - product * then));
  update_with_states<T, StateRange::any>(args, 8, [&](T& p, T grad, T& m, T& v) {
    const T g = grad + decay.of_gradient * p;
    m = f.beta1 * m + f.one_minus_beta1 * g;
    v = f.beta2 * v + f.one_minus_beta2 * (g * g);
    p = p * decay.of_parameter -
        (of_gradient * g + of_moment * m) / (sqrt(v) / f.root_correction2 + f.epsilon);
  });
}

template <class T>
void radam(const OptimizerArgs& args) {
  const AdamFactors<T> f = adam_factors<T>(args);
  const Decay<T> decay = decay_of<T>(args);
  const double rectified = rectified_rate(args.beta2, *args.step),
               lr = learning_rate(args) / (1.0 - power(args.beta1, *args.step));
  const bool adapts = rectified > 0;
  const T rate = T(adapts ? lr * rectified : lr);
  update_with_states<T, StateRange::any>(args, 6, [&](T& p, T grad, T& m, T& v) {
    const T g = grad + decay.of_gradient * p;
    m = f.beta1 * m + f.one_minus_beta1 * g;
    v = f.beta2 * v + f.one_minus_beta2 * (g * g);
    p = p * decay.of_parameter - rate * (adapts ? m / (sqrt(v) + f.epsilon) : m);
  });
}

template <class T>
void adadelta(const OptimizerArgs& args) {
  const T rho = T(args.alpha), rest = T(1.0 - args.alpha), decay = T(args.weight_decay),
          epsilon = T(args.epsilon), rate = T(learning_rate(args));
  update_with_states<T, StateRange::positive>(args, 8, [&](T& p, T grad, T& square, T& change) {
    const T g = grad + decay * p;
    square = rho * square + rest * (g * g);
    const T update = sqrt(change + epsilon) / sqrt(square + epsilon) * g;
    change = rho * change + rest * (update * update);
    p = p - rate * update;
  });
}

template <class T>
void adafactor(const OptimizerArgs& args) {
  GRADLOOM_ISA::adafactor(args);
}

// Where results do not stand where their operands do (a kernel between conversions), they get their contents. Copies always
// stand there.
template <class T>
void keep_all(const OptimizerArgs& args) {
  // bytes(elements): of a tensor of a parameter of that many; divisors: by how much less the tensor has; null: not.
  const auto keep = [&](const void* const* from, void* const* to, const i64* divisors, const auto& bytes) {
    if (from == nullptr || to == nullptr) return;
    for (i64 t = 0; t < args.count; ++t) {
      const i64 elements = args.sizes[t] / (divisors != nullptr ? divisors[t] : 1);
      if (from[t] != to[t] && elements > 0) __builtin_memcpy(to[t], from[t], std::size_t(bytes(elements)));
    }
  };
  const auto of_parameter = [&](i64 n) { return n * (args.low_params ? 2 : i64(sizeof(T))); };
  const auto of_state = [&](i64 n) { return args.eight_bit_states ? encoded_bytes(n) : n * i64(sizeof(T)); };
  keep(args.param, args.param_out, nullptr, of_parameter);
  keep(args.state1, args.state1_out, args.factored ? args.columns : nullptr, of_state);
  keep(args.state2, args.state2_out, args.factored ? args.rows : nullptr, of_state);
  keep(args.state3, args.state3_out, nullptr, of_state);
}

template <class T>
void optimize(const OptimizerArgs& args) {
  if (args.apply != nullptr && !*args.apply) return keep_all<T>(args);
  switch (args.kind) {
#define OPTIMIZER(name, ...) \
  case OptimizerKind::name:  \
    return name<T>(args);
#include "kernels/optimizers.def"
#undef OPTIMIZER
  }
}

template <class T>
void norm(const GlobalNormArgs& args) {
  double* const squares = static_cast<double*>(args.workspace);
  for_pieces(args.count, args.sizes, 1, [&](i64 number, const Piece& piece) {
    T held[kTensorPiece];
    const T* const x =
        widened(args.dtype, args.types, args.tensors, piece.tensor, piece.begin, piece.count, held);
    squares[number] = sum_of(x, x, piece.count, [](const auto& a, const auto& b) { return a * b; });
  });
  double total = 0;
  const i64 pieces = pieces_of(args.count, args.sizes);
  for (i64 k = 0; k < pieces; ++k) total += squares[k];
  *static_cast<T*>(args.out) = T(sqrt(total));
}

template <class T>
void add_parts(const AccumulateArgs& args) {
  const bool first = *args.micro == 0;
  const T divisor = T(args.divisor);
  for_pieces(args.count, args.sizes, 1, [&](i64, const Piece& piece) {
    T held[kTensorPiece];
    const T* const part =
        widened(args.dtype, args.part_types, args.parts, piece.tensor, piece.begin, piece.count, held);
    const T* const sum = input<T>(args.sums, piece);
    T* const out = output<T>(args.out, piece);
    if (first) {  // the sums may be anything
      for (i64 i = 0; i < piece.count; ++i) out[i] = T(0) + part[i] / divisor;
      return;
    }
#pragma GCC ivdep
    for (i64 i = 0; i < piece.count; ++i) out[i] = sum[i] + part[i] / divisor;
  });
}

}  // namespace

void optimizer(const OptimizerArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, optimize, args); }
void global_norm(const GlobalNormArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, norm, args); }
void accumulate(const AccumulateArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, add_parts, args); }

}  // namespace gradloom::kernels::GRADLOOM_ISA
