// Elements beyond the 2^31st, in address space of which only the pages that are touched have memory.
#include <sys/mman.h>

#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr i64 kFar = (i64(1) << 30) + 64;  // of three rows so far apart the last begins behind 2^31 elements

// `n` elements of zeros; data() is null where the system reserves memory for all of them.
template <class T>
class SparseMemory {
 public:
  explicit SparseMemory(i64 n) : bytes_(std::size_t(n) * sizeof(T)) {
    void* const at =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = at == MAP_FAILED ? nullptr : static_cast<T*>(at);
  }
  ~SparseMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  T* data() const { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};
#define REQUIRE_SPARSE(memory) \
  if ((memory).data() == nullptr) GTEST_SKIP() << "the system gives no address space without memory"

TEST(GpuFarElements, AreGathered) {
  const i64 rows = 3 * (i64(1) << 30), inner = 2;
  const SparseMemory<std::uint16_t> table(rows * inner);
  REQUIRE_SPARSE(table);
  const std::vector<std::int64_t> indices{rows - 1,           0, (i64(1) << 30) - 1, i64(1) << 30,
                                          (i64(1) << 31) + 5, -3};
  std::vector<std::uint16_t> expected;
  for (std::size_t i = 0; i < indices.size(); ++i)
    for (i64 column = 0; column < inner; ++column) {
      const i64 row = indices[i] < 0 ? indices[i] + rows : indices[i];
      expected.push_back(std::uint16_t(100 + 10 * i + std::size_t(column)));
      table.data()[row * inner + column] = expected.back();
    }
  const Results gpu = on_device([&](Device& device) {
    device.run(gather, GatherArgs{2, DType::i64, 1, rows, inner, i64(indices.size()), table.data(),
                                  device.in<std::int64_t>(indices),
                                  device.out<std::uint16_t>("out", expected.size())});
  });
  EXPECT_EQ(gpu.get<std::uint16_t>("out"), expected);
}

// From rows that are far apart, in their order and turned, and back to such rows.
TEST(GpuFarElements, AreCopied) {
  constexpr i64 kRows = 4, kColumns = 40;
  const SparseMemory<float> from(kRows * kFar), to(kRows * kFar);
  REQUIRE_SPARSE(from);
  REQUIRE_SPARSE(to);
  for (i64 row = 0; row < kRows; ++row)
    for (i64 column = 0; column < kColumns; ++column)
      from.data()[row * kFar + column] = float(row * 100 + column);
  const Results gpu = on_device([&](Device& device) {
    const auto copy = [&](std::vector<i64> dims, std::vector<i64> in, std::vector<i64> out,
                          const float* source, float* target) {
      StridedCopyArgs args{};
      args.element_bytes = sizeof(float);
      args.rank = 2;
      for (std::size_t d = 0; d < 2; ++d) {
        args.dims[d] = dims[d];
        args.in_strides[d] = in[d];
        args.out_strides[d] = out[d];
      }
      args.in = source;
      args.out = target;
      device.run(strided_copy, args);
    };
    float* const turned = device.out<float>("turned", kRows * kColumns);
    copy({kColumns, kRows}, {1, kFar}, {kRows, 1}, from.data(), turned);
    copy({kRows, kColumns}, {1, kRows}, {kFar, 1}, turned, to.data());
    copy({kRows, kColumns}, {kFar, 1}, {kColumns, 1}, to.data(),
         device.out<float>("again", kRows * kColumns));
  });
  const auto turned = gpu.get<float>("turned"), again = gpu.get<float>("again");
  for (i64 row = 0; row < kRows; ++row)
    for (i64 column = 0; column < kColumns; ++column) {
      ASSERT_EQ(turned[std::size_t(column * kRows + row)], float(row * 100 + column));
      ASSERT_EQ(again[std::size_t(row * kColumns + column)], float(row * 100 + column));
    }
}

// c[b] = a[b] right[b], each matrix with rows that are far apart, and the matrices of a batch behind one another.
template <class T>
void check_product() {
  constexpr i64 kM = 3, kN = 5, kK = 4, kBatch = 2, kMatrix = 4 * kFar;
  const SparseMemory<T> a(kBatch * kMatrix), right(kBatch * kMatrix), c(kBatch * kMatrix);
  REQUIRE_SPARSE(a);
  REQUIRE_SPARSE(right);
  REQUIRE_SPARSE(c);
  const auto x = numbers<T>(kBatch * kM * kK, 1), y = numbers<T>(kBatch * kK * kN, 2);
  for (i64 b = 0; b < kBatch; ++b)
    for (i64 k = 0; k < kK; ++k) {
      for (i64 i = 0; i < kM; ++i)
        a.data()[b * kMatrix + i * kFar + k] = to_device<T>(x[std::size_t((b * kM + i) * kK + k)]);
      for (i64 j = 0; j < kN; ++j)
        right.data()[b * kMatrix + k * kFar + j] = to_device<T>(y[std::size_t((b * kK + k) * kN + j)]);
    }
  GemmArgs args{};
  args.dtype = gpu_dtype<T>();
  args.batch_rank = 1;
  args.batch_dims[0] = kBatch;
  args.a_batch[0] = args.b_batch[0] = args.c_batch[0] = kMatrix;
  args.m = kM, args.n = kN, args.k = kK;
  args.a_row = args.b_row = args.c_row = kFar;
  args.a_col = args.b_col = args.c_col = 1;
  args.alpha = 1;
  args.a = a.data();
  args.b = right.data();
  args.c = c.data();
  on_device([&](Device& device) { device.run(gemm, args); });
  std::vector<double> expected;
  std::vector<Host<T>> found;
  for (i64 b = 0; b < kBatch; ++b)
    for (i64 i = 0; i < kM; ++i)
      for (i64 j = 0; j < kN; ++j) {
        double sum = 0;
        for (i64 k = 0; k < kK; ++k)
          sum +=
              double(x[std::size_t((b * kM + i) * kK + k)]) * double(y[std::size_t((b * kK + k) * kN + j)]);
        expected.push_back(sum);
        found.push_back(to_host(c.data()[b * kMatrix + i * kFar + j]));
      }
  expect_close(found, expected, tolerance<T>({1e-6, 1e-6}), "c");
}

TEST(GpuFarElements, AreMultiplied) { check_product<float>(); }
TEST(GpuFarElements, OfHalfTypesAreMultiplied) { check_product<f16>(); }

}  // namespace
}  // namespace gradloom::kernels::gpu::test
