// Local response normalization of [n, c, inner] over channels and its gradient (Krizhevsky et al. 2012; ONNX
// LRN-13).
//   s = bias + alpha / size * sum of x^2 over the window of a channel, y = x s^-beta
//   q = dy x s^(-beta - 1);  dx = dy s^-beta - 2 alpha beta / size x (sum of q over the windows that have the channel)
// A strip of neighbouring positions of an image is a part; its channels slide through L1, each read from
// memory once.
#include <immintrin.h>

#include <type_traits>

#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kStrip = 256;        // positions
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

// s^(-3/4) and 1 / s for s in [kSmall, kLarge]: Newton's method for t = s^(-1/4), t <- t (5 - s t^4) / 4.
// Roots and a division would take twice as long as memory does. V: float or a register.
constexpr float kSmall = 1e-30f, kLarge = 1e30f;
template <class V>
GRADLOOM_INLINE V better_root(const V& s, const V& t) {
  const V square = t * t;
  return t * (1.25f - 0.25f * s * (square * square));
}
template <class V>
GRADLOOM_INLINE Inverse<V> powers_of_root(const V& t) {
  const V square = t * t;
  return {square * t, square * square};
}
// From a number whose logarithm is about that of t.
template <class Word, class V>
GRADLOOM_INLINE Inverse<V> quarter_of(const V& s) {
  V t = __builtin_bit_cast(V, 0x4f5851eb - (__builtin_bit_cast(Word, s) >> 2));
  for (int i = 0; i < 3; ++i) t = better_root(s, t);
  return powers_of_root(t);
}
GRADLOOM_INLINE Inverse<float> quarter_of(float s) { return quarter_of<int>(s); }
GRADLOOM_INLINE Inverse<Vec<float>> quarter_of(const Vec<float>& s) {
#if defined(__AVX512F__)
  // From the processor's roots, which have 14 bits.
  const __m512 root = _mm512_maskz_rsqrt14_ps(0xffff, __m512(s));
  return powers_of_root(better_root(s, Vec<float>(root) * Vec<float>(_mm512_maskz_rsqrt14_ps(0xffff, root))));
#else
  return quarter_of<Vec<int>>(s);
#endif
}
inline bool are_usual(const float* s, i64 n) {
  int others = 0;
  for (i64 i = 0; i < n; ++i) others |= !(s[i] >= kSmall) | !(s[i] <= kLarge);
  return others == 0;
}

// V: a number or a register of them.
template <class V, class T>
GRADLOOM_INLINE V get(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V, class T>
GRADLOOM_INLINE void put(T* p, const V& v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// body(i, Inverse of s[i] or of a register from s[i] on) for n numbers.
template <Power power, class T, class Body>
GRADLOOM_INLINE void for_inverses(const T* s, i64 n, T beta, const Body& body) {
  if constexpr (power == Power::three_quarters && sizeof(T) == 4) {
    if (are_usual(s, n)) {
      i64 i = 0;
      for (; i + kLanes<T> <= n; i += kLanes<T>) body(i, quarter_of(load(s + i)));
      for (; i < n; ++i) body(i, quarter_of(s[i]));
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

// y[i] = finish(sum of f(element i of row c) over the channels); `row(c)` points to a row of n elements.
// `fixed`: how many channels, 0 for any number.
template <int fixed, class T, class Row, class F, class Finish>
GRADLOOM_INLINE void add_rows(const Channels& channels, i64 n, T* y, const Row& row, const F& f,
                              const Finish& finish) {
  const T* known[fixed > 0 ? fixed : 1];
  for (i64 k = 0; k < fixed; ++k) known[k] = row(channels.begin + k);
  const i64 count = fixed > 0 ? fixed : channels.end - channels.begin;
  const auto element = [&](i64 k, i64 i) __attribute__((always_inline)) {
    return (fixed > 0 ? known[k] : row(channels.begin + k)) + i;
  };
  i64 i = 0;
  for (; i + 2 * kLanes<T> <= n; i += 2 * kLanes<T>) {
    Vec<T> a = {}, b = {};
    for (i64 k = 0; k < count; ++k) {
      a += f(load(element(k, i)));
      b += f(load(element(k, i + kLanes<T>)));
    }
    store(y + i, finish(a));
    store(y + i + kLanes<T>, finish(b));
  }
  for (; i < n; ++i) {
    T a = 0;
    for (i64 k = 0; k < count; ++k) a += f(*element(k, i));
    y[i] = finish(a);
  }
}
constexpr int kUsualWindow = 5;
template <class T, class Row, class F, class Finish>
GRADLOOM_INLINE void add_rows(const Channels& channels, i64 n, T* y, const Row& row, const F& f,
                              const Finish& finish) {
  if (channels.end - channels.begin == kUsualWindow)
    return add_rows<kUsualWindow>(channels, n, y, row, f, finish);
  add_rows<0>(channels, n, y, row, f, finish);
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

// s of channel `c` of n positions from x on.
template <class T>
GRADLOOM_INLINE void add_squares(const LrnShape& s, i64 c, i64 n, const T* x, T* sums) {
  const i64 before = (s.size - 1) / 2, after = s.size - 1 - before;
  const T scale = T(s.alpha / double(s.size)), bias = T(s.bias);
  add_rows(
      around(c, before, after, s.c), n, sums, [&](i64 k) { return x + k * s.inner; },
      [](const auto& v) { return v * v; }, [&](const auto& v) { return bias + scale * v; });
}

// Begins to fetch row `c`: the hardware does not foresee where the next channel's is.
template <bool write = false, class T>
GRADLOOM_INLINE void fetch(const LrnShape& s, i64 c, i64 n, const T* x) {
  for (i64 i = 0; i < n && c < s.c; i += 64 / i64(sizeof(T))) __builtin_prefetch(x + c * s.inner + i, write);
}

template <class T, Power power>
void normalize_strips(const LrnArgs& args) {
  const LrnShape& s = args.shape;
  const i64 after = s.size - 1 - (s.size - 1) / 2;
  for_strips(s, kStrip, 16, [&](i64 at, i64 n) {
    const T* const x = static_cast<const T*>(args.x) + at;
    T sums[kStrip];
    for (i64 c = 0; c < s.c; ++c) {
      fetch(s, c + after + 2, n, x);
      fetch<true>(s, c + 2, n, static_cast<T*>(args.y) + at);
      add_squares(s, c, n, x, sums);
      const T* const in = x + c * s.inner;
      T* const out = static_cast<T*>(args.y) + at + c * s.inner;
      for_inverses<power>(sums, n, T(s.beta), [&](i64 i, const auto& r) {
        using V = std::remove_cvref_t<decltype(r.power)>;
        put(out + i, get<V>(in + i) * r.power);
      });
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
    const T *const x = static_cast<const T*>(args.x) + at, *const dy = static_cast<const T*>(args.dy) + at;
    T* const dx = static_cast<T*>(args.dx) + at;
    T sums[kStrip], factors[kRoom], terms[kRoom];  // s^-beta and q of the channels of a window
    const auto place = [&](i64 c) { return c % ring * strip; };
    for (i64 ahead = 0; ahead < s.c + before; ++ahead) {
      if (ahead < s.c) {
        fetch(s, ahead + after + 2, n, x);
        fetch(s, ahead + 2, n, dy);
        add_squares(s, ahead, n, x, sums);
        const T *const in = x + ahead * s.inner, *const d = dy + ahead * s.inner;
        T *const factor = factors + place(ahead), *const term = terms + place(ahead);
        for_inverses<power>(sums, n, T(s.beta), [&](i64 i, const auto& r) {
          using V = std::remove_cvref_t<decltype(r.power)>;
          put(factor + i, r.power);
          put(term + i, get<V>(d + i) * get<V>(in + i) * (r.power * r.one));
        });
      }
      const i64 c = ahead - before;
      if (c < 0) continue;
      fetch<true>(s, c + 2, n, dx);
      add_rows(
          around(c, after, before, s.c), n, sums, [&](i64 k) { return terms + place(k); },
          [](const auto& v) { return v; }, [](const auto& v) { return v; });
      const T *const in = x + c * s.inner, *const d = dy + c * s.inner, *const factor = factors + place(c);
      T* const out = dx + c * s.inner;
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) out[i] = d[i] * factor[i] - back * in[i] * sums[i];
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
