// y = D(softmax(mask(scale q k^T))) v on matrix units (mma.h), without scores in memory: 64 rows of queries at a time, past which
// the keys go in tiles. Maximum and sum of a row are found on the way, and what has been summed until then is scaled
// whenever the maximum grows (Milakov and Gimelshein 2018; Dao 2023, "FlashAttention-2").
//   per tile: s = scale q k^T, m' = max(m, max s), p = 2^((s - m') log2 e), l = l 2^((m - m') log2 e) + sum p, o = o 2^(..) + D(p) v
//   at the end: y = o / l, log-sum-exp = m + log l
// Scores, p until it is multiplied, and sums are f32. The next keys are on their way while o is summed, the values of a tile
// while its scores are.
#include "kernels/gpu/attention_tiles.h"
#include "kernels/gpu/params.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = 128, kBlockRows = 64;

// Maxima and sums of the rows that a lane has elements of. The sums are its own part until finish().
struct RowState {
  float peak[kWarpTiles][kLaneRows], total[kWarpTiles][kLaneRows];

  GRADLOOM_DEVICE RowState() {
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        peak[m][r] = -infinity<float>();
        total[m][r] = 0;
      }
  }
};

// Scores of row tile m become probabilities that are not divided by their sum yet; returned: what the sums until now are
// to be multiplied by. Tiles from `live` on are hidden.
template <int N>
GRADLOOM_DEVICE void exponents(RowState& state, int m, Sums (&s)[N], int live, float (&rescale)[kLaneRows]) {
  float peak[kLaneRows], base[kLaneRows], total[kLaneRows];
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) peak[r] = state.peak[m][r];
#pragma unroll
  for (int n = 0; n < N; ++n)
    if (n < live) {
#pragma unroll
      for (int i = 0; i < kTileElements; ++i) peak[lane_row(i)] = Largest()(peak[lane_row(i)], s[n].v[i]);
    }
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) {
    peak[r] = row_reduce(peak[r], Largest());
    base[r] = peak[r] == -infinity<float>() ? 0.0f : peak[r];
    rescale[r] = power_of_2((state.peak[m][r] - base[r]) * kLog2E);
    total[r] = state.total[m][r] * rescale[r];
    state.peak[m][r] = peak[r];
  }
#pragma unroll
  for (int n = 0; n < N; ++n)
    if (n < live) {
#pragma unroll
      for (int i = 0; i < kTileElements; ++i) {
        s[n].v[i] = power_of_2((s[n].v[i] - base[lane_row(i)]) * kLog2E);
        total[lane_row(i)] += s[n].v[i];
      }
    }
#pragma unroll
  for (int r = 0; r < kLaneRows; ++r) state.total[m][r] = total[r];
}

// One block of queries, in registers, and what is summed for it. D: columns, filled up; kKeys: of a tile.
template <class T, int D, int kKeys>
class Forward {
 public:
  static constexpr int kColumns = D / kTile, kScores = kKeys / kTile;

  GRADLOOM_DEVICE Forward(const FlashAttentionArgs& a, const BatchPart& part, T* shared, int row)
      : a_(a), mask_(a, part), dropping_(a, part), row_(row), shared_(shared) {
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) o_[m][c] = Sums{};
  }

  // From shared memory.
  GRADLOOM_DEVICE void take_queries() {
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (c < whole_tiles(int(a_.d)))
          q_[m][c] = load_operand<false>(shared_ + tile_at(m) * kPitch<D> + c * kTile, kPitch<D>);
  }

  // Tiles of keys from `key` on that some row of the warp sees.
  GRADLOOM_DEVICE int live_tiles(int key) const {
    const int last = row_ + tile_at(kWarpTiles - 1) + kTile - 1 + int(a_.reach);
    const int end = last < int(a_.keys) ? last : int(a_.keys);
    return row_ + tile_at(0) < int(a_.rows) ? whole_tiles(end > key ? end - key : 0) : 0;
  }

  // s = mask(scale q k^T), of the keys in `shared`.
  GRADLOOM_DEVICE void score(const T* keys, int key, int live) {
    const float scale = float(a_.scale);
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      if (n >= live) continue;
#pragma unroll
      for (int m = 0; m < kWarpTiles; ++m) s_[m][n] = Sums{};
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (c >= whole_tiles(int(a_.d))) continue;
        const Operand<T> k = load_operand<false>(keys + n * kTile * kPitch<D> + c * kTile, kPitch<D>);
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m) multiply(s_[m][n], q_[m][c], k);
      }
#pragma unroll
      for (int m = 0; m < kWarpTiles; ++m) {
        const int row = row_ + tile_at(m), first = key + n * kTile;
        const bool touched = mask_.touches(row, first);
#pragma unroll
        for (int i = 0; i < kTileElements; ++i) {
          bool replaced;
          s_[m][n].v[i] *= scale;
          if (touched)
            s_[m][n].v[i] = mask_(s_[m][n].v[i], row + tile_row(lane_number(), i),
                                  first + tile_column(lane_number(), i), &replaced);
        }
      }
    }
  }

  // o += D(p) v, after the scores have become probabilities.
  GRADLOOM_DEVICE void add_values(const T* values, int key, int live) {
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) {
      float rescale[kLaneRows];
      exponents(state_, m, s_[m], live, rescale);
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
#pragma unroll
        for (int i = 0; i < kTileElements; ++i) o_[m][c].v[i] *= rescale[lane_row(i)];
    }
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      if (n >= live) continue;
      Operand<T> p[kWarpTiles];
#pragma unroll
      for (int m = 0; m < kWarpTiles; ++m) {
        if (dropping_.active) drop(s_[m][n], row_ + tile_at(m), key + n * kTile);
        p[m] = operand_of<T>(s_[m][n]);
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (c >= whole_tiles(int(a_.e))) continue;
        const Operand<T> v = load_operand<true>(values + n * kTile * kPitch<D> + c * kTile, kPitch<D>);
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m) multiply(o_[m][c], p[m], v);
      }
    }
  }

  // The block's part of y, rounded, in shared memory; log_sum_exp: of the rows of this part of the batch, or null.
  GRADLOOM_DEVICE void finish(float* log_sum_exp) {
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) {
      float factor[kLaneRows];
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        const float total = row_reduce(state_.total[m][r], Sum());
        factor[r] = a_.safe && total == 0.0f ? 0.0f : dropping_.scale() / total;
        state_.total[m][r] = state_.peak[m][r] + log(total);
      }
      if (log_sum_exp != nullptr) write_log_sums(m, log_sum_exp);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int i = 0; i < kTileElements; ++i) o_[m][c].v[i] *= factor[lane_row(i)];
        store_operand(shared_ + tile_at(m) * kPitch<D> + c * kTile, kPitch<D>, operand_of<T>(o_[m][c]));
      }
    }
  }

 private:
  // By one of the lanes that have elements of a row.
  GRADLOOM_DEVICE void write_log_sums(int m, float* to) const {
    const int lane = lane_number();
#pragma unroll
    for (int i = 0; i < kTileElements; ++i) {
      const int row = row_ + tile_at(m) + tile_row(lane, i);
      if (tile_column(lane, i) == 0 && row < int(a_.rows)) to[row] = state_.total[m][lane_row(i)];
    }
  }
  // Row of the block where row tile m of this warp begins.
  static GRADLOOM_DEVICE int tile_at(int m) { return (warp_number() * kWarpTiles + m) * kTile; }
  GRADLOOM_DEVICE void drop(Sums& p, int row, int key) const {
    const unsigned kept = dropping_.kept<false>(row, key);
#pragma unroll
    for (int i = 0; i < kTileElements; ++i)
      if ((kept >> i & 1u) == 0) p.v[i] = 0;
  }

  const FlashAttentionArgs& a_;
  const ScoreMask<T> mask_;
  const Dropping dropping_;
  const int row_;
  T* const shared_;
  Operand<T> q_[kWarpTiles][kColumns];
  Sums o_[kWarpTiles][kColumns], s_[kWarpTiles][kScores];
  RowState state_;
};

template <class T, int D, int kKeys>
__global__ void __launch_bounds__(kThreads) flash_kernel(FlashAttentionArgs params, int blocks, bool packs) {
  const FlashAttentionArgs& a = first_param(params);
  static_assert(2 * kKeys >= kBlockRows, "the queries go through the memory of keys and values");
  __shared__ Pack<T> packed[2 * kKeys * kPitch<D> / Pack<T>::kCount];
  T *const keys = packed[0].v, *const values = keys + kKeys * kPitch<D>;
  // Rows that see most keys first.
  const int row = (blocks - 1 - int(blockIdx.x) % blocks) * kBlockRows;
  const BatchPart part(a, int(blockIdx.x) / blocks);
  const Matrix<const T> q{
      static_cast<const T*>(a.q) + part.q, a.q_row, a.q_col, int(a.rows), int(a.d), packs},
      k{static_cast<const T*>(a.k) + part.k, a.k_row, a.k_col, int(a.keys), int(a.d), packs},
      v{static_cast<const T*>(a.v) + part.v, a.v_row, a.v_col, int(a.keys), int(a.e), packs};
  Forward<T, D, kKeys> forward(a, part, keys, row);
  load_rows<T, D>(keys, q, row, kBlockRows);
  wait_copies();
  __syncthreads();
  forward.take_queries();
  __syncthreads();
  const int seen = row + kBlockRows - 1 + int(a.reach), end = seen < int(a.keys) ? seen : int(a.keys);
  load_rows<T, D>(keys, k, 0, kKeys);
  for (int key = 0; key < end; key += kKeys) {
    wait_copies();
    __syncthreads();
    load_rows<T, D>(values, v, key, kKeys);
    const int live = forward.live_tiles(key);
    forward.score(keys, key, live);
    wait_copies();
    __syncthreads();
    if (key + kKeys < end) load_rows<T, D>(keys, k, key + kKeys, kKeys);
    forward.add_values(values, key, live);
  }
  __syncthreads();
  forward.finish(a.log_sum_exp == nullptr ? nullptr : a.log_sum_exp + part.number * a.rows);
  __syncthreads();
  const Matrix<T> y{static_cast<T*>(a.y) + part.y, a.y_row, a.y_col, int(a.rows), int(a.e), packs};
  store_rows<T, D>(keys, y, row, kBlockRows, 0, int(a.e));
}

template <class T>
void attend(const FlashAttentionArgs& a, Stream stream) {
  const i64 blocks = ceil_div(a.rows, kBlockRows), grid = blocks * batch_parts(a);
  if (grid == 0) return;
  const bool packs = whole_packs<T>(a, a.y);
  const auto kernel = a.d <= 64 && a.e <= 64     ? flash_kernel<T, 64, 64>
                      : a.d <= 128 && a.e <= 128 ? flash_kernel<T, 128, 64>
                                                 : flash_kernel<T, 256, 32>;
  launch(stream, kernel, dim3(unsigned(grid)), dim3(kThreads), 0, a, int(blocks), packs);
}

}  // namespace

void flash_attention(const FlashAttentionArgs& args, Stream stream) {
  if (args.dtype == DType::f16) attend<f16>(args, stream);
  if (args.dtype == DType::bf16) attend<bf16>(args, stream);
}

}  // namespace gradloom::kernels::gpu
