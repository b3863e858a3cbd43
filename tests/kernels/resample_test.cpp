// A sparse matrix times an axis, against plain loops in double.
#include <utility>

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

// Rows of `count` neighbours, two further for every row and all with the same weights, as the gradient of an
// enlargement by two has them; but for those outside.
Table halving(i64 in, i64 count) {
  Table t;
  for (i64 j = 0; j < in / 2; ++j) {
    for (i64 k = 0; k < count; ++k) {
      const i64 at = 2 * j + 1 - count / 2 + k;
      if (at < 0 || at >= in) continue;
      t.index.push_back(std::int32_t(at));
      t.weight.push_back(double(k + 1) / double(count * count));
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

// Two axes at once against one after the other in double.
template <class T>
void check_planes(const Table& rows, i64 h, const Table& cols, i64 w, i64 outer, i64 inner) {
  const i64 oh = i64(rows.begin.size()) - 1, ow = i64(cols.begin.size()) - 1;
  const auto x = values<T>(outer * h * w * inner, 1);
  std::vector<double> expected;
  for (i64 o = 0; o < outer; ++o)
    for (i64 j = 0; j < oh; ++j)
      for (i64 k = 0; k < ow; ++k)
        for (i64 i = 0; i < inner; ++i) {
          double sum = 0;
          for (auto e = std::size_t(rows.begin[std::size_t(j)]);
               e < std::size_t(rows.begin[std::size_t(j + 1)]); ++e)
            for (auto f = std::size_t(cols.begin[std::size_t(k)]);
                 f < std::size_t(cols.begin[std::size_t(k + 1)]); ++f)
              sum += rows.weight[e] * cols.weight[f] *
                     double(x[std::size_t(((o * h + rows.index[e]) * w + cols.index[f]) * inner + i)]);
          expected.push_back(sum);
        }
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> y(expected.size(), T(9));
        k.resample_planes({dtype_of<T>(),
                           outer,
                           inner,
                           {h, oh, rows.begin.data(), rows.index.data(), rows.weight.data()},
                           {w, ow, cols.begin.data(), cols.index.data(), cols.weight.data()},
                           x.data(),
                           y.data()});
        return y;
      },
      expected, reduction_tolerance<T>());
}

TEST(Resample, TakesTwoAxesAtOnce) {
  for (const i64 count : {1, 2, 3, 4, 8}) {
    for (const auto& [h, oh] : std::vector<std::pair<i64, i64>>{{9, 20}, {20, 9}, {5, 5}}) {
      for (const auto& [w, ow] : std::vector<std::pair<i64, i64>>{{37, 150}, {300, 140}, {6, 11}}) {
        check_planes<float>(interpolation(h, oh, count), h, interpolation(w, ow, count), w, 3, 1);
        check_planes<double>(interpolation(h, oh, count), h, interpolation(w, ow, count), w, 2, 1);
      }
    }
    check_planes<float>(interpolation(9, 20, count), 9, interpolation(7, 13, count), 7, 2, 16);
    check_planes<float>(interpolation(20, 9, count), 20, interpolation(31, 13, count), 31, 2, 16);
  }
  check_planes<float>(table_of(12, 17), 12, table_of(30, 40), 30, 3, 1);  // any order, also none
  check_planes<float>(table_of(40, 17), 40, table_of(30, 40), 30, 3, 3);
  check_planes<float>(table_of(30, 7), 30, table_of(9000, 20), 9000, 1, 1);  // sources far apart
  check_planes<float>(interpolation(40, 64, 2), 40, interpolation(64, 128, 2), 64, 40, 1);  // in parallel
}

TEST(Resample, HalvesRowsAndColumns) {
  for (const i64 count : {2, 3, 4, 8}) {
    for (const i64 w : {12, 34, 64, 128, 300}) {  // no register; one and a part; whole ones; two strips
      check_planes<float>(halving(26, count), 26, halving(w, count), w, 3, 1);
      check_planes<double>(halving(40, count), 40, halving(w, count), w, 2, 1);
      check_planes<float>(interpolation(9, 20, 2), 9, halving(w, count), w, 2, 1);
      check<float>(halving(w, count), 6, w, w / 2, 1);
    }
    check_planes<float>(halving(128, count), 128, halving(128, count), 128, 40, 1);  // in parallel
    check_planes<float>(halving(64, count), 64, halving(1500, count), 1500, 1, 1);   // a row at a time
  }
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
