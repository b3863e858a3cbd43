// Reductions against loops in long double.
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

const Reduction kAll[] = {Reduction::sum, Reduction::mean,       Reduction::max,
                          Reduction::min, Reduction::prod,       Reduction::l1,
                          Reduction::l2,  Reduction::sum_square, Reduction::log_sum_exp};

template <class T>
double reference(Reduction op, const std::vector<T>& x) {
  using Real = long double;
  Real total = op == Reduction::prod ? 1 : 0, most = -INFINITY, least = INFINITY;
  bool nan = false;
  for (const T v : x) {
    const Real r = Real(v);
    nan = nan || r != r;
    most = std::max(most, r);
    least = std::min(least, r);
    switch (op) {
      case Reduction::prod: total *= r; break;
      case Reduction::l1: total += std::abs(r); break;
      case Reduction::l2:
      case Reduction::sum_square: total += r * r; break;
      case Reduction::log_sum_exp: total += std::exp(r); break;
      default: total += r;
    }
  }
  if (nan) return NAN;
  switch (op) {
    case Reduction::mean: return double(total / Real(x.size()));
    case Reduction::max: return double(most);
    case Reduction::min: return double(least);
    case Reduction::l2: return double(std::sqrt(total));
    case Reduction::log_sum_exp: return double(std::log(total));
    default: return double(total);
  }
}

template <class T>
std::vector<T> run(const CpuKernels& k, Reduction op, const std::vector<T>& in, std::int64_t outer,
                   std::int64_t n, std::int64_t inner) {
  std::vector<T> out(std::size_t(outer * inner), T(9));
  ReduceArgs args{dtype_of<T>(), op, outer, n, inner, in.data(), out.data(), nullptr};
  std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
  args.workspace = workspace.data();
  k.reduce(args);
  return out;
}

template <class T>
void check(std::int64_t outer, std::int64_t n, std::int64_t inner, bool with_nan = false) {
  for (const Reduction op : kAll) {
    const bool product = op == Reduction::prod;
    auto in = values<T>(outer * n * inner, 4, product ? 0.95 : -2, product ? 1.06 : 2.5);
    if (with_nan) in[in.size() / 2] = T(NAN);
    std::vector<double> expected;
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < inner; ++i) {
        std::vector<T> line;
        for (std::int64_t j = 0; j < n; ++j) line.push_back(in[std::size_t((o * n + j) * inner + i)]);
        expected.push_back(double(T(reference(op, line))));
      }
    }
    Tolerance tolerance = reduction_tolerance<T>();
    const double more = std::sqrt(std::max(1.0, double(n) / 4096));
    tolerance.relative *= more;
    tolerance.absolute *= more;
    expect_on_every_level([&](const CpuKernels& k) { return run(k, op, in, outer, n, inner); }, expected,
                          tolerance,
                          "op " + std::to_string(int(op)) + " " + std::to_string(outer) + "x" +
                              std::to_string(n) + "x" + std::to_string(inner));
  }
}

TEST(Reduce, FloatsMatchTheReference) {
  check<float>(1, 1, 1);
  check<float>(3, 7, 1);
  check<float>(512, 128, 1);
  check<float>(1, 100003, 1);
  check<float>(2, 40001, 1);
  check<float>(1, 512, 128);
  check<float>(1, 4099, 37);
  check<float>(5, 17, 3);
  check<float>(3, 129, 301);
  check<double>(1, 512, 128);
  check<double>(7, 1009, 1);
  check<double>(2, 333, 5);
}

// Sums and means in bf16: what the f32 kernel makes of the same numbers, rounded once.
TEST(Reduce, SumsOfBf16) {
  const std::int64_t sizes[][3] = {{1, 1, 1},     {3, 7, 1},     {512, 128, 1}, {1, 100003, 1},
                                   {1, 512, 128}, {1, 4099, 37}, {5, 17, 3},    {2, 130, 1030}};
  for (const auto& [outer, n, inner] : sizes)
    for (const Reduction op : {Reduction::sum, Reduction::mean}) {
      const auto in = values<Bf16>(outer * n * inner, 4, -2, 2.5);
      const std::vector<float> wide(in.begin(), in.end());
      for (const CpuKernels* k : levels()) {
        const std::vector<float> sums = run(*k, op, wide, outer, n, inner);
        EXPECT_TRUE(same_bits(run(*k, op, in, outer, n, inner), std::vector<Bf16>(sums.begin(), sums.end())))
            << k->isa << " " << outer << " x " << n << " x " << inner;
      }
    }
}

TEST(Reduce, NanReachesTheResult) {
  check<float>(3, 129, 1, true);
  check<double>(3, 129, 7, true);
}

TEST(Reduce, Integers) {
  std::vector<std::int64_t> in;
  for (std::int64_t i = 0; i < 3 * 70 * 5; ++i) in.push_back(i % 11 - 5);
  for (const Reduction op :
       {Reduction::sum, Reduction::max, Reduction::min, Reduction::l1, Reduction::sum_square}) {
    std::vector<double> expected;
    for (std::int64_t o = 0; o < 3; ++o) {
      for (std::int64_t i = 0; i < 5; ++i) {
        std::vector<std::int64_t> line;
        for (std::int64_t j = 0; j < 70; ++j) line.push_back(in[std::size_t((o * 70 + j) * 5 + i)]);
        expected.push_back(reference(op, line));
      }
    }
    expect_on_every_level([&](const CpuKernels& k) { return run(k, op, in, 3, 70, 5); }, expected, {0, 0});
    const std::vector<std::int32_t> narrow(in.begin(), in.end());
    expect_on_every_level([&](const CpuKernels& k) { return run(k, op, narrow, 3, 70, 5); }, expected,
                          {0, 0});
  }
}

TEST(Reduce, NothingToReduce) {
  const std::vector<float> none;
  for (const CpuKernels* k : levels()) {
    EXPECT_EQ(run(*k, Reduction::sum, none, 2, 0, 3), std::vector<float>(6, 0.0f));
    EXPECT_EQ(run(*k, Reduction::prod, none, 2, 0, 1), std::vector<float>(2, 1.0f));
    EXPECT_EQ(run(*k, Reduction::max, none, 1, 0, 1), std::vector<float>(1, -INFINITY));
    EXPECT_TRUE(run(*k, Reduction::sum, none, 0, 5, 1).empty());
    EXPECT_TRUE(std::isnan(run(*k, Reduction::mean, none, 1, 0, 1)[0]));
  }
}

// Rows, and the same as columns, of numbers or -inf, with one other among them at first or late.
TEST(Reduce, LogSumExpOfInfinities) {
  struct Case {
    float all, other, expected;
  };
  const float inf = INFINITY;
  const Case cases[] = {{-inf, -inf, -inf}, {1, inf, inf},   {-inf, 2, 2},     {-inf, inf, inf},
                        {inf, -inf, inf},   {inf, NAN, NAN}, {-inf, NAN, NAN}, {-99, 20, 20}};
  for (const CpuKernels* k : levels()) {
    for (const Case& c : cases) {
      for (const std::int64_t n : {2, 33, 70}) {
        for (const std::int64_t at : {std::int64_t(0), n - 1}) {
          std::vector<float> row(std::size_t(n), c.all), columns;
          row[std::size_t(at)] = c.other;
          const float by_row = run(*k, Reduction::log_sum_exp, row, 1, n, 1)[0];
          for (const float v : row) columns.insert(columns.end(), 19, v);
          std::vector<float> results = run(*k, Reduction::log_sum_exp, columns, 1, n, 19);
          results.push_back(by_row);
          for (const float y : results) {
            EXPECT_TRUE(std::isnan(c.expected) ? std::isnan(y) : y == c.expected)
                << k->isa << ": " << n << " of " << c.all << ", " << c.other << " at " << at << ": " << y;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
