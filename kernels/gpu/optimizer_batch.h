// What the optimizers' kernels share: batches of tensors, cut into pieces, and what a step reads on the device.
#pragma once

#include "kernels/gpu/group.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {

// Those of OptimizerKind::adafactor (adafactor.cu), which keep means of rows and columns.
void adafactor(const OptimizerArgs& args, Stream stream);

constexpr int kOptimizerThreads = 256;

// ---- tensors of a launch --------------------------------------------------------------------------------------------------------

// Tensors [first_tensor, first_tensor + count) of all; tensor t of them has the blocks
// [first[t], first[t + 1]). Kernel parameters may have 4 KiB.
template <int kMost, int kLists>
struct Batch {
  static constexpr int kCapacity = kMost;
  const void* lists[kLists][kMost];
  DType types[kMost];  // of the tensors in the first list
  long long sizes[kMost];
  int first[kMost + 1];
  int count;
  long long first_tensor, first_piece;  // of all tensors
};
// body(batch, blocks) for all tensors, as many as fit at a time; of batches without an element nothing.
// lists: kLists lists of pointers, each may be null. types: of the tensors in the first; null: dtype.
template <class AnyBatch, int kLists, class Body>
void for_batches(long long count, const std::int64_t* sizes, const void* const* const (&lists)[kLists],
                 DType dtype, const DType* types, const Body& body) {
  long long tensor = 0, piece = 0;
  while (tensor < count) {
    AnyBatch batch{};
    batch.first_tensor = tensor;
    batch.first_piece = piece;
    int t = 0, blocks = 0;
    for (; t < AnyBatch::kCapacity && tensor < count; ++t, ++tensor) {
      for (int list = 0; list < kLists; ++list)
        batch.lists[list][t] = lists[list] != nullptr ? lists[list][tensor] : nullptr;
      batch.types[t] = types != nullptr ? types[tensor] : dtype;
      batch.sizes[t] = sizes[tensor];
      blocks += int(ceil_div(sizes[tensor], kTensorPiece));
      batch.first[t + 1] = blocks;
    }
    batch.count = t;
    piece += blocks;
    if (blocks > 0) body(batch, blocks);
  }
}

// The list of the tensors' copies, which some have; of parameters of 16 bits, which have none, the list of their keys.
template <class AnyBatch>
void add_copies_or_keys(AnyBatch& batch, int list, const OptimizerArgs& args) {
  for (int t = 0; t < batch.count; ++t) {
    const long long tensor = batch.first_tensor + t;
    if (args.low_params)
      batch.lists[list][t] = reinterpret_cast<const void*>(args.keys[tensor]);
    else if (args.copies != nullptr && args.copies[tensor] >= 0)
      batch.lists[list][t] = args.copy_out[args.copies[tensor]];
  }
}

// The tensor of part `number`: the last one whose first part is not behind it, tensors without parts left out.
template <class Number>
GRADLOOM_DEVICE int tensor_of(const Number* first, int count, Number number) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (first[middle + 1] <= number) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// body(offset in the piece, elements left) for the groups of this thread.
template <class T, class Body>
GRADLOOM_DEVICE void for_groups(long long count, const Body& body) {
  constexpr int kCount = Group<T>::kCount;
  for (long long i = static_cast<long long>(threadIdx.x) * kCount; i < count; i += kOptimizerThreads * kCount)
    body(i, count - i);
}

// ---- what is kept in 16 bits ----------------------------------------------------------------------------------------------------

// Whether some of the tensors may be of 16 bits where the others are of T.
template <class T>
constexpr bool kWide = sizeof(T) > 2;

// A tensor of T or of 16 bits.
struct LowTensor {
  const void* data;
  DType type;
};

template <class T>
GRADLOOM_DEVICE T element_at(const LowTensor& tensor, long long at) {
  if constexpr (kWide<T>) {
    if (tensor.type == DType::bf16) return T(to_float(static_cast<const bf16*>(tensor.data)[at]));
    if (tensor.type == DType::f16) return T(to_float(static_cast<const f16*>(tensor.data)[at]));
  }
  return static_cast<const T*>(tensor.data)[at];
}

// As fetch(), of elements from `at` on. The packs have as many elements whatever the type, so that sums are the same.
template <class T>
GRADLOOM_DEVICE Pack<T> fetch_any(const LowTensor& tensor, long long at, long long count, bool packed) {
  if constexpr (kWide<T>) {
    if (tensor.type == DType::bf16 || tensor.type == DType::f16) {
      Pack<T> pack;
      for (int j = 0; j < Pack<T>::kCount; ++j) pack.v[j] = j < count ? element_at<T>(tensor, at + j) : T{};
      return pack;
    }
  }
  return fetch(static_cast<const T*>(tensor.data) + at, count, packed);
}

// A number as bf16, up or down with probabilities that keep the mean (kernels/cpu/optimizer_pieces.h, bit for bit).
GRADLOOM_DEVICE bf16 rounded_at_random(float x, unsigned long long seed, unsigned long long step,
                                       unsigned long long key, long long at) {
  const unsigned bits = __builtin_bit_cast(unsigned, x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return to_bf16(x);
  const PhiloxWords words = philox_block(static_cast<unsigned long long>(at) / 4, seed ^ key, step);
  return {static_cast<unsigned short>((bits + (words.word[at % 4] >> 16)) >> 16)};
}

// Where the next parameter goes: to a tensor of T and, rounded, to a copy, if there is one; or, rounded at random, to one of bf16.
template <class T>
struct LowParameter {
  void *data, *copy;
  DType copy_type;
  const RandomState* random;  // null: data is of T
  const std::int64_t* step;
  unsigned long long key;

  GRADLOOM_DEVICE void store(long long at, const Group<T>& next, long long count, bool packed) const {
    if constexpr (kWide<T>) {
      if (random != nullptr) {
        for (int j = 0; j < Group<T>::kCount && j < count; ++j)
          static_cast<bf16*>(data)[at + j] = rounded_at_random(
              float(next.v[j]), random->seed, static_cast<unsigned long long>(*step), key, at + j);
        return;
      }
      for (int j = 0; copy != nullptr && j < Group<T>::kCount && j < count; ++j) {
        if (copy_type == DType::bf16)
          static_cast<bf16*>(copy)[at + j] = to_bf16(float(next.v[j]));
        else
          static_cast<f16*>(copy)[at + j] = to_f16(float(next.v[j]));
      }
    }
    store_group(static_cast<T*>(data) + at, next, count, packed);
  }
};

// What a step says of them.
struct LowParams {
  DType type;
  const RandomState* random;  // null: parameters are as what they are computed in
  const std::int64_t* step;

  template <class T>
  GRADLOOM_DEVICE LowTensor parameter(const void* data) const {
    return {data, random != nullptr ? type : DType::f32};
  }
  // copy_or_key: add_copies_or_keys.
  template <class T>
  GRADLOOM_DEVICE LowParameter<T> parameter_out(const void* data, const void* copy_or_key) const {
    const bool keyed = random != nullptr;
    return {const_cast<void*>(data),
            keyed ? nullptr : const_cast<void*>(copy_or_key),
            type,
            random,
            step,
            keyed ? reinterpret_cast<unsigned long long>(copy_or_key) : 0};
  }
};
inline LowParams low_params(const OptimizerArgs& args) {
  return {args.low_type, args.low_params ? args.random : nullptr, args.step};
}

// ---- what a step reads on the device ----------------------------------------------------------------------------------------------

struct StepInputs {
  const double* lr;
  const std::int64_t* step;
  const void* grad_scale;
  const bool* apply;
  double lr_factor, clip_value;
  bool maximize;
};
inline StepInputs step_inputs(const OptimizerArgs& args) {
  return {args.lr, args.step, args.grad_scale, args.apply, args.lr_factor, args.clip_value, args.maximize};
}

// Results stand where the operands do: a kernel that ends at once has changed nothing.
GRADLOOM_DEVICE bool skipped(const StepInputs& in) { return in.apply != nullptr && !*in.apply; }

GRADLOOM_DEVICE double learning_rate(const StepInputs& in) { return *in.lr * in.lr_factor; }

// The factor of gradients without their sign.
template <class T>
GRADLOOM_DEVICE Accum<T> unsigned_scale(const StepInputs& in) {
  return in.grad_scale != nullptr ? to_accum(*static_cast<const T*>(in.grad_scale)) : Accum<T>(1);
}
// The factor of what gradients_of() returns.
template <class T>
GRADLOOM_DEVICE Accum<T> gradient_scale(const StepInputs& in) {
  const Accum<T> scale = in.clip_value > 0 ? Accum<T>(1) : unsigned_scale<T>(in);
  return in.maximize ? -scale : scale;
}

// A NaN stays one.
template <class A>
GRADLOOM_DEVICE A clipped(A v, A limit) {
  return v > limit ? limit : v < -limit ? -limit : v;
}

// Gradients; where they are clipped by value, scaled and clipped.
template <class T>
GRADLOOM_DEVICE Group<T> gradients_of(const Pack<T>& pack, const StepInputs& in) {
  Group<T> grad = to_group(pack);
  if (!(in.clip_value > 0)) return grad;
  const Accum<T> scale = unsigned_scale<T>(in), limit = Accum<T>(in.clip_value);
  for (int j = 0; j < Group<T>::kCount; ++j) grad.v[j] = clipped(grad.v[j] * scale, limit);
  return grad;
}

GRADLOOM_DEVICE double power(double base, long long exponent) {
  double result = 1, square = base;
  for (; exponent > 0; exponent >>= 1, square *= square) {
    if (exponent & 1) result *= square;
  }
  return result;
}

// This thread's share of squares[0, n), then of the block.
GRADLOOM_DEVICE double sum_pieces(const double* squares, long long n) {
  double sum = 0;
  for (long long k = threadIdx.x; k < n; k += blockDim.x) sum += squares[k];
  return block_reduce(sum, Sum(), 0.0);
}

}  // namespace gradloom::kernels::gpu
