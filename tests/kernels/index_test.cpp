// Chosen places: gathers and scatters against plain loops, duplicates in order, indices out of range,
// one-hot, reversed sequences.
#include <algorithm>

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using i64 = std::int64_t;

// data [outer, size, inner], indices of the shape [outer, n, inner] along the middle axis: ONNX's elements.
IndexWalk elements(DType index, i64 outer, i64 size, i64 n, i64 inner) {
  IndexWalk walk{};
  walk.index_dtype = index;
  walk.rank = 3;
  walk.depth = 1;
  walk.outer = outer;
  walk.n = n;
  walk.inner = inner;
  walk.block = 1;
  const i64 dims[] = {outer, n, inner}, base[] = {size * inner, 0, 1};
  for (int d = 0; d < 3; ++d) {
    walk.dims[d] = dims[d];
    walk.base[d] = base[d];
  }
  walk.sizes[0] = size;
  walk.steps[0] = inner;
  return walk;
}

// data [rows, cols, block], `n` pairs of indices: ONNX's tuples.
IndexWalk tuples(i64 rows, i64 cols, i64 block, i64 n) {
  IndexWalk walk{};
  walk.index_dtype = DType::i64;
  walk.rank = 1;
  walk.depth = 2;
  walk.outer = walk.inner = 1;
  walk.n = walk.dims[0] = n;
  walk.block = block;
  walk.sizes[0] = rows;
  walk.sizes[1] = cols;
  walk.steps[0] = cols * block;
  walk.steps[1] = block;
  return walk;
}

template <class Index>
std::vector<Index> indices_below(i64 count, i64 size, bool some_outside = false) {
  Random random(3);
  std::vector<Index> list;
  for (i64 i = 0; i < count; ++i)
    list.push_back(Index(random.below(2 * size) - size + (some_outside && i % 7 == 0 ? 3 * size : 0)));
  return list;
}

template <class T>
T joined(ScatterReduction reduction, T a, T b) {
  switch (reduction) {
    case ScatterReduction::add: return T(a + b);
    case ScatterReduction::mul: return T(a * b);
    case ScatterReduction::max: return a > b ? a : b;
    case ScatterReduction::min: return a < b ? a : b;
    case ScatterReduction::none: return b;
  }
  return b;
}

template <class T, class Index>
void check_elements(i64 outer, i64 size, i64 n, i64 inner, ScatterReduction reduction,
                    bool some_outside = false) {
  const auto data = values<T>(outer * size * inner, 1, -9, 9),
             updates = values<T>(outer * n * inner, 2, -9, 9);
  const auto indices = indices_below<Index>(outer * n * inner, size, some_outside);
  std::vector<T> scattered = data, gathered(updates.size(), T(0));
  for (i64 o = 0; o < outer; ++o)
    for (i64 k = 0; k < n; ++k)
      for (i64 i = 0; i < inner; ++i) {
        const auto at = std::size_t((o * n + k) * inner + i);
        const i64 row = indices[at] < 0 ? i64(indices[at]) + size : i64(indices[at]);
        if (row < 0 || row >= size) continue;
        const auto place = std::size_t((o * size + row) * inner + i);
        gathered[at] = data[place];
        scattered[place] = joined(reduction, scattered[place], updates[at]);
      }
  const IndexWalk walk = elements(dtype_of<Index>(), outer, size, n, inner);
  on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out = data;
        k.index_scatter({dtype_of<T>(), reduction, walk, outer * size * inner, indices.data(), updates.data(),
                         out.data(), nullptr});
        return out;
      },
      [&](const std::vector<T>& out, const std::string& level) {
        EXPECT_TRUE(same_bits(out, scattered)) << level;
      });
  on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(updates.size(), T(7));
        k.index_gather({sizeof(T), walk, data.data(), indices.data(), out.data()});
        return out;
      },
      [&](const std::vector<T>& out, const std::string& level) {
        EXPECT_TRUE(same_bits(out, gathered)) << level;
      });
}

TEST(IndexKernels, ElementsJoinInOrder) {
  for (const auto reduction : {ScatterReduction::none, ScatterReduction::add, ScatterReduction::mul,
                               ScatterReduction::max, ScatterReduction::min}) {
    check_elements<float, std::int64_t>(2, 5, 40, 3, reduction);
    check_elements<double, std::int32_t>(1, 3, 50, 1, reduction);
    check_elements<std::int64_t, std::int64_t>(3, 4, 9, 2, reduction);
    check_elements<std::int32_t, std::int32_t>(1, 7, 3, 5, reduction);
  }
  check_elements<float, std::int64_t>(64, 100, 60, 70, ScatterReduction::add);  // in parallel
  check_elements<float, std::int64_t>(1, 9, 300, 1500, ScatterReduction::add);  // in parallel over columns
  check_elements<std::uint8_t, std::int64_t>(2, 5, 4, 3, ScatterReduction::none);
}

TEST(IndexKernels, ItemsOutOfRangeHaveNoPlace) {
  check_elements<float, std::int64_t>(2, 5, 30, 3, ScatterReduction::add, true);
  check_elements<float, std::int32_t>(2, 5, 30, 1, ScatterReduction::none, true);
}

TEST(IndexKernels, TuplesMoveBlocks) {
  for (const i64 block : {1, 3, 5000}) {
    const i64 rows = 3, cols = 4, n = 20;
    const auto data = values<float>(rows * cols * block, 1), updates = values<float>(n * block, 2);
    std::vector<i64> indices;
    Random random(4);
    for (i64 i = 0; i < n; ++i) {
      indices.push_back(random.below(2 * rows) - rows);
      indices.push_back(random.below(cols));
    }
    std::vector<float> scattered = data, gathered;
    for (i64 i = 0; i < n; ++i) {
      const i64 row = (indices[std::size_t(2 * i)] + rows) % rows,
                at = (row * cols + indices[std::size_t(2 * i + 1)]) * block;
      for (i64 c = 0; c < block; ++c) {
        gathered.push_back(data[std::size_t(at + c)]);
        scattered[std::size_t(at + c)] += updates[std::size_t(i * block + c)];
      }
    }
    const IndexWalk walk = tuples(rows, cols, block, n);
    on_every_level(
        [&](const CpuKernels& k) {
          std::vector<float> out = data;
          k.index_scatter({DType::f32, ScatterReduction::add, walk, rows * cols, indices.data(),
                           updates.data(), out.data(), nullptr});
          std::vector<float> read(gathered.size());
          k.index_gather({4, walk, data.data(), indices.data(), read.data()});
          EXPECT_TRUE(same_bits(read, gathered));
          return out;
        },
        [&](const std::vector<float>& out, const std::string& level) {
          EXPECT_TRUE(same_bits(out, scattered)) << level;
        });
  }
}

TEST(IndexKernels, OneHot) {
  const std::vector<float> hot = {-1, 9};
  const std::vector<std::int32_t> indices = {0, -1, 3, 4, 1, -5};  // [2, 3]; 4 and -5 are out of range
  for (const CpuKernels* k : levels()) {
    std::vector<float> out(24, 7.0f);
    k->one_hot({4, DType::i32, 2, 4, 3, indices.data(), hot.data(), out.data()});
    for (i64 o = 0; o < 2; ++o)
      for (i64 d = 0; d < 4; ++d)
        for (i64 i = 0; i < 3; ++i) {
          const i64 index = indices[std::size_t(o * 3 + i)];
          EXPECT_EQ(out[std::size_t((o * 4 + d) * 3 + i)], (index < 0 ? index + 4 : index) == d ? 9 : -1);
        }
  }
}

TEST(IndexKernels, OneHotOfManyRowsInPieces) {
  const i64 outer = 3000, depth = 11;
  std::vector<double> indices;
  std::vector<std::uint8_t> expected(std::size_t(outer * depth), 0), hot = {0, 1};
  for (i64 o = 0; o < outer; ++o) {
    indices.push_back(double(o % depth) + 0.5);
    expected[std::size_t(o * depth + o % depth)] = 1;
  }
  on_every_level(
      [&](const CpuKernels& k) {
        std::vector<std::uint8_t> out(expected.size(), 9);
        k.one_hot({1, DType::f64, outer, depth, 1, indices.data(), hot.data(), out.data()});
        return out;
      },
      [&](const std::vector<std::uint8_t>& out, const std::string& level) {
        EXPECT_EQ(out, expected) << level;
      });
}

TEST(IndexKernels, ReversesTheBeginningOfEachSequence) {
  const i64 batch = 3, time = 5, inner = 2;
  const std::vector<i64> lengths = {0, 9, 3};  // 9: all of it
  for (const bool time_first : {false, true}) {
    const auto x = values<std::int32_t>(batch * time * inner, 1, -99, 99);
    const auto at = [&](i64 b, i64 t, i64 i) {
      return std::size_t(((time_first ? t * batch + b : b * time + t)) * inner + i);
    };
    for (const CpuKernels* k : levels()) {
      std::vector<std::int32_t> y(x.size(), 0);
      k->reverse_sequence({4, time_first, batch, time, inner, x.data(), lengths.data(), y.data()});
      for (i64 b = 0; b < batch; ++b)
        for (i64 t = 0; t < time; ++t)
          for (i64 i = 0; i < inner; ++i) {
            const i64 length = std::min(lengths[std::size_t(b)], time);
            EXPECT_EQ(y[at(b, t, i)], x[at(b, t < length ? length - 1 - t : t, i)]);
          }
    }
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
