// Matrix multiplication (f32 and bf16 through oneDNN, own in f64, and in f32 without AVX-512) against loops in double: layouts, batches,
// broadcast, epilogues, and equal bits for any thread count.
#include "kernels/prepared/matmul.h"

#include <omp.h>

#include <algorithm>
#include <array>

#include "kernels/prepared/bf16.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using Dims = std::vector<std::int64_t>;

double activated(Activation activation, double v) {
  switch (activation) {
    case Activation::relu: return std::isnan(v) ? v : std::max(v, 0.0);
    case Activation::gelu_erf: return 0.5 * v * (1 + std::erf(v * 0.70710678118654752440));
    case Activation::gelu_tanh:
      return 0.5 * v * (1 + std::tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    default: return v;
  }
}

// Elements that a strided operand reaches.
std::int64_t extent(const Dims& dims, const Dims& strides) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) last += std::max<std::int64_t>(dims[d] - 1, 0) * strides[d];
  return last + 1;
}
Dims with(Dims batch, std::int64_t rows, std::int64_t cols) {
  batch.push_back(rows);
  batch.push_back(cols);
  return batch;
}

// The slope of GELU, up to 1.13, on what was rounded to bf16 already, and its own rounding: 2.13 * 2^-8.
template <class T>
Tolerance tolerance(Activation activation) {
  Tolerance close = reduction_tolerance<T>();
  const bool gelu = activation == Activation::gelu_erf || activation == Activation::gelu_tanh;
  if (std::is_same_v<T, Bf16> && gelu) close.relative = 2.13 * 0x1p-8;
  return close;
}

// C: the type of the result.
template <class T, class C = T>
void check(MatMulDesc d, std::string* implementation = nullptr) {
  d.dtype = dtype_of<T>();
  d.wide_c = !std::is_same_v<T, C>;
  const auto a = values<T>(extent(with(d.batch, d.m, d.k), d.a_strides), 1, -1, 1);
  const auto b = values<T>(extent(with(d.batch, d.k, d.n), d.b_strides), 2, -1, 1);
  const auto bias = values<T>(d.n, 3);
  const auto c = values<C>(extent(with(d.batch, d.m, d.n), d.c_strides), 4);
  std::vector<double> expected(c.begin(), c.end());
  std::int64_t batches = 1;
  for (const std::int64_t size : d.batch) batches *= size;
  const std::size_t rank = d.batch.size();
  for (std::int64_t number = 0; number < batches; ++number) {
    std::int64_t rest = number, ao = 0, bo = 0, co = 0;
    for (std::size_t i = rank; i-- > 0;) {
      ao += rest % d.batch[i] * d.a_strides[i];
      bo += rest % d.batch[i] * d.b_strides[i];
      co += rest % d.batch[i] * d.c_strides[i];
      rest /= d.batch[i];
    }
    for (std::int64_t i = 0; i < d.m; ++i) {
      for (std::int64_t j = 0; j < d.n; ++j) {
        double total = 0;
        for (std::int64_t k = 0; k < d.k; ++k) {
          total += double(a[std::size_t(ao + i * d.a_strides[rank] + k * d.a_strides[rank + 1])]) *
                   double(b[std::size_t(bo + k * d.b_strides[rank] + j * d.b_strides[rank + 1])]);
        }
        const auto at = std::size_t(co + i * d.c_strides[rank] + j * d.c_strides[rank + 1]);
        expected[at] = activated(d.activation, d.alpha * total + (d.bias ? double(bias[std::size_t(j)]) : 0) +
                                                   (d.accumulate ? double(c[at]) : 0));
      }
    }
  }
  std::vector<C> first;
  for (const int team : {1, 2, 3}) {
    set_threads(team);
    const auto matmul = MatMul::create(d);
    if (implementation != nullptr) *implementation = matmul->implementation();
    EXPECT_EQ(matmul->implementation().find("ref"), std::string::npos) << matmul->implementation();
    std::vector<std::uint8_t> workspace(matmul->workspace_bytes() + 64, 0xff);
    std::vector<std::uint8_t> packed(matmul->packed_bytes());
    if (!packed.empty()) matmul->pack_b(b.data(), packed.data());
    const void* const given = packed.empty() ? static_cast<const void*>(b.data()) : packed.data();
    for (int repeat = 0; repeat < 2; ++repeat) {
      std::vector<C> out = c;
      matmul->run(a.data(), given, d.bias ? bias.data() : nullptr, out.data(), workspace.data());
      if (first.empty()) {
        first = out;
        expect_close(out, expected, tolerance<C>(d.activation), matmul->implementation());
      }
      EXPECT_TRUE(same_bits(out, first)) << team << " threads, " << matmul->implementation();
    }
  }
  set_threads(2);
}

MatMulDesc plain(std::int64_t m, std::int64_t n, std::int64_t k, bool a_turned = false,
                 bool b_turned = false) {
  MatMulDesc d;
  d.m = m;
  d.n = n;
  d.k = k;
  d.a_strides = a_turned ? Dims{1, m} : Dims{k, 1};
  d.b_strides = b_turned ? Dims{1, k} : Dims{n, 1};
  d.c_strides = {n, 1};
  return d;
}

MatMulDesc batched(Dims batch, std::int64_t m, std::int64_t n, std::int64_t k, bool b_turned) {
  MatMulDesc d = plain(m, n, k, false, b_turned);
  d.batch = batch;
  std::int64_t a = m * k, b = n * k, c = m * n;
  for (std::size_t i = batch.size(); i-- > 0;) {
    d.a_strides.insert(d.a_strides.begin(), a);
    d.b_strides.insert(d.b_strides.begin(), b);
    d.c_strides.insert(d.c_strides.begin(), c);
    a *= batch[i];
    b *= batch[i];
    c *= batch[i];
  }
  return d;
}

template <class T>
class MatMulTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::is_same_v<T, Bf16> && !has_bf16_products()) GTEST_SKIP() << "the processor has no bf16";
  }
};
using Types = testing::Types<float, double, Bf16>;
TYPED_TEST_SUITE(MatMulTest, Types);

TYPED_TEST(MatMulTest, Layouts) {
  for (const bool a_turned : {false, true}) {
    for (const bool b_turned : {false, true}) {
      check<TypeParam>(plain(64, 48, 32, a_turned, b_turned));
      check<TypeParam>(plain(127, 131, 257, a_turned, b_turned));
      check<TypeParam>(plain(1, 128, 64, a_turned, b_turned));
      check<TypeParam>(plain(128, 1, 64, a_turned, b_turned));
      check<TypeParam>(plain(33, 17, 1, a_turned, b_turned));
      check<TypeParam>(plain(1, 1, 1, a_turned, b_turned));
      check<TypeParam>(plain(512, 384, 128, a_turned, b_turned));
    }
  }
}

// One B for many runs, in the layout that oneDNN likes best; f64 takes it as it is.
TYPED_TEST(MatMulTest, APackedB) {
  for (const bool b_turned : {false, true}) {
    for (MatMulDesc d : {plain(32, 256, 64, false, b_turned), plain(1, 40, 33, false, b_turned),
                         plain(7, 3, 5, false, b_turned)}) {
      d.packed_b = true;
      check<TypeParam>(d);
      d.accumulate = true;
      check<TypeParam>(d);
    }
  }
  MatMulDesc d = plain(32, 256, 64, false, true);
  d.packed_b = true;
  d.dtype = dtype_of<TypeParam>();
  EXPECT_EQ(MatMul::create(d)->packed_bytes() > 0, (!std::is_same_v<TypeParam, double>));
}

TYPED_TEST(MatMulTest, LongSums) {
  MatMulDesc d = plain(3, 5, 4096);
  check<TypeParam>(d);
  check<TypeParam>(plain(128, 512, 512, true, false));  // gradient of a weight
}

TYPED_TEST(MatMulTest, Batches) {
  check<TypeParam>(batched({6}, 32, 40, 24, false));
  check<TypeParam>(batched({2, 3}, 32, 40, 24, true));
  check<TypeParam>(batched({2, 1, 3}, 7, 5, 3, true));
  // One B for all: [8, 16, 32] x [32, 24].
  MatMulDesc shared = batched({8}, 16, 24, 32, false);
  shared.b_strides[0] = 0;
  check<TypeParam>(shared);
  // One A for all.
  MatMulDesc one_a = batched({8}, 16, 24, 32, false);
  one_a.a_strides[0] = 0;
  check<TypeParam>(one_a);
  // Broadcast on different dims.
  MatMulDesc mixed = batched({3, 5}, 9, 8, 7, false);
  mixed.a_strides[0] = 0;
  mixed.a_strides[1] = 63;
  mixed.b_strides[1] = 0;
  check<TypeParam>(mixed);
}

// [b, t, h, d] tensors seen as [b, h, t, d]: attention without a transpose.
TYPED_TEST(MatMulTest, AttentionStrides) {
  const std::int64_t b = 2, h = 4, t = 32, d = 16;
  MatMulDesc scores;
  scores.batch = {b, h};
  scores.m = t;
  scores.n = t;
  scores.k = d;
  scores.a_strides = {t * h * d, d, h * d, 1};
  scores.b_strides = {t * h * d, d, 1, h * d};
  scores.c_strides = {h * t * t, t * t, t, 1};
  scores.alpha = 0.25;
  check<TypeParam>(scores);
  MatMulDesc context;
  context.batch = {b, h};
  context.m = t;
  context.n = d;
  context.k = t;
  context.a_strides = {h * t * t, t * t, t, 1};
  context.b_strides = {t * h * d, d, h * d, 1};
  context.c_strides = {t * h * d, d, h * d, 1};
  check<TypeParam>(context);
}

TYPED_TEST(MatMulTest, Epilogues) {
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu_erf, Activation::gelu_tanh}) {
    for (const bool bias : {false, true}) {
      for (const bool accumulate : {false, true}) {
        for (const double alpha : {1.0, -0.5}) {
          MatMulDesc d = plain(37, 64, 48);
          d.activation = activation;
          d.bias = bias;
          d.accumulate = accumulate;
          d.alpha = alpha;
          check<TypeParam>(d);
        }
      }
    }
  }
  MatMulDesc d = batched({3}, 5, 6, 7, false);
  d.bias = true;
  d.accumulate = true;
  check<TypeParam>(d);
}

// Strides that no library takes as they are.
TYPED_TEST(MatMulTest, OddStrides) {
  MatMulDesc d = plain(20, 24, 28);
  d.a_strides = {56, 2};
  check<TypeParam>(d);
  d = plain(20, 24, 28);
  d.c_strides = {1, 20};
  d.accumulate = true;
  check<TypeParam>(d);
  d = batched({4}, 20, 24, 28, false);
  d.b_strides = {3, 24 * 13, 13};
  d.c_strides = {2, 24 * 9, 9};
  d.activation = Activation::gelu_tanh;
  check<TypeParam>(d);
  d = plain(20, 24, 28);
  d.a_strides = {0, 1};  // all rows the same
  check<TypeParam>(d);
}

// Scores of attention: operands in bf16, results as f32 has them.
TEST(MatMul, WideResults) {
  if (!has_bf16_products()) GTEST_SKIP() << "the processor has no bf16";
  for (const bool accumulate : {false, true}) {
    for (MatMulDesc d : {plain(127, 131, 257, true, false), plain(64, 48, 32, false, true), plain(1, 1, 1),
                         batched({2, 3}, 32, 40, 24, true), plain(20, 24, 28)}) {
      d.accumulate = accumulate;
      d.alpha = 0.5;
      check<Bf16, float>(d);
    }
    MatMulDesc d = plain(20, 24, 28);
    d.accumulate = accumulate;
    d.c_strides = {1, 20};  // through an image of it
    check<Bf16, float>(d);
  }
  MatMulDesc d = plain(4, 5, 6);
  d.dtype = DType::bf16;
  d.wide_c = true;
  d.activation = Activation::relu;
  EXPECT_THROW(MatMul::create(d), std::runtime_error);
}

// Cut in rows and columns, in columns alone, and by their batch: with edges that are no whole pieces.
TEST(MatMul, LargeOnesInBf16) {
  if (!has_bf16_products()) GTEST_SKIP() << "the processor has no bf16";
  for (MatMulDesc d :
       {plain(530, 4102, 250), plain(131, 16405, 250, false, true), batched({16}, 263, 517, 250, false)}) {
    d.bias = d.batch.empty();
    check<Bf16, float>(d);
  }
}

TYPED_TEST(MatMulTest, Empty) {
  if constexpr (std::is_same_v<TypeParam, Bf16>) {
    MatMulDesc none = plain(4, 5, 0);
    none.dtype = DType::bf16;
    EXPECT_THROW(MatMul::create(none), std::runtime_error);
    return;
  }
  for (MatMulDesc d : {plain(0, 4, 5), plain(4, 0, 5), plain(4, 5, 0), batched({0}, 3, 4, 5, false)}) {
    check<TypeParam>(d);
    d.bias = true;
    d.activation = Activation::relu;
    check<TypeParam>(d);
  }
}

TYPED_TEST(MatMulTest, NanReachesTheResult) {
  for (const Activation activation : {Activation::none, Activation::relu}) {
    MatMulDesc d = plain(4, 16, 8);
    d.dtype = dtype_of<TypeParam>();
    d.activation = activation;
    std::vector<TypeParam> a(32, TypeParam(1)), b(128, TypeParam(1)), c(64);
    a[9] = TypeParam(NAN);
    const auto matmul = MatMul::create(d);
    std::vector<std::uint8_t> workspace(matmul->workspace_bytes() + 64);
    matmul->run(a.data(), b.data(), nullptr, c.data(), workspace.data());
    EXPECT_EQ(c[0], TypeParam(8));
    EXPECT_TRUE(std::isnan(c[16])) << "activation " << int(activation);
    EXPECT_TRUE(std::isnan(c[31]));
  }
}

TEST(MatMul, RefusesWhatItCannotDo) {
  MatMulDesc d = plain(2, 2, 2);
  d.dtype = DType::i32;
  EXPECT_THROW(MatMul::create(d), std::runtime_error);
  d = plain(2, 2, 2);
  d.batch = {3};
  EXPECT_THROW(MatMul::create(d), std::runtime_error);
  // Seven batch dims that do not merge, and an A that must be copied: more dims than a copy has.
  d = plain(2, 2, 2);
  d.a_strides = {2, 4};
  for (std::int64_t stride = 1 << 12; stride > 1 << 5; stride /= 4) {
    d.batch.insert(d.batch.begin(), {2, 2});
    d.a_strides.insert(d.a_strides.begin(), {stride, stride / 2 + 1});
    d.b_strides.insert(d.b_strides.begin(), {4, 4});
    d.c_strides.insert(d.c_strides.begin(), {4, 4});
  }
  EXPECT_THROW(MatMul::create(d), std::runtime_error);
}

// A run with other addresses than the one before must not use those.
TYPED_TEST(MatMulTest, FollowsItsAddresses) {
  MatMulDesc d = plain(3, 4, 5);
  d.dtype = dtype_of<TypeParam>();
  d.bias = true;
  const auto matmul = MatMul::create(d);
  for (int run = 1; run <= 3; ++run) {
    const std::vector<TypeParam> a(15, TypeParam(run)), b(20, TypeParam(2)), bias(4, TypeParam(run));
    std::vector<TypeParam> c(12);
    std::vector<std::uint8_t> workspace(matmul->workspace_bytes() + 64, 0xff);
    matmul->run(a.data(), b.data(), bias.data(), c.data(), workspace.data());
    EXPECT_EQ(c, std::vector<TypeParam>(12, TypeParam(11 * run)));
  }
}

// Two heads of `columns` columns in rows that lie `pitch` numbers apart: what is made of them, as attention has it.
struct HeadProduct {
  std::int64_t rows, keys, columns;
  bool of_keys;  // [rows, columns] x [keys, columns]^T, else [rows, keys] x [keys, columns]

  MatMulDesc in_rows(std::int64_t pitch) const {
    MatMulDesc d;
    d.batch = {2};
    d.m = rows;
    d.n = of_keys ? keys : columns;
    d.k = of_keys ? columns : keys;
    const Dims dense{rows * keys, keys, 1}, heads{columns, pitch, 1};
    d.a_strides = of_keys ? heads : dense;
    d.b_strides = of_keys ? Dims{columns, 1, pitch} : heads;
    d.c_strides = of_keys ? dense : heads;
    d.alpha = 0.25;
    return d;
  }
};

// C, its elements one after the other, of operands whose numbers do not depend on where they lie.
std::vector<float> product_of(MatMul& matmul, const MatMulDesc& d, std::uint64_t seed) {
  const auto places = [&](std::int64_t rows, std::int64_t cols, const Dims& strides) {
    std::vector<std::size_t> at;
    for (std::int64_t b = 0; b < d.batch[0]; ++b)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j)
          at.push_back(std::size_t(b * strides[0] + i * strides[1] + j * strides[2]));
    return at;
  };
  const auto spread = [&](const std::vector<std::size_t>& at, std::uint64_t number) {
    const auto given = values<float>(std::int64_t(at.size()), number, -1, 1);
    std::vector<float> x(*std::max_element(at.begin(), at.end()) + 1);
    for (std::size_t i = 0; i < at.size(); ++i) x[at[i]] = given[i];
    return x;
  };
  const auto a = spread(places(d.m, d.k, d.a_strides), seed),
             b = spread(places(d.k, d.n, d.b_strides), seed + 1);
  const auto at = places(d.m, d.n, d.c_strides);
  std::vector<float> c(*std::max_element(at.begin(), at.end()) + 1), result;
  std::vector<std::uint8_t> workspace(matmul.workspace_bytes() + 64, 0xff);
  matmul.run(a.data(), b.data(), nullptr, c.data(), workspace.data());
  for (const std::size_t place : at) result.push_back(c[place]);
  return result;
}

// What a trial says of strides holds of other numbers; other kernels are never said to have the same bits.
TEST(MatMul, TrialTellsWhetherStridesChangeBits) {
  int equal = 0;
  for (const bool of_keys : {true, false})
    for (const auto& [rows, keys, columns] :
         {std::array<std::int64_t, 3>{128, 1024, 64}, {64, 520, 32}, {24, 24, 8}, {33, 700, 20}})
      for (const std::int64_t pitch : {3 * 2 * columns, 2 * columns + 5}) {
        const HeadProduct product{rows, keys, columns, of_keys};
        const MatMulDesc dense = product.in_rows(2 * columns), apart = product.in_rows(pitch);
        const auto of_dense = MatMul::create(dense), of_apart = MatMul::create(apart);
        const bool said = of_apart->has_bits_of(*of_dense);
        EXPECT_EQ(said, of_dense->has_bits_of(*of_apart));
        if (of_dense->implementation() != of_apart->implementation()) {
          EXPECT_FALSE(said) << of_dense->implementation() << " and " << of_apart->implementation();
        }
        if (!said) continue;
        ++equal;
        for (const std::uint64_t seed : {5, 8})
          EXPECT_TRUE(same_bits(product_of(*of_dense, dense, seed), product_of(*of_apart, apart, seed)))
              << rows << " rows, " << keys << " keys, " << columns << " columns, " << pitch << " apart, "
              << of_apart->implementation();
      }
  EXPECT_GT(equal, 0);
}

// oneDNN computes only the parts of the threads that it may have.
// Where OpenMP brings fewer, all are computed.
TEST(MatMul, IsWholeWhenOpenMpBringsFewerThreads) {
  const std::int64_t m = 192, n = 160, k = 96;
  const auto a = values<float>(m * k, 1, -1, 1), b = values<float>(k * n, 2, -1, 1);
  const auto product = [&](int team) {
    set_threads(team);
    const auto matmul = MatMul::create(plain(m, n, k));
    std::vector<std::uint8_t> workspace(matmul->workspace_bytes() + 64, 0xff);
    std::vector<float> c(std::size_t(m * n), NAN);
    matmul->run(a.data(), b.data(), nullptr, c.data(), workspace.data());
    return c;
  };
  const auto whole = product(1);
  omp_set_max_active_levels(0);
  omp_set_dynamic(1);
  EXPECT_TRUE(same_bits(product(4), whole));
  omp_set_dynamic(0);
  omp_set_max_active_levels(1);
  set_threads(2);
}

}  // namespace
}  // namespace gradloom::kernels::test
