// A sparse matrix times an axis, against plain loops in double.
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using i64 = std::int64_t;

struct Table {
  std::vector<std::int32_t> begin{0}, index;
  std::vector<double> weight;
};

// Rows of 0, 1, 2, .. 5 entries in turn.
Table table_of(i64 in, i64 out) {
  Random random(7);
  Table t;
  for (i64 j = 0; j < out; ++j) {
    for (i64 e = 0; e < j % 6; ++e) {
      t.index.push_back(std::int32_t(random.below(in)));
      t.weight.push_back(random.uniform(-1, 1));
    }
    t.begin.push_back(std::int32_t(t.index.size()));
  }
  return t;
}

// Rows of `count` neighbours, as interpolation has them; but for the borders, which have one.
Table interpolation(i64 in, i64 out, i64 count) {
  Random random(8);
  Table t;
  for (i64 j = 0; j < out; ++j) {
    const i64 first = j * in / out - count / 2;
    for (i64 e = first; e < first + count; ++e) {
      if (e < 0 || e >= in) continue;
      t.index.push_back(std::int32_t(e));
      t.weight.push_back(random.uniform(-1, 1));
    }
    t.begin.push_back(std::int32_t(t.index.size()));
  }
  return t;
}

template <class T>
void check(const Table& t, i64 outer, i64 in, i64 out, i64 inner) {
  const auto x = values<T>(outer * in * inner, 1);
  std::vector<double> expected;
  for (i64 o = 0; o < outer; ++o)
    for (i64 j = 0; j < out; ++j)
      for (i64 i = 0; i < inner; ++i) {
        double sum = 0;
        for (auto e = std::size_t(t.begin[std::size_t(j)]); e < std::size_t(t.begin[std::size_t(j + 1)]); ++e)
          sum += t.weight[e] * double(x[std::size_t((o * in + t.index[e]) * inner + i)]);
        expected.push_back(sum);
      }
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> y(expected.size(), T(9));
        k.resample({dtype_of<T>(), outer, in, out, inner, t.begin.data(), t.index.data(), t.weight.data(),
                    x.data(), y.data()});
        return y;
      },
      expected, reduction_tolerance<T>());
}

template <class T>
void check(i64 outer, i64 in, i64 out, i64 inner) {
  check<T>(table_of(in, out), outer, in, out, inner);
}

TEST(Resample, IsASparseProduct) {
  check<float>(3, 7, 13, 5);
  check<double>(2, 4, 9, 33);
  check<float>(50, 11, 12, 1);
  check<double>(1, 1, 7, 1);
  check<float>(2, 5, 0, 3);
  check<float>(1, 5, 8, 2500);   // strips
  check<float>(40, 30, 60, 40);  // in parallel
  check<float>(300, 100, 120, 1);
}

TEST(Resample, InterpolatesRowsOfSingleElements) {
  for (const i64 count : {1, 2, 3, 4}) {
    for (const i64 out : {9, 50, 130, 301}) {  // smaller than a register; not whole registers; several pieces
      check<float>(interpolation(37, out, count), 70, 37, out, 1);
      check<double>(interpolation(37, out, count), 5, 37, out, 1);
      check<float>(interpolation(37, out, count), 2, 37, out, 1);
      check<float>(interpolation(5, out, count), 6, 5, out, 1);      // a row shorter than a register
      check<float>(interpolation(400, out, count), 6, 400, out, 1);  // sources far apart
    }
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
