// Tile loops, generated from kernels/elementwise.def: out[i] = formula(a[i], b[i], c[i]).
#include "kernels/cpu/elementwise_tiles.h"

#include "kernels/cpu/halves.h"
#include "kernels/cpu/intervals.h"
#include "kernels/cpu/uniforms.h"
#include "kernels/small_types.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

using Bool = unsigned char;  // storage of DType::boolean and DType::u8: 0 or 1

// One struct per operator: apply(a, b, c) is the formula.
#define EW_TYPE_F T
#define EW_TYPE_N T
#define EW_TYPE_C T
#define EW_TYPE_B T
#define EW_TYPE_S Bool
#define EW_TYPE_I T
#define EW_TYPE_P T
#define EW(name, arity, types, formula, ...)                                                    \
  struct Formula##name {                                                                        \
    template <class T>                                                                          \
    static GRADLOOM_INLINE auto apply([[maybe_unused]] EW_TYPE_##types a, [[maybe_unused]] T b, \
                                      [[maybe_unused]] T c) {                                   \
      return formula;                                                                           \
    }                                                                                           \
  };
#include "kernels/elementwise.def"
#undef EW

// The same memory may be read and written, element by element: hence ivdep and not restrict.
template <class Formula, class T, class Out>
void unary(const void* a, const void*, const void*, void* out, i64 n) {
  const T* x = static_cast<const T*>(a);
  Out* y = static_cast<Out*>(out);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) y[i] = Out(Formula::template apply<T>(x[i], T(), T()));
}

template <class Formula, class T, class Out>
void binary(const void* a, const void* b, const void*, void* out, i64 n) {
  const T* x = static_cast<const T*>(a);
  const T* z = static_cast<const T*>(b);
  Out* y = static_cast<Out*>(out);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) y[i] = Out(Formula::template apply<T>(x[i], z[i], T()));
}

template <class Formula, class T>
void select(const void* a, const void* b, const void* c, void* out, i64 n) {
  const Bool* condition = static_cast<const Bool*>(a);
  const T* x = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  T* y = static_cast<T*>(out);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) y[i] = Formula::template apply<T>(condition[i], x[i], z[i]);
}

constexpr i64 kRun = 512;  // elements between the loops of one formula

// sin, cos, tan: a run whose elements are all near enough goes without the library's calls.
template <float (*all)(float), float (*near)(float)>
void trigonometric(const void* a, const void*, const void*, void* out, i64 n) {
  const float* x = static_cast<const float*>(a);
  float* y = static_cast<float*>(out);
  for (i64 begin = 0; begin < n; begin += kRun, x += kRun, y += kRun) {
    const i64 count = smaller(kRun, n - begin);
    int far = 0;
    for (i64 i = 0; i < count; ++i) far |= int(!(abs(x[i]) <= kNearTurns));
    if (far != 0) {
      for (i64 i = 0; i < count; ++i) y[i] = all(x[i]);
      continue;
    }
#pragma GCC ivdep
    for (i64 i = 0; i < count; ++i) y[i] = near(x[i]);
  }
}

// Functions by log(1 + t) in two loops, for the reason that pow has.
template <float (*argument)(float), float (*of)(float, float)>
void by_log1p(const void* a, const void*, const void*, void* out, i64 n) {
  const float* x = static_cast<const float*>(a);
  float *y = static_cast<float*>(out), t[kRun];
  for (i64 begin = 0; begin < n; begin += kRun, x += kRun, y += kRun) {
    const i64 count = smaller(kRun, n - begin);
    for (i64 i = 0; i < count; ++i) t[i] = argument(x[i]);
#pragma GCC ivdep
    for (i64 i = 0; i < count; ++i) y[i] = of(log1p(t[i]), x[i]);
  }
}

// pow in two loops, because many short chains of operations run side by side and few long ones do not. A run
// of positive numbers and finite results goes without the special cases.
void power(const void* a, const void* b, const void*, void* out, i64 n) {
  const float *x = static_cast<const float*>(a), *exponent = static_cast<const float*>(b);
  float* y = static_cast<float*>(out);
  double t[kRun];
  for (i64 begin = 0; begin < n; begin += kRun, x += kRun, exponent += kRun, y += kRun) {
    const i64 count = smaller(kRun, n - begin);
    for (i64 i = 0; i < count; ++i) t[i] = double(exponent[i]) * log2_of_size(x[i]);
    int special = 0;
    for (i64 i = 0; i < count; ++i) special |= int(!((x[i] > 0.0f) & (x[i] < __builtin_inff())));
    for (i64 i = 0; i < count; ++i) special |= int(!(abs(t[i]) < 126.0));
    if (special != 0) {
#pragma GCC ivdep
      for (i64 i = 0; i < count; ++i) y[i] = pow_of(t[i], x[i], exponent[i]);
    } else {
      for (i64 i = 0; i < count; ++i) y[i] = exp2_near(t[i]);
    }
  }
}

#if defined(__AVX512F__)
// Functions of one register (intervals.h), and gradients a of(b) by them.
template <class Of>
GRADLOOM_INLINE void over_registers(const void* a, const void* b, void* out, i64 n, const Of& of) {
  constexpr i64 lanes = kLanes<float>;
  const float *x = static_cast<const float*>(a), *z = static_cast<const float*>(b);
  float* y = static_cast<float*>(out);
  i64 i = 0;
  for (; i + lanes <= n; i += lanes) store(y + i, of(load(x + i), load(z + i)));
  if (i == n) return;
  const std::size_t bytes = std::size_t(n - i) * sizeof(float);
  float last_x[lanes] = {}, last_z[lanes] = {}, last_y[lanes];
  __builtin_memcpy(last_x, x + i, bytes);
  __builtin_memcpy(last_z, z + i, bytes);
  store(last_y, of(load(last_x), load(last_z)));
  __builtin_memcpy(y + i, last_y, bytes);
}
template <Vec<float> (*of)(const Vec<float>&)>
void by_register(const void* a, const void*, const void*, void* out, i64 n) {
  over_registers(a, a, out, n, [](const Vec<float>& x, const Vec<float>&) { return of(x); });
}
template <Vec<float> (*slope)(const Vec<float>&)>
void gradient_by_register(const void* a, const void* b, const void*, void* out, i64 n) {
  over_registers(a, b, out, n, [](const Vec<float>& dy, const Vec<float>& x) { return dy * slope(x); });
}
#endif

// Formulas that have a loop of their own in f32. (Whether a function's address is null is no
// constant under GCC's sanitizers.)
template <class Formula>
struct OwnLoop {
  static constexpr bool exists = false;
};
template <TileFn loop>
struct Loop {
  static constexpr bool exists = true;
  static constexpr TileFn run = loop;
};
template <>
struct OwnLoop<FormulaSin> : Loop<trigonometric<sin, sin_near>> {};
template <>
struct OwnLoop<FormulaCos> : Loop<trigonometric<cos, cos_near>> {};
template <>
struct OwnLoop<FormulaTan> : Loop<trigonometric<tan, tan_near>> {};
template <>
struct OwnLoop<FormulaAsinh> : Loop<by_log1p<asinh_argument, asinh_of>> {};
template <>
struct OwnLoop<FormulaAcosh> : Loop<by_log1p<acosh_argument, acosh_of>> {};
template <>
struct OwnLoop<FormulaAtanh> : Loop<by_log1p<atanh_argument, atanh_of>> {};
template <>
struct OwnLoop<FormulaPow> : Loop<power> {};
#if defined(__AVX512F__)
template <>
struct OwnLoop<FormulaErf> : Loop<by_register<erf>> {};
template <>
struct OwnLoop<FormulaTanh> : Loop<by_register<tanh>> {};
template <>
struct OwnLoop<FormulaSigmoid> : Loop<by_register<sigmoid>> {};
template <>
struct OwnLoop<FormulaGelu> : Loop<by_register<gelu>> {};
template <>
struct OwnLoop<FormulaGeluTanh> : Loop<by_register<gelu_tanh>> {};
template <>
struct OwnLoop<FormulaGeluGrad> : Loop<gradient_by_register<gelu_slope>> {};
template <>
struct OwnLoop<FormulaGeluTanhGrad> : Loop<gradient_by_register<gelu_tanh_slope>> {};
#endif

template <class T>
constexpr bool kIsF32 = false;
template <>
constexpr bool kIsF32<float> = true;

template <class Formula, int arity, class T, class Out>
constexpr TileFn plain() {
  if constexpr (kIsF32<T> && OwnLoop<Formula>::exists) {
    return OwnLoop<Formula>::run;
  } else if constexpr (arity == 1) {
    return unary<Formula, T, Out>;
  } else {
    return binary<Formula, T, Out>;
  }
}

// Tile functions of one operator, in the order of DType.
struct Row {
  TileFn f32 = nullptr, f64 = nullptr, i32 = nullptr, i64_ = nullptr, u8 = nullptr, boolean = nullptr,
         i8 = nullptr, i16 = nullptr, u16 = nullptr, u32 = nullptr, u64 = nullptr;
};

template <class Formula, int arity>
constexpr Row row_F() {
  return {plain<Formula, arity, float, float>(), plain<Formula, arity, double, double>()};
}
template <class Formula, int arity>
constexpr Row row_B() {
  return {.boolean = plain<Formula, arity, Bool, Bool>()};
}
template <class Formula, int arity>
constexpr Row row_N() {
  return {plain<Formula, arity, float, float>(),
          plain<Formula, arity, double, double>(),
          plain<Formula, arity, std::int32_t, std::int32_t>(),
          plain<Formula, arity, i64, i64>(),
          plain<Formula, arity, Bool, Bool>(),
          nullptr,
          plain<Formula, arity, std::int8_t, std::int8_t>(),
          plain<Formula, arity, std::int16_t, std::int16_t>(),
          plain<Formula, arity, std::uint16_t, std::uint16_t>(),
          plain<Formula, arity, std::uint32_t, std::uint32_t>(),
          plain<Formula, arity, std::uint64_t, std::uint64_t>()};
}
template <class Formula, int arity>
constexpr Row row_I() {
  return {.i32 = plain<Formula, arity, std::int32_t, std::int32_t>(),
          .i64_ = plain<Formula, arity, i64, i64>(),
          .u8 = plain<Formula, arity, Bool, Bool>(),
          .i8 = plain<Formula, arity, std::int8_t, std::int8_t>(),
          .i16 = plain<Formula, arity, std::int16_t, std::int16_t>(),
          .u16 = plain<Formula, arity, std::uint16_t, std::uint16_t>(),
          .u32 = plain<Formula, arity, std::uint32_t, std::uint32_t>(),
          .u64 = plain<Formula, arity, std::uint64_t, std::uint64_t>()};
}
template <class Formula, int arity>
constexpr Row row_P() {
  return {plain<Formula, arity, float, Bool>(), plain<Formula, arity, double, Bool>()};
}
template <class Formula, int arity>
constexpr Row row_C() {
  return {plain<Formula, arity, float, Bool>(),         plain<Formula, arity, double, Bool>(),
          plain<Formula, arity, std::int32_t, Bool>(),  plain<Formula, arity, i64, Bool>(),
          plain<Formula, arity, Bool, Bool>(),          plain<Formula, arity, Bool, Bool>(),
          plain<Formula, arity, std::int8_t, Bool>(),   plain<Formula, arity, std::int16_t, Bool>(),
          plain<Formula, arity, std::uint16_t, Bool>(), plain<Formula, arity, std::uint32_t, Bool>(),
          plain<Formula, arity, std::uint64_t, Bool>()};
}
template <class Formula, int arity>
constexpr Row row_S() {
  return {select<Formula, float>,         select<Formula, double>,       select<Formula, std::int32_t>,
          select<Formula, i64>,           select<Formula, Bool>,         select<Formula, Bool>,
          select<Formula, std::int8_t>,   select<Formula, std::int16_t>, select<Formula, std::uint16_t>,
          select<Formula, std::uint32_t>, select<Formula, std::uint64_t>};
}

constexpr Row kRows[] = {
#define EW(name, arity, types, formula, ...) row_##types<Formula##name, arity>(),
#include "kernels/elementwise.def"
#undef EW
};

// ---- casts ------------------------------------------------------------------------------------------------

struct Truth {
  Bool value;
};

template <class T>
constexpr bool kIsFloat = T(0.5) != T(0);

GRADLOOM_INLINE Bool widen(Truth x) { return x.value; }
template <class T>
GRADLOOM_INLINE T widen(T x) {
  return x;
}

// Float to integer saturates and NaN becomes 0: C++ leaves both undefined.
template <class From, class To>
GRADLOOM_INLINE To narrow(From x, To*) {
  if constexpr (kIsFloat<From> && !kIsFloat<To>) {
    constexpr bool is_signed = To(-1) < To(0);
    constexpr int bits = 8 * int(sizeof(To)) - (is_signed ? 1 : 0);
    constexpr From limit = From(2) * From(1ull << (bits - 1));  // one above the largest
    constexpr To largest = To(~0ull >> (64 - bits));
    constexpr To lowest = is_signed ? To(-largest - 1) : To(0);
    const bool above = x >= limit, below = is_signed ? x < -limit : x < From(0);
    const From inside = above | below | (x != x) ? From(0) : x;
    return above ? largest : (below ? lowest : To(inside));
  } else {
    return To(x);
  }
}
template <class From>
GRADLOOM_INLINE Truth narrow(From x, Truth*) {
  return {Bool(x != From(0))};
}
template <class From>
GRADLOOM_INLINE Half narrow(From x, Half*) {
  return {_Float16(x)};
}
template <class From>
GRADLOOM_INLINE Brain narrow(From x, Brain*) {
  return brain_of(float(x));
}

template <class From, class To>
void cast_loop(const void* a, const void*, const void*, void* out, i64 n) {
  const From* x = static_cast<const From*>(a);
  To* y = static_cast<To*>(out);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) y[i] = narrow(widen(x[i]), static_cast<To*>(nullptr));
}

// In the order of DType.
#define GRADLOOM_TYPES(X)                                                                             \
  X(float), X(double), X(std::int32_t), X(i64), X(Bool), X(Truth), X(Half), X(Brain), X(std::int8_t), \
      X(std::int16_t), X(std::uint16_t), X(std::uint32_t), X(std::uint64_t)

constexpr int kTypes = 13;
struct CastRow {
  TileFn to[kTypes];
};
template <class From>
constexpr CastRow cast_row() {
#define GRADLOOM_CAST(To) cast_loop<From, To>
  return {{GRADLOOM_TYPES(GRADLOOM_CAST)}};
#undef GRADLOOM_CAST
}
#define GRADLOOM_CAST_ROW(From) cast_row<From>()
constexpr CastRow kCasts[kTypes] = {GRADLOOM_TYPES(GRADLOOM_CAST_ROW)};
#undef GRADLOOM_CAST_ROW
#undef GRADLOOM_TYPES

// ---- casts of small types: through one of the types above -------------------------------------------------

template <class Small>
void from_small_float(const void* a, const void*, const void*, void* out, i64 n) {
  const Small* x = static_cast<const Small*>(a);
  float* y = static_cast<float*>(out);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) y[i] = widen(x[i]);
}

template <class Small, class From>
void to_small_int(const void* a, void* out, i64 n, unsigned) {
  const From* x = static_cast<const From*>(a);
  Small* y = static_cast<Small*>(out);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) narrow(x[i], y[i]);
}

template <class Small, class From>
void to_small_float(const void* a, void* out, i64 n, unsigned mode) {
  const From* x = static_cast<const From*>(a);
  Small* y = static_cast<Small*>(out);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) narrow(x[i], y[i], mode);
}

using ToSmallFn = void (*)(const void* x, void* out, i64 n, unsigned mode);

struct SmallRow {
  DType carrier;  // what its elements become first
  TileFn from;    // null: they are the carrier's already
  ToSmallFn from_f32, from_f64, from_i8;
};
template <class Small>
constexpr SmallRow small_float_row() {
  return {DType::f32, from_small_float<Small>, to_small_float<Small, float>, to_small_float<Small, double>,
          nullptr};
}
template <class Small>
constexpr SmallRow small_int_row(DType carrier) {
  return {carrier, nullptr, to_small_int<Small, float>, to_small_int<Small, double>,
          to_small_int<Small, std::int8_t>};
}
constexpr SmallRow kSmall[] = {  // in the order of DType
    small_int_row<I4>(DType::i8), small_int_row<U4>(DType::u8),  small_int_row<I2>(DType::i8),
    small_int_row<U2>(DType::u8), small_float_row<F8e4m3fn>(),   small_float_row<F8e4m3fnuz>(),
    small_float_row<F8e5m2>(),    small_float_row<F8e5m2fnuz>(), small_float_row<F4e2m1>(),
    small_float_row<F8e8m0>()};
const SmallRow& small_row(DType type) { return kSmall[int(type) - kTypes]; }

// The type from which `from` becomes `to`: integers become small integers by their lowest bits; what f32 does
// not hold exactly goes through f64.
DType carrier(DType from, DType to) {
  if (!is_small(to)) return to;
  if (is_small_int(to) && !is_float(from)) return DType::i8;
  return from == DType::f64 || (!is_float(from) && dtype_bytes(from) > 2) ? DType::f64 : DType::f32;
}

// At most kRun elements.
void cast_small(DType from, DType to, unsigned mode, const void* x, void* out, i64 n) {
  alignas(64) char first[kRun * sizeof(float)], second[kRun * sizeof(double)];
  if (is_small(from)) {
    const SmallRow& row = small_row(from);
    if (row.from != nullptr) {
      row.from(x, nullptr, nullptr, first, n);
      x = first;
    }
    from = row.carrier;
  }
  const DType through = carrier(from, to);
  if (from != through) {
    void* const place = through == to ? out : second;
    kCasts[int(from)].to[int(through)](x, nullptr, nullptr, place, n);
    x = place;
  } else if (through == to) {
    __builtin_memmove(out, x, std::size_t(n) * dtype_bytes(to));
  }
  if (!is_small(to)) return;
  const SmallRow& row = small_row(to);
  (through == DType::i8 ? row.from_i8 : through == DType::f64 ? row.from_f64 : row.from_f32)(x, out, n, mode);
}

// ---- dropout ----------------------------------------------------------------------------------------------

// Bit for bit: every element is its neighbour.
template <class T>
bool all_equal(const T* x, i64 n) {
  return __builtin_memcmp(x, x + 1, std::size_t(n - 1) * sizeof(T)) == 0;
}

template <class T>
void dropout_loop(const DropoutTile& tile, const T* x, const T* ratio, const Bool* training, T* out, i64 n) {
  unsigned word[kRandomChunk];
  for (i64 begin = 0; begin < n; begin += kRandomChunk) {
    const i64 count = smaller(kRandomChunk, n - begin);
    const T *const v = x + begin, *const r = ratio + begin;
    const Bool* const on = training + begin;
    T* const y = out + begin;
    prefetch_chunk(v, y);
    random_words(tile.first + begin, tile.stream, tile.step, word);
    if (on[0] && (tile.scalars || (all_equal(r, count) && all_equal(on, count)))) {
      drop(word, r[0], v, y, count);
      continue;
    }
#pragma GCC ivdep
    for (i64 i = 0; i < count; ++i) {
      const T value = v[i], kept = value * (T(1) / (T(1) - r[i])),
              dropped = T(philox_uniform(word[i])) >= r[i] ? kept : T(0);
      y[i] = on[i] ? dropped : value;
    }
  }
}

template <class T>
void dropout_mask_loop(const DropoutTile& tile, const T* ratio, const Bool* training, Bool* keep, i64 n) {
  unsigned word[kRandomChunk];
  for (i64 begin = 0; begin < n; begin += kRandomChunk) {
    random_words(tile.first + begin, tile.stream, tile.step, word);
    const i64 count = smaller(kRandomChunk, n - begin);
#pragma GCC ivdep
    for (i64 i = 0; i < count; ++i) {
      const bool stays = T(philox_uniform(word[i])) >= ratio[begin + i];
      keep[begin + i] = Bool(stays | (training[begin + i] == 0));
    }
  }
}

template <class T>
void uniform_loop(const DropoutTile& tile, const T* low, const T* high, T* out, i64 n) {
  unsigned word[kRandomChunk];
  for (i64 begin = 0; begin < n; begin += kRandomChunk) {
    random_words(tile.first + begin, tile.stream, tile.step, word);
    const i64 count = smaller(kRandomChunk, n - begin);
#pragma GCC ivdep
    for (i64 i = 0; i < count; ++i)
      out[begin + i] = between(T(philox_uniform(word[i])), low[begin + i], high[begin + i]);
  }
}

}  // namespace

TileFn operator_tile(EwOp op, DType type) {
  const Row& row = kRows[int(op)];
  switch (type) {
    case DType::f32: return row.f32;
    case DType::f64: return row.f64;
    case DType::i32: return row.i32;
    case DType::i64: return row.i64_;
    case DType::u8: return row.u8;
    case DType::boolean: return row.boolean;
    case DType::i8: return row.i8;
    case DType::i16: return row.i16;
    case DType::u16: return row.u16;
    case DType::u32: return row.u32;
    case DType::u64: return row.u64;
    default: return op == EwOp::Where && is_small(type) ? row.u8 : nullptr;
  }
}

void cast_tile(DType from, DType to, unsigned mode, const void* x, void* out, i64 n) {
  if (!is_small(from) && !is_small(to)) return kCasts[int(from)].to[int(to)](x, nullptr, nullptr, out, n);
  for (i64 begin = 0; begin < n; begin += kRun)
    cast_small(from, to, mode, static_cast<const char*>(x) + begin * i64(dtype_bytes(from)),
               static_cast<char*>(out) + begin * i64(dtype_bytes(to)), smaller(kRun, n - begin));
}

void dropout_tile(const DropoutTile& tile, DType type, const void* x, const void* ratio, const void* training,
                  void* out, i64 n) {
  const Bool* on = static_cast<const Bool*>(training);
  if (type == DType::f64) {
    dropout_loop(tile, static_cast<const double*>(x), static_cast<const double*>(ratio), on,
                 static_cast<double*>(out), n);
  } else {
    dropout_loop(tile, static_cast<const float*>(x), static_cast<const float*>(ratio), on,
                 static_cast<float*>(out), n);
  }
}

void dropout_mask_tile(const DropoutTile& tile, DType type, const void* ratio, const void* training,
                       void* keep, i64 n) {
  const Bool* on = static_cast<const Bool*>(training);
  if (type == DType::f64) {
    dropout_mask_loop(tile, static_cast<const double*>(ratio), on, static_cast<Bool*>(keep), n);
  } else {
    dropout_mask_loop(tile, static_cast<const float*>(ratio), on, static_cast<Bool*>(keep), n);
  }
}

void uniform_tile(const DropoutTile& tile, DType type, const void* low, const void* high, void* out, i64 n) {
  if (type == DType::f64) {
    uniform_loop(tile, static_cast<const double*>(low), static_cast<const double*>(high),
                 static_cast<double*>(out), n);
  } else {
    uniform_loop(tile, static_cast<const float*>(low), static_cast<const float*>(high),
                 static_cast<float*>(out), n);
  }
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
