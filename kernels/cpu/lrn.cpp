// Local response normalization of [n, c, inner] over channels and its gradient (Krizhevsky et al. 2012; ONNX
// LRN-13).
//   s = bias + alpha / size * sum of x^2 over the window of a channel, y = x s^-beta
//   q = dy x s^(-beta - 1);  dx = dy s^-beta - 2 alpha beta / size x (sum of q over the windows that have the channel)
// A strip of neighbouring positions of an image is a part; its channels slide through L1, each read from
// memory once.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kStrip = 512;        // positions
constexpr i64 kRoom = 8 * kStrip;  // positions of all channels of a window together

enum class Power { half, three_quarters, any };

// s^-beta and 1 / s; the usual exponents without logarithm.
template <class T>
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

// s^(-3/4) and 1 / s for s in [kSmall, kLarge]: Newton's method for t = s^(-1/4), t <- t (5 - s t^4) / 4,
// from a number whose logarithm is about that of t. Roots and a division would take twice as long as memory
// does.
constexpr float kSmall = 1e-30f, kLarge = 1e30f;
GRADLOOM_INLINE Inverse<float> quarter_of(float s) {
  float t = __builtin_bit_cast(float, 0x4f5851eb - (__builtin_bit_cast(int, s) >> 2));
  for (int i = 0; i < 3; ++i) {
    const float square = t * t;
    t *= 1.25f - 0.25f * s * (square * square);
  }
  const float square = t * t;
  return {square * t, square * square};
}
inline bool are_usual(const float* s, i64 n) {
  int others = 0;
  for (i64 i = 0; i < n; ++i) others |= !(s[i] >= kSmall) | !(s[i] <= kLarge);
  return others == 0;
}

// body(i, Inverse of s[i]) for n numbers.
template <Power power, class T, class Body>
GRADLOOM_INLINE void for_inverses(const T* s, i64 n, T beta, const Body& body) {
  if constexpr (power == Power::three_quarters && sizeof(T) == 4) {
    if (are_usual(s, n)) {
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) body(i, quarter_of(s[i]));
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
template <class T, class Row, class F, class Finish>
GRADLOOM_INLINE void add_rows(const Channels& channels, i64 n, T* y, const Row& row, const F& f,
                              const Finish& finish) {
  i64 i = 0;
  for (; i + 2 * kLanes<T> <= n; i += 2 * kLanes<T>) {
    Vec<T> a = {}, b = {};
    for (i64 c = channels.begin; c < channels.end; ++c) {
      a += f(load(row(c) + i));
      b += f(load(row(c) + i + kLanes<T>));
    }
    store(y + i, finish(a));
    store(y + i + kLanes<T>, finish(b));
  }
  for (; i < n; ++i) {
    T a = 0;
    for (i64 c = channels.begin; c < channels.end; ++c) a += f(row(c)[i]);
    y[i] = finish(a);
  }
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
  add_rows<T>(
      around(c, before, after, s.c), n, sums, [&](i64 k) { return x + k * s.inner; },
      [](const auto& v) { return v * v; }, [&](const auto& v) { return bias + scale * v; });
}

// Begins to fetch row `c`: the hardware does not foresee where the next channel's is.
template <class T>
GRADLOOM_INLINE void fetch(const LrnShape& s, i64 c, i64 n, const T* x) {
  for (i64 i = 0; i < n && c < s.c; i += 64 / i64(sizeof(T))) __builtin_prefetch(x + c * s.inner + i);
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
      add_squares(s, c, n, x, sums);
      const T* const in = x + c * s.inner;
      T* const out = static_cast<T*>(args.y) + at + c * s.inner;
      for_inverses<power>(sums, n, T(s.beta), [&](i64 i, const Inverse<T>& r) { out[i] = in[i] * r.power; });
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
        for_inverses<power>(sums, n, T(s.beta), [&](i64 i, const Inverse<T>& r) {
          factor[i] = r.power;
          term[i] = d[i] * in[i] * (r.power * r.one);
        });
      }
      const i64 c = ahead - before;
      if (c < 0) continue;
      add_rows<T>(
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
