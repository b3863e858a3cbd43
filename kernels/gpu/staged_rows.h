// Rows of matrices in shared memory, as the tiles of matrix units (mma.h) are read from there.
#pragma once

#include "kernels/gpu/mma.h"
#include "kernels/gpu/rows.h"

namespace gradloom::kernels::gpu {

// Elements from one row of shared memory to the next: an odd number of 16 bytes, so that the eight rows of a matrix that
// ldmatrix reads lie in different banks.
template <int D>
constexpr int kPitch = D + 8;

// A matrix in memory, [rows, columns]; packs: its rows begin at 16-byte boundaries and are whole packs.
template <class T>
struct Matrix {
  T* at;
  i64 row_step, column_step;
  int rows, columns;
  bool packs;
};

constexpr GRADLOOM_HD int whole_tiles(int n) { return (n + kTile - 1) / kTile; }

// Whether the rows of all matrices of a batch are whole packs at 16-byte boundaries: of `columns` elements, row_step apart.
// batch: elements between matrices along each of the batch's dims.
template <class T, class Index>
bool whole_packs(const void* at, i64 columns, int batch_rank, const Index* batch, i64 row_step,
                 i64 column_step) {
  constexpr i64 kCount = Pack<T>::kCount;
  bool whole = packable<T>(columns, at) && column_step == 1 && row_step % kCount == 0;
  for (int d = 0; d < batch_rank; ++d) whole = whole && batch[d] % kCount == 0;
  return whole;
}

// `count` rows from row `first` on; rows past the end, and columns up to a whole tile, are 0. There after wait_copies() and a barrier.
template <class T, int D>
GRADLOOM_DEVICE void load_rows(T* to, const Matrix<const T>& from, int first, int count) {
  constexpr int kPacks = D / Pack<T>::kCount;
  const int columns = whole_tiles(from.columns) * kTile;
  for (int i = int(threadIdx.x); i < count * kPacks; i += int(blockDim.x)) {
    const int row = first + i / kPacks, column = i % kPacks * Pack<T>::kCount;
    if (column >= columns) continue;
    T* const pack_at = to + i / kPacks * kPitch<D> + column;
    const T* const line = from.at + i64(row) * from.row_step;
    if (from.packs && row < from.rows && column < from.columns) {
      copy_pack(pack_at, line + column);
      continue;
    }
    Pack<T> pack;
    for (int j = 0; j < Pack<T>::kCount; ++j)
      pack.v[j] = row < from.rows && column + j < from.columns ? line[(column + j) * from.column_step] : T{0};
    store_pack(pack_at, pack);
  }
}

// The rows back, of columns `begin` to `end`; at: of row `first` and column `begin`.
template <class T, int D>
GRADLOOM_DEVICE void store_rows(const T* at, const Matrix<T>& to, int first, int count, int begin, int end) {
  constexpr int kPacks = D / Pack<T>::kCount;
  if (end > to.columns) end = to.columns;
  for (int i = int(threadIdx.x); i < count * kPacks; i += int(blockDim.x)) {
    const int row = first + i / kPacks, column = begin + i % kPacks * Pack<T>::kCount;
    if (row >= to.rows || column >= end) continue;
    const T* const pack = at + i / kPacks * kPitch<D> + column - begin;
    T* const line = to.at + i64(row) * to.row_step;
    if (to.packs) {
      move_pack(line + column, pack);
      continue;
    }
    for (int j = 0; j < Pack<T>::kCount && column + j < end; ++j)
      line[(column + j) * to.column_step] = pack[j];
  }
}

}  // namespace gradloom::kernels::gpu
