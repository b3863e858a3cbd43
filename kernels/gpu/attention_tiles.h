// What the passes of attention share: the mask and the dropout of a tile of scores, over rows in shared memory (staged_rows.h).
#pragma once

#include <initializer_list>

#include "kernels/gpu/kernels.h"
#include "kernels/gpu/rows.h"
#include "kernels/gpu/staged_rows.h"

namespace gradloom::kernels::gpu {

constexpr float kLog2E = 1.44269504f;

inline i64 batch_parts(const FlashAttentionArgs& a) {
  i64 parts = 1;
  for (int d = 0; d < a.batch_rank; ++d) parts *= a.batch_dims[d];
  return parts;
}

template <class T>
bool whole_packs(const FlashAttentionArgs& a, const void* y) {
  const int rank = a.batch_rank;
  return whole_packs<T>(a.q, a.d, rank, a.q_batch, a.q_row, a.q_col) &&
         whole_packs<T>(a.k, a.d, rank, a.k_batch, a.k_row, a.k_col) &&
         whole_packs<T>(a.v, a.e, rank, a.v_batch, a.v_row, a.v_col) &&
         whole_packs<T>(y, a.e, rank, a.y_batch, a.y_row, a.y_col);
}
template <class T>
bool whole_packs(const FlashAttentionGradArgs& g) {
  const FlashAttentionArgs& a = g.forward;
  const int rank = a.batch_rank;
  return whole_packs<T>(a, a.y) && whole_packs<T>(g.dy, a.e, rank, g.dy_batch, g.dy_row, g.dy_col) &&
         whole_packs<T>(g.dq, a.d, rank, g.dq_batch, g.dq_row, g.dq_col) &&
         whole_packs<T>(g.dk, a.d, rank, g.dk_batch, g.dk_row, g.dk_col) &&
         whole_packs<T>(g.dv, a.e, rank, g.dv_batch, g.dv_row, g.dv_col);
}

// Where one part of the batch begins, in elements.
struct BatchPart {
  i64 number, q = 0, k = 0, v = 0, y = 0, mask = 0;
  GRADLOOM_DEVICE BatchPart(const FlashAttentionArgs& a, i64 part) : number(part) {
    for (int d = a.batch_rank - 1; d >= 0; --d) {
      const i64 i = part % a.batch_dims[d];
      part /= a.batch_dims[d];
      q += i * a.q_batch[d];
      k += i * a.k_batch[d];
      v += i * a.v_batch[d];
      y += i * a.y_batch[d];
      mask += i * a.mask_batch[d];
    }
  }
};

// What the mask makes of a score.
template <class T>
class ScoreMask {
 public:
  GRADLOOM_DEVICE ScoreMask(const FlashAttentionArgs& a, const BatchPart& part)
      : mode_(a.mask_mode),
        values_(static_cast<const T*>(a.mask) + part.mask),
        flags_(static_cast<const unsigned char*>(a.mask) + part.mask),
        row_step_(a.mask_row),
        column_step_(a.mask_col),
        rows_(int(a.rows)),
        keys_(int(a.keys)),
        reach_(int(a.reach)),
        fill_(float(a.fill)) {}

  // Whether it does anything to scores of a tile.
  GRADLOOM_DEVICE bool touches(int row, int key) const {
    return mode_ != AttentionMask::none || key + kTile > keys_ || key + kTile > row + reach_;
  }
  // *replaced: the score does not depend on q and k.
  GRADLOOM_DEVICE float operator()(float score, int row, int key, bool* replaced) const {
    *replaced = false;
    if (key >= keys_ || key >= row + reach_) return -infinity<float>();
    if (mode_ == AttentionMask::none || row >= rows_) return score;
    const i64 at = row * row_step_ + key * column_step_;
    if (mode_ == AttentionMask::add) return score + to_float(values_[at]);
    *replaced = (flags_[at] != 0) == (mode_ == AttentionMask::block);
    return *replaced ? fill_ : score;
  }

 private:
  AttentionMask mode_;
  const T* values_;
  const unsigned char* flags_;
  i64 row_step_, column_step_;
  int rows_, keys_, reach_;
  float fill_;
};

// Which probabilities dropout keeps.
class Dropping {
 public:
  GRADLOOM_DEVICE Dropping(const FlashAttentionArgs& a, const BatchPart& part)
      : active(a.dropout > 0),
        ratio_(float(a.dropout)),
        keys_(a.keys),
        first_(number_in_whole(a, part.number) * a.rows * a.keys) {
    if (!active) return;
    stream_ = a.random->seed ^ a.key;
    step_ = a.random->step;
  }
  bool active;
  GRADLOOM_DEVICE float scale() const { return active ? 1.0f / (1.0f - ratio_) : 1.0f; }

  // Bit i: of this lane's element i of the tile of scores at (row, key); turned: keys are its rows. All lanes of the
  // warp must take part. Where rows are whole blocks of four numbers, each of the tile's 64 blocks is computed by one lane.
  template <bool turned>
  GRADLOOM_DEVICE unsigned kept(int row, int key) const {
    const int lane = lane_number();
    unsigned bits = 0;
    if (keys_ % 4 != 0) {
      for (int i = 0; i < kTileElements; ++i) {
        const int r = tile_row(lane, i), c = tile_column(lane, i);
        const i64 at = first_ + (row + (turned ? c : r)) * keys_ + key + (turned ? r : c);
        bits |= (of_block(at / 4) >> at % 4 & 1u) << i;
      }
      return bits;
    }
    unsigned own = 0;
    for (int b = 0; b < 64 / kWarp; ++b) {
      const int block = lane + b * kWarp;
      own |= of_block((first_ + (row + block / 4) * keys_ + key) / 4 + block % 4) << 4 * b;
    }
#pragma unroll
    for (int i = 0; i < kTileElements; ++i) {
      const int r = tile_row(lane, i), c = tile_column(lane, i);
      const int block = (turned ? c : r) * 4 + (turned ? r : c) / 4;
      const unsigned theirs = shuffle(own, block % kWarp);
      bits |= (theirs >> (block / kWarp * 4 + (turned ? r : c) % 4) & 1u) << i;
    }
    return bits;
  }

 private:
  GRADLOOM_DEVICE static i64 number_in_whole(const FlashAttentionArgs& a, i64 number) {
    if (a.part_run == 0) return number;
    return (number / a.part_run * a.parts + a.part) * a.part_run + number % a.part_run;
  }

  // Of the four numbers of a block.
  GRADLOOM_DEVICE unsigned of_block(i64 block) const {
    const PhiloxWords words = philox_block((unsigned long long)(block), stream_, step_);
    unsigned bits = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) bits |= (philox_uniform(words.word[j]) >= ratio_ ? 1u : 0u) << j;
    return bits;
  }

  float ratio_;
  i64 keys_, first_;
  unsigned long long stream_ = 0, step_ = 0;
};

}  // namespace gradloom::kernels::gpu
