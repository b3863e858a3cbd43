// Products of f16 and bf16 on matrix units (mma.h): a block of 128 threads makes 64 x 64 results, while it multiplies 64 values along the
// sums the next are on their way to shared memory. Sums are f32.
#pragma once

#include "kernels/gpu/staged_rows.h"

namespace gradloom::kernels::gpu {

constexpr int kHalfThreads = 128, kSide = 64, kSideTiles = kSide / kTile;

// An operand whose lines (rows of A, columns of B) end at `lines`. turned: what is summed over are the rows in memory.
template <class T, bool turned>
struct HalfOperand {
  Matrix<const T> matrix;
  long long lines;

  // kSide lines from `line` on, of the values from `depth` to `end` along the sums; what is not there is 0, or not used.
  GRADLOOM_DEVICE void stage(T* to, long long line, long long depth, long long end) const {
    Matrix<const T> part = matrix;
    part.at += (turned ? depth : line) * part.row_step + (turned ? line : depth) * part.column_step;
    const int count = int(min(lines - line, static_cast<long long>(kSide))),
              deep = int(min(end - depth, static_cast<long long>(kSide)));
    part.rows = turned ? deep : count;
    part.columns = turned ? count : deep;
    load_rows<T, kSide>(to, part, 0, kSide);
  }
  // Of tile `line` along the lines and `depth` along the sums.
  GRADLOOM_DEVICE Operand<T> operand(const T* staged, int line, int depth) const {
    return load_operand<turned>(
        staged + (turned ? depth : line) * kTile * kPitch<kSide> + (turned ? line : depth) * kTile,
        kPitch<kSide>);
  }
};

// What is on its way and what is multiplied, of A and of B; shared, at a 16-byte boundary.
template <class T>
using HalfStage = T[2][2][kSide * kPitch<kSide>];
// Of a warp: the tiles below each other, and those beside them.
using HalfSums = Sums[kWarpTiles][kSideTiles];

// Sums of kSide lines of A from `row` on and kSide of B from `col` on, of the values from `begin` to `end`. After it `staged` may be read
// by threads that are behind: wait for them before writing there.
template <class T, bool a_turned, bool b_turned>
GRADLOOM_DEVICE void half_sums(const HalfOperand<T, a_turned>& a, const HalfOperand<T, b_turned>& b,
                               long long row, long long col, long long begin, long long end,
                               HalfStage<T>& staged, HalfSums& sums) {
  const int first = warp_number() * kWarpTiles;
  if (begin < end) {
    a.stage(staged[0][0], row, begin, end);
    b.stage(staged[0][1], col, begin, end);
  }
  int buffer = 0;
  for (long long depth = begin; depth < end; depth += kSide) {
    wait_copies();
    __syncthreads();
    if (depth + kSide < end) {
      a.stage(staged[buffer ^ 1][0], row, depth + kSide, end);
      b.stage(staged[buffer ^ 1][1], col, depth + kSide, end);
    }
    const int tiles = int(min((end - depth + kTile - 1) / kTile, static_cast<long long>(kSideTiles)));
    for (int d = 0; d < tiles; ++d) {
      Operand<T> left[kWarpTiles];
#pragma unroll
      for (int m = 0; m < kWarpTiles; ++m) left[m] = a.operand(staged[buffer][0], first + m, d);
#pragma unroll
      for (int n = 0; n < kSideTiles; ++n) {
        const Operand<T> right = b.operand(staged[buffer][1], n, d);
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m) multiply(sums[m][n], left[m], right);
      }
    }
    buffer ^= 1;
  }
}

// visit(row, col, sum) for the results of this thread that are inside rows x cols.
template <class Visit>
GRADLOOM_DEVICE void for_half_results(const HalfSums& sums, long long row, long long col, long long rows,
                                      long long cols, const Visit& visit) {
  const int first = warp_number() * kWarpTiles, lane = lane_number();
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kSideTiles; ++n) {
#pragma unroll
      for (int i = 0; i < kTileElements; ++i) {
        const long long at = row + (first + m) * kTile + tile_row(lane, i),
                        to = col + n * kTile + tile_column(lane, i);
        if (at < rows && to < cols) visit(at, to, sums[m][n].v[i]);
      }
    }
  }
}

}  // namespace gradloom::kernels::gpu
