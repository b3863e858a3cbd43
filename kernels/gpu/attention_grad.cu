// Gradient of attention.cu, in two passes that compute the scores again, tile by tile (Dao 2023, "FlashAttention-2", without its
// atomic additions: each result is summed by one warp, in order of the other side's tiles).
//   queries   per 64 rows: dq = scale sum ds k past the keys, with p = 2^((s - L) log2 e) of the log-sum-exp L of a row and ds = p (D(dy v^T) - t).
//             The slope t = sum p D(dy v^T) is dy y; as y is rounded, the sum of ds tells by how much t is wrong, and sum p k what dq is to
//             be corrected with. Where L does not tell p (kTellingLogSumExp), a walk past the keys before finds maximum m, sum l and
//             slope, and p = 2^((s - m) log2 e) / l. The workspace keeps what the other pass needs of them
//   keys      per block of keys, past the queries: dv = sum D(p)^T dy, dk = scale sum ds^T q, of scores with keys as rows
// Scores, slopes and sums are f32; p and ds are rounded where they are multiplied. Up to 128 columns of a result are a block's: of more,
// two blocks compute the same scores. ds is 0 where the mask has replaced a score.
#include "kernels/gpu/attention_tiles.h"
#include "kernels/gpu/params.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kQueryThreads = 128, kQueryRows = 64;

// Operands, filled up to D columns, and the columns of a block's results.
template <int D>
constexpr int kPartColumns = D < 128 ? D : 128;
// Whether registers hold sum p k beside sum ds k. Heads of more columns have their keys go by twice, as rows without a telling L.
template <int D>
constexpr bool kKnowsSlopes = D <= 64;

struct GradShape {
  int blocks;  // of queries or of keys
  i64 rows;    // of all parts of the batch
  bool packs;
};

// What the workspace has of every row.
struct RowNumbers {
  float *peak, *inverse, *slope;
  GRADLOOM_DEVICE RowNumbers(const FlashAttentionGradArgs& g, i64 all_rows, i64 part)
      : peak(static_cast<float*>(g.workspace) + part * g.forward.rows),
        inverse(peak + all_rows),
        slope(inverse + all_rows) {}
};

// Where part `part` of the batch begins in a tensor with these strides.
template <class T>
GRADLOOM_DEVICE T* part_of(const FlashAttentionArgs& a, T* base, const std::int64_t (&steps)[kEwMaxRank],
                           i64 part) {
  i64 offset = 0;
  for (int d = a.batch_rank - 1; d >= 0; --d) {
    offset += part % a.batch_dims[d] * steps[d];
    part /= a.batch_dims[d];
  }
  return base + offset;
}

template <class T>
struct GradMatrices {
  Matrix<const T> q, k, v, dy;
  GRADLOOM_DEVICE GradMatrices(const FlashAttentionGradArgs& g, const BatchPart& part, bool packs)
      : GradMatrices(g, g.forward, part, packs) {}
  GRADLOOM_DEVICE GradMatrices(const FlashAttentionGradArgs& g, const FlashAttentionArgs& a,
                               const BatchPart& part, bool packs)
      : q{static_cast<const T*>(a.q) + part.q, a.q_row, a.q_col, int(a.rows), int(a.d), packs},
        k{static_cast<const T*>(a.k) + part.k, a.k_row, a.k_col, int(a.keys), int(a.d), packs},
        v{static_cast<const T*>(a.v) + part.v, a.v_row, a.v_col, int(a.keys), int(a.e), packs},
        dy{part_of(a, static_cast<const T*>(g.dy), g.dy_batch, part.number),
           g.dy_row,
           g.dy_col,
           int(a.rows),
           int(a.e),
           packs} {}
};

// The results, which lie in memory in their own way. Each is asked for when it is written.
template <class T>
struct GradResults {
  const FlashAttentionGradArgs& g;
  i64 part;
  bool packs;
  GRADLOOM_DEVICE Matrix<T> dq() const {
    return {at(g.dq, g.dq_batch), g.dq_row, g.dq_col, int(g.forward.rows), int(g.forward.d), packs};
  }
  GRADLOOM_DEVICE Matrix<T> dk() const {
    return {at(g.dk, g.dk_batch), g.dk_row, g.dk_col, int(g.forward.keys), int(g.forward.d), packs};
  }
  GRADLOOM_DEVICE Matrix<T> dv() const {
    return {at(g.dv, g.dv_batch), g.dv_row, g.dv_col, int(g.forward.keys), int(g.forward.e), packs};
  }

 private:
  GRADLOOM_DEVICE T* at(void* base, const std::int64_t (&steps)[kEwMaxRank]) const {
    return part_of(g.forward, static_cast<T*>(base), steps, part);
  }
};

// sums = left right^T over the first `columns` tiles of columns.
template <class T, int D>
GRADLOOM_DEVICE void multiply_rows(Sums (&sums)[kWarpTiles], const Operand<T> (&left)[kWarpTiles][D / kTile],
                                   const T* right, int columns) {
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m) sums[m] = Sums{};
#pragma unroll
  for (int c = 0; c < D / kTile; ++c) {
    if (c >= columns) continue;
    const Operand<T> r = load_operand<false>(right + c * kTile, kPitch<D>);
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) multiply(sums[m], left[m][c], r);
  }
}

// sums[.][c] += left right, of kWidth columns, while they are there.
template <class T, int D, int kWidth>
GRADLOOM_DEVICE void add_product(Sums (&sums)[kWarpTiles][kWidth / kTile],
                                 const Operand<T> (&left)[kWarpTiles], const T* right, int columns) {
#pragma unroll
  for (int c = 0; c < kWidth / kTile; ++c) {
    if (c >= columns) continue;
    const Operand<T> r = load_operand<true>(right + c * kTile, kPitch<D>);
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) multiply(sums[m][c], left[m], r);
  }
}

// The rows of this warp, as left operands.
template <class T, int D>
GRADLOOM_DEVICE void take_rows(Operand<T> (&to)[kWarpTiles][D / kTile], const T* shared, int columns) {
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
    for (int c = 0; c < D / kTile; ++c)
      if (c < columns)
        to[m][c] = load_operand<false>(
            shared + (warp_number() * kWarpTiles + m) * kTile * kPitch<D> + c * kTile, kPitch<D>);
}

// Loads rows through shared memory into registers; all threads of the block.
template <class T, int D>
GRADLOOM_DEVICE void fetch_rows(Operand<T> (&to)[kWarpTiles][D / kTile], T* shared,
                                const Matrix<const T>& from, int first, int count) {
  load_rows<T, D>(shared, from, first, count);
  wait_copies();
  __syncthreads();
  take_rows<T, D>(to, shared, whole_tiles(from.columns));
  __syncthreads();
}

// Sums times `factor`, rounded, through shared memory to a result's columns from `begin` on; all threads of the block.
template <class T, int D, int kWidth>
GRADLOOM_DEVICE void put_rows(Sums (&sums)[kWarpTiles][kWidth / kTile], float factor, T* shared,
                              const Matrix<T>& to, int first, int count, int begin) {
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
    for (int c = 0; c < kWidth / kTile; ++c) {
#pragma unroll
      for (int i = 0; i < kTileElements; ++i) sums[m][c].v[i] *= factor;
      store_operand(shared + (warp_number() * kWarpTiles + m) * kTile * kPitch<D> + c * kTile, kPitch<D>,
                    operand_of<T>(sums[m][c]));
    }
  __syncthreads();
  store_rows<T, D>(shared, to, first, count, begin, begin + kWidth);
}

template <class T, int kColumns>
GRADLOOM_DEVICE void clear(Sums (&sums)[kWarpTiles][kColumns]) {
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[m][c] = Sums{};
}

// One tile of scores and of D(dy v^T), as the passes need them.
template <class T>
class ScoreTile {
 public:
  GRADLOOM_DEVICE ScoreTile(const FlashAttentionArgs& a, const BatchPart& part)
      : mask_(a, part), dropping_(a, part), scale_(float(a.scale)), keep_scale_(dropping_.scale()) {}
  GRADLOOM_DEVICE float keep_scale() const { return keep_scale_; }

  // Of the tile at (row, key): scores from products, with the mask, and dp with dropout; turned: keys are its rows. Returned, by
  // element: bit i, that dropout keeps it; bit 16 + i, that the score is not the product's.
  template <bool turned>
  GRADLOOM_DEVICE unsigned finish(Sums& s, Sums& dp, int row, int key) const {
    unsigned notes = 0xffffu;
    const bool touched = mask_.touches(row, key);
#pragma unroll
    for (int i = 0; i < kTileElements; ++i) {
      s.v[i] *= scale_;
      if (touched) {
        const int r = tile_row(lane_number(), i), c = tile_column(lane_number(), i);
        bool replaced;
        s.v[i] = mask_(s.v[i], row + (turned ? c : r), key + (turned ? r : c), &replaced);
        notes |= (replaced ? 1u : 0u) << (16 + i);
      }
    }
    if (!dropping_.active) return notes;
    notes = (notes & 0xffff0000u) | dropping_.kept<turned>(row, key);
#pragma unroll
    for (int i = 0; i < kTileElements; ++i) dp.v[i] = (notes >> i & 1u) != 0 ? dp.v[i] * keep_scale_ : 0.0f;
    return notes;
  }

 private:
  const ScoreMask<T> mask_;
  const Dropping dropping_;
  float scale_, keep_scale_;
};

// ---- queries --------------------------------------------------------------------------------------------------------------------

GRADLOOM_DEVICE bool tells_probabilities(float log_sum_exp) {
  return log_sum_exp >= -kTellingLogSumExp && log_sum_exp <= kTellingLogSumExp;
}

// Maximum, sum and slope of this lane's rows while keys go by.
struct RowWalk {
  float peak[kWarpTiles][kLaneRows], total[kWarpTiles][kLaneRows], slope[kWarpTiles][kLaneRows];

  GRADLOOM_DEVICE RowWalk() {
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        peak[m][r] = -infinity<float>();
        total[m][r] = slope[m][r] = 0;
      }
  }
  // kSpan tiles beside each other.
  template <int kSpan>
  GRADLOOM_DEVICE void add(int m, const Sums (&s)[kSpan][kWarpTiles], const Sums (&dp)[kSpan][kWarpTiles]) {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      float top = peak[m][r];
#pragma unroll
      for (int n = 0; n < kSpan; ++n)
#pragma unroll
        for (int i = 0; i < kTileElements; ++i)
          if (lane_row(i) == r) top = Largest()(top, s[n][m].v[i]);
      top = row_reduce(top, Largest());
      const float base = top == -infinity<float>() ? 0.0f : top;
      const float rescale = power_of_2((peak[m][r] - base) * kLog2E);
      peak[m][r] = top;
      total[m][r] *= rescale;
      slope[m][r] *= rescale;
#pragma unroll
      for (int n = 0; n < kSpan; ++n)
#pragma unroll
        for (int i = 0; i < kTileElements; ++i)
          if (lane_row(i) == r) {
            const float p = power_of_2((s[n][m].v[i] - base) * kLog2E);
            total[m][r] += p;
            slope[m][r] += p * dp[n][m].v[i];
          }
    }
  }
  // Then total holds reciprocals, slope what it is of the row, and peak what is subtracted.
  GRADLOOM_DEVICE void finish(bool safe) {
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        const float sum = row_reduce(total[m][r], Sum()), slopes = row_reduce(slope[m][r], Sum());
        total[m][r] = safe && sum == 0.0f ? 0.0f : 1.0f / sum;
        slope[m][r] = slopes * total[m][r];
        if (peak[m][r] == -infinity<float>()) peak[m][r] = 0;
      }
  }
};

// One block of queries.
template <class T, int D, int kKeys, int kSpan>
class QuerySide {
 public:
  static constexpr int kWidth = kPartColumns<D>;

  GRADLOOM_DEVICE QuerySide(const FlashAttentionArgs& a, const BatchPart& part, int row, int begin)
      : a_(a), tile_(a, part), row_(row), begin_(begin) {
    clear<T>(dq_);
    clear<T>(seen_);
  }
  GRADLOOM_DEVICE void take(const GradMatrices<T>& x, T* shared) {
    fetch_rows<T, D>(q_, shared, x.q, row_, kQueryRows);
    fetch_rows<T, D>(dy_, shared, x.dy, row_, kQueryRows);
  }
  // Calls what(n, s, dp, notes) with kSpan tiles of scores at a time, from tile n of the keys in shared memory on.
  template <class What>
  GRADLOOM_DEVICE void each(const T* keys, const T* values, int key, const What& what) const {
    const int last = row_ + tile_at(kWarpTiles - 1) + kTile - 1 + int(a_.reach),
              end = last < int(a_.keys) ? last : int(a_.keys);
    if (row_ + tile_at(0) >= int(a_.rows)) return;
#pragma unroll
    for (int n = 0; n < kKeys / kTile; n += kSpan) {
      if (key + n * kTile >= end) continue;
      Sums s[kSpan][kWarpTiles], dp[kSpan][kWarpTiles];
      unsigned notes[kSpan][kWarpTiles];
#pragma unroll
      for (int j = 0; j < kSpan; ++j) {
        multiply_rows<T, D>(s[j], q_, keys + (n + j) * kTile * kPitch<D>, whole_tiles(int(a_.d)));
        multiply_rows<T, D>(dp[j], dy_, values + (n + j) * kTile * kPitch<D>, whole_tiles(int(a_.e)));
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m)
          notes[j][m] =
              tile_.template finish<false>(s[j][m], dp[j][m], row_ + tile_at(m), key + (n + j) * kTile);
      }
      what(n, s, dp, notes);
    }
  }
  GRADLOOM_DEVICE void measure(const T* keys, const T* values, int key) {
    each(keys, values, key, [&](int, const auto& s, const auto& dp, const auto&) {
#pragma unroll
      for (int m = 0; m < kWarpTiles; ++m) walk_.add(m, s, dp);
    });
  }
  GRADLOOM_DEVICE void finish_measures() { walk_.finish(a_.safe); }
  // The numbers of rows that their log-sum-exp tells, with the block's rows of y in shared memory. dy y is a product of tiles as dy v^T is, so
  // that a row that sees one key alone has slopes of 0.
  GRADLOOM_DEVICE void take_known(const float* log_sum_exp, const T* y) {
    const int lane = lane_number();
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) {
      Sums products{};
#pragma unroll
      for (int c = 0; c < D / kTile; ++c)
        if (c < whole_tiles(int(a_.e)))
          multiply(products, dy_[m][c],
                   load_operand<false>(y + tile_at(m) * kPitch<D> + c * kTile, kPitch<D>));
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        const int in_tile = tile_row(lane, 2 * r), row = row_ + tile_at(m) + in_tile;
        // Where the lane has the element of the diagonal in its row; a choice would go through memory.
        unsigned own = 0;
#pragma unroll
        for (int i = 0; i < kTileElements; ++i)
          own |= __builtin_bit_cast(unsigned, products.v[i]) &
                 (0u - unsigned(i == tile_element(in_tile, in_tile)));
        const float slope = shuffle(__builtin_bit_cast(float, own), tile_lane(in_tile, in_tile)),
                    known = row < int(a_.rows) ? log_sum_exp[row] : 0.0f;
        if (!tells_probabilities(known)) continue;
        walk_.peak[m][r] = known;
        walk_.total[m][r] = 1;
        walk_.slope[m][r] = slope;
      }
    }
  }
  GRADLOOM_DEVICE void write_numbers(const RowNumbers& rows) const {
    const int lane = lane_number();
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m)
#pragma unroll
      for (int i = 0; i < kTileElements; ++i) {
        const int row = row_ + tile_at(m) + tile_row(lane, i);
        if (tile_column(lane, i) != 0 || row >= int(a_.rows)) continue;
        rows.peak[row] = walk_.peak[m][lane_row(i)];
        rows.inverse[row] = walk_.total[m][lane_row(i)];
        rows.slope[row] = walk_.slope[m][lane_row(i)];
      }
  }
  GRADLOOM_DEVICE void add(const T* keys, const T* values, int key) {
    each(keys, values, key, [&](int n, auto& s, auto& dp, const auto& notes) {
#pragma unroll
      for (int j = 0; j < kSpan; ++j) {
        Operand<T> ds[kWarpTiles], p[kWarpTiles];
#pragma unroll
        for (int m = 0; m < kWarpTiles; ++m) {
          slopes_of(m, s[j][m], dp[j][m], notes[j][m]);
          ds[m] = operand_of<T>(s[j][m]);
          p[m] = operand_of<T>(dp[j][m]);
        }
        const T* const right = keys + (n + j) * kTile * kPitch<D> + begin_;
        add_product<T, D, kWidth>(dq_, ds, right, whole_tiles(int(a_.d) - begin_));
        if constexpr (kKnowsSlopes<D>)
          add_product<T, D, kWidth>(seen_, p, right, whole_tiles(int(a_.d) - begin_));
      }
    });
  }
  // After all keys: the slopes as they are, and dq with them.
  GRADLOOM_DEVICE void correct() {
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) {
      float wrong[kLaneRows];
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        wrong[r] = row_reduce(rest_[m][r], Sum());
        walk_.slope[m][r] += wrong[r];
      }
#pragma unroll
      for (int c = 0; c < kWidth / kTile; ++c)
#pragma unroll
        for (int i = 0; i < kTileElements; ++i) dq_[m][c].v[i] -= wrong[lane_row(i)] * seen_[m][c].v[i];
    }
  }
  GRADLOOM_DEVICE void put(T* shared, const Matrix<T>& dq) {
    put_rows<T, D, kWidth>(dq_, float(a_.scale), shared, dq, row_, kQueryRows, begin_);
  }

 private:
  static GRADLOOM_DEVICE int tile_at(int m) { return (warp_number() * kWarpTiles + m) * kTile; }
  // Scores become ds, and dp probabilities; both are 0 where the mask has replaced a score.
  GRADLOOM_DEVICE void slopes_of(int m, Sums& s, Sums& dp, unsigned notes) {
#pragma unroll
    for (int i = 0; i < kTileElements; ++i) {
      const int r = lane_row(i);
      const bool replaced = (notes >> (16 + i) & 1u) != 0;
      const float p = power_of_2((s.v[i] - walk_.peak[m][r]) * kLog2E) * walk_.total[m][r],
                  ds = p * (dp.v[i] - walk_.slope[m][r]);
      rest_[m][r] += ds;
      s.v[i] = replaced ? 0.0f : ds;
      dp.v[i] = replaced ? 0.0f : p;
    }
  }

  const FlashAttentionArgs& a_;
  const ScoreTile<T> tile_;
  const int row_, begin_;
  Operand<T> q_[kWarpTiles][D / kTile], dy_[kWarpTiles][D / kTile];
  Sums dq_[kWarpTiles][kWidth / kTile], seen_[kWarpTiles][kWidth / kTile];  // seen: sums of p k
  float rest_[kWarpTiles][kLaneRows] = {};                                  // of ds
  RowWalk walk_;
};

template <class T, int D, int kKeys, int kSpan>
__global__ void __launch_bounds__(kQueryThreads)
    flash_grad_queries(FlashAttentionGradArgs params, GradShape shape) {
  const FlashAttentionGradArgs& g = first_param(params);
  static_assert(2 * kKeys >= kQueryRows, "the queries go through the memory of keys and values");
  __shared__ Pack<T> packed[2 * kKeys * kPitch<D> / Pack<T>::kCount];
  T *const keys = packed[0].v, *const values = keys + kKeys * kPitch<D>;
  const FlashAttentionArgs& a = g.forward;
  const int row = (shape.blocks - 1 - int(blockIdx.x) % shape.blocks) * kQueryRows;
  const BatchPart part(a, int(blockIdx.x) / shape.blocks);
  const GradMatrices<T> x(g, part, shape.packs);
  QuerySide<T, D, kKeys, kSpan> side(a, part, row, int(blockIdx.y) * kPartColumns<D>);
  side.take(x, keys);
  const int seen = row + kQueryRows - 1 + int(a.reach), end = seen < int(a.keys) ? seen : int(a.keys);
  const auto walk = [&](const auto& what) {
    for (int key = 0; key < end; key += kKeys) {
      load_rows<T, D>(keys, x.k, key, kKeys);
      load_rows<T, D>(values, x.v, key, kKeys);
      wait_copies();
      __syncthreads();
      what(key);
      __syncthreads();
    }
  };
  const float* const sums = a.log_sum_exp + part.number * a.rows;
  const int own = row + int(threadIdx.x);
  const bool vague = int(threadIdx.x) < kQueryRows && own < int(a.rows) && !tells_probabilities(sums[own]);
  if (!kKnowsSlopes<D> || block_reduce(vague ? 1 : 0, Largest(), 0) != 0) {
    walk([&](int key) { side.measure(keys, values, key); });
    side.finish_measures();
  }
  if constexpr (kKnowsSlopes<D>) {
    const Matrix<const T> y{
        static_cast<const T*>(a.y) + part.y, a.y_row, a.y_col, int(a.rows), int(a.e), shape.packs};
    load_rows<T, D>(keys, y, row, kQueryRows);
    wait_copies();
    __syncthreads();
    side.take_known(sums, keys);
    __syncthreads();
  }
  walk([&](int key) { side.add(keys, values, key); });
  if constexpr (kKnowsSlopes<D>) side.correct();
  if (blockIdx.y == 0) side.write_numbers(RowNumbers(g, shape.rows, part.number));
  side.put(keys, GradResults<T>{g, part.number, shape.packs}.dq());
}

// ---- keys -----------------------------------------------------------------------------------------------------------------------

// One block of keys: dk and dv, columns from `begin` on.
template <class T, int D>
class KeySide {
 public:
  static constexpr int kWidth = kPartColumns<D>;

  GRADLOOM_DEVICE KeySide(const FlashAttentionArgs& a, const BatchPart& part, int key, int begin)
      : a_(a), tile_(a, part), key_(key), begin_(begin) {
    clear<T>(dk_);
    clear<T>(dv_);
  }
  // Values stay in registers, keys in shared memory.
  GRADLOOM_DEVICE void take(const GradMatrices<T>& x, T* keys, int count) {
    fetch_rows<T, D>(v_, keys, x.v, key_, count);
    load_rows<T, D>(keys, x.k, key_, count);
  }
  // One tile of 16 queries, with the numbers of its rows.
  GRADLOOM_DEVICE void add(const T* keys, const T* q, const T* dy, int row, const float* peak,
                           const float* inverse, const float* slope) {
    if (row >= int(a_.rows) || key_ + tile_at(0) >= row + kTile - 1 + int(a_.reach)) return;
    Sums s[kWarpTiles], dp[kWarpTiles];
    score(s, keys, q);
    multiply_rows<T, D>(dp, v_, dy, whole_tiles(int(a_.e)));
    const int lane = lane_number();
    Operand<T> p[kWarpTiles], ds[kWarpTiles];
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) {
      const unsigned notes = tile_.template finish<true>(s[m], dp[m], row, key_ + tile_at(m));
#pragma unroll
      for (int i = 0; i < kTileElements; ++i) {
        const int r = tile_column(lane, i);
        const float share = power_of_2((s[m].v[i] - peak[r]) * kLog2E) * inverse[r];
        dp[m].v[i] = (notes >> (16 + i) & 1u) != 0 ? 0.0f : share * (dp[m].v[i] - slope[r]);
        s[m].v[i] = (notes >> i & 1u) != 0 ? share : 0.0f;
      }
      p[m] = operand_of<T>(s[m]);
      ds[m] = operand_of<T>(dp[m]);
    }
    add_product<T, D, kWidth>(dv_, p, dy + begin_, whole_tiles(int(a_.e) - begin_));
    add_product<T, D, kWidth>(dk_, ds, q + begin_, whole_tiles(int(a_.d) - begin_));
  }
  GRADLOOM_DEVICE void put(T* shared, const GradResults<T>& results, int count) {
    put_rows<T, D, kWidth>(dk_, float(a_.scale), shared, results.dk(), key_, count, begin_);
    put_rows<T, D, kWidth>(dv_, tile_.keep_scale(), shared, results.dv(), key_, count, begin_);
  }

 private:
  static GRADLOOM_DEVICE int tile_at(int m) { return (warp_number() * kWarpTiles + m) * kTile; }
  // s = k q^T.
  GRADLOOM_DEVICE void score(Sums (&s)[kWarpTiles], const T* keys, const T* q) const {
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) s[m] = Sums{};
#pragma unroll
    for (int c = 0; c < D / kTile; ++c) {
      if (c >= whole_tiles(int(a_.d))) continue;
      const Operand<T> right = load_operand<false>(q + c * kTile, kPitch<D>);
#pragma unroll
      for (int m = 0; m < kWarpTiles; ++m)
        multiply(s[m], load_operand<false>(keys + tile_at(m) * kPitch<D> + c * kTile, kPitch<D>), right);
    }
  }

  const FlashAttentionArgs& a_;
  const ScoreTile<T> tile_;
  const int key_, begin_;
  Operand<T> v_[kWarpTiles][D / kTile];
  Sums dk_[kWarpTiles][kWidth / kTile], dv_[kWarpTiles][kWidth / kTile];
};

template <class T, int D, int kQueries, int kThreads>
__global__ void __launch_bounds__(kThreads) flash_grad_keys(FlashAttentionGradArgs params, GradShape shape) {
  const FlashAttentionGradArgs& g = first_param(params);
  constexpr int kBlockKeys = kThreads / 2;
  __shared__ Pack<T> packed[(kBlockKeys + 2 * kQueries) * kPitch<D> / Pack<T>::kCount];
  __shared__ float numbers[3][kQueries];
  T *const keys = packed[0].v, *const q = keys + kBlockKeys * kPitch<D>, *const dy = q + kQueries * kPitch<D>;
  const FlashAttentionArgs& a = g.forward;
  const int key = int(blockIdx.x) % shape.blocks * kBlockKeys;
  const BatchPart part(a, int(blockIdx.x) / shape.blocks);
  const GradMatrices<T> x(g, part, shape.packs);
  const RowNumbers rows(g, shape.rows, part.number);
  KeySide<T, D> side(a, part, key, int(blockIdx.y) * kPartColumns<D>);
  side.take(x, keys, kBlockKeys);
  // The first row that sees one of these keys.
  const int first = key - int(a.reach) + 1;
  for (int row = first > 0 ? first / kQueries * kQueries : 0; row < int(a.rows); row += kQueries) {
    load_rows<T, D>(q, x.q, row, kQueries);
    load_rows<T, D>(dy, x.dy, row, kQueries);
    for (int i = int(threadIdx.x); i < kQueries; i += kThreads) {
      const bool there = row + i < int(a.rows);
      numbers[0][i] = there ? rows.peak[row + i] : 0.0f;
      numbers[1][i] = there ? rows.inverse[row + i] : 0.0f;
      numbers[2][i] = there ? rows.slope[row + i] : 0.0f;
    }
    wait_copies();
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kQueries; n += kTile)
      side.add(keys, q + n * kPitch<D>, dy + n * kPitch<D>, row + n, numbers[0] + n, numbers[1] + n,
               numbers[2] + n);
    __syncthreads();
  }
  wait_copies();
  side.put(keys, GradResults<T>{g, part.number, shape.packs}, kBlockKeys);
}

// ---- launches -------------------------------------------------------------------------------------------------------------------

template <class T, int D, int kKeys, int kSpan, int kQueries, int kKeyThreads>
void attend_grad(const FlashAttentionGradArgs& g, Stream stream) {
  const FlashAttentionArgs& a = g.forward;
  const i64 parts = batch_parts(a), query_blocks = ceil_div(a.rows, kQueryRows),
            key_blocks = ceil_div(a.keys, kKeyThreads / 2);
  const auto columns = unsigned(a.d > 128 || a.e > 128 ? 2 : 1);
  GradShape shape{int(query_blocks), parts * a.rows, whole_packs<T>(g)};
  if (parts * query_blocks > 0)
    launch(stream, flash_grad_queries<T, D, kKeys, kSpan>, dim3(unsigned(parts * query_blocks), columns),
           dim3(kQueryThreads), 0, g, shape);
  shape.blocks = int(key_blocks);
  if (parts * key_blocks > 0)
    launch(stream, flash_grad_keys<T, D, kQueries, kKeyThreads>, dim3(unsigned(parts * key_blocks), columns),
           dim3(kKeyThreads), 0, g, shape);
}

template <class T>
void attend_grad(const FlashAttentionGradArgs& g, Stream stream) {
  const i64 columns = g.forward.d > g.forward.e ? g.forward.d : g.forward.e;
  if (columns <= 64)
    attend_grad<T, 64, 64, 2, 64, 128>(g, stream);
  else if (columns <= 128)
    attend_grad<T, 128, 32, 2, 32, 128>(g, stream);
  else
    attend_grad<T, 256, 32, 1, 16, 64>(g, stream);
}

}  // namespace

void flash_attention_grad(const FlashAttentionGradArgs& args, Stream stream) {
  if (args.forward.dtype == DType::f16) attend_grad<f16>(args, stream);
  if (args.forward.dtype == DType::bf16) attend_grad<bf16>(args, stream);
}

}  // namespace gradloom::kernels::gpu
