// What the updates of optimizer.cu share: tensors of a launch, what a step reads on the device, and loops over the elements of a piece
// with one to three states, of which those of 8 bits (kernels/block_quantization.h) go through a warp a block at a time.
#pragma once

#include "kernels/gpu/encoded_state.h"
#include "kernels/gpu/group.h"
#include "kernels/gpu/optimizer_batch.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {

// ---- tensors of a launch --------------------------------------------------------------------------------------------------------

enum UpdateList : int {
  kGrad,
  kParam,
  kState1,
  kState2,
  kParamOut,
  kState1Out,
  kState2Out,
  kCopyOrKey,
  kListCount,
  kState3 = kListCount,  // of WideUpdateTensors
  kState3Out,
  kWideListCount
};
using UpdateTensors = Batch<kOptimizerBatch, kListCount>;
using WideUpdateTensors = Batch<kWideOptimizerBatch, kWideListCount>;
static_assert(sizeof(UpdateTensors) < 3840 && sizeof(WideUpdateTensors) < 3840);

template <class T>
struct UpdatePiece {
  const T *state1, *state2, *state3;
  T *state1_out, *state2_out, *state3_out;
  LowTensor grad, param;
  LowParameter<T> param_out;
  long long begin, count;
  bool packed;

  // Of `left` elements from the piece's i-th on.
  GRADLOOM_DEVICE Pack<T> gradients(long long i, long long left) const {
    return fetch_any<T>(grad, begin + i, left, packed);
  }
  GRADLOOM_DEVICE Pack<T> params(long long i, long long left) const {
    return fetch_any<T>(param, begin + i, left, packed);
  }
  GRADLOOM_DEVICE void store_params(long long i, const Group<T>& next, long long left) const {
    param_out.store(begin + i, next, left, packed);
  }
};

template <class T, int kMost, int kLists>
GRADLOOM_DEVICE UpdatePiece<T> piece_of(const Batch<kMost, kLists>& batch, int t, const LowParams& low) {
  const long long begin = (static_cast<long long>(blockIdx.x) - batch.first[t]) * kTensorPiece;
  unsigned long long bits = 0;
  T* at[kWideListCount] = {};
  for (int list = 0; list < kLists; ++list) {
    T* const tensor = static_cast<T*>(const_cast<void*>(batch.lists[list][t]));
    at[list] = tensor != nullptr ? tensor + begin : nullptr;
    if (list != kCopyOrKey) bits |= reinterpret_cast<unsigned long long>(tensor);
  }
  const long long left = batch.sizes[t] - begin;
  return {at[kState1],
          at[kState2],
          at[kState3],
          at[kState1Out],
          at[kState2Out],
          at[kState3Out],
          {batch.lists[kGrad][t], batch.types[t]},
          low.parameter<T>(batch.lists[kParam][t]),
          low.parameter_out<T>(batch.lists[kParamOut][t], batch.lists[kCopyOrKey][t]),
          begin,
          left < kTensorPiece ? left : kTensorPiece,
          bits % 16 == 0};
}

// ---- states of 8 bits -----------------------------------------------------------------------------------------------------------

template <class T, bool positive>
GRADLOOM_DEVICE EncodedState<T, positive> encoded_state(const UpdateTensors& batch, UpdateList from,
                                                        UpdateList to, int t, const UpdatePiece<T>& piece) {
  return {batch.lists[from][t], batch.lists[to][t], batch.sizes[t], piece.begin};
}

// update(i, left, first, second) computes the next states of a group; then stored(i, left, first, second) sees them as they are
// stored. Of optimizers with one state `second` means nothing. Every thread must call it.
template <class T, bool positive, bool two, class Update, class Stored>
GRADLOOM_DEVICE void for_encoded(const UpdateTensors& batch, int t, const UpdatePiece<T>& piece,
                                 const Update& update, const Stored& stored) {
  constexpr int kCount = Group<T>::kCount, kGroups = kCodeBlock / kCount,
                kRounds = kGroups > kWarp ? kGroups / kWarp : 1;
  const auto first = encoded_state<T, positive>(batch, kState1, kState1Out, t, piece);
  const auto second =
      encoded_state<T, true>(batch, two ? kState2 : kState1, two ? kState2Out : kState1Out, t, piece);
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  for (long long block = warp * kCodeBlock; block < piece.count;
       block += kOptimizerThreads / kWarp * kCodeBlock) {
    Group<T> groups1[kRounds], groups2[kRounds];
    Extremes<T> extremes1, extremes2;
    const auto for_lane = [&](const auto& body) {
      for (int round = 0; round < kRounds; ++round) {
        const int group = round * kWarp + lane;
        const long long i = block + group * kCount, left = piece.count - i;
        if (group < kGroups && left > 0) body(i, left, groups1[round], groups2[round]);
      }
    };
    for_lane([&](long long i, long long left, Group<T>& a, Group<T>& b) {
      a = first.load(i, left);
      if (two) b = second.load(i, left);
      update(i, left, a, b);
      extremes1.add(a, left);
      if (two) extremes2.add(b, left);
    });
    const float scale1 = extremes1.scale(), scale2 = two ? extremes2.scale() : 0.0f;
    sync_warp();  // every lane has read the old scales, which may be in the same place
    if (lane == 0) first.store_scale(block, scale1);
    if (two && lane == 0) second.store_scale(block, scale2);
    for_lane([&](long long i, long long left, Group<T>& a, Group<T>& b) {
      first.store(i, left, scale1, a);
      if (two) second.store(i, left, scale2, b);
      stored(i, left, a, b);
    });
  }
}

// ---- what a step reads on the device ----------------------------------------------------------------------------------------------

struct UpdateSettings {
  double beta1, beta2, epsilon, weight_decay, momentum, dampening, lr_decay, initial_sum, alpha,
      momentum_decay;
  bool nesterov, correct_bias, centered, decoupled;
  LowParams low;
  StepInputs inputs;
};

template <class A>
struct MomentFactors {
  A scale, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, decay;
  A shrink, rate, inverse_root;     // 1 - lr wd, lr / (1 - b1^t), 1 / sqrt(1 - b2^t)
  A correction1, root_correction2;  // 1 - b1^t, sqrt(1 - b2^t)
};

// Every thread must call it: one computes the powers.
template <class T>
GRADLOOM_DEVICE MomentFactors<Accum<T>> adam_factors(const UpdateSettings& s) {
  using A = Accum<T>;
  __shared__ MomentFactors<A> shared;
  if (threadIdx.x == 0) {
    const double lr = learning_rate(s.inputs), correction1 = 1.0 - power(s.beta1, *s.inputs.step),
                 root2 = sqrt(1.0 - power(s.beta2, *s.inputs.step));
    shared = {gradient_scale<T>(s.inputs),
              A(s.beta1),
              A(1.0 - s.beta1),
              A(s.beta2),
              A(1.0 - s.beta2),
              A(s.epsilon),
              A(s.weight_decay),
              A(1.0 - lr * s.weight_decay),
              A(lr / correction1),
              A(1.0 / root2),
              A(correction1),
              A(root2)};
  }
  __syncthreads();
  return shared;
}

// ---- updates --------------------------------------------------------------------------------------------------------------------

// What Adam and LAMB read of an element.
template <class T>
struct UpdateInputs {
  Pack<T> grad, param, state1, state2;
};
template <class T>
GRADLOOM_DEVICE UpdateInputs<T> fetch_inputs(const UpdatePiece<T>& piece, long long i, long long left) {
  return {piece.gradients(i, left), piece.params(i, left), fetch(piece.state1 + i, left, piece.packed),
          fetch(piece.state2 + i, left, piece.packed)};
}

template <class T>
GRADLOOM_DEVICE Pack<T> fetch_or_zero(const T* state, long long i, long long left, bool packed) {
  if (state == nullptr) return {};
  return fetch(state + i, left, packed);
}

// body(parameter, gradient, state) changes parameter and state of an element, for optimizers with one state.
// encoded: the state is of 8 bits; positive: its range.
template <class T, bool encoded, bool positive, class Body>
GRADLOOM_DEVICE void update_with_state(const UpdateTensors& batch, const UpdateSettings& s,
                                       const Body& body) {
  const Accum<T> scale = gradient_scale<T>(s.inputs);
  const int t = tensor_of(batch.first, batch.count, int(blockIdx.x));
  const UpdatePiece<T> piece = piece_of<T>(batch, t, s.low);
  if constexpr (encoded) {
    const auto update = [&](long long i, long long left, Group<T>& state, const Group<T>&) {
      const Group<T> grad = gradients_of(piece.gradients(i, left), s.inputs);
      Group<T> param = to_group(piece.params(i, left));
      for (int j = 0; j < Group<T>::kCount; ++j) body(param.v[j], grad.v[j] * scale, state.v[j]);
      piece.store_params(i, param, left);
    };
    return for_encoded<T, positive, false>(batch, t, piece, update, [](auto&&...) {});
  }
  for_groups<T>(piece.count, [&](long long i, long long left) {
    const Pack<T> grad_pack = piece.gradients(i, left), param_pack = piece.params(i, left),
                  state_pack = fetch(piece.state1 + i, left, piece.packed);
    const Group<T> grad = gradients_of(grad_pack, s.inputs);
    Group<T> param = to_group(param_pack), state = to_group(state_pack);
    for (int j = 0; j < Group<T>::kCount; ++j) body(param.v[j], grad.v[j] * scale, state.v[j]);
    store_group(piece.state1_out + i, state, left, piece.packed);
    piece.store_params(i, param, left);
  });
}

// body(parameter, gradient, m, v): the same for optimizers with two, of which the second is positive.
template <class T, bool encoded, bool positive, class Body>
GRADLOOM_DEVICE void update_with_states(const UpdateTensors& batch, const UpdateSettings& s, Accum<T> scale,
                                        const Body& body) {
  const int t = tensor_of(batch.first, batch.count, int(blockIdx.x));
  const UpdatePiece<T> piece = piece_of<T>(batch, t, s.low);
  if constexpr (encoded) {
    const auto update = [&](long long i, long long left, Group<T>& m, Group<T>& v) {
      const Group<T> grad = gradients_of(piece.gradients(i, left), s.inputs);
      Group<T> param = to_group(piece.params(i, left));
      for (int j = 0; j < Group<T>::kCount; ++j) body(param.v[j], grad.v[j] * scale, m.v[j], v.v[j]);
      piece.store_params(i, param, left);
    };
    return for_encoded<T, positive, true>(batch, t, piece, update, [](auto&&...) {});
  }
  for_groups<T>(piece.count, [&](long long i, long long left) {
    const UpdateInputs<T> in = fetch_inputs(piece, i, left);
    const Group<T> grad = gradients_of(in.grad, s.inputs);
    Group<T> param = to_group(in.param), state1 = to_group(in.state1), state2 = to_group(in.state2);
    for (int j = 0; j < Group<T>::kCount; ++j) body(param.v[j], grad.v[j] * scale, state1.v[j], state2.v[j]);
    store_group(piece.state1_out + i, state1, left, piece.packed);
    store_group(piece.state2_out + i, state2, left, piece.packed);
    piece.store_params(i, param, left);
  });
}

// body(parameter, gradient, state1, state2, state3): the same for optimizers with a third state, of which it and the second may be
// missing: what is not there is 0. None is of 8 bits.
template <class T, class Body>
GRADLOOM_DEVICE void update_with_plain_states(const WideUpdateTensors& batch, const UpdateSettings& s,
                                              Accum<T> scale, const Body& body) {
  const int t = tensor_of(batch.first, batch.count, int(blockIdx.x));
  const UpdatePiece<T> piece = piece_of<T>(batch, t, s.low);
  for_groups<T>(piece.count, [&](long long i, long long left) {
    const UpdateInputs<T> in = {piece.gradients(i, left), piece.params(i, left),
                                fetch(piece.state1 + i, left, piece.packed),
                                fetch_or_zero(piece.state2, i, left, piece.packed)};
    const Pack<T> third = fetch_or_zero(piece.state3, i, left, piece.packed);
    const Group<T> grad = gradients_of(in.grad, s.inputs);
    Group<T> param = to_group(in.param), a = to_group(in.state1), b = to_group(in.state2),
             c = to_group(third);
    for (int j = 0; j < Group<T>::kCount; ++j) body(param.v[j], grad.v[j] * scale, a.v[j], b.v[j], c.v[j]);
    store_group(piece.state1_out + i, a, left, piece.packed);
    if (piece.state2_out != nullptr) store_group(piece.state2_out + i, b, left, piece.packed);
    if (piece.state3_out != nullptr) store_group(piece.state3_out + i, c, left, piece.packed);
    piece.store_params(i, param, left);
  });
}

}  // namespace gradloom::kernels::gpu
