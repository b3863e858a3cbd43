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
  long long sizes[kMost];
  int first[kMost + 1];
  int count;
  long long first_tensor, first_piece;  // of all tensors
};
// body(batch, blocks) for all tensors, as many as fit at a time.
// lists: kLists lists of pointers, each may be null.
template <class AnyBatch, int kLists, class Body>
void for_batches(long long count, const std::int64_t* sizes, const void* const* const (&lists)[kLists],
                 const Body& body) {
  long long tensor = 0, piece = 0;
  while (tensor < count) {
    AnyBatch batch{};
    batch.first_tensor = tensor;
    batch.first_piece = piece;
    int t = 0, blocks = 0;
    for (; t < AnyBatch::kCapacity && tensor < count; ++t, ++tensor) {
      for (int list = 0; list < kLists; ++list)
        batch.lists[list][t] = lists[list] != nullptr ? lists[list][tensor] : nullptr;
      batch.sizes[t] = sizes[tensor];
      blocks += int(ceil_div(sizes[tensor], kTensorPiece));
      batch.first[t + 1] = blocks;
    }
    batch.count = t;
    piece += blocks;
    body(batch, blocks);
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
