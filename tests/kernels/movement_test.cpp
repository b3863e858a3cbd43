// Strided copy, fill and gather against plain index loops; all element sizes; exact.
#include "tests/kernels/support.h"

#include <algorithm>

namespace gradloom::kernels::test {
namespace {

using Dims = std::vector<std::int64_t>;

template <class T>
void check_copy(const Dims& dims, const Dims& in_strides, const Dims& out_strides, std::int64_t in_size,
                std::int64_t out_size, std::int64_t in_start = 0) {
  std::vector<T> in(std::size_t(in_size) + 1);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = T(i * 7 + 3);
  std::vector<T> expected(std::size_t(out_size) + 1, T(99));
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, from = in_start, to = 0;
    for (std::size_t d = dims.size(); d-- > 0;) {
      from += rest % dims[d] * in_strides[d];
      to += rest % dims[d] * out_strides[d];
      rest /= dims[d];
    }
    expected[std::size_t(to)] = in[std::size_t(from)];
  }
  StridedCopyArgs args{};
  args.element_bytes = sizeof(T);
  args.rank = int(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    args.dims[d] = dims[d];
    args.in_strides[d] = in_strides[d];
    args.out_strides[d] = out_strides[d];
  }
  on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(expected.size(), T(99));
        StridedCopyArgs call = args;
        call.in = in.data() + in_start;
        call.out = out.data();
        k.strided_copy(call);
        return out;
      },
      [&](const std::vector<T>& out, const std::string& level) { EXPECT_EQ(out, expected) << level; });
}

template <class T>
void check_copies() {
  check_copy<T>({}, {}, {}, 1, 1);
  check_copy<T>({1}, {1}, {1}, 1, 1);
  check_copy<T>({0}, {1}, {1}, 0, 0);
  check_copy<T>({5, 0, 3}, {0, 3, 1}, {0, 3, 1}, 0, 0);
  check_copy<T>({100003}, {1}, {1}, 100003, 100003);
  check_copy<T>({1009}, {-1}, {1}, 1009, 1009, 1008);           // reversed
  check_copy<T>({37, 41}, {1, 37}, {41, 1}, 37 * 41, 37 * 41);  // transpose
  check_copy<T>({192, 320}, {1, 192}, {320, 1}, 192 * 320, 192 * 320);
  check_copy<T>({64, 16}, {1, 64}, {16, 1}, 1024, 1024);
  check_copy<T>({4, 64, 4, 32}, {8192, 32, 2048, 1}, {8192, 128, 32, 1}, 32768, 32768);  // heads to columns
  check_copy<T>({3, 5, 7, 11}, {385, 1, 5, 35}, {385, 77, 11, 1}, 1155, 1155);
  check_copy<T>({7, 13}, {1, 0}, {13, 1}, 7, 91);             // expand columns
  check_copy<T>({97, 513}, {0, 1}, {513, 1}, 513, 97 * 513);  // expand rows
  check_copy<T>({50, 30}, {60, 2}, {30, 1}, 3000, 1500);      // slice with steps
  check_copy<T>({50, 30}, {30, 1}, {64, 1}, 1500, 3200);      // piece of a concat
  check_copy<T>({300, 3}, {3, 1}, {1, 300}, 900, 900);        // columns out
  check_copy<T>({65, 130}, {130, 1}, {1, 65}, 8450, 8450);
  check_copy<T>({2, 65, 130}, {9000, 137, 1}, {9001, 1, 66}, 18000, 18002);  // between other columns
  check_copy<T>({130, 65}, {1, 0}, {65, 1}, 130, 8450);
  check_copy<T>({70, 65}, {1, -70}, {65, 1}, 4550, 4550, 4480);  // columns turned around, too
  check_copy<T>({2, 3, 5, 7, 2, 3}, {630, 210, 42, 6, 3, 1}, {1, 2, 6, 30, 210, 420}, 1260, 1260);
}

// Of a dense tensor, and of one whose rows lie among others.
template <class T>
void check_permutation(const Dims& shape, const std::vector<std::size_t>& perm, std::int64_t gap) {
  Dims strides(shape.size(), 1), dims, in, out(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * shape[d] + (d + 1 == shape.size() ? gap : 0);
  for (const std::size_t p : perm) {
    dims.push_back(shape[p]);
    in.push_back(strides[p]);
  }
  for (std::size_t d = dims.size(); d-- > 1;)
    out[d - 1] = out[d] * dims[d] + (d + 1 == dims.size() ? gap : 0);
  check_copy<T>(dims, in, out, strides[0] * shape[0], out[0] * dims[0]);
}

template <class T>
void check_permutations(const std::vector<Dims>& shapes) {
  for (const Dims& shape : shapes) {
    std::vector<std::size_t> perm(shape.size());
    for (std::size_t d = 0; d < perm.size(); ++d) perm[d] = d;
    do {
      for (const std::int64_t gap : {0, 3}) check_permutation<T>(shape, perm, gap);
    } while (std::next_permutation(perm.begin(), perm.end()));
  }
}

// Sizes below, at and above those of blocks and tiles; below and above what threads share.
const std::vector<Dims> kShapes = {
    {70000},      {3, 5},         {4, 4},          {7, 33},        {8, 15},       {16, 31},     {17, 64},
    {63, 65},     {127, 129},     {191, 300},      {5, 20011},     {3, 65, 33},   {130, 4, 67}, {9, 128, 16},
    {2, 3, 5, 7}, {3, 33, 4, 19}, {2, 12, 65, 32}, {1, 40, 1, 50}, {17, 8, 9, 16}};

TEST(StridedCopy, EveryPermutation) {
  check_permutations<std::uint8_t>(kShapes);
  check_permutations<std::uint16_t>(kShapes);
  check_permutations<std::uint32_t>(kShapes);
  check_permutations<std::uint64_t>(kShapes);
}

// Runs of every length up to where a call of memcpy begins, and of some beyond.
TEST(StridedCopy, RunsOfEveryLength) {
  for (std::int64_t n = 1; n <= 1100; n += n < 300 ? 1 : 37)
    check_copy<std::uint8_t>({3, 2, n}, {2 * n + 10, n + 5, 1}, {n + 1, 3 * n + 3, 1}, 6 * n + 30, 6 * n + 6);
}

TEST(StridedCopy, MovesEveryElement) {
  check_copies<std::uint8_t>();
  check_copies<std::uint16_t>();
  check_copies<std::uint32_t>();
  check_copies<std::uint64_t>();
}

template <class T>
void check_fill(T value) {
  for (const std::int64_t n : {0, 1, 17, 100003}) {
    for (const CpuKernels* k : levels()) {
      std::vector<T> out(std::size_t(n) + 1, T(1));
      k->fill({sizeof(T), n, &value, out.data()});
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(out[std::size_t(i)], value);
      EXPECT_EQ(out[std::size_t(n)], T(1));
    }
  }
}

TEST(Fill, EveryElementSize) {
  check_fill<std::uint8_t>(7);
  check_fill<std::uint16_t>(700);
  check_fill<float>(2.5f);
  check_fill<double>(-1e100);
}

template <class T, class Index>
void check_gather(std::int64_t outer, std::int64_t axis, std::int64_t inner, std::int64_t count) {
  std::vector<T> data(std::size_t(outer * axis * inner));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = T(i % 251);
  Random random(3);
  std::vector<Index> indices;
  for (std::int64_t k = 0; k < count; ++k) indices.push_back(Index(random.below(2 * axis) - axis));
  if (count > 3) indices[2] = Index(axis);  // out of range: zeros
  std::vector<T> expected;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const Index index : indices) {
      const std::int64_t row = index < 0 ? index + axis : index;
      for (std::int64_t i = 0; i < inner; ++i) {
        expected.push_back(row < axis ? data[std::size_t((o * axis + row) * inner + i)] : T(0));
      }
    }
  }
  on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(expected.size(), T(9));
        k.gather({sizeof(T), dtype_of<Index>(), outer, axis, inner, count, data.data(), indices.data(),
                  out.data()});
        return out;
      },
      [&](const std::vector<T>& out, const std::string& level) { EXPECT_EQ(out, expected) << level; });
}

TEST(Gather, RowsAndElements) {
  check_gather<float, std::int64_t>(1, 256, 128, 512);
  check_gather<double, std::int32_t>(3, 17, 5, 29);
  check_gather<std::uint8_t, std::int64_t>(2, 19, 1, 1000);
  check_gather<std::uint16_t, std::int32_t>(1, 5, 1, 50000);
  check_gather<float, std::int32_t>(1, 5, 1, 0);
  check_gather<float, std::int64_t>(0, 5, 4, 3);
}

}  // namespace
}  // namespace gradloom::kernels::test
