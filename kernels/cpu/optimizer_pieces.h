// What the optimizers' kernels share: pieces of many tensors, and what a step reads of its arguments.
#pragma once

#include "kernels/cpu/kernel.h"
#include "kernels/cpu/workspace.h"

namespace gradloom::kernels::GRADLOOM_ISA {

// Those of OptimizerKind::adafactor (adafactor.cpp), which keep sums of rows and columns.
void adafactor(const OptimizerArgs& args);

struct Piece {
  i64 tensor, begin, count;
};

// body(tensor, part, number of the part among all) for every part of every tensor; parts_of(tensor): how many it has.
template <class PartsOf, class Body>
GRADLOOM_INLINE void for_parts(i64 count, const i64* sizes, i64 work_per_element, const PartsOf& parts_of,
                               const Body& body) {
  i64 parts = 0, elements = 0;
  for (i64 t = 0; t < count; ++t) {
    parts += parts_of(t);
    elements += sizes[t];
  }
  parallel_ranges(parts, elements * work_per_element, [&](i64 first, i64 last) {
    i64 tensor = 0, before = 0;  // parts of the tensors before `tensor`
    for (i64 number = first; number < last; ++number) {
      while (number >= before + parts_of(tensor)) before += parts_of(tensor++);
      body(tensor, number - before, number);
    }
  });
}

// Calls body(number, piece) for all pieces of all tensors.
template <class Body>
GRADLOOM_INLINE void for_pieces(i64 count, const i64* sizes, i64 work_per_element, const Body& body) {
  const auto pieces_in = [&](i64 t) { return blocks_of(sizes[t], kTensorPiece); };
  for_parts(count, sizes, work_per_element, pieces_in, [&](i64 tensor, i64 part, i64 number) {
    const i64 begin = part * kTensorPiece;
    body(number, Piece{tensor, begin, smaller(kTensorPiece, sizes[tensor] - begin)});
  });
}

// The first piece of each tensor gets the sum of `values` over the tensor's pieces.
GRADLOOM_INLINE void add_pieces(i64 count, const i64* sizes, double* values) {
  for (i64 t = 0, first = 0; t < count; ++t) {
    const i64 end = first + blocks_of(sizes[t], kTensorPiece);
    for (i64 k = first + 1; k < end; ++k) values[first] += values[k];
    first = end;
  }
}

template <class T>
GRADLOOM_INLINE const T* input(const void* const* tensors, const Piece& piece) {
  return tensors != nullptr ? static_cast<const T*>(tensors[piece.tensor]) + piece.begin : nullptr;
}
template <class T>
GRADLOOM_INLINE T* output(void* const* tensors, const Piece& piece) {
  return tensors != nullptr ? static_cast<T*>(tensors[piece.tensor]) + piece.begin : nullptr;
}

GRADLOOM_INLINE double power(double base, i64 exponent) {
  double result = 1, square = base;
  for (; exponent > 0; exponent >>= 1, square *= square) {
    if (exponent & 1) result *= square;
  }
  return result;
}

GRADLOOM_INLINE double learning_rate(const OptimizerArgs& args) { return *args.lr * args.lr_factor; }

// The factor of what `gradients` returns.
template <class T>
GRADLOOM_INLINE T gradient_scale(const OptimizerArgs& args) {
  const bool done = args.grad_scale == nullptr || args.clip_value > 0;  // where clipped: by `gradients`
  const T scale = done ? T(1) : *static_cast<const T*>(args.grad_scale);
  return args.maximize ? -scale : scale;
}

// The gradients of a piece: the tensor's, or where they are clipped by value, scaled and clipped in `held`. A NaN stays one.
template <class T>
GRADLOOM_INLINE const T* gradients(const OptimizerArgs& args, const Piece& piece, T* held) {
  const T* const grad = input<T>(args.grad, piece);
  if (!(args.clip_value > 0)) return grad;
  const T scale = args.grad_scale != nullptr ? *static_cast<const T*>(args.grad_scale) : T(1),
          limit = T(args.clip_value);
  for (i64 i = 0; i < piece.count; ++i) {
    const T g = grad[i] * scale;
    held[i] = g > limit ? limit : g < -limit ? -limit : g;
  }
  return held;
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
