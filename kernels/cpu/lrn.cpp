// Local response normalization of [n, c, inner] over channels and its gradient (Krizhevsky
// et al. 2012; ONNX LRN-13).
//   s = bias + alpha / size * sum of x^2 over the window of a channel, y = x s^-beta
//   q = dy x s^(-beta - 1);  dx = dy s^-beta - 2 alpha beta / size x (sum of q over the windows that have the channel)
// A strip of neighbouring positions of an image is a part; its channels slide through L1,
// each read from memory once.
#include <immintrin.h>

#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kStrip = 512;        // positions: fewer make the memory slow
constexpr i64 kRoom = 8 * kStrip;  // positions of all channels of a window together

enum class Power { half, three_quarters, any };

// s^-beta and 1 / s; the usual exponents without logarithm.
template <class T>  // a number or a register of them
struct Inverse {
  T power, one;
};
template <Power power, class T>
GRADLOOM_INLINE Inverse<T> inverse_of(T s, T beta) {
  const T one = T(1) / s;
  if constexpr (power == Power::any) return {exp(beta * log(one)), one};
  const T root = sqrt(one);
  return {power == Power::half ? root : root * sqrt(root), one};
}

// s^(-3/4) and 1 / s for s in [kSmall, kLarge] from t, which is s^(-1/4) to 13 bits: both are corrected by
// e = 1 - s t^4, (1 - e)^(-3/4) = 1 + 3/4 e + ... Roots and a division would take twice as long as memory
// does. V: float or a register.
constexpr float kSmall = 1e-30f, kLarge = 1e30f;
template <class V>
GRADLOOM_INLINE Inverse<V> from_root(const V& s, const V& t) {
  const V square = t * t, fourth = square * square, near_one = s * fourth;
  return {square * t * (1.75f - 0.75f * near_one), fourth * (2.0f - near_one)};
}
// From a number whose logarithm is about that of s^(-1/4), by Newton's method, t <- t (5 - s t^4) / 4.
template <class Word, class V>
GRADLOOM_INLINE Inverse<V> quarter_of(const V& s) {
  V t = __builtin_bit_cast(V, 0x4f5851eb - (__builtin_bit_cast(Word, s) >> 2));
  for (int i = 0; i < 2; ++i) {
    const V square = t * t;
    t = t * (1.25f - 0.25f * s * (square * square));
  }
  return from_root(s, t);
}
GRADLOOM_INLINE Inverse<float> quarter_of(float s) { return quarter_of<int>(s); }
GRADLOOM_INLINE Inverse<Vec<float>> quarter_of(const Vec<float>& s) {
#if defined(__AVX512F__)
  // From the processor's roots, which have 14 bits.
  const __m512 root = _mm512_maskz_rsqrt14_ps(0xffff, __m512(s));
  return from_root(s, Vec<float>(root) * Vec<float>(_mm512_maskz_rsqrt14_ps(0xffff, root)));
#else
  return quarter_of<Vec<int>>(s);
#endif
}
// By bits, which are in the order of the numbers; those of negative numbers and of NaN come after kLarge.
inline bool are_usual(const float* s, i64 n) {
  constexpr unsigned small = __builtin_bit_cast(unsigned, kSmall),
                     large = __builtin_bit_cast(unsigned, kLarge);
  unsigned farthest = 0;
  for (i64 i = 0; i < n; ++i) farthest = max(farthest, __builtin_bit_cast(unsigned, s[i]) - small);
  return farthest <= large - small;
}

// body(i, Inverse of s[i] or of a register from s[i] on) for n numbers.
template <Power power, class T, class Body>
GRADLOOM_INLINE void for_inverses(const T* s, i64 n, T beta, const Body& body) {
  if constexpr (power == Power::three_quarters && sizeof(T) == 4) {
    if (are_usual(s, n)) {
      for_registers<T>(n, [&](i64 i, const auto& zero) { body(i, quarter_of(get(s + i, zero))); });
      return;
    }
  }
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) body(i, inverse_of<power>(s[i], beta));
}

template <Power p>
struct Powers {
  static constexpr Power value = p;
};
template <class Body>
GRADLOOM_INLINE void with_power(double beta, const Body& body) {
  if (beta == 0.5) {
    body(Powers<Power::half>());
  } else if (beta == 0.75) {
    body(Powers<Power::three_quarters>());
  } else {
    body(Powers<Power::any>());
  }
}

// Channels [begin, end) that are those around `c`, `before` below and `after` above.
struct Channels {
  i64 begin, end;
};
GRADLOOM_INLINE Channels around(i64 c, i64 before, i64 after, i64 count) {
  return {larger(0, c - before), after < count - c ? c + after + 1 : count};
}

// body(i, sum of f(element i of row c) over the channels); `row(c)` points to a row of n elements.
// `fixed`: how many channels, 0 for any number.
template <int fixed, class T, class Row, class F, class Body>
GRADLOOM_INLINE void for_sums(const Channels& channels, i64 n, const Row& row, const F& f, const Body& body) {
  const T* known[fixed > 0 ? fixed : 1];
  for (i64 k = 0; k < fixed; ++k) known[k] = row(channels.begin + k);
  const i64 count = fixed > 0 ? fixed : channels.end - channels.begin;
  for_registers<T>(n, [&](i64 i, auto sum) {
    for (i64 k = 0; k < count; ++k) sum += f(get((fixed > 0 ? known[k] : row(channels.begin + k)) + i, sum));
    body(i, sum);
  });
}
constexpr int kUsualWindow = 5;
template <class T, class Row, class F, class Body>
GRADLOOM_INLINE void for_sums(const Channels& channels, i64 n, const Row& row, const F& f, const Body& body) {
  if (channels.end - channels.begin == kUsualWindow)
    return for_sums<kUsualWindow, T>(channels, n, row, f, body);
  for_sums<0, T>(channels, n, row, f, body);
}

// body(offset of the strip in x, its positions) for every strip of every image.
template <class Body>
GRADLOOM_INLINE void for_strips(const LrnShape& s, i64 strip, i64 work, const Body& body) {
  const i64 strips = ceil_div(s.inner, strip);
  parallel_for(s.n * strips, s.n * s.c * s.inner * work, [&](i64 part) {
    const i64 first = part % strips * strip;
    body(part / strips * s.c * s.inner + first, smaller(strip, s.inner - first));
  });
}

// From a row of n positions to the one to fetch meanwhile: the next channel's,
// or where rows are short one behind it.
constexpr i64 to_fetch(const LrnShape& s, i64 n) { return ceil_div(kStrip, n) * s.inner; }

// s of channel `c` of n positions from x on, to `sums`; meanwhile(i) at every register.
template <class T, class Meanwhile>
GRADLOOM_INLINE void add_squares(const LrnShape& s, i64 c, i64 n, const T* x, T* sums,
                                 const Meanwhile& meanwhile) {
  const i64 before = (s.size - 1) / 2, after = s.size - 1 - before;
  const T scale = T(s.alpha / double(s.size)), bias = T(s.bias);
  for_sums<T>(
      around(c, before, after, s.c), n, [&](i64 k) { return x + k * s.inner; },
      [](const auto& v) { return v * v; },
      [&](i64 i, const auto& sum) {
        meanwhile(i);
        put(sums + i, bias + scale * sum);
      });
}

template <class T, Power power>
void normalize_strips(const LrnArgs& args) {
  const LrnShape& s = args.shape;
  const i64 after = s.size - 1 - (s.size - 1) / 2;
  for_strips(s, kStrip, 16, [&](i64 at, i64 n) {
    const i64 next = to_fetch(s, n);
    const T* const x = static_cast<const T*>(args.x) + at;
    alignas(kVecBytes) T sums[kStrip];
    for (i64 c = 0; c < s.c; ++c) {
      const T* const in = x + c * s.inner;
      T* const out = static_cast<T*>(args.y) + at + c * s.inner;
      const T* const next_in = in + after * s.inner + next;
      T* const next_out = out + next;
      add_squares(s, c, n, x, sums, [=](i64 i) {
        fetch(next_in + i);
        fetch_to_write(next_out + i);
      });
      for_inverses<power>(sums, n, T(s.beta),
                          [&](i64 i, const auto& r) { put(out + i, get(in + i, r.power) * r.power); });
    }
  });
}

template <class T, Power power>
void grad_strips(const LrnGradArgs& args) {
  const LrnShape& s = args.shape;
  const i64 before = (s.size - 1) / 2, after = s.size - 1 - before, ring = larger(1, smaller(s.size, s.c));
  const i64 strip = smaller(kStrip, kRoom / ring);
  const T back = T(2 * s.alpha * s.beta / double(s.size));
  for_strips(s, strip, 24, [&](i64 at, i64 n) {
    const i64 next = to_fetch(s, n);
    const T *const x = static_cast<const T*>(args.x) + at, *const dy = static_cast<const T*>(args.dy) + at;
    T* const dx = static_cast<T*>(args.dx) + at;
    // Of the channels of a window: dy s^-beta and q.
    alignas(kVecBytes) T sums[kStrip], directs[kRoom], terms[kRoom];
    const auto place = [&](i64 c) { return c % ring * strip; };
    for (i64 ahead = 0; ahead < s.c + before; ++ahead) {
      if (ahead < s.c) {
        const T *const in = x + ahead * s.inner, *const d = dy + ahead * s.inner;
        T *const direct = directs + place(ahead), *const term = terms + place(ahead);
        const T *const next_in = in + after * s.inner + next, *const next_d = d + next;
        add_squares(s, ahead, n, x, sums, [=](i64 i) {
          fetch(next_in + i);
          fetch(next_d + i);
        });
        for_inverses<power>(sums, n, T(s.beta), [&](i64 i, const auto& r) {
          const auto scaled = get(d + i, r.power) * r.power;
          put(direct + i, scaled);
          put(term + i, scaled * get(in + i, r.one) * r.one);
        });
      }
      const i64 c = ahead - before;
      if (c < 0) continue;
      const T *const in = x + c * s.inner, *const direct = directs + place(c);
      T* const out = dx + c * s.inner;
      const Channels window = around(c, after, before, s.c);
      const T* rows[kLrnGradWindow];
      for (i64 k = window.begin; k < window.end; ++k) rows[k - window.begin] = terms + place(k);
      for_sums<T>(
          window, n, [&](i64 k) { return rows[k - window.begin]; }, [](const auto& v) { return v; },
          [&](i64 i, const auto& sum) {
            fetch_to_write(out + next + i);
            put(out + i, get(direct + i, sum) - back * get(in + i, sum) * sum);
          });
    }
  });
}

template <class T>
void normalize(const LrnArgs& args) {
  with_power(args.shape.beta, [&](auto power) { normalize_strips<T, decltype(power)::value>(args); });
}
template <class T>
void grad(const LrnGradArgs& args) {
  with_power(args.shape.beta, [&](auto power) { grad_strips<T, decltype(power)::value>(args); });
}

}  // namespace

void lrn(const LrnArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, normalize, args); }
void lrn_grad(const LrnGradArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, grad, args); }

}  // namespace gradloom::kernels::GRADLOOM_ISA
