// Products of groups of rows on the executor against sums in double: both forms, groups without rows, rows of no group, ends out of
// order, sizes that fill tiles and that do not, rows at and off 16-byte boundaries.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

using Ends = std::vector<std::int64_t>;

struct Sizes {
  i64 rows, m, n;
  Ends ends;
  bool turned = false;  // the matrices are stored [n, m]
};

// The group of each row; -1: none.
std::vector<i64> groups_of(const Sizes& s) {
  std::vector<i64> groups(static_cast<std::size_t>(s.rows), -1);
  i64 begin = 0;
  for (std::size_t g = 0; g < s.ends.size(); ++g) {
    const i64 end = std::min<i64>(std::max<i64>(begin, s.ends[g]), s.rows);
    for (i64 r = begin; r < end; ++r) groups[std::size_t(r)] = i64(g);
    begin = end;
  }
  return groups;
}

// sum(index of the result, a's index, b's index) for every product of the definition.
template <class Sum>
void for_products(const Sizes& s, GroupedSum kind, const Sum& sum) {
  const std::vector<i64> groups = groups_of(s);
  for (i64 r = 0; r < s.rows; ++r) {
    const i64 g = groups[std::size_t(r)];
    if (g < 0) continue;
    for (i64 i = 0; i < s.m; ++i) {
      for (i64 j = 0; j < s.n; ++j) {
        if (kind == GroupedSum::columns)
          sum(r * s.n + j, r * s.m + i, g * s.m * s.n + (s.turned ? j * s.m + i : i * s.n + j));
        else
          sum(g * s.m * s.n + i * s.n + j, r * s.m + i, r * s.n + j);
      }
    }
  }
}

template <class T>
void check(const Sizes& s, GroupedSum kind) {
  const i64 groups = i64(s.ends.size());
  const bool columns = kind == GroupedSum::columns;
  const auto a = numbers<T>(s.rows * s.m, 1, -1, 1),
             b = numbers<T>(columns ? groups * s.m * s.n : s.rows * s.n, 2, -1, 1);
  std::vector<double> expected(std::size_t(columns ? s.rows * s.n : groups * s.m * s.n), 0.0);
  const std::vector<double> wide_a = widen(a), wide_b = widen(b);
  for_products(s, kind, [&](i64 c, i64 i, i64 j) {
    expected[std::size_t(c)] += wide_a[std::size_t(i)] * wide_b[std::size_t(j)];
  });
  const Results gpu = on_device([&](Device& device) {
    GroupedGemmArgs args{};
    args.dtype = gpu_dtype<T>();
    args.sum = kind;
    args.groups = groups;
    args.rows = s.rows;
    args.m = s.m;
    args.n = s.n;
    args.b_row = s.turned ? 1 : s.n;
    args.b_col = s.turned ? s.m : 1;
    args.a = device.in<T>(a);
    args.b = device.in<T>(b);
    args.ends = device.in<std::int64_t>(s.ends);
    args.c = device.out<T>("c", i64(expected.size()));
    device.run(grouped_gemm, args);
  });
  Tolerance close = tolerance<T>({1e-5, 1e-5});
  close.absolute *= std::sqrt(std::max(1.0, double(columns ? s.m : s.rows) / 256));
  expect_close(gpu.get<T>("c"), expected, close,
               std::to_string(s.rows) + " rows, " + std::to_string(s.m) + "x" + std::to_string(s.n));
}

template <class T>
class GpuGroupedGemm : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuGroupedGemm, Floats);

std::vector<Sizes> sizes() {
  return {{9, 3, 5, {2, 2, 7, 9}},   {7, 4, 2, {1, 5, 5}},
          {6, 4, 2, {3, 1, -2, 11}}, {1, 1, 1, {1}},
          {5, 8, 8, {0, 0, 0}},      {200, 72, 80, {64, 192}},
          {131, 40, 67, {130, 131}}, {70, 65, 24, {3, 67, 70}},
          {128, 64, 64, {128}},      {192, 128, 136, {1, 129}},
          {64, 16, 8, {64, 64, 64}}, {90, 7, 130, {45, 45, 90}}};
}

TYPED_TEST(GpuGroupedGemm, SumsOverColumns) {
  for (Sizes s : sizes()) {
    check<TypeParam>(s, GroupedSum::columns);
    s.turned = true;
    check<TypeParam>(s, GroupedSum::columns);
  }
}

TYPED_TEST(GpuGroupedGemm, SumsOverRows) {
  for (const Sizes& s : sizes()) check<TypeParam>(s, GroupedSum::rows);
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
