// Reductions on the executor against the CPU's: every operation, every way to cut them.
#include "kernels/gpu/workspace.h"
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

const Reduction kAll[] = {Reduction::sum, Reduction::mean,       Reduction::max,
                          Reduction::min, Reduction::prod,       Reduction::l1,
                          Reduction::l2,  Reduction::sum_square, Reduction::log_sum_exp};

struct Shape {
  i64 outer, n, inner;
};

template <class T>
std::vector<Host<T>> on_cpu(Reduction op, const Shape& s, const std::vector<Host<T>>& in) {
  std::vector<Host<T>> out(std::size_t(s.outer * s.inner), Host<T>(9));
  ReduceArgs args{cpu_dtype<T>(), op, s.outer, s.n, s.inner, in.data(), out.data(), nullptr};
  std::vector<std::uint8_t> workspace(kernels::workspace_bytes(Target::cpu, args) + 1);
  args.workspace = workspace.data();
  cpu().reduce(args);
  return out;
}

template <class T>
Results on_gpu(Reduction op, const Shape& s, const std::vector<Host<T>>& in, std::size_t offset = 0) {
  return on_device([&](Device& device) {
    ReduceArgs args{gpu_dtype<T>(),
                    op,
                    s.outer,
                    s.n,
                    s.inner,
                    device.in<T>(in, offset),
                    device.out<T>("out", std::size_t(s.outer * s.inner)),
                    nullptr};
    args.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, args));
    device.run(reduce, args);
  });
}

template <class T>
void check(const Shape& s, bool with_nan = false) {
  for (const Reduction op : kAll) {
    const bool product = op == Reduction::prod;
    const double spread = 0.5 / double(s.n);  // products stay near 1
    auto in =
        numbers<T>(s.outer * s.n * s.inner, 4, product ? 1 - spread : -2, product ? 1 + 2 * spread : 2.5);
    if (with_nan) in[in.size() / 2] = Host<T>(NAN);
    Tolerance close = tolerance<T>({1e-5, 1e-5});
    const double more = std::sqrt(std::max(1.0, double(s.n) / 512));
    close.absolute *= more;
    if (product && sizeof(T) < 8) close.relative += 2e-8 * double(s.n);  // every factor rounds
    const std::string what = "op " + std::to_string(int(op)) + " " + std::to_string(s.outer) + "x" +
                             std::to_string(s.n) + "x" + std::to_string(s.inner);
    const std::vector<double> expected = widen(on_cpu<T>(op, s, in));
    const Results aligned = on_gpu<T>(op, s, in), moved = on_gpu<T>(op, s, in, 1);
    expect_close(aligned.get<T>("out"), expected, close, what);
    EXPECT_EQ(aligned.bytes, moved.bytes) << what << ": alignment changes the bits";
  }
}

template <class T>
class GpuReduce : public testing::Test {};
using Floats = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(GpuReduce, Floats);

TYPED_TEST(GpuReduce, Serial) {
  check<TypeParam>({1, 1, 1});
  check<TypeParam>({3, 7, 1});
  check<TypeParam>({300, 16, 1});
  check<TypeParam>({5, 13, 3});
  check<TypeParam>({1, 17, 32768});
}

TYPED_TEST(GpuReduce, Rows) {
  check<TypeParam>({1, 17, 1});
  check<TypeParam>({33, 128, 1});
  check<TypeParam>({9, 131, 1});
  check<TypeParam>({3, 4096, 1});
  check<TypeParam>({2, 5001, 1});
  check<TypeParam>({1, 20003, 1});  // in parts
  check<TypeParam>({2, 12288, 1});
}

TYPED_TEST(GpuReduce, Columns) {
  check<TypeParam>({1, 40, 128});
  check<TypeParam>({2, 33, 5});
  check<TypeParam>({3, 100, 17});
  check<TypeParam>({1, 512, 136});  // in parts
  check<TypeParam>({1, 1031, 37});
  check<TypeParam>({2, 513, 2});
  check<TypeParam>({1, 130, 301});
}

TYPED_TEST(GpuReduce, NanReachesTheResult) {
  check<TypeParam>({3, 5, 1}, true);
  check<TypeParam>({3, 129, 1}, true);
  check<TypeParam>({1, 20003, 1}, true);
  check<TypeParam>({3, 129, 7}, true);
}

TYPED_TEST(GpuReduce, NothingToReduce) {
  const std::vector<Host<TypeParam>> none;
  for (const Shape& s : {Shape{2, 0, 3}, Shape{2, 0, 1}, Shape{0, 5, 1}}) {
    for (const Reduction op : kAll) {
      const auto expected = widen(on_cpu<TypeParam>(op, s, none));
      expect_close(on_gpu<TypeParam>(op, s, none).template get<TypeParam>("out"), expected, {0, 0},
                   "op " + std::to_string(int(op)));
    }
  }
}

TYPED_TEST(GpuReduce, LogSumExpOfInfinities) {
  using H = Host<TypeParam>;
  const H inf = H(INFINITY);
  const Shape short_rows{3, 2, 1}, long_rows{3, 40, 1}, columns{1, 40, 3};
  const std::vector<H> in = {-inf, -inf, 1, inf, -inf, 2};
  std::vector<H> rows(120, -inf), turned(120, -inf);
  rows[45] = turned[15 * 3 + 1] = inf;
  rows[47] = turned[17 * 3 + 1] = inf;
  rows[60] = turned[20 * 3 + 1] = H(1);
  rows[90] = turned[30 * 3 + 2] = H(2);
  const std::vector<double> expected = {-INFINITY, INFINITY, 2};
  const Tolerance close = tolerance<TypeParam>({1e-6, 0});
  expect_close(on_gpu<TypeParam>(Reduction::log_sum_exp, short_rows, in).template get<TypeParam>("out"),
               expected, close, "short rows");
  expect_close(on_gpu<TypeParam>(Reduction::log_sum_exp, long_rows, rows).template get<TypeParam>("out"),
               expected, close, "long rows");
  expect_close(on_gpu<TypeParam>(Reduction::log_sum_exp, columns, turned).template get<TypeParam>("out"),
               expected, close, "columns");
}

TYPED_TEST(GpuReduce, LogSumExpOfLargeValues) {
  std::vector<Host<TypeParam>> in(64, Host<TypeParam>(1024));
  expect_close(on_gpu<TypeParam>(Reduction::log_sum_exp, {2, 32, 1}, in).template get<TypeParam>("out"),
               {1024 + std::log(32.0), 1024 + std::log(32.0)}, tolerance<TypeParam>({1e-6, 0}),
               "1024 + log 32");
}

template <class T>
void check_integers(const Shape& s) {
  std::vector<T> in;
  for (i64 i = 0; i < s.outer * s.n * s.inner; ++i) in.push_back(T(i % 11 - 5));
  for (const Reduction op : kAll) {
    auto values = in;
    if (op == Reduction::prod) {
      for (T& v : values) v = v == 0 ? T(-1) : v > 3 ? T(2) : T(1);
    }
    if (op == Reduction::prod && s.n > 1000) continue;  // overflows
    EXPECT_EQ(on_gpu<T>(op, s, values).template get<T>("out"), on_cpu<T>(op, s, values))
        << "op " << int(op) << ", n " << s.n;
  }
}

TEST(GpuReduceIntegers, AreExact) {
  for (const Shape& s : {Shape{3, 7, 5}, Shape{3, 70, 5}, Shape{4, 100, 1}, Shape{1, 12000, 1},
                         Shape{1, 300, 33}, Shape{2, 0, 1}}) {
    check_integers<std::int32_t>(s);
    check_integers<std::int64_t>(s);
  }
}

TEST(GpuReduceIntegers, AddIn64Bits) {
  const std::vector<std::int64_t> in(100, std::int64_t{1} << 40);
  EXPECT_EQ(on_gpu<std::int64_t>(Reduction::sum, {1, 100, 1}, in).get<std::int64_t>("out")[0],
            std::int64_t{100} << 40);
}

// What the cut promises: all of n, in as many parts as the workspace has room for.
TEST(GpuReduceCut, CoversN) {
  for (const i64 n : {1, 16, 17, 64, 65, 4096, 8191, 8192, 100000, 10000000}) {
    for (const i64 inner : {1, 2, 37, 128, 1000, 50000}) {
      for (const i64 outer : {1, 7, 5000}) {
        const ReduceArgs args{DType::f32, Reduction::sum, outer, n, inner, nullptr, nullptr, nullptr};
        const ReduceCut cut = reduce_cut(args);
        EXPECT_GE(cut.parts * cut.length, n);
        EXPECT_LT((cut.parts - 1) * cut.length, n);
        EXPECT_EQ(kernels::workspace_bytes(Target::gpu, args),
                  cut.parts > 1 ? std::size_t(outer * cut.parts * inner * 8) : 0u);
      }
    }
  }
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
