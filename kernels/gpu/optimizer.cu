// Optimizer updates of many tensors, the accumulation of many tensors, and the global norm of many tensors: sqrt(sum over tensors of sum
// of squares).
// The optimizers' formulas stand in kernels/optimizers.def; half types are computed in float.
// A launch takes up to kOptimizerBatch tensors (with a third state kWideOptimizerBatch), whose addresses travel with it as kernel
// parameters (apex's multi_tensor_apply). A block updates one piece of one tensor in one pass over it. lr, step and gradient
// scale are read on the device, so a recorded step can be replayed. Norms: every piece leaves its sum of
// squares in the workspace (f64); a second kernel adds the pieces in a fixed order. LAMB updates with a third
// pass, which finds the ratio |p| / |u| of its tensor in the workspace. States of 8 bits (kernels/block_quantization.h): a
// warp takes a block of codes, whose scale it finds when its new numbers are there.
#include "kernels/gpu/group.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/optimizer_updates.h"
#include "kernels/gpu/params.h"
#include "kernels/gpu/workspace.h"
#include "kernels/nadam.h"

namespace gradloom::kernels::gpu {
namespace {

using Tensors = UpdateTensors;
using WideTensors = WideUpdateTensors;
using Settings = UpdateSettings;
using NormTensors = Batch<kNormBatch, 1>;
using SumTensors = Batch<kAccumulateBatch, 3>;  // parts, sums, out
static_assert(sizeof(NormTensors) < 3840 && sizeof(SumTensors) < 3840);

// ---- updates --------------------------------------------------------------------------------------------------------------------

// The next momentum, and the direction of the step.
template <class A>
GRADLOOM_DEVICE A sgd_direction(A g, A& state, bool first, A keep, A take, A momentum, bool nesterov) {
  const A old = first ? A(0) : state;  // the first state may be anything
  state = keep * old + take * g;
  return nesterov ? g + momentum * state : state;
}

template <class T, bool encoded>
__global__ void sgd_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const A lr = A(learning_rate(s.inputs)), decay = A(s.weight_decay), momentum = A(s.momentum),
          scale = gradient_scale<T>(s.inputs);
  const bool first = *s.inputs.step <= 1, plain = s.momentum == 0.0;
  const A keep = first ? A(0) : momentum, take = first ? A(1) : A(1.0 - s.dampening);
  if constexpr (encoded) {
    return update_with_state<T, true, false>(batch, s, [&](A& param, A grad, A& state) {
      const A g = grad + decay * param;
      param = param - lr * sgd_direction(g, state, first, keep, take, momentum, s.nesterov);
    });
  }
  const UpdatePiece<T> piece =
      piece_of<T>(batch, tensor_of(batch.first, batch.count, int(blockIdx.x)), s.low);
  const bool copy_state = plain && piece.state1_out != piece.state1;
  for_groups<T>(piece.count, [&](long long i, long long left) {
    const Pack<T> grad_pack = piece.gradients(i, left), param_pack = piece.params(i, left);
    Pack<T> state_pack{};
    if (piece.state1 != nullptr && (!plain || copy_state))
      state_pack = fetch(piece.state1 + i, left, piece.packed);
    const Group<T> grad = gradients_of(grad_pack, s.inputs);
    Group<T> param = to_group(param_pack), state = to_group(state_pack);
    for (int j = 0; j < Group<T>::kCount; ++j) {
      const A g = grad.v[j] * scale + decay * param.v[j];
      param.v[j] = param.v[j] -
                   lr * (plain ? g : sgd_direction(g, state.v[j], first, keep, take, momentum, s.nesterov));
    }
    piece.store_params(i, param, left);
    if (piece.state1_out != nullptr && (!plain || copy_state))
      store_group(piece.state1_out + i, state, left, piece.packed);
  });
}

// The next moments of Adam, and where its weight decay goes.
template <bool decoupled, class A>
GRADLOOM_DEVICE void adam_moments(const MomentFactors<A>& f, A& p, A g, A& m, A& v) {
  if constexpr (decoupled) {
    p = p * f.shrink;
  } else {
    g = g + f.decay * p;
  }
  m = f.beta1 * m + f.one_minus_beta1 * g;
  v = f.beta2 * v + f.one_minus_beta2 * (g * g);
}

template <class T, bool decoupled, bool encoded>
__global__ void adam_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const MomentFactors<A> f = adam_factors<T>(s);
  update_with_states<T, encoded, false>(batch, s, f.scale, [&](A& p, A g, A& m, A& v) {
    adam_moments<decoupled>(f, p, g, m, v);
    p = p - f.rate * (m / (sqrt(v) * f.inverse_root + f.epsilon));
  });
}

// AMSGrad: the third state is the largest second moment so far.
template <class T, bool decoupled>
__global__ void adam_largest_kernel(WideTensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const MomentFactors<A> f = adam_factors<T>(s);
  update_with_plain_states<T>(batch, s, f.scale, [&](A& p, A g, A& m, A& v, A& most) {
    adam_moments<decoupled>(f, p, g, m, v);
    most = max(most, v);
    p = p - f.rate * (m / (sqrt(most) * f.inverse_root + f.epsilon));
  });
}

template <class T, bool encoded>
__global__ void adamw_hf_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const MomentFactors<A> f = adam_factors<T>(s);
  const A rate = s.correct_bias ? f.rate * f.root_correction2 : A(learning_rate(s.inputs));
  update_with_states<T, encoded, false>(batch, s, f.scale, [&](A& p, A g, A& m, A& v) {
    m = f.beta1 * m + f.one_minus_beta1 * g;
    v = f.beta2 * v + f.one_minus_beta2 * (g * g);
    p = (p - rate * (m / (sqrt(v) + f.epsilon))) * f.shrink;
  });
}

template <class T, bool encoded>
__global__ void adagrad_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const bool first = *s.inputs.step <= 1;
  const A decay = A(s.weight_decay), epsilon = A(s.epsilon), initial = A(s.initial_sum),
          rate = A(learning_rate(s.inputs) / (1.0 + double(*s.inputs.step - 1) * s.lr_decay));
  update_with_state<T, encoded, true>(batch, s, [&](A& param, A grad, A& sum) {
    const A g = grad + decay * param;
    sum = (first ? initial : sum) + g * g;  // the first state may be anything
    param = param - rate * (g / (sqrt(sum) + epsilon));
  });
}

template <class T, bool encoded>
__global__ void lion_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const A beta1 = A(s.beta1), one_minus_beta1 = A(1.0 - s.beta1), beta2 = A(s.beta2),
          one_minus_beta2 = A(1.0 - s.beta2), rate = A(learning_rate(s.inputs)),
          shrink = A(1.0 - learning_rate(s.inputs) * s.weight_decay);
  update_with_state<T, encoded, false>(batch, s, [&](A& param, A g, A& m) {
    const A direction = beta1 * m + one_minus_beta1 * g;
    // Neither a NaN nor a zero has a sign: they stay what they are.
    const A sign = direction > A(0) ? A(1) : direction < A(0) ? A(-1) : direction;
    m = beta2 * m + one_minus_beta2 * g;
    param = param * shrink - rate * sign;
  });
}

template <class T>
__global__ void rmsprop_kernel(WideTensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const A alpha = A(s.alpha), rest = A(1.0 - s.alpha), decay = A(s.weight_decay), epsilon = A(s.epsilon),
          keep = A(s.momentum), rate = A(learning_rate(s.inputs));
  const bool averaged = batch.lists[kState2][0] != nullptr && s.momentum != 0, centered = s.centered;
  update_with_plain_states<T>(batch, s, gradient_scale<T>(s.inputs),
                              [&](A& p, A grad, A& square, A& buffer, A& mean) {
                                const A g = grad + decay * p;
                                square = alpha * square + rest * (g * g);
                                A spread = square;
                                if (centered) {
                                  mean = alpha * mean + rest * g;
                                  spread = max(square - mean * mean, A(0));
                                }
                                A update = g / (sqrt(spread) + epsilon);
                                if (averaged) update = buffer = keep * buffer + update;
                                p = p - rate * update;
                              });
}

// Weight decay of the gradient or of the parameter.
template <class A>
struct Decay {
  A of_gradient, of_parameter;
};
template <class A>
GRADLOOM_DEVICE Decay<A> decay_of(const Settings& s, const MomentFactors<A>& f) {
  return s.decoupled ? Decay<A>{A(0), f.shrink} : Decay<A>{f.decay, A(1)};
}

template <class T, bool encoded>
__global__ void nadam_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const MomentFactors<A> f = adam_factors<T>(s);
  const double t = double(*s.inputs.step);
  double term = 0;  // of the logarithm of all momenta until now
  if (threadIdx.x < kMomentumTerms) term = momentum_term(int(threadIdx.x) + 1, s.momentum_decay, t);
  const double logarithm = block_reduce(term, Sum(), 0.0);
  __shared__ A of_gradient, of_moment;
  if (threadIdx.x == 0) {
    const double lr = learning_rate(s.inputs), now = nadam_momentum(s.beta1, s.momentum_decay, t),
                 then = nadam_momentum(s.beta1, s.momentum_decay, t + 1),
                 product = power(s.beta1, *s.inputs.step) * exp(logarithm);
    of_gradient = A(lr * (1.0 - now) / (1.0 - product));
    of_moment = A(lr * then / (1.0 - product * then));
  }
  __syncthreads();
  const Decay<A> decay = decay_of(s, f);
  const A grad_rate = of_gradient, moment_rate = of_moment;
  update_with_states<T, encoded, false>(batch, s, f.scale, [&](A& p, A grad, A& m, A& v) {
    const A g = grad + decay.of_gradient * p;
    m = f.beta1 * m + f.one_minus_beta1 * g;
    v = f.beta2 * v + f.one_minus_beta2 * (g * g);
    p = p * decay.of_parameter -
        (grad_rate * g + moment_rate * m) / (sqrt(v) / f.root_correction2 + f.epsilon);
  });
}

// The factor of RAdam's rate with sqrt(1 - beta2^t) in it; 0 where the second moment is too young to divide.
GRADLOOM_DEVICE double rectified_rate(double beta2, long long t) {
  const double left = power(beta2, t), all = 2.0 / (1.0 - beta2) - 1.0,
               length = all - 2.0 * double(t) * left / (1.0 - left);
  if (!(length > 5.0)) return 0;
  return sqrt((length - 4.0) * (length - 2.0) * all / ((all - 4.0) * (all - 2.0) * length) * (1.0 - left));
}

template <class T, bool encoded>
__global__ void radam_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const MomentFactors<A> f = adam_factors<T>(s);
  __shared__ double rectified;
  if (threadIdx.x == 0) rectified = rectified_rate(s.beta2, *s.inputs.step);
  __syncthreads();
  const bool adapts = rectified > 0;
  const A rate = adapts ? A(f.rate * A(rectified)) : f.rate;
  const Decay<A> decay = decay_of(s, f);
  update_with_states<T, encoded, false>(batch, s, f.scale, [&](A& p, A grad, A& m, A& v) {
    const A g = grad + decay.of_gradient * p;
    m = f.beta1 * m + f.one_minus_beta1 * g;
    v = f.beta2 * v + f.one_minus_beta2 * (g * g);
    p = p * decay.of_parameter - rate * (adapts ? m / (sqrt(v) + f.epsilon) : m);
  });
}

template <class T, bool encoded>
__global__ void adadelta_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const A rho = A(s.alpha), rest = A(1.0 - s.alpha), decay = A(s.weight_decay), epsilon = A(s.epsilon),
          rate = A(learning_rate(s.inputs));
  update_with_states<T, encoded, true>(batch, s, gradient_scale<T>(s.inputs),
                                       [&](A& p, A grad, A& square, A& change) {
                                         const A g = grad + decay * p;
                                         square = rho * square + rest * (g * g);
                                         const A update = sqrt(change + epsilon) / sqrt(square + epsilon) * g;
                                         change = rho * change + rest * (update * update);
                                         p = p - rate * update;
                                       });
}

template <class A>
GRADLOOM_DEVICE A lamb_update(const MomentFactors<A>& f, A m, A v, A p) {
  return (m / f.correction1) / (sqrt(v) / f.root_correction2 + f.epsilon) + f.decay * p;
}

// Workspace of LAMB: [pieces] squares of parameters, [pieces] squares of updates, [tensors] ratios.
struct LambSpace {
  double *param_squares, *update_squares, *trust;
};

// The new moments, and the squares of parameter and update. The update is that of the
// moments as they are stored.
template <class T, bool encoded>
__global__ void lamb_norm_kernel(Tensors batch, Settings s, LambSpace space) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const MomentFactors<A> f = adam_factors<T>(s);
  const int t = tensor_of(batch.first, batch.count, int(blockIdx.x));
  const UpdatePiece<T> piece = piece_of<T>(batch, t, s.low);
  A param_square = 0, update_square = 0;
  const auto next_moments = [&](const Group<T>& grad, Group<T>& m, Group<T>& v) {
    for (int j = 0; j < Group<T>::kCount; ++j) {
      const A g = grad.v[j] * f.scale;
      m.v[j] = f.beta1 * m.v[j] + f.one_minus_beta1 * g;
      v.v[j] = f.beta2 * v.v[j] + f.one_minus_beta2 * (g * g);
    }
  };
  const auto add_squares = [&](long long left, const Group<T>& param, const Group<T>& m, const Group<T>& v) {
    for (int j = 0; j < Group<T>::kCount && j < left; ++j) {
      const A u = lamb_update(f, m.v[j], v.v[j], param.v[j]);
      param_square += param.v[j] * param.v[j];
      update_square += u * u;
    }
  };
  if constexpr (encoded) {
    for_encoded<T, false, true>(
        batch, t, piece,
        [&](long long i, long long left, Group<T>& m, Group<T>& v) {
          next_moments(gradients_of(piece.gradients(i, left), s.inputs), m, v);
        },
        [&](long long i, long long left, const Group<T>& m, const Group<T>& v) {
          add_squares(left, to_group(piece.params(i, left)), m, v);
        });
  } else {
    for_groups<T>(piece.count, [&](long long i, long long left) {
      const UpdateInputs<T> in = fetch_inputs(piece, i, left);
      Group<T> m = to_group(in.state1), v = to_group(in.state2);
      next_moments(gradients_of(in.grad, s.inputs), m, v);
      for (int j = 0; j < Group<T>::kCount; ++j) {
        m.v[j] = to_accum(from_accum<T>(m.v[j]));
        v.v[j] = to_accum(from_accum<T>(v.v[j]));
      }
      add_squares(left, to_group(in.param), m, v);
      store_group(piece.state1_out + i, m, left, piece.packed);
      store_group(piece.state2_out + i, v, left, piece.packed);
    });
  }
  const double p2 = block_reduce(double(param_square), Sum(), 0.0),
               u2 = block_reduce(double(update_square), Sum(), 0.0);
  if (threadIdx.x == 0) {
    space.param_squares[batch.first_piece + blockIdx.x] = p2;
    space.update_squares[batch.first_piece + blockIdx.x] = u2;
  }
}

// One block per tensor. in_lr: its ratio is in lr already.
__global__ void lamb_trust_kernel(Tensors batch, LambSpace space, bool in_lr) {
  const int t = int(blockIdx.x);
  const long long first = batch.first_piece + batch.first[t], pieces = batch.first[t + 1] - batch.first[t];
  const double p2 = sum_pieces(space.param_squares + first, pieces),
               u2 = sum_pieces(space.update_squares + first, pieces);
  if (threadIdx.x == 0)
    space.trust[batch.first_tensor + t] = p2 > 0 && u2 > 0 && !in_lr ? sqrt(p2) / sqrt(u2) : 1.0;
}

template <class T, bool encoded>
__global__ void lamb_kernel(Tensors batch, Settings s, LambSpace space) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const MomentFactors<A> f = adam_factors<T>(s);
  const int t = tensor_of(batch.first, batch.count, int(blockIdx.x));
  const UpdatePiece<T> piece = piece_of<T>(batch, t, s.low);
  const A rate = A(learning_rate(s.inputs) * space.trust[batch.first_tensor + t]);
  if constexpr (encoded) {
    const auto first = encoded_state<T, false>(batch, kState1Out, kState1Out, t, piece);
    const auto second = encoded_state<T, true>(batch, kState2Out, kState2Out, t, piece);
    return for_groups<T>(piece.count, [&](long long i, long long left) {
      Group<T> param = to_group(piece.params(i, left));
      const Group<T> m = first.load(i, left), v = second.load(i, left);
      for (int j = 0; j < Group<T>::kCount; ++j)
        param.v[j] = param.v[j] - rate * lamb_update(f, m.v[j], v.v[j], param.v[j]);
      piece.store_params(i, param, left);
    });
  }
  for_groups<T>(piece.count, [&](long long i, long long left) {
    const Pack<T> param_pack = piece.params(i, left),
                  m_pack = fetch<T>(piece.state1_out + i, left, piece.packed),
                  v_pack = fetch<T>(piece.state2_out + i, left, piece.packed);
    Group<T> param = to_group(param_pack);
    const Group<T> m = to_group(m_pack), v = to_group(v_pack);
    for (int j = 0; j < Group<T>::kCount; ++j)
      param.v[j] = param.v[j] - rate * lamb_update(f, m.v[j], v.v[j], param.v[j]);
    piece.store_params(i, param, left);
  });
}

// ---- global norm ----------------------------------------------------------------------------------------------------------------

template <class T>
__global__ void square_kernel(NormTensors params, double* squares) {
  const NormTensors& batch = first_param(params);
  using A = Accum<T>;
  const int t = tensor_of(batch.first, batch.count, int(blockIdx.x));
  const long long begin = (static_cast<long long>(blockIdx.x) - batch.first[t]) * kTensorPiece,
                  rest = batch.sizes[t] - begin;
  const void* const x = batch.lists[0][t];
  const bool packed = aligned16(x);
  A square = 0;
  for_groups<T>(rest < kTensorPiece ? rest : kTensorPiece, [&](long long i, long long left) {
    const Group<T> group = to_group(fetch_any<T>({x, batch.types[t]}, begin + i, left, packed));
    for (int j = 0; j < Group<T>::kCount; ++j) square += group.v[j] * group.v[j];
  });
  const double sum = block_reduce(double(square), Sum(), 0.0);
  if (threadIdx.x == 0) squares[batch.first_piece + blockIdx.x] = sum;
}

template <class T>
__global__ void norm_kernel(const double* squares, long long pieces, T* out) {
  const double sum = sum_pieces(squares, pieces);
  if (threadIdx.x == 0) *out = from_accum<T>(Accum<T>(sqrt(sum)));
}

// ---- accumulation ---------------------------------------------------------------------------------------------------------------

template <class T>
__global__ void accumulate_kernel(SumTensors batch, const std::int64_t* micro, double divisor) {
  using A = Accum<T>;
  const int t = tensor_of(batch.first, batch.count, int(blockIdx.x));
  const long long begin = (static_cast<long long>(blockIdx.x) - batch.first[t]) * kTensorPiece,
                  left_here = batch.sizes[t] - begin,
                  count = left_here < kTensorPiece ? left_here : kTensorPiece;
  const LowTensor parts{batch.lists[0][t], batch.types[t]};
  const T* const sums = static_cast<const T*>(batch.lists[1][t]) + begin;
  T* const out = static_cast<T*>(const_cast<void*>(batch.lists[2][t])) + begin;
  unsigned long long bits = 0;
  for (const auto& list : batch.lists) bits |= reinterpret_cast<unsigned long long>(list[t]);
  const bool packed = bits % 16 == 0, first = *micro == 0;
  for_groups<T>(count, [&](long long i, long long left) {
    const Group<T> part = to_group(fetch_any<T>(parts, begin + i, left, packed));
    Group<T> sum{};
    if (!first) sum = to_group(fetch(sums + i, left, packed));
    for (int j = 0; j < Group<T>::kCount; ++j) sum.v[j] = sum.v[j] + part.v[j] / A(divisor);
    store_group(out + i, sum, left, packed);
  });
}

// ---- launchers ------------------------------------------------------------------------------------------------------------------

// body(batch, blocks, settings) for all tensors.
template <class AnyBatch, class Body>
void for_updates(const OptimizerArgs& args, const Body& body) {
  const Settings s{args.beta1,    args.beta2,          args.epsilon,     args.weight_decay,
                   args.momentum, args.dampening,      args.lr_decay,    args.initial_sum,
                   args.alpha,    args.momentum_decay, args.nesterov,    args.correct_bias,
                   args.centered, args.decoupled,      low_params(args), step_inputs(args)};
  const void* const* const all[kWideListCount] = {
      args.grad,       args.param,      args.state1, args.state2, args.param_out,
      args.state1_out, args.state2_out, nullptr,     args.state3, args.state3_out};
  constexpr int kLists = sizeof(AnyBatch::lists) / sizeof(AnyBatch::lists[0]);
  const void* const* lists[kLists];
  for (int list = 0; list < kLists; ++list) lists[list] = all[list];
  for_batches<AnyBatch>(args.count, args.sizes, lists, args.dtype, args.grad_types,
                        [&](AnyBatch& batch, int blocks) {
                          add_copies_or_keys(batch, kCopyOrKey, args);
                          body(batch, dim3(unsigned(blocks)), s);
                        });
}

template <class AnyBatch>
void launch_updates(const OptimizerArgs& args, void (*kernel)(AnyBatch, Settings), Stream stream) {
  for_updates<AnyBatch>(args, [&](const AnyBatch& batch, dim3 blocks, const Settings& s) {
    launch(stream, kernel, blocks, dim3(kOptimizerThreads), 0, batch, s);
  });
}

// An optimizer may have no states for these options.
bool has_encoded(const OptimizerArgs& args) { return args.eight_bit_states && args.state1 != nullptr; }

// One function for each row of kernels/optimizers.def.
template <class T>
void sgd(const OptimizerArgs& args, Stream stream) {
  launch_updates(args, has_encoded(args) ? sgd_kernel<T, true> : sgd_kernel<T, false>, stream);
}
template <class T>
void adam(const OptimizerArgs& args, Stream stream) {
  if (args.amsgrad) return launch_updates(args, adam_largest_kernel<T, false>, stream);
  launch_updates(args, has_encoded(args) ? adam_kernel<T, false, true> : adam_kernel<T, false, false>,
                 stream);
}
template <class T>
void adamw(const OptimizerArgs& args, Stream stream) {
  if (args.amsgrad) return launch_updates(args, adam_largest_kernel<T, true>, stream);
  launch_updates(args, has_encoded(args) ? adam_kernel<T, true, true> : adam_kernel<T, true, false>, stream);
}
template <class T>
void adamw_hf(const OptimizerArgs& args, Stream stream) {
  launch_updates(args, has_encoded(args) ? adamw_hf_kernel<T, true> : adamw_hf_kernel<T, false>, stream);
}
template <class T>
void adagrad(const OptimizerArgs& args, Stream stream) {
  launch_updates(args, has_encoded(args) ? adagrad_kernel<T, true> : adagrad_kernel<T, false>, stream);
}
template <class T>
void lion(const OptimizerArgs& args, Stream stream) {
  launch_updates(args, has_encoded(args) ? lion_kernel<T, true> : lion_kernel<T, false>, stream);
}
template <class T>
void rmsprop(const OptimizerArgs& args, Stream stream) {
  launch_updates(args, rmsprop_kernel<T>, stream);
}
template <class T>
void nadam(const OptimizerArgs& args, Stream stream) {
  launch_updates(args, has_encoded(args) ? nadam_kernel<T, true> : nadam_kernel<T, false>, stream);
}
template <class T>
void radam(const OptimizerArgs& args, Stream stream) {
  launch_updates(args, has_encoded(args) ? radam_kernel<T, true> : radam_kernel<T, false>, stream);
}
template <class T>
void adadelta(const OptimizerArgs& args, Stream stream) {
  launch_updates(args, has_encoded(args) ? adadelta_kernel<T, true> : adadelta_kernel<T, false>, stream);
}
template <class T>
void lamb(const OptimizerArgs& args, Stream stream) {
  double* const workspace = static_cast<double*>(args.workspace);
  const long long pieces = tensor_pieces(args.count, args.sizes);
  const LambSpace space{workspace, workspace + pieces, workspace + 2 * pieces};
  const bool encoded = has_encoded(args);
  for_updates<Tensors>(args, [&](const Tensors& batch, dim3 blocks, const Settings& s) {
    const dim3 block(kOptimizerThreads);
    launch(stream, encoded ? lamb_norm_kernel<T, true> : lamb_norm_kernel<T, false>, blocks, block, 0, batch,
           s, space);
    launch(stream, lamb_trust_kernel, dim3(unsigned(batch.count)), block, 0, batch, space, args.ratio_in_lr);
    launch(stream, encoded ? lamb_kernel<T, true> : lamb_kernel<T, false>, blocks, block, 0, batch, s, space);
  });
}
template <class T>
void adafactor(const OptimizerArgs& args, Stream stream) {
  gpu::adafactor(args, stream);
}

template <class T>
void optimize(const OptimizerArgs& args, Stream stream) {
  switch (args.kind) {
#define OPTIMIZER(name, ...) \
  case OptimizerKind::name:  \
    return name<T>(args, stream);
#include "kernels/optimizers.def"
#undef OPTIMIZER
  }
}

template <class T>
void norm(const GlobalNormArgs& args, Stream stream) {
  double* const squares = static_cast<double*>(args.workspace);
  const void* const* const lists[1] = {args.tensors};
  for_batches<NormTensors>(
      args.count, args.sizes, lists, args.dtype, args.types, [&](const NormTensors& batch, int blocks) {
        launch(stream, square_kernel<T>, dim3(unsigned(blocks)), dim3(kOptimizerThreads), 0, batch, squares);
      });
  launch(stream, norm_kernel<T>, dim3(1), dim3(1024), 0, squares, tensor_pieces(args.count, args.sizes),
         static_cast<T*>(args.out));
}

template <class T>
void add_parts(const AccumulateArgs& args, Stream stream) {
  const void* const* const lists[3] = {args.parts, args.sums, args.out};
  for_batches<SumTensors>(args.count, args.sizes, lists, args.dtype, args.part_types,
                          [&](const SumTensors& batch, int blocks) {
                            launch(stream, accumulate_kernel<T>, dim3(unsigned(blocks)),
                                   dim3(kOptimizerThreads), 0, batch, args.micro, args.divisor);
                          });
}

}  // namespace

void optimizer(const OptimizerArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, optimize, args, stream);
}
void global_norm(const GlobalNormArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, norm, args, stream);
}
void accumulate(const AccumulateArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, add_parts, args, stream);
}

}  // namespace gradloom::kernels::gpu
