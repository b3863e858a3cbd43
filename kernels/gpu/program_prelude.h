// What generated kernels (program_source.h) use besides gpu.h: conversions between all element types with
// the CPU's results, rows of consecutive elements, random numbers. Part of generated_prelude(): no includes but these.
#pragma once

#include "kernels/gpu/gpu.h"
#include "kernels/small_types.h"

namespace gradloom::kernels::gpu {

struct RandomState {  // kernels/arguments/elements.h
  unsigned long long seed, step;
};

// ---- conversions ----------------------------------------------------------------------------------------------------------------

struct Truth {  // DType::boolean as the target of a cast; in registers it is an unsigned char of 0 or 1
  unsigned char value;
};

// What a storage type is computed in: float for bf16 and f16, else itself.
template <class T>
GRADLOOM_DEVICE T widen(T v) {
  return v;
}
GRADLOOM_DEVICE float widen(bf16 v) { return to_float(v); }
GRADLOOM_DEVICE float widen(f16 v) { return to_float(v); }
using portable::widen;  // small floats

template <class T>
struct CastTo {
  static constexpr bool kFloat = T(0.5) != T(0);
  // Float to integer saturates and NaN becomes 0.
  template <class From>
  static GRADLOOM_DEVICE T from(From x) {
    if constexpr (From(0.5) != From(0) && !kFloat) {
      constexpr bool is_signed = T(-1) < T(0);
      constexpr int bits = 8 * int(sizeof(T)) - (is_signed ? 1 : 0);
      constexpr From limit = From(2) * From(1ull << (bits - 1));  // one above the largest
      constexpr T largest = T(~0ull >> (64 - bits));
      constexpr T lowest = is_signed ? T(-largest - 1) : T(0);
      const bool above = x >= limit, below = is_signed ? x < -limit : x < From(0);
      const From inside = above | below | (x != x) ? From(0) : x;
      return above ? largest : (below ? lowest : T(inside));
    } else {
      return T(x);
    }
  }
};
template <>
struct CastTo<Truth> {
  template <class From>
  static GRADLOOM_DEVICE unsigned char from(From x) {
    return x != From(0) ? 1 : 0;
  }
};
template <>
struct CastTo<bf16> {
  template <class From>
  static GRADLOOM_DEVICE bf16 from(From x) {
    return to_bf16(float(x));
  }
};
template <>
struct CastTo<f16> {
  template <class From>
  static GRADLOOM_DEVICE f16 from(From x) {
    return to_f16(float(x));
  }
  static GRADLOOM_DEVICE f16 from(double x) { return to_f16(x); }
};

// Small integers are their values in registers.
template <int bits, bool is_signed>
struct CastTo<SmallInt<bits, is_signed>> {
  template <class From>
  static GRADLOOM_DEVICE auto from(From x) {
    SmallInt<bits, is_signed> y;
    portable::narrow(x, y);
    return y.value;
  }
};
template <int exponent_bits, int fraction_bits, int bias, SmallSpecials specials>
struct CastTo<SmallFloat<exponent_bits, fraction_bits, bias, specials>> {
  template <class From>
  static GRADLOOM_DEVICE auto from(From x, unsigned mode = 0) {
    SmallFloat<exponent_bits, fraction_bits, bias, specials> y;
    portable::narrow(to_real(x), y, mode);
    return y;
  }
};
template <>
struct CastTo<F8e8m0> {
  template <class From>
  static GRADLOOM_DEVICE F8e8m0 from(From x, unsigned mode = 0) {
    F8e8m0 y;
    portable::narrow(double(x), y, mode);
    return y;
  }
};

// x as a T: x in any type of registers, T a storage type, Truth or a small type, `mode`: of a small float.
template <class T, class From>
GRADLOOM_DEVICE auto cast(From x) {
  return CastTo<T>::from(widen(x));
}
template <class T, class From>
GRADLOOM_DEVICE auto cast(From x, unsigned mode) {
  return CastTo<T>::from(widen(x), mode);
}

// ---- consecutive elements -------------------------------------------------------------------------------------------------------

template <class T, int n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Lanes {
  T v[n];
};

// n elements: at once when `whole`, which says that all exist and lie at a boundary of their
// vector; else the first `valid`.
template <class T, int n>
GRADLOOM_DEVICE Lanes<T, n> load_lanes(const T* from, bool whole, int valid) {
  if (whole) return *reinterpret_cast<const Lanes<T, n>*>(from);
  Lanes<T, n> lanes = {};
#pragma unroll
  for (int j = 0; j < n; ++j) {
    if (j < valid) lanes.v[j] = from[j];
  }
  return lanes;
}

template <class T, int n>
GRADLOOM_DEVICE void store_lanes(T* to, const Lanes<T, n>& lanes, bool whole, int valid) {
  if (whole) {
    *reinterpret_cast<Lanes<T, n>*>(to) = lanes;
    return;
  }
#pragma unroll
  for (int j = 0; j < n; ++j) {
    if (j < valid) to[j] = lanes.v[j];
  }
}

// n elements `step` apart.
template <class T, int n, class Step>
GRADLOOM_DEVICE Lanes<T, n> gather_lanes(const T* from, Step step) {
  Lanes<T, n> lanes;
#pragma unroll
  for (int j = 0; j < n; ++j) lanes.v[j] = from[j * step];
  return lanes;
}

template <class T, int n>
GRADLOOM_DEVICE bool at_boundary(const void* p) {
  return reinterpret_cast<unsigned long long>(p) % alignof(Lanes<T, n>) == 0;
}

// ---- random numbers -------------------------------------------------------------------------------------------------------------

// Uniform numbers in [0, 1) of n elements from `first`, a multiple of 4 (philox.h).
template <int n>
struct Uniforms {
  float v[n];
};
template <int n>
GRADLOOM_DEVICE Uniforms<n> uniforms(unsigned long long first, unsigned long long stream,
                                     unsigned long long step) {
  Uniforms<n> u;
#pragma unroll
  for (int block = 0; block < n / 4; ++block) {
    const PhiloxWords words = philox_block(first / 4 + block, stream, step);
#pragma unroll
    for (int j = 0; j < 4; ++j) u.v[4 * block + j] = philox_uniform(words.word[j]);
  }
  return u;
}

// Of element `index` alone.
GRADLOOM_DEVICE float uniform_at(unsigned long long index, unsigned long long stream,
                                 unsigned long long step) {
  const PhiloxWords words = philox_block(index / 4, stream, step);
  const unsigned low = index & 1 ? words.word[1] : words.word[0],
                 high = index & 1 ? words.word[3] : words.word[2];
  return philox_uniform(index & 2 ? high : low);
}

template <class T>
GRADLOOM_DEVICE T dropout(float uniform, T x, T ratio, unsigned char training) {
  const T dropped = T(uniform) >= ratio ? x * (T(1) / (T(1) - ratio)) : T(0);
  return training ? dropped : x;
}

template <class T>
GRADLOOM_DEVICE unsigned char dropout_mask(float uniform, T ratio, unsigned char training) {
  return T(uniform) >= ratio || !training ? 1 : 0;
}

// ---- rows -----------------------------------------------------------------------------------------------------------------------

// Of the `lanes` threads of a row, which are neighbours, in a fixed order; every thread gets the result. lanes: a power of two; more
// than 32: the whole block.
template <int lanes, class A, class Op>
GRADLOOM_DEVICE A row_reduce(A v, Op op, A identity) {
  if constexpr (lanes > 32) {
    return block_reduce(v, op, identity);
  } else {
    for (int apart = lanes / 2; apart > 0; apart /= 2) v = op(v, shuffle_xor(v, apart));
    return v;
  }
}

}  // namespace gradloom::kernels::gpu
