// Dropout of a part against the same part of the whole, which elementwise programs drop.
#include "kernels/elementwise.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using i64 = std::int64_t;

constexpr RandomState kState{0x123456789abcdef0ull, 7};
constexpr std::uint64_t kKey = 0x0fedcba987654321ull;

template <class T>
std::vector<T> whole(const CpuKernels& k, const std::vector<T>& x, double ratio) {
  EwProgram program;
  program.rank = 1;
  program.dims[0] = i64(x.size());
  EwInput input{dtype_of<T>(), {}};
  input.strides[0] = 1;
  program.inputs = {input};
  program.constants = {{dtype_of<T>(), ratio}, {DType::boolean, 1}};
  program.code = {{EwOp::Dropout, dtype_of<T>(), dtype_of<T>(), {0, 1, 2}, kKey}};
  program.outputs = {{3, dtype_of<T>()}};
  std::vector<T> y(x.size());
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  k.elementwise({&program, inputs, outputs, &kState});
  return y;
}

// Rows [row, row + rows) and the first `columns` columns of [batch, all_rows, all_columns].
template <class T>
void check(i64 batch, i64 all_rows, i64 all_columns, i64 row, i64 rows, i64 columns, double ratio) {
  const auto x = values<T>(batch * all_rows * all_columns, 3);
  std::vector<T> part;
  std::vector<double> expected;
  const auto each = [&](const auto& take) {
    for (i64 b = 0; b < batch; ++b)
      for (i64 r = row; r < row + rows; ++r)
        for (i64 c = 0; c < columns; ++c) take(std::size_t((b * all_rows + r) * all_columns + c));
  };
  each([&](std::size_t i) { part.push_back(x[i]); });
  const std::vector<T> dropped = whole(cpu(), x, ratio);
  each([&](std::size_t i) { expected.push_back(double(dropped[i])); });
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> y = part;  // in place
        k.dropout({dtype_of<T>(), batch, rows, columns, row * all_columns, all_rows * all_columns,
                   all_columns, ratio, kKey, y.data(), y.data(), &kState});
        return y;
      },
      expected, {});
}

TEST(Dropout, OfAPartIsThatOfTheWhole) {
  check<float>(1, 1, 1000, 0, 1, 1000, 0.25);
  check<float>(2, 9, 64, 3, 5, 48, 0.1);
  check<float>(3, 7, 13, 2, 4, 11, 0.5);      // rows begin inside blocks of four numbers
  check<double>(2, 5, 777, 1, 3, 601, 0.75);  // several chunks
  check<float>(4, 130, 515, 60, 70, 301, 0.1);
  check<double>(1, 3, 5, 0, 3, 5, 0);
  check<float>(1, 3, 5, 1, 0, 5, 0.5);
}

}  // namespace
}  // namespace gradloom::kernels::test
