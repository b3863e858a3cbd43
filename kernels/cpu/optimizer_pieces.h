// What the optimizers' kernels share: pieces of many tensors, and what a step reads of its arguments.
#pragma once

#include "kernels/block_quantization.h"
#include "kernels/cpu/halves.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/uniforms.h"
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

// 16-bit numbers [begin, begin + count) of a tensor.
template <class T>
GRADLOOM_INLINE void widen_all(DType type, const void* from, i64 begin, i64 count, T* to) {
  if (type == DType::bf16) {
    const Brain* const x = static_cast<const Brain*>(from) + begin;
    for (i64 i = 0; i < count; ++i) to[i] = T(widen(x[i]));
  } else {
    const Half* const x = static_cast<const Half*>(from) + begin;
    for (i64 i = 0; i < count; ++i) to[i] = T(widen(x[i]));
  }
}

// Elements [begin, begin + count) of a tensor, whose type may be of 16 bits: where they lie, or widened in `held`.
template <class T>
GRADLOOM_INLINE const T* widened(DType dtype, const DType* types, const void* const* tensors, i64 tensor,
                                 i64 begin, i64 count, T* held) {
  if (types == nullptr || types[tensor] == dtype) return static_cast<const T*>(tensors[tensor]) + begin;
  widen_all(types[tensor], tensors[tensor], begin, count, held);
  return held;
}
template <class T>
GRADLOOM_INLINE const T* gradients_at(const OptimizerArgs& args, i64 tensor, i64 begin, i64 count, T* held) {
  return widened(args.dtype, args.grad_types, args.grad, tensor, begin, count, held);
}

// The gradients of a piece: the tensor's, or in `held`, widened; where they are clipped by value scaled and clipped. A NaN
// stays one.
template <class T>
GRADLOOM_INLINE const T* gradients(const OptimizerArgs& args, const Piece& piece, T* held) {
  const T* const grad = gradients_at(args, piece.tensor, piece.begin, piece.count, held);
  if (!(args.clip_value > 0)) return grad;
  const T scale = args.grad_scale != nullptr ? *static_cast<const T*>(args.grad_scale) : T(1),
          limit = T(args.clip_value);
  for (i64 i = 0; i < piece.count; ++i) {
    const T g = grad[i] * scale;
    held[i] = g > limit ? limit : g < -limit ? -limit : g;
  }
  return held;
}

// The piece of the parameter that was just computed, rounded for the next forward pass.
template <class T>
GRADLOOM_INLINE void write_copy(const OptimizerArgs& args, const Piece& piece, const T* param) {
  if (args.copies == nullptr || args.copies[piece.tensor] < 0) return;
  void* const copy = args.copy_out[args.copies[piece.tensor]];
  if (args.low_type == DType::bf16) {
    Brain* const to = static_cast<Brain*>(copy) + piece.begin;
    for (i64 i = 0; i < piece.count; ++i) to[i] = brain_of(float(param[i]));
  } else {
    Half* const to = static_cast<Half*>(copy) + piece.begin;
    for (i64 i = 0; i < piece.count; ++i) to[i] = {_Float16(param[i])};
  }
}

// Numbers as bf16, up or down with probabilities that keep the mean: 16 random bits are added below the last that stays. What
// is not finite is rounded as ever. The bits are of the step that is counted, the same on all ranks, whose other random numbers differ.
template <class T>
GRADLOOM_INLINE void round_at_random(const OptimizerArgs& args, const Piece& piece, const T* from) {
  Brain* const to = static_cast<Brain*>(args.param_out[piece.tensor]) + piece.begin;
  const std::uint64_t stream = args.random->seed ^ args.keys[piece.tensor],
                      step = static_cast<std::uint64_t>(*args.step);
  for (i64 begin = 0; begin < piece.count; begin += kRandomChunk) {
    unsigned word[kRandomChunk];
    random_words(piece.begin + begin, stream, step, word);
    const i64 count = smaller(kRandomChunk, piece.count - begin);
    for (i64 i = 0; i < count; ++i) {
      const float x = float(from[begin + i]);
      const unsigned bits = __builtin_bit_cast(unsigned, x);
      const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
      to[begin + i] = {std::uint16_t(finite ? (bits + (word[i] >> 16)) >> 16 : brain_bits<unsigned>(x))};
    }
  }
}

// The parameter of a piece: where it lies, or widened in memory of its own, from which `finish` rounds it.
template <class T>
struct Parameter {
  const T* from;
  T* to;
  T held[kTensorPiece];

  GRADLOOM_INLINE Parameter(const OptimizerArgs& args, const Piece& piece) {
    if (args.low_params) {
      widen_all(args.low_type, args.param[piece.tensor], piece.begin, piece.count, held);
      from = to = held;
    } else {
      from = input<T>(args.param, piece);
      to = output<T>(args.param_out, piece);
    }
  }
  GRADLOOM_INLINE void finish(const OptimizerArgs& args, const Piece& piece) const {
    if (args.low_params) round_at_random(args, piece, to);
    write_copy(args, piece, to);
  }
};

// ---- states of 8 bits (kernels/block_quantization.h) ------------------------------------------------------------

struct CodeMap {
  float value[kCodes];
};
constexpr CodeMap code_map(bool positive) {
  CodeMap map{};
  for (int code = 0; code < kCodes; ++code) map.value[code] = map_value(code, positive);
  return map;
}
template <bool positive>
constexpr CodeMap kCodeMap = code_map(positive);

static_assert(kTensorPiece % kCodeBlock == 0);

// A state of a piece: where it lies or, if it is of 8 bits, decoded in memory of its own, from which `finish` encodes it. Null
// where there is none.
template <class T, StateRange range>
struct KeptState {
  const T* from;
  T* to;

  GRADLOOM_INLINE KeptState(const OptimizerArgs& args, const void* const* tensors, void* const* results,
                            const Piece& piece)
      : encoded_(args.eight_bit_states && tensors != nullptr) {
    if (!encoded_) {
      from = input<T>(tensors, piece);
      to = output<T>(results, piece);
      return;
    }
    from = to = held_;
    count_ = piece.count;
    const i64 scales = code_blocks(args.sizes[piece.tensor]) * i64(sizeof(float));
    result_ = static_cast<std::uint8_t*>(results[piece.tensor]);
    scales_ = reinterpret_cast<float*>(result_) + piece.begin / kCodeBlock;
    result_ += scales + piece.begin;
    const auto* const tensor = static_cast<const std::uint8_t*>(tensors[piece.tensor]);
    decode(reinterpret_cast<const float*>(tensor) + piece.begin / kCodeBlock, tensor + scales + piece.begin,
           held_, count_);
  }
  GRADLOOM_INLINE void finish() {
    if (!encoded_) return;
    for (i64 begin = 0; begin < count_; begin += kCodeBlock)
      scales_[begin / kCodeBlock] =
          encode(held_ + begin, smaller(kCodeBlock, count_ - begin), result_ + begin);
  }
  // The same, and `to` becomes what was encoded: what the next step reads.
  GRADLOOM_INLINE void settle() {
    finish();
    if (encoded_) decode(scales_, result_, held_, count_);
  }

 private:
  static constexpr bool kPositive = range == StateRange::positive;

  GRADLOOM_INLINE static void decode(const float* scales, const std::uint8_t* codes, T* to, i64 count) {
    for (i64 begin = 0; begin < count; begin += kCodeBlock) {
      const T scale = T(scales[begin / kCodeBlock]);
      const i64 end = begin + smaller(kCodeBlock, count - begin);
      for (i64 i = begin; i < end; ++i) to[i] = T(kCodeMap<kPositive>.value[codes[i]]) * scale;
    }
  }
  GRADLOOM_INLINE static float encode(const T* from, i64 count, std::uint8_t* codes) {
    T least = 0, most = 0;
    for (i64 i = 0; i < count; ++i) {
      least = min(from[i], least);
      most = max(from[i], most);
    }
    const float scale = block_scale(least, most);
    // The choice of code_in_block, once for all: a loop without it is vectorized.
    if (!(scale > 0 || scale < 0)) {
      __builtin_memset(codes, code_of<kPositive>(0), std::size_t(count));
    } else {
      for (i64 i = 0; i < count; ++i) codes[i] = std::uint8_t(code_of<kPositive>(float(from[i] / T(scale))));
    }
    return scale;
  }

  const bool encoded_;
  i64 count_;
  float* scales_;
  std::uint8_t* result_;
  T held_[kTensorPiece];
};

}  // namespace gradloom::kernels::GRADLOOM_ISA
