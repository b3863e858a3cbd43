// The numbers of every elementwise operator, against the C++ library in (long) double, in all types.
#include "kernels/elementwise.h"

#include <functional>

#include "kernels/small_types.h"
#include "tests/kernels/elementwise_support.h"

namespace gradloom::kernels::test {
namespace {

using Real = long double;
struct Case {
  EwOp op;
  int arity;
  double low, high;
  std::function<Real(Real, Real)> formula;
};

Real phi(Real x) { return 0.5L * (1 + std::erf(x * 0.70710678118654752440L)); }
Real gelu_tanh_slope(Real x) {
  const Real c = 0.79788456080286535588L, t = std::tanh(c * (x + 0.044715L * x * x * x));
  return 0.5L * (1 + t) + 0.5L * x * (1 - t * t) * c * (1 + 3 * 0.044715L * x * x);
}
Real sign_of(Real a) { return a > 0 ? 1 : (a < 0 ? -1 : a); }
Real larger_of(Real a, Real b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
Real smaller_of(Real a, Real b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {EwOp::Add, 2, -9, 9, [](Real a, Real b) { return a + b; }},
      {EwOp::Sub, 2, -9, 9, [](Real a, Real b) { return a - b; }},
      {EwOp::Mul, 2, -9, 9, [](Real a, Real b) { return a * b; }},
      {EwOp::Div, 2, -9, 9, [](Real a, Real b) { return a / b; }},
      {EwOp::Pow, 2, 0.1, 5, [](Real a, Real b) { return std::pow(a, b); }},
      {EwOp::Max, 2, -9, 9, larger_of},
      {EwOp::Min, 2, -9, 9, smaller_of},
      {EwOp::Neg, 1, -9, 9, [](Real a, Real) { return -a; }},
      {EwOp::Abs, 1, -9, 9, [](Real a, Real) { return std::abs(a); }},
      {EwOp::Sign, 1, -9, 9, [](Real a, Real) { return sign_of(a); }},
      {EwOp::Exp, 1, -80, 80, [](Real a, Real) { return std::exp(a); }},
      {EwOp::Log, 1, 1e-6, 1e3, [](Real a, Real) { return std::log(a); }},
      {EwOp::Sqrt, 1, 0, 1e3, [](Real a, Real) { return std::sqrt(a); }},
      {EwOp::Reciprocal, 1, -9, 9, [](Real a, Real) { return 1 / a; }},
      {EwOp::Erf, 1, -5, 5, [](Real a, Real) { return std::erf(a); }},
      {EwOp::Tanh, 1, -12, 12, [](Real a, Real) { return std::tanh(a); }},
      {EwOp::Sigmoid, 1, -30, 30, [](Real a, Real) { return 1 / (1 + std::exp(-a)); }},
      {EwOp::Sin, 1, -50, 50, [](Real a, Real) { return std::sin(a); }},
      {EwOp::Cos, 1, -50, 50, [](Real a, Real) { return std::cos(a); }},
      {EwOp::Tan, 1, -50, 50, [](Real a, Real) { return std::tan(a); }},
      {EwOp::Asin, 1, -1, 1, [](Real a, Real) { return std::asin(a); }},
      {EwOp::Acos, 1, -1, 1, [](Real a, Real) { return std::acos(a); }},
      {EwOp::Atan, 1, -9, 9, [](Real a, Real) { return std::atan(a); }},
      {EwOp::Sinh, 1, -9, 9, [](Real a, Real) { return std::sinh(a); }},
      {EwOp::Cosh, 1, -9, 9, [](Real a, Real) { return std::cosh(a); }},
      {EwOp::Asinh, 1, -99, 99, [](Real a, Real) { return std::asinh(a); }},
      {EwOp::Acosh, 1, 1, 99, [](Real a, Real) { return std::acosh(a); }},
      {EwOp::Atanh, 1, -1, 1, [](Real a, Real) { return std::atanh(a); }},
      {EwOp::Round, 1, -9, 9, [](Real a, Real) { return std::nearbyint(a); }},
      {EwOp::TruncMod, 2, -9, 9, [](Real a, Real b) { return std::fmod(a, b); }},
      {EwOp::Floor, 1, -9, 9, [](Real a, Real) { return std::floor(a); }},
      {EwOp::Ceil, 1, -9, 9, [](Real a, Real) { return std::ceil(a); }},
      {EwOp::Softplus, 1, -20, 20,
       [](Real a, Real) { return std::log1p(std::exp(-std::abs(a))) + std::max(a, 0.0L); }},
      {EwOp::Relu, 1, -9, 9, [](Real a, Real) { return larger_of(a, 0); }},
      {EwOp::Square, 1, -9, 9, [](Real a, Real) { return a * a; }},
      {EwOp::Gelu, 1, -6, 6, [](Real a, Real) { return a * phi(a); }},
      {EwOp::GeluTanh, 1, -6, 6,
       [](Real a, Real) {
         return 0.5L * a * (1 + std::tanh(0.79788456080286535588L * (a + 0.044715L * a * a * a)));
       }},
      {EwOp::ReluGrad, 2, -9, 9, [](Real a, Real b) { return b > 0 ? a : 0; }},
      {EwOp::TanhGrad, 2, -1, 1, [](Real a, Real b) { return a * (1 - b * b); }},
      {EwOp::SigmoidGrad, 2, 0, 1, [](Real a, Real b) { return a * b * (1 - b); }},
      {EwOp::GeluGrad, 2, -5, 5,
       [](Real a, Real b) { return a * (phi(b) + b * 0.39894228040143267794L * std::exp(-0.5L * b * b)); }},
      {EwOp::GeluTanhGrad, 2, -5, 5, [](Real a, Real b) { return a * gelu_tanh_slope(b); }},
  };
  return all;
}

template <class T>
void check_operator(const Case& c, std::int64_t n) {
  const auto a = values<T>(n, 1 + std::uint64_t(c.op), c.low, c.high);
  const auto b = values<T>(n, 99 + std::uint64_t(c.op), c.low, c.high);
  std::vector<double> expected;
  for (std::size_t i = 0; i < a.size(); ++i) expected.push_back(double(c.formula(a[i], b[i])));
  const EwProgram program = one_operator(c.op, dtype_of<T>(), dtype_of<T>(), c.arity, n);
  expect_on_every_level(
      [&](const CpuKernels& k) {
        return run<T>(k, program, {a.data(), b.data()}, n);
      },
      expected, elementwise_tolerance<T>(), "operator " + std::to_string(int(c.op)));
}

TEST(Elementwise, EveryOperatorMatchesTheLibrary) {
  for (const Case& c : cases()) {
    for (const std::int64_t n : {0, 1, 7, 1009, 70001}) {
      check_operator<float>(c, n);
      check_operator<double>(c, n);
    }
  }
}

template <class T>
void check_special_values() {
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  constexpr T tiny = std::numeric_limits<T>::denorm_min(), big = std::numeric_limits<T>::max();
  std::vector<T> a, b;
  for (const T x : {T(0), T(-0.0), T(1), T(-1), T(3.5), tiny, -tiny, big, -big, inf, -inf, nan}) {
    for (const T y : {T(0), T(1), T(-2), T(0.5), big, inf, -inf, nan}) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  const auto n = std::int64_t(a.size());
  for (const EwOp op :
       {EwOp::Add,      EwOp::Sub,  EwOp::Mul,  EwOp::Div,   EwOp::Max,        EwOp::Min,   EwOp::Abs,
        EwOp::Sign,     EwOp::Exp,  EwOp::Log,  EwOp::Sqrt,  EwOp::Erf,        EwOp::Tanh,  EwOp::Sigmoid,
        EwOp::Floor,    EwOp::Ceil, EwOp::Relu, EwOp::Pow,   EwOp::Reciprocal, EwOp::Asin,  EwOp::Acos,
        EwOp::Atan,     EwOp::Sinh, EwOp::Cosh, EwOp::Asinh, EwOp::Acosh,      EwOp::Atanh, EwOp::Round,
        EwOp::TruncMod, EwOp::Sin,  EwOp::Cos,  EwOp::Tan,   EwOp::Softplus}) {
    const Case* found = nullptr;
    for (const Case& c : cases()) found = c.op == op ? &c : found;
    ASSERT_NE(found, nullptr);
    std::vector<double> expected;
    for (std::size_t i = 0; i < a.size(); ++i) {
      expected.push_back(double(T(found->formula(Real(a[i]), Real(b[i])))));
    }
    const EwProgram program = one_operator(op, dtype_of<T>(), dtype_of<T>(), found->arity, n);
    expect_on_every_level(
        [&](const CpuKernels& k) {
          return run<T>(k, program, {a.data(), b.data()}, n);
        },
        expected, elementwise_tolerance<T>(), "special values of operator " + std::to_string(int(op)));
  }
}

TEST(Elementwise, NanAndInfinityPassThrough) {
  check_special_values<float>();
  check_special_values<double>();
}

struct Activation {
  EwOp op;
  double low, high, relative, tiny;
  std::function<double(double)> exact;
  std::vector<std::pair<float, float>> values;  // x, result
};

std::vector<Activation> activations() {
  const auto normal = [](double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); };
  const auto logistic = [](double x) {
    return 1 / (1 + std::exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x)));
  };
  const float inf = INFINITY;
  return {{EwOp::Erf,
           -5,
           5,
           1.8e-7,
           0,
           [](double x) { return std::erf(x); },
           {{0.0f, 0.0f}, {10.0f, 1.0f}, {-inf, -1.0f}}},
          {EwOp::Tanh,
           -11,
           11,
           1.8e-7,
           0,
           [](double x) { return std::tanh(x); },
           {{0.0f, 0.0f}, {1e-30f, 1e-30f}, {-1e-38f, -1e-38f}, {20.0f, 1.0f}, {-inf, -1.0f}}},
          {EwOp::Sigmoid,
           -87,
           90,
           2e-6,
           0,
           [](double x) { return 1 / (1 + std::exp(-x)); },
           {{0.0f, 0.5f}, {100.0f, 1.0f}, {inf, 1.0f}, {-inf, 0.0f}}},
          {EwOp::Gelu,
           -12,
           12,
           1e-5,
           0,
           [=](double x) { return x * normal(x); },
           {{0.0f, 0.0f}, {100.0f, 100.0f}, {-100.0f, 0.0f}, {-1e30f, 0.0f}, {inf, inf}}},
          {EwOp::GeluTanh,
           -12,
           12,
           2e-5,
           12 * std::numeric_limits<float>::min(),
           [=](double x) { return x * logistic(x); },
           {{0.0f, 0.0f}, {1e30f, 1e30f}, {-1e30f, 0.0f}, {inf, inf}}},
          {EwOp::GeluGrad,
           -12,
           12,
           1e-5,
           1e-7,
           [=](double x) { return normal(x) + x * 0.39894228040143267794 * std::exp(-0.5 * x * x); },
           {{0.0f, 0.5f}, {1e30f, 1.0f}, {-1e15f, 0.0f}}},
          {EwOp::GeluTanhGrad,
           -9,
           9,
           1e-5,
           1e-7,
           [=](double x) {
             const double s = logistic(x);
             return s + x * s * (1 - s) * 1.59576912160573071176 * (1 + 3 * 0.044715 * x * x);
           },
           {{0.0f, 0.5f}, {1e30f, 1.0f}, {inf, 1.0f}}}};
}

void check_activation(const Activation& f) {
  const bool gradient = f.op == EwOp::GeluGrad || f.op == EwOp::GeluTanhGrad;
  const std::int64_t n = 100000;
  auto x = values<float>(n, 5, f.low, f.high);
  for (int i = 0; i < 300; ++i) x[std::size_t(i)] = float(f.high * std::pow(0.8, i + 1));
  const auto apply = [&](const CpuKernels& k, const std::vector<float>& at) {
    const std::vector<float> ones(at.size(), 1.0f);
    const EwProgram program =
        one_operator(f.op, DType::f32, DType::f32, gradient ? 2 : 1, std::int64_t(at.size()));
    return run<float>(k, program, {gradient ? ones.data() : at.data(), at.data()}, std::int64_t(at.size()));
  };
  for (const CpuKernels* k : levels()) {
    SCOPED_TRACE(std::string("operator ") + std::to_string(int(f.op)) + " " + k->isa);
    const auto y = apply(*k, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = f.exact(x[i]);
      ASSERT_NEAR(y[i], exact, f.relative * std::abs(exact) + f.tiny) << x[i];
    }
    for (const auto& [at, expected] : f.values) EXPECT_EQ(apply(*k, {at})[0], expected) << at;
    EXPECT_TRUE(std::isnan(apply(*k, {float(NAN)})[0]));
    if (gradient) {
      EXPECT_NEAR(apply(*k, {-1e30f})[0], 0.0f, 1e-30);
    }
    for (std::size_t count = 1; count < 40; ++count) {  // wherever in a register an element is
      const std::vector<float> part(x.begin() + 300, x.begin() + 300 + std::ptrdiff_t(count));
      EXPECT_TRUE(same_bits(apply(*k, part),
                            std::vector<float>(y.begin() + 300, y.begin() + 300 + std::ptrdiff_t(count))))
          << count;
    }
  }
}

// GELU far below 0 too, where 1 + erf(x) and 1 + tanh(x) have lost their digits.
// Errors are relative, or below `tiny`.
TEST(Elementwise, ActivationsKeepTheirDigits) {
  for (const Activation& f : activations()) check_activation(f);
}

// One element beyond the range of the polynomials, or with a special value, changes no other
// element's bits.
TEST(Elementwise, NeighboursOfRareArgumentsKeepTheirBits) {
  const std::int64_t n = 3001;
  const std::size_t rare = 1500;
  auto x = values<float>(n, 1, 0.1, 30);
  const auto y = values<float>(n, 2, -3, 3);
  for (const EwOp op : {EwOp::Sin, EwOp::Cos, EwOp::Tan, EwOp::Pow}) {
    const EwProgram program = one_operator(op, DType::f32, DType::f32, op == EwOp::Pow ? 2 : 1, n);
    for (const CpuKernels* k : levels()) {
      x[rare] = 0.5f;
      auto plain = run<float>(*k, program, {x.data(), y.data()}, n);
      for (const float value : {1e30f, -1e30f, INFINITY, float(NAN), -2.0f, 0.0f}) {
        x[rare] = value;
        auto other = run<float>(*k, program, {x.data(), y.data()}, n);
        plain[rare] = other[rare] = 0;
        EXPECT_TRUE(same_bits(plain, other)) << int(op) << " " << value << " " << k->isa;
      }
    }
  }
}

TEST(Elementwise, TrigonometryOfLargeNumbers) {
  const auto x = values<float>(20000, 9, -3e6, 3e6);
  const std::vector<double (*)(double)> functions = {std::sin, std::cos, std::tan};
  const EwOp ops[] = {EwOp::Sin, EwOp::Cos, EwOp::Tan};
  for (int f = 0; f < 3; ++f) {
    std::vector<double> expected;
    for (const float v : x) expected.push_back(functions[std::size_t(f)](double(v)));
    const EwProgram program = one_operator(ops[f], DType::f32, DType::f32, 1, 20000);
    expect_on_every_level([&](const CpuKernels& k) { return run<float>(k, program, {x.data()}, 20000); },
                          expected, {2e-7, 1e-9});
  }
}

TEST(Elementwise, SubnormalResultsOfExp) {
  const auto x = values<float>(4000, 5, -104, -86);
  const auto y = values<double>(4000, 6, -745, -707);
  std::vector<double> expected_f32, expected_f64;
  for (const float v : x) expected_f32.push_back(std::exp(double(v)));
  for (const double v : y) expected_f64.push_back(std::exp(v));
  const EwProgram f32 = one_operator(EwOp::Exp, DType::f32, DType::f32, 1, 4000);
  const EwProgram f64 = one_operator(EwOp::Exp, DType::f64, DType::f64, 1, 4000);
  expect_on_every_level([&](const CpuKernels& k) { return run<float>(k, f32, {x.data()}, 4000); },
                        expected_f32, {2e-7, 1.5e-45});
  expect_on_every_level([&](const CpuKernels& k) { return run<double>(k, f64, {y.data()}, 4000); },
                        expected_f64, {1e-15, 5e-324});
}

template <class T>
void check_integers() {
  const std::int64_t n = 1009;
  const auto a = values<T>(n, 3, -50, 50);
  auto b = values<T>(n, 4, -5, 5);
  b[0] = 0;
  b[1] = T(-1);
  auto c = a;
  c[1] = std::numeric_limits<T>::min();
  struct Integer {
    EwOp op;
    int arity;
    std::function<T(T, T)> formula;
  };
  const std::vector<Integer> all = {
      {EwOp::Add, 2, [](T x, T y) { return T(std::uint64_t(x) + std::uint64_t(y)); }},
      {EwOp::Mul, 2, [](T x, T y) { return T(std::uint64_t(x) * std::uint64_t(y)); }},
      {EwOp::Div, 2,
       [](T x, T y) { return y == 0 ? T(0) : (y == T(-1) ? T(0 - std::uint64_t(x)) : T(x / y)); }},
      {EwOp::Max, 2, [](T x, T y) { return std::max(x, y); }},
      {EwOp::Min, 2, [](T x, T y) { return std::min(x, y); }},
      {EwOp::Neg, 1, [](T x, T) { return T(0 - std::uint64_t(x)); }},
      {EwOp::Sign, 1, [](T x, T) { return T((x > 0) - (x < 0)); }},
      {EwOp::Relu, 1, [](T x, T) { return x > 0 ? x : T(0); }},
      {EwOp::TruncMod, 2, [](T x, T y) { return y == 0 || y == T(-1) ? T(0) : T(x % y); }},
      {EwOp::FloorMod, 2,
       [](T x, T y) { return y == 0 || y == T(-1) ? T(0) : T(((std::int64_t(x) % y) + y) % y); }},
      {EwOp::ShiftLeft, 2, [](T x, T y) { return y < 0 ? T(0) : T(std::uint64_t(x) << y); }},
      {EwOp::ShiftRight, 2, [](T x, T y) { return y >= 0  ? T(x >> y)
                                                  : x < 0 ? T(-1)
                                                          : T(0); }},
      {EwOp::BitwiseAnd, 2, [](T x, T y) { return T(x & y); }},
      {EwOp::BitwiseOr, 2, [](T x, T y) { return T(x | y); }},
      {EwOp::BitwiseXor, 2, [](T x, T y) { return T(x ^ y); }},
      {EwOp::BitwiseNot, 1, [](T x, T) { return T(~x); }},
  };
  for (const Integer& op : all) {
    const EwProgram program = one_operator(op.op, dtype_of<T>(), dtype_of<T>(), op.arity, n);
    for (const CpuKernels* k : levels()) {
      const auto out = run<T>(*k, program, {c.data(), b.data()}, n);
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], op.formula(c[i], b[i])) << int(op.op) << " element " << i << " " << k->isa;
      }
    }
  }
}

TEST(Elementwise, IntegersAreExactAndNeverTrap) {
  check_integers<std::int32_t>();
  check_integers<std::int64_t>();
}

TEST(Elementwise, ComparisonsAndLogic) {
  const std::int64_t n = 517;
  auto a = values<float>(n, 1), b = values<float>(n, 2);
  for (std::size_t i = 0; i < a.size(); i += 3) b[i] = a[i];
  a[5] = NAN;
  const auto expect = [&](EwOp op, const std::function<bool(float, float)>& formula) {
    const EwProgram program = one_operator(op, DType::f32, DType::boolean, 2, n);
    for (const CpuKernels* k : levels()) {
      const auto out = run<std::uint8_t>(*k, program, {a.data(), b.data()}, n);
      for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], formula(a[i], b[i]) ? 1 : 0) << i;
    }
  };
  expect(EwOp::Equal, [](float x, float y) { return x == y; });
  expect(EwOp::Greater, [](float x, float y) { return x > y; });
  expect(EwOp::Less, [](float x, float y) { return x < y; });
  expect(EwOp::GreaterOrEqual, [](float x, float y) { return x >= y; });
  expect(EwOp::LessOrEqual, [](float x, float y) { return x <= y; });

  std::vector<std::uint8_t> p, q;
  for (int i = 0; i < 64; ++i) {
    p.push_back(i & 1);
    q.push_back((i >> 1) & 1);
  }
  const EwProgram both = one_operator(EwOp::And, DType::boolean, DType::boolean, 2, 64);
  const EwProgram any = one_operator(EwOp::Or, DType::boolean, DType::boolean, 2, 64);
  const EwProgram no = one_operator(EwOp::Not, DType::boolean, DType::boolean, 1, 64);
  for (const CpuKernels* k : levels()) {
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(run<std::uint8_t>(*k, both, {p.data(), q.data()}, 64)[i], p[i] & q[i]);
      EXPECT_EQ(run<std::uint8_t>(*k, any, {p.data(), q.data()}, 64)[i], p[i] | q[i]);
      EXPECT_EQ(run<std::uint8_t>(*k, no, {p.data()}, 64)[i], 1 - p[i]);
    }
  }
}

TEST(Elementwise, ShiftsOutsideOfTheTypeLeaveTheSign) {
  const std::vector<std::uint8_t> a = {255, 255, 255, 255}, b = {0, 7, 8, 200};
  for (const CpuKernels* k : levels()) {
    const EwProgram left = one_operator(EwOp::ShiftLeft, DType::u8, DType::u8, 2, 4);
    const EwProgram right = one_operator(EwOp::ShiftRight, DType::u8, DType::u8, 2, 4);
    EXPECT_EQ((run<std::uint8_t>(*k, left, {a.data(), b.data()}, 4)),
              (std::vector<std::uint8_t>{255, 128, 0, 0}));
    EXPECT_EQ((run<std::uint8_t>(*k, right, {a.data(), b.data()}, 4)),
              (std::vector<std::uint8_t>{255, 1, 0, 0}));
    const std::vector<std::int8_t> c = {-128, -128, -128, 127}, d = {7, 8, -1, 8};
    const EwProgram of_signed = one_operator(EwOp::ShiftRight, DType::i8, DType::i8, 2, 4);
    EXPECT_EQ((run<std::int8_t>(*k, of_signed, {c.data(), d.data()}, 4)),
              (std::vector<std::int8_t>{-1, -1, -1, 0}));
  }
}

TEST(Elementwise, IsNaNFindsThem) {
  const std::vector<double> a = {0, NAN, INFINITY, -NAN, 1};
  const EwProgram program = one_operator(EwOp::IsNaN, DType::f64, DType::boolean, 1, 5);
  for (const CpuKernels* k : levels())
    EXPECT_EQ((run<std::uint8_t>(*k, program, {a.data()}, 5)), (std::vector<std::uint8_t>{0, 1, 0, 1, 0}));
}

TEST(Elementwise, WhereSelects) {
  const std::int64_t n = 70001;
  const auto x = values<double>(n, 1), y = values<double>(n, 2);
  std::vector<std::uint8_t> condition;
  std::vector<double> expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    condition.push_back(i % 3 == 0);
    expected.push_back(condition[i] ? x[i] : y[i]);
  }
  const EwProgram program = one_operator(EwOp::Where, DType::f64, DType::f64, 3, n);
  expect_on_every_level(
      [&](const CpuKernels& k) {
        return run<double>(k, program, {condition.data(), x.data(), y.data()}, n);
      },
      expected, {0, 0});
}

TEST(Elementwise, Casts) {
  const std::vector<float> x = {0, 1.9f, -1.9f, 3e9f, -3e9f, NAN, INFINITY, -INFINITY, 255.5f, 65504, 1e-3f};
  const auto n = std::int64_t(x.size());
  const auto cast = [&](DType to) {
    EwProgram program = program_over({n});
    program.inputs.push_back(input_of(DType::f32, {n}));
    program.code.push_back({EwOp::Cast, DType::f32, to, {0, -1, -1}, 0});
    program.outputs.push_back({1, to});
    return program;
  };
  for (const CpuKernels* k : levels()) {
    const auto i32 = run<std::int32_t>(*k, cast(DType::i32), {x.data()}, n);
    const std::vector<std::int32_t> expected = {
        0, 1, -1, 2147483647, -2147483647 - 1, 0, 2147483647, -2147483647 - 1, 255, 65504, 0};
    EXPECT_EQ(i32, expected) << k->isa;
    EXPECT_EQ(run<std::int64_t>(*k, cast(DType::i64), {x.data()}, n)[3], 3000000000);
    EXPECT_EQ(run<std::uint8_t>(*k, cast(DType::boolean), {x.data()}, n)[0], 0);
    EXPECT_EQ(run<std::uint8_t>(*k, cast(DType::boolean), {x.data()}, n)[2], 1);
    EXPECT_EQ(run<double>(*k, cast(DType::f64), {x.data()}, n)[1], double(1.9f));
    EXPECT_EQ(run<std::uint16_t>(*k, cast(DType::f16), {x.data()}, n)[9], 0x7bff);
    EXPECT_EQ(run<std::uint16_t>(*k, cast(DType::bf16), {x.data()}, n)[1],
              0x3ff3);  // 1.9 rounds up to 1.8984375
    EXPECT_EQ(run<std::uint16_t>(*k, cast(DType::bf16), {x.data()}, n)[6], 0x7f80);
  }
}

// Through one program each: from every type to every small type and back, more than one run of elements.
TEST(Elementwise, CastsOfSmallTypes) {
  const std::int64_t n = 1500;
  const auto x = values<float>(n, 9, -20, 20);
  const DType small[] = {DType::i4,         DType::u4,     DType::i2,         DType::u2,     DType::f8e4m3fn,
                         DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1, DType::f8e8m0};
  const auto rounded = [](DType type, double v) -> double {
    const auto to = [&](auto y) {
      if constexpr (requires { y.value; }) {
        portable::narrow(v, y);
        return double(y.value);
      } else {
        portable::narrow(v, y, 0);
        return double(portable::widen(y));
      }
    };
    switch (type) {
      case DType::i4: return to(portable::I4());
      case DType::u4: return to(portable::U4());
      case DType::i2: return to(portable::I2());
      case DType::u2: return to(portable::U2());
      case DType::f8e4m3fn: return to(portable::F8e4m3fn());
      case DType::f8e4m3fnuz: return to(portable::F8e4m3fnuz());
      case DType::f8e5m2: return to(portable::F8e5m2());
      case DType::f8e5m2fnuz: return to(portable::F8e5m2fnuz());
      case DType::f4e2m1: return to(portable::F4e2m1());
      default: return to(portable::F8e8m0());
    }
  };
  for (const DType from : {DType::f32, DType::f64, DType::i32, DType::i8, DType::bf16, DType::f8e5m2}) {
    for (const DType to : small) {
      EwProgram program = program_over({n});
      program.inputs.push_back(input_of(DType::f32, {n}));
      program.code = {{EwOp::Cast, DType::f32, from, {0, -1, -1}, 0},
                      {EwOp::Cast, from, DType::f64, {1, -1, -1}, 0},
                      {EwOp::Cast, from, to, {1, -1, -1}, 0},
                      {EwOp::Cast, to, DType::f64, {3, -1, -1}, 0}};
      program.outputs = {{2, DType::f64}, {4, DType::f64}};
      for (const CpuKernels* k : levels()) {
        std::vector<double> exact(x.size()), got(x.size());
        const void* inputs[] = {x.data()};
        void* outputs[] = {exact.data(), got.data()};
        k->elementwise({&program, inputs, outputs, nullptr});
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i], rounded(to, exact[i]))
              << k->isa << " " << int(from) << " to " << int(to) << ": " << exact[i];
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
