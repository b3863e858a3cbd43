// Tiles of matrix units: what lanes hold against the vendors' tables, and products of these registers against plain ones.
#include "kernels/gpu/mma.h"

#include <array>
#include <cmath>

#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr int kPitchHere = 24;
constexpr i64 kWords = kWarp * kTileElements / 2, kSums = kWarp * kTileElements;

// What the lanes have, lane by lane.
struct Registers {
  unsigned *left, *right;
  float *sums, *shuffled;
};

template <class T, bool left_turned, bool right_turned>
__global__ void product_kernel(const T* a, const T* b, Registers out, T* rounded) {
  __shared__ Pack<T> packed[2 * kTile * kPitchHere / Pack<T>::kCount];
  T *const left_tile = packed[0].v, *const right_tile = left_tile + kTile * kPitchHere;
  for (int i = int(threadIdx.x); i < kTile * 2; i += kWarp) {
    const int row = i / 2, column = i % 2 * 8;
    copy_pack(left_tile + row * kPitchHere + column, a + row * kTile + column);
    copy_pack(right_tile + row * kPitchHere + column, b + row * kTile + column);
  }
  wait_copies();
  __syncthreads();
  const Operand<T> left = load_operand<left_turned>(left_tile, kPitchHere),
                   right = load_operand<right_turned>(right_tile, kPitchHere);
  Sums sums{}, shuffled{};
  multiply(sums, left, right);
  multiply_by_shuffles(shuffled, left, right);
  const int lane = int(threadIdx.x);
  for (int j = 0; j < kTileElements / 2; ++j) {
    out.left[lane * kTileElements / 2 + j] = left.word[j];
    out.right[lane * kTileElements / 2 + j] = right.word[j];
  }
  for (int i = 0; i < kTileElements; ++i) {
    out.sums[lane * kTileElements + i] = sums.v[i];
    out.shuffled[lane * kTileElements + i] = shuffled.v[i];
  }
  __syncthreads();
  store_operand(left_tile, kPitchHere, operand_of<T>(sums));
  __syncthreads();
  for (int i = lane; i < kTile * kTile; i += kWarp)
    rounded[i] = left_tile[i / kTile * kPitchHere + i % kTile];
}

template <class T>
float half_of(const std::vector<unsigned>& words, int lane, int i) {
  const unsigned word = words[std::size_t(lane * kTileElements / 2 + i / 2)];
  return to_float(T{static_cast<unsigned short>(word >> i % 2 * 16)});
}

// D of one mma.m16n8k16, by lane, from the registers as the PTX ISA has them: A of `a_word`, B of two words of `right`.
template <class T>
std::array<std::array<float, 4>, 32> by_ptx(const std::vector<unsigned>& left,
                                            const std::vector<unsigned>& right, int b0, int b1) {
  float a[16][16], b[16][8];
  std::array<std::array<float, 4>, 32> d{};
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, in_group = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const int row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
      a[row][in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)] = half_of<T>(left, lane, i);
    }
    for (int i = 0; i < 4; ++i) {
      const int word = i < 2 ? b0 : b1;
      b[in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] = half_of<T>(right, lane, 2 * word + (i & 1));
    }
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = (lane >> 2) + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
      for (int k = 0; k < 16; ++k) d[std::size_t(lane)][std::size_t(i)] += a[row][k] * b[k][column];
    }
  return d;
}

// The sums that the instructions in `multiply` make of these registers, on NVIDIA's and on AMD's processors.
template <class T>
std::vector<float> by_instructions(const std::vector<unsigned>& left, const std::vector<unsigned>& right) {
  std::vector<float> sums(kSums);
  if constexpr (kWarp == 32) {
    const auto low = by_ptx<T>(left, right, 0, 2), high = by_ptx<T>(left, right, 1, 3);
    for (std::size_t lane = 0; lane < 32; ++lane)
      for (std::size_t i = 0; i < 8; ++i) sums[lane * 8 + i] = i < 4 ? low[lane][i] : high[lane][i - 4];
  } else {
    // v_mfma_f32_16x16x16: A[i][k], B[k][j]: i, j = lane % 16, k = 4 (lane / 16) + element; D[i][j]: j = lane % 16,
    // i = 4 (lane / 16) + element. A is the right operand, B the left one.
    for (int lane = 0; lane < 64; ++lane)
      for (int e = 0; e < 4; ++e)
        for (int k = 0; k < 16; ++k)
          sums[std::size_t(lane * 4 + e)] += half_of<T>(right, k / 4 * 16 + lane / 16 * 4 + e, k % 4) *
                                             half_of<T>(left, k / 4 * 16 + lane % 16, k % 4);
  }
  return sums;
}

template <class T, bool left_turned, bool right_turned>
void check() {
  const auto a = numbers<T>(256, 1), b = numbers<T>(256, 2);
  const Results gpu = on_device([&](Device& device) {
    const T *left = device.in<T>(a), *right = device.in<T>(b);
    const Registers out{device.out<unsigned>("left", kWords), device.out<unsigned>("right", kWords),
                        device.out<float>("sums", kSums), device.out<float>("shuffled", kSums)};
    T* const rounded = device.out<T>("rounded", 256);
    device.launch([&](Stream stream) {
      launch(stream, product_kernel<T, left_turned, right_turned>, dim3(1), dim3(kWarp), 0, left, right, out,
             rounded);
    });
  });
  std::vector<double> expected, in_tile(256);
  for (int lane = 0; lane < kWarp; ++lane)
    for (int i = 0; i < kTileElements; ++i) {
      const int row = tile_row(lane, i), column = tile_column(lane, i);
      double sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += double(a[std::size_t(left_turned ? k * 16 + row : row * 16 + k)]) *
               double(b[std::size_t(right_turned ? k * 16 + column : column * 16 + k)]);
      expected.push_back(sum);
      in_tile[std::size_t(row * 16 + column)] = sum;
      EXPECT_EQ(tile_lane(row, column), lane);
      EXPECT_EQ(tile_element(row, column), i);
    }
  const auto sums = gpu.get<float>("sums");
  expect_close(sums, expected, {1e-6, 1e-5}, "sums");
  EXPECT_EQ(gpu.get<float>("shuffled"), sums);
  const auto by_table = by_instructions<T>(gpu.get<unsigned>("left"), gpu.get<unsigned>("right"));
  expect_close(by_table, expected, {1e-6, 1e-5}, "sums by the vendors' tables");
  expect_close(gpu.get<T>("rounded"), in_tile, tolerance<T>({1e-6, 1e-5}), "rounded");
}

template <class T>
class GpuMma : public testing::Test {};
TYPED_TEST_SUITE(GpuMma, Halves);

TYPED_TEST(GpuMma, MultipliesTilesInTheVendorsLayouts) {
  check<TypeParam, false, false>();
  check<TypeParam, false, true>();
  check<TypeParam, true, false>();
}

// The rows that ldmatrix reads, by its definition: word j of lane l is of row l / 4 of matrix j, columns 2 (l % 4) and on; with
// .trans of its column l / 4, rows 2 (l % 4) and on. All four make the operand's layout.
TEST(GpuMma, RowsOfMatricesMakeTheOperand) {
  if (kWarp != 32) GTEST_SKIP() << "lanes of 32";
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i) {
      const int j = i / 2, row = tile_row(lane, i), column = tile_column(lane, i);
      const int along = lane % 4 * 2 + i % 2;
      EXPECT_EQ(matrix_row<false>(8 * j + lane / 4, kPitchHere) + along, row * kPitchHere + column);
      EXPECT_EQ(matrix_row<true>(8 * j + along, kPitchHere) + lane / 4, column * kPitchHere + row);
    }
}

__global__ void row_kernel(float* out) {
  const int lane = int(threadIdx.x);
  for (int r = 0; r < kLaneRows; ++r) out[lane * kLaneRows + r] = row_reduce(float(1 << lane % 20), Sum());
}

TEST(GpuMma, LanesOfARowReduce) {
  const Results gpu = on_device([&](Device& device) {
    float* const out = device.out<float>("out", kWarp * kLaneRows);
    device.launch([&](Stream stream) { launch(stream, row_kernel, dim3(1), dim3(kWarp), 0, out); });
  });
  const auto out = gpu.get<float>("out");
  for (int lane = 0; lane < kWarp; ++lane) {
    float expected = 0;
    for (int other = 0; other < kWarp; ++other)
      if (tile_row(other, 0) == tile_row(lane, 0)) expected += float(1 << other % 20);
    EXPECT_EQ(out[std::size_t(lane * kLaneRows)], expected) << lane;
  }
}

TEST(GpuMma, PowersOfTwo) {
  for (const float x : {0.0f, -1.0f, -0.3f, -20.25f, -80.5f})
    EXPECT_NEAR(power_of_2(x) / std::exp2(double(x)), 1, 1e-5) << x;
  EXPECT_EQ(power_of_2(-__builtin_inff()), 0.0f);
  EXPECT_TRUE(std::isnan(power_of_2(__builtin_nanf(""))));
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
