// What every CPU kernel file uses: the kernels' declarations in the namespace of this x86-64 level, parallel
// loops over fixed parts, and sums in a fixed order.
//
// Everything here lives in the level's namespace and nothing from the standard library is instantiated,
// because the linker keeps one copy of an inline function and it could be the AVX-512 one.
#pragma once

#include "kernels/cpu.h"
#include "kernels/math.h"
#include "kernels/threads.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace gradloom::kernels::GRADLOOM_ISA {

#define GRADLOOM_DECLARE(name, Args) void name(const Args& args);
GRADLOOM_CPU_KERNELS(GRADLOOM_DECLARE)
#undef GRADLOOM_DECLARE

extern const CpuKernels table;

using i64 = std::int64_t;

#define GRADLOOM_INLINE inline __attribute__((always_inline))

// One unit of work is about one cheap operation on one element, 0.03 to 0.05 ns in L2. A parallel region
// costs 2 us or more; below this it would cost more than it saves.
constexpr i64 kParallelWork = 131072;

constexpr i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
constexpr i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
constexpr i64 larger(i64 a, i64 b) { return a > b ? a : b; }

// body(part) for every part; which parts there are must not depend on the number of threads.
template <class Body>
GRADLOOM_INLINE void parallel_for(i64 parts, i64 work, const Body& body) {
  if (work >= kParallelWork && parts > 1) {
    for_parts(parts, body);
  } else {
    for (i64 part = 0; part < parts; ++part) body(part);
  }
}

// body(begin, end) for ranges of parts that cover all. Only for parts that are computed alike wherever a range begins.
template <class Body>
GRADLOOM_INLINE void parallel_ranges(i64 parts, i64 work, const Body& body) {
  if (work >= kParallelWork && parts > 1) {
    for_ranges(parts, body);
  } else {
    body(i64{0}, parts);
  }
}

// body(begin, end) over [0, n) in pieces of at most `grain`.
template <class Body>
GRADLOOM_INLINE void parallel_pieces(i64 n, i64 grain, i64 work, const Body& body) {
  parallel_for(ceil_div(n, grain), work,
               [&](i64 part) { body(part * grain, smaller(n, (part + 1) * grain)); });
}

// f<float>(args) or f<double>(args).
#define GRADLOOM_FLOAT_DISPATCH(type, f, args) \
  do {                                         \
    if ((type) == DType::f64) {                \
      f<double>(args);                         \
    } else {                                   \
      f<float>(args);                          \
    }                                          \
  } while (false)

// One register of T on this level.
#if defined(__AVX512F__)
constexpr int kVecBytes = 64;
#elif defined(__AVX__)
constexpr int kVecBytes = 32;
#else
constexpr int kVecBytes = 16;
#endif
template <class T, int bytes>
struct VecOf {
  typedef T type __attribute__((vector_size(bytes)));
};
template <class T>
using Vec = typename VecOf<T, kVecBytes>::type;
template <class T>
constexpr i64 kLanes = kVecBytes / i64(sizeof(T));

template <class T>
GRADLOOM_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, kVecBytes);
  return v;
}
template <class T>
GRADLOOM_INLINE void store(T* p, const Vec<T>& v) {
  __builtin_memcpy(p, &v, kVecBytes);
}

// A number or a register of them, whatever `like` is.
template <class V, class T>
GRADLOOM_INLINE V get(const T* p, const V&) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V, class T>
GRADLOOM_INLINE void put(T* p, const V& v) {
  __builtin_memcpy(p, &v, sizeof v);
}
// body(i, zero) with a register while there is one from i on, else with a number, for i in [0, n).
template <class T, class Body>
GRADLOOM_INLINE void for_registers(i64 n, const Body& body) {
  i64 i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) body(i, Vec<T>{});
  for (; i < n; ++i) body(i, T{});
}

// Begin to bring to L2 what is read or written soon, where the hardware does not foresee it: past the end of
// a row or a page, or in a loop that leaves the memory idle. One line at a time among other work: a processor
// waits when some 20 are under way. Addresses past the end of a tensor do nothing.
GRADLOOM_INLINE void fetch(const void* p) { __builtin_prefetch(p, 0, 2); }
GRADLOOM_INLINE void fetch_to_write(void* p) { __builtin_prefetch(p, 1, 2); }

template <>
struct WordOf<Vec<float>> {
  using type = Vec<unsigned>;
  using Signed = Vec<int>;
};
template <>
struct WordOf<Vec<double>> {
  using type = Vec<unsigned long long>;
  using Signed = Vec<long long>;
};
#if defined(__AVX512F__)
// Every lane, for the forms of intrinsics that take a mask: of the others GCC 12 says that
// they read what is not set.
constexpr __mmask16 kEveryLane = 0xffff;

// What the lowest four bits of `number` count in a table, which a register holds.
GRADLOOM_INLINE Vec<float> pick(const float (&entries)[16], const Vec<unsigned>& number) {
  return _mm512_maskz_permutexvar_ps(kEveryLane, __builtin_bit_cast(__m512i, number),
                                     _mm512_load_ps(entries));
}
GRADLOOM_INLINE Vec<unsigned> pick(const unsigned (&entries)[16], const Vec<unsigned>& number) {
  const __m512i bits = __builtin_bit_cast(__m512i, number);
  return __builtin_bit_cast(Vec<unsigned>,
                            _mm512_maskz_permutexvar_epi32(kEveryLane, bits, _mm512_load_si512(entries)));
}

// 2^(i/16) with i << 19 taken off its bits and its exponent left away, for scale_up.
#define GRADLOOM_ROOT(bits, i) bits##u - 0x3f800000u - (i##u << 19)
alignas(64) constexpr unsigned kRootsOfTwo[16] = {
    GRADLOOM_ROOT(0x3f800000, 0),  GRADLOOM_ROOT(0x3f85aac3, 1),  GRADLOOM_ROOT(0x3f8b95c2, 2),
    GRADLOOM_ROOT(0x3f91c3d3, 3),  GRADLOOM_ROOT(0x3f9837f0, 4),  GRADLOOM_ROOT(0x3f9ef532, 5),
    GRADLOOM_ROOT(0x3fa5fed7, 6),  GRADLOOM_ROOT(0x3fad583f, 7),  GRADLOOM_ROOT(0x3fb504f3, 8),
    GRADLOOM_ROOT(0x3fbd08a4, 9),  GRADLOOM_ROOT(0x3fc5672a, 10), GRADLOOM_ROOT(0x3fce248c, 11),
    GRADLOOM_ROOT(0x3fd744fd, 12), GRADLOOM_ROOT(0x3fe0ccdf, 13), GRADLOOM_ROOT(0x3feac0c7, 14),
    GRADLOOM_ROOT(0x3ff5257d, 15)};
#undef GRADLOOM_ROOT

// 2^(n/16) (1 + rest). Of shifted = n + kSixteenths, 1.5 * 2^23 and 127 * 16, the lowest four bits are n's
// and, four places further up, there is the exponent.
constexpr float kSixteenths = 12582912.0f + 127 * 16;
GRADLOOM_INLINE Vec<float> scale_up(const Vec<float>& shifted, const Vec<float>& rest) {
  const auto bits = __builtin_bit_cast(Vec<unsigned>, shifted);
  const auto scale = __builtin_bit_cast(Vec<float>, pick(kRootsOfTwo, bits) + (bits << 19));
  return scale * rest + scale;
}

// exp(x) = 2^(n/16) exp(r), |r| <= ln 2 / 32: a register holds the roots of two, and three multiplications
// fewer than without them give exp(r). Else as exp_down_f32.
GRADLOOM_INLINE Vec<float> exp_down(const Vec<float>& x) {
  const Vec<float> shifted = x * 23.0831206542234142f + kSixteenths, n = shifted - kSixteenths;
  Vec<float> r = x - n * (0.693359375f / 16);
  r = r - n * (-2.12194440e-4f / 16);
  const Vec<float> rest = ((1.0f / 6 * r + 0.5f) * r + 1.0f) * r;
  return x < -87.3365f ? Vec<float>{} : scale_up(shifted, rest);
}
#else
GRADLOOM_INLINE Vec<float> exp_down(const Vec<float>& x) { return exp_down_f32(x); }
#endif
GRADLOOM_INLINE Vec<double> exp_down(const Vec<double>& x) { return exp_f64(x); }

// Lower and upper half of a vector of `n` lanes.
template <int n, class V>
GRADLOOM_INLINE auto low(const V& v) {
  if constexpr (n == 16) {
    return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  } else if constexpr (n == 8) {
    return __builtin_shufflevector(v, v, 0, 1, 2, 3);
  } else {
    return __builtin_shufflevector(v, v, 0, 1);
  }
}
template <int n, class V>
GRADLOOM_INLINE auto high(const V& v) {
  if constexpr (n == 16) {
    return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  } else if constexpr (n == 8) {
    return __builtin_shufflevector(v, v, 4, 5, 6, 7);
  } else {
    return __builtin_shufflevector(v, v, 2, 3);
  }
}

// Joins all lanes of a vector, halves first; `join` works on vectors of any length and on T.
template <class T, int n = int(kLanes<T>), class V, class Join>
GRADLOOM_INLINE T fold(const V& v, const Join& join) {
  if constexpr (n == 2) {
    return join(T(v[0]), T(v[1]));
  } else {
    return fold<T, n / 2>(join(low<n>(v), high<n>(v)), join);
  }
}

struct AddLanes {
  template <class V>
  GRADLOOM_INLINE V operator()(const V& a, const V& b) const {
    return a + b;
  }
};

GRADLOOM_INLINE double lane_sum(const Vec<double>& v) { return fold<double>(v, AddLanes()); }
GRADLOOM_INLINE double lane_sum(const Vec<float>& v) {
  constexpr int n = int(kLanes<float>);
  const Vec<double> both =
      __builtin_convertvector(low<n>(v), Vec<double>) + __builtin_convertvector(high<n>(v), Vec<double>);
  return fold<double>(both, AddLanes());
}

// Sum of f(x[i], y[i]), f working on T and on Vec<T>. T lanes over blocks of 4096
// elements, block sums in double.
constexpr i64 kSumBlock = 4096;
template <class T, class F>
GRADLOOM_INLINE double sum_of(const T* x, const T* y, i64 n, const F& f) {
  double total = 0;
  for (i64 begin = 0; begin < n; begin += kSumBlock) {
    const i64 end = smaller(n, begin + kSumBlock);
    Vec<T> s0 = {}, s1 = {}, s2 = {}, s3 = {};
    i64 i = begin;
    for (; i + 4 * kLanes<T> <= end; i += 4 * kLanes<T>) {
      s0 += f(load(x + i), load(y + i));
      s1 += f(load(x + i + kLanes<T>), load(y + i + kLanes<T>));
      s2 += f(load(x + i + 2 * kLanes<T>), load(y + i + 2 * kLanes<T>));
      s3 += f(load(x + i + 3 * kLanes<T>), load(y + i + 3 * kLanes<T>));
    }
    for (; i + kLanes<T> <= end; i += kLanes<T>) s0 += f(load(x + i), load(y + i));
    double tail = 0;
    for (; i < end; ++i) tail += double(f(x[i], y[i]));
    const Vec<T> all = (s0 + s1) + (s2 + s3);
    total += lane_sum(all) + tail;
  }
  return total;
}

template <class T>
GRADLOOM_INLINE double sum(const T* x, i64 n) {
  return sum_of(x, x, n, [](const auto& a, const auto&) { return a; });
}

// Largest element, NaN left out; -inf for none. What softmax and log-sum-exp subtract:
// a NaN reaches their sums anyway.
template <class T>
GRADLOOM_INLINE T peak_of(const T* x, i64 n) {
  const auto join = [](const auto& a, const auto& b) { return a > b ? a : b; };
  T best = T(-__builtin_inf());
  i64 i = 0;
  if (n >= kLanes<T>) {
    Vec<T> m0 = best - Vec<T>{}, m1 = m0;
    for (; i + 2 * kLanes<T> <= n; i += 2 * kLanes<T>) {
      m0 = join(load(x + i), m0);
      m1 = join(load(x + i + kLanes<T>), m1);
    }
    for (; i + kLanes<T> <= n; i += kLanes<T>) m0 = join(load(x + i), m0);
    m0 = join(m0, m1);
    best = fold<T>(m0, join);
  }
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// Sum of exp(x[i] - peak), where no x[i] is above the peak; the exponentials go to y unless it is
// null (y may be x). What is read next, and what is written (null: nothing), is fetched meanwhile:
// this loop leaves the memory idle.
template <class T>
GRADLOOM_INLINE double exp_sum(const T* x, i64 n, T peak, const T* next, T* y = nullptr,
                               T* written = nullptr) {
  constexpr i64 lanes = kLanes<T>;
  const auto part = [&](i64 i) {
    fetch(next + i);
    if (written != nullptr) fetch_to_write(written + i);
    const Vec<T> e = exp_down(load(x + i) - peak);
    if (y != nullptr) store(y + i, e);
    return e;
  };
  double total = 0;
  for (i64 begin = 0; begin < n; begin += kSumBlock) {
    const i64 end = smaller(n, begin + kSumBlock);
    Vec<T> s0 = {}, s1 = {};
    i64 i = begin;
    for (; i + 2 * lanes <= end; i += 2 * lanes) {
      s0 += part(i);
      s1 += part(i + lanes);
    }
    for (; i + lanes <= end; i += lanes) s0 += part(i);
    if (i < end) {
      T rest[lanes];
      for (i64 k = 0; k < lanes; ++k) rest[k] = i + k < end ? x[i + k] : T(-__builtin_inf());
      const Vec<T> e = exp_down(load(rest) - peak);
      for (i64 k = 0; y != nullptr && i + k < end; ++k) y[i + k] = e[k];
      s1 += e;
    }
    total += lane_sum(s0 + s1);
  }
  return total;
}

GRADLOOM_INLINE i64 read_index(DType type, const void* indices, i64 k) {
  return type == DType::i64 ? static_cast<const i64*>(indices)[k]
                            : static_cast<const std::int32_t*>(indices)[k];
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
