// A tile of a matrix product, without tensor cores: what gemm.cu and convolution.cu share.
//   sums[r][c] = sum over d in [begin, end) of a(row, d) b(col, d)
// A block of 256 threads computes kM x kN results, each thread kM / 16 x kN / 16 of them in registers. kK
// values of d at a time go through shared memory, in two buffers: while one is multiplied, the next values
// are on their way from memory to registers, and every step has one barrier (Volkov and Demmel 2008;
// CUTLASS's SIMT kernels). Everything is added in order of d.
//
// An operand is a class with
//   Element                              the type it is stored in
//   static constexpr bool kDepthFirst    whether neighbours along d, not along lines, are neighbours in memory: who loads what
//   Line line(long long index)           what is the same for all d: of a row of A, of a column of B; of indices past the end too
//   Element load(const Line&, long long d) as stored, because converting it would wait for it; 0 past the end of the lines
#pragma once

#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu {

constexpr int kTileThreads = 256;

template <class A, int kM_, int kN_, int kK_>
struct TileShape {
  using Value = A;
  static constexpr int kM = kM_, kN = kN_, kK = kK_;
  static constexpr int kRows = kM / 16, kCols = kN / 16;  // of a thread
};

// Row or column number i of a thread at place `at` of 16, within the tile: runs of four, so that a warp reads
// shared memory in whole lines.
GRADLOOM_DEVICE int tile_index(int at, int i) { return i / 4 * 64 + at * 4 + i % 4; }

// Loads kLines x kK values of an operand, kPerThread of them in this thread.
template <class Operand, class A, int kLines, int kK>
class Feeder {
 public:
  using Element = typename Operand::Element;
  GRADLOOM_DEVICE Feeder(const Operand& operand, long long first_line) : operand_(operand) {
    for (int i = 0; i < kHeld; ++i) lines_[i] = operand_.line(first_line + line_of(i));
  }
  GRADLOOM_DEVICE void load(long long begin, long long end) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const long long d = begin + depth_of(i);
      values_[i] = d < end ? operand_.load(lines_[kHeld == 1 ? 0 : i], d) : Element{};
    }
  }
  GRADLOOM_DEVICE void store(A (&shared)[kK][kLines + 4]) const {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) shared[depth_of(i)][line_of(i)] = to_accum(values_[i]);
  }

 private:
  static constexpr int kPerThread = kLines * kK / kTileThreads;
  static constexpr int kHeld = Operand::kDepthFirst ? kPerThread : 1;
  static GRADLOOM_DEVICE int line_of(int i) {
    return Operand::kDepthFirst ? int(threadIdx.x) / kK + i * (kTileThreads / kK) : int(threadIdx.x) % kLines;
  }
  static GRADLOOM_DEVICE int depth_of(int i) {
    return Operand::kDepthFirst ? int(threadIdx.x) % kK
                                : int(threadIdx.x) / kLines + i * (kTileThreads / kLines);
  }

  const Operand& operand_;
  typename Operand::Line lines_[kHeld];
  Element values_[kPerThread];
};

// kCount values of row `from` at the places of tile_index.
template <class A, int kCount, int kWidth>
GRADLOOM_DEVICE void load_fragment(const A (&from)[kWidth], int at, A (&fragment)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += Pack<A>::kCount) {
    const Pack<A> pack = load_pack(from + tile_index(at, i));
#pragma unroll
    for (int j = 0; j < Pack<A>::kCount; ++j) fragment[i + j] = pack.v[j];
  }
}

template <class Shape, class OperandA, class OperandB>
GRADLOOM_DEVICE void tile_product(const OperandA& operand_a, const OperandB& operand_b, long long row,
                                  long long col, long long begin, long long end,
                                  typename Shape::Value (&sums)[Shape::kRows][Shape::kCols]) {
  using A = typename Shape::Value;
  constexpr int kM = Shape::kM, kN = Shape::kN, kK = Shape::kK, kRows = Shape::kRows, kCols = Shape::kCols;
  alignas(16) __shared__ A shared_a[2][kK][kM + 4];
  alignas(16) __shared__ A shared_b[2][kK][kN + 4];
  const int tx = int(threadIdx.x) % 16, ty = int(threadIdx.x) / 16;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kCols; ++c) sums[r][c] = A(0);
  }
  Feeder<OperandA, A, kM, kK> a(operand_a, row);
  Feeder<OperandB, A, kN, kK> b(operand_b, col);
  a.load(begin, end);
  b.load(begin, end);
  a.store(shared_a[0]);
  b.store(shared_b[0]);
  __syncthreads();
  int buffer = 0;
  for (long long k = begin; k < end; k += kK) {
    const bool more = k + kK < end;
    if (more) {
      a.load(k + kK, end);
      b.load(k + kK, end);
    }
#pragma unroll
    for (int d = 0; d < kK; ++d) {
      A fragment_a[kRows], fragment_b[kCols];
      load_fragment(shared_a[buffer][d], ty, fragment_a);
      load_fragment(shared_b[buffer][d], tx, fragment_b);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < kCols; ++c) sums[r][c] += fragment_a[r] * fragment_b[c];
      }
    }
    buffer ^= 1;
    if (more) {
      a.store(shared_a[buffer]);
      b.store(shared_b[buffer]);
    }
    __syncthreads();
  }
}

// visit(row, col, sum) for the results of this thread that are inside rows x cols.
template <class Shape, class Visit>
GRADLOOM_DEVICE void for_results(const typename Shape::Value (&sums)[Shape::kRows][Shape::kCols],
                                 long long row, long long col, long long rows, long long cols,
                                 const Visit& visit) {
  const int tx = int(threadIdx.x) % 16, ty = int(threadIdx.x) / 16;
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
    const long long at = row + tile_index(ty, r);
#pragma unroll
    for (int c = 0; c < Shape::kCols; ++c) {
      const long long to = col + tile_index(tx, c);
      if (at < rows && to < cols) visit(at, to, sums[r][c]);
    }
  }
}

// A matrix with strides.
template <class T, bool depth_first>
struct StridedOperand {
  using Element = T;
  static constexpr bool kDepthFirst = depth_first;
  struct Line {
    const T* at;  // null past the end
  };
  const T* data;
  long long lines, line_stride, depth_stride;

  GRADLOOM_DEVICE Line line(long long index) const {
    return {index < lines ? data + index * line_stride : nullptr};
  }
  GRADLOOM_DEVICE T load(const Line& line, long long d) const {
    return line.at != nullptr ? line.at[d * depth_stride] : T{};
  }
};

// The tiles of all products of a launch: columns fastest, then rows, slices of the depth, products.
struct TileGrid {
  long long row_tiles, col_tiles, slices, length;  // length: of a slice

  GRADLOOM_HD long long blocks(long long products) const { return products * slices * row_tiles * col_tiles; }
};
struct TilePlace {
  long long row, col, slice, product;
};
template <class Shape>
GRADLOOM_DEVICE TilePlace tile_place(const TileGrid& grid) {
  const long long rest = blockIdx.x / grid.col_tiles, slices = rest / grid.row_tiles;
  return {(rest - slices * grid.row_tiles) * Shape::kM, (blockIdx.x - rest * grid.col_tiles) * Shape::kN,
          slices % grid.slices, slices / grid.slices};
}

}  // namespace gradloom::kernels::gpu
