// Determinants and cofactors against the sum over permutations, singular matrices included.
#include "kernels/determinant.h"

#include <algorithm>
#include <numeric>

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using Matrix = std::vector<double>;

// The sum over all permutations p of sign(p) times the product of a[i, p(i)] (Leibniz).
double leibniz(const Matrix& a, std::size_t n) {
  std::vector<std::size_t> p(n);
  std::iota(p.begin(), p.end(), 0);
  double sum = 0;
  do {
    double product = 1;
    for (std::size_t i = 0; i < n; ++i) {
      product *= a[i * n + p[i]];
      for (std::size_t j = i + 1; j < n; ++j) product *= p[j] < p[i] ? -1 : 1;
    }
    sum += product;
  } while (std::next_permutation(p.begin(), p.end()));
  return sum;
}

// Determinants of what is left without row i and column j.
Matrix minors(const Matrix& a, std::size_t n) {
  Matrix result;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      Matrix rest;
      for (std::size_t k = 0; k < n * n; ++k)
        if (k / n != i && k % n != j) rest.push_back(a[k]);
      result.push_back(((i + j) % 2 == 0 ? 1 : -1) * leibniz(rest, n - 1));
    }
  }
  return result;
}

// The sum of `rank` products of a column and a row.
Matrix of_rank(std::int64_t rank, std::int64_t n) {
  Matrix a(std::size_t(n * n), 0);
  for (std::int64_t r = 0; r < rank; ++r) {
    const auto column = values<double>(n, std::uint64_t(2 * r + 1)),
               row = values<double>(n, std::uint64_t(2 * r + 2));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += column[i / std::size_t(n)] * row[i % std::size_t(n)];
  }
  return a;
}

template <class T>
std::vector<T> narrow(const Matrix& a) {
  return std::vector<T>(a.begin(), a.end());
}

template <class T>
class DeterminantOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DeterminantOf, Types);

TYPED_TEST(DeterminantOf, MatricesOfEveryRank) {
  using T = TypeParam;
  const Tolerance tolerance = std::is_same_v<T, float> ? Tolerance{1e-6, 2e-6} : Tolerance{1e-12, 1e-12};
  for (const std::int64_t n : {1, 2, 3, 4, 6})
    for (std::int64_t rank = 0; rank <= n; ++rank) {
      const auto x = narrow<T>(of_rank(rank, n));
      const Matrix a(x.begin(), x.end());
      const std::string what = std::to_string(n) + " of rank " + std::to_string(rank);
      const DeterminantArgs args{dtype_of<T>(), 1, n, x.data(), nullptr, nullptr};
      expect_on_every_level(
          [&](const CpuKernels& k) {
            std::vector<T> y(1);
            std::vector<char> workspace(workspace_bytes(Target::cpu, args));
            DeterminantArgs own = args;
            own.y = y.data();
            own.workspace = workspace.data();
            k.determinant(own);
            return y;
          },
          {leibniz(a, std::size_t(n))}, tolerance, what);
      const T dy = T(0.75);
      Matrix expected = minors(a, std::size_t(n));
      for (double& e : expected) e *= 0.75;
      const DeterminantGradArgs grad{dtype_of<T>(), 1, n, &dy, x.data(), nullptr, nullptr};
      expect_on_every_level(
          [&](const CpuKernels& k) {
            std::vector<T> dx(x.size());
            std::vector<char> workspace(workspace_bytes(Target::cpu, grad));
            DeterminantGradArgs own = grad;
            own.dx = dx.data();
            own.workspace = workspace.data();
            k.determinant_grad(own);
            return dx;
          },
          expected, tolerance, "cofactors, " + what);
    }
}

// More matrices than slots, and an infinite or undefined element stays in its matrix.
TYPED_TEST(DeterminantOf, MoreMatricesThanSlots) {
  using T = TypeParam;
  const std::int64_t matrices = portable::kDeterminantSlots + 37;
  auto x = values<T>(4 * matrices, 7);
  x[4 * 5] = T(NAN);
  const DeterminantArgs args{dtype_of<T>(), matrices, 2, x.data(), nullptr, nullptr};
  std::vector<double> expected;
  for (std::size_t m = 0; m < std::size_t(matrices); ++m)
    expected.push_back(double(x[4 * m]) * double(x[4 * m + 3]) - double(x[4 * m + 1]) * double(x[4 * m + 2]));
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> y(std::size_t(matrices), T(99));
        std::vector<char> workspace(workspace_bytes(Target::cpu, args));
        DeterminantArgs own = args;
        own.y = y.data();
        own.workspace = workspace.data();
        k.determinant(own);
        return y;
      },
      expected, std::is_same_v<T, float> ? Tolerance{1e-6, 1e-6} : Tolerance{1e-12, 1e-12});
}

}  // namespace
}  // namespace gradloom::kernels::test
