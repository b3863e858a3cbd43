// Kernels that walk along an axis or over matrices. x: [outer, n, inner].
//   trilu         one thread per element
//   cum_sum       inner > 1 or short axes: one thread per column, neighbours take neighbours; else a block per row, tile after tile
//   arg_extreme   the same choice; a block finds the best key, then the first or last index that has it
//   top_k         a block per column: the k-th best key bit by bit from counts, then what is better and the first of those that are equal, in
//                 order of their indices, then the place of each among the k
// Order of numbers: order.h.
#include "kernels/gpu/divider.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/order.h"

namespace gradloom::kernels::gpu {
namespace {

using i64 = std::int64_t;

constexpr int kThreads = 256;
constexpr i64 kShortAxis = 64;

GRADLOOM_DEVICE i64 thread_number() { return i64(blockIdx.x) * kThreads + i64(threadIdx.x); }
dim3 grid_of(i64 threads) { return dim3(unsigned(ceil_div(threads, kThreads))); }

// ---- trilu ------------------------------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads) trilu_kernel(bool upper, i64 count, Divider cols, Divider rows,
                                                         const T* x, const std::int64_t* offset, T* y) {
  const i64 i = thread_number();
  if (i >= count) return;
  const i64 row = cols(i), column = i - row * cols.divisor, r = row - rows(row) * rows.divisor;
  const i64 k = offset == nullptr ? 0 : min(max(i64(*offset), i64(-rows.divisor - 1)), i64(cols.divisor + 1));
  const bool kept = upper ? column - r >= k : column - r <= k;
  y[i] = kept ? x[i] : T(0);
}

template <class T>
void keep_triangles(const TriluArgs& args, i64 count, Stream stream) {
  launch(stream, trilu_kernel<T>, grid_of(count), dim3(kThreads), 0, args.upper, count,
         Divider(args.cols, count), Divider(args.rows, count), static_cast<const T*>(args.x), args.k,
         static_cast<T*>(args.y));
}

// ---- cum_sum ----------------------------------------------------------------------------------------------------------------------

template <class T>
struct TotalOf {
  using type = double;
};
template <>
struct TotalOf<std::int32_t> {
  using type = unsigned long long;
};
template <>
struct TotalOf<std::int64_t> {
  using type = unsigned long long;
};

template <class Total, class T>
GRADLOOM_DEVICE Total to_total(T v) {
  return Total(to_accum(v));
}
template <class T, class Total>
GRADLOOM_DEVICE T from_total(Total v) {
  return from_accum<T>(Accum<T>(v));
}

template <class T>
__global__ void __launch_bounds__(kThreads) sum_columns(CumSumArgs args, Divider inner) {
  using Total = typename TotalOf<T>::type;
  const i64 column = thread_number();
  if (column >= args.outer * args.inner) return;
  const i64 o = inner(column), i = column - o * args.inner;
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  Total total = 0;
  for (i64 k = 0; k < args.n; ++k) {
    const i64 at = (o * args.n + (args.reverse ? args.n - 1 - k : k)) * args.inner + i;
    const Total after = total + to_total<Total>(x[at]);
    y[at] = from_total<T>(args.exclusive ? total : after);
    total = after;
  }
}

// inner is 1: kThreads neighbours at a time (Hillis and Steele 1986), with the sum of those before.
template <class T>
__global__ void __launch_bounds__(kThreads) sum_row(CumSumArgs args) {
  using Total = typename TotalOf<T>::type;
  __shared__ Total sums[kThreads];
  const T* const x = static_cast<const T*>(args.x) + i64(blockIdx.x) * args.n;
  T* const y = static_cast<T*>(args.y) + i64(blockIdx.x) * args.n;
  const int thread = int(threadIdx.x);
  Total before = 0;
  for (i64 first = 0; first < args.n; first += kThreads) {
    const i64 k = first + thread, at = args.reverse ? args.n - 1 - k : k;
    const Total own = k < args.n ? to_total<Total>(x[at]) : Total(0);
    sums[thread] = own;
    __syncthreads();
    for (int step = 1; step < kThreads; step *= 2) {
      const Total left = thread >= step ? sums[thread - step] : Total(0);
      __syncthreads();
      sums[thread] += left;
      __syncthreads();
    }
    const Total left = thread > 0 ? sums[thread - 1] : Total(0);
    if (k < args.n) y[at] = from_total<T>(before + (args.exclusive ? left : sums[thread]));
    before += sums[kThreads - 1];
    __syncthreads();  // sums are written again
  }
}

template <class T>
void sum_up(const CumSumArgs& args, Stream stream) {
  const i64 columns = args.outer * args.inner;
  if (args.inner == 1 && args.n > kShortAxis) {
    launch(stream, sum_row<T>, dim3(unsigned(args.outer)), dim3(kThreads), 0, args);
  } else {
    launch(stream, sum_columns<T>, grid_of(columns), dim3(kThreads), 0, args, Divider(args.inner, columns));
  }
}

// ---- arg_extreme ------------------------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads) find_columns(ArgExtremeArgs args, Divider inner) {
  const i64 column = thread_number();
  if (column >= args.outer * args.inner) return;
  const i64 o = inner(column);
  const T* const x = static_cast<const T*>(args.x) + o * args.n * args.inner + (column - o * args.inner);
  Key best = rank_key(x[0], args.largest, true);
  i64 where = 0;
  for (i64 k = 1; k < args.n; ++k) {
    const Key key = rank_key(x[k * args.inner], args.largest, true);
    if (key > best || (args.last && key == best)) {
      best = key;
      where = k;
    }
  }
  args.y[column] = where;
}

template <class T>
__global__ void __launch_bounds__(kThreads) find_row(ArgExtremeArgs args) {
  const T* const x = static_cast<const T*>(args.x) + i64(blockIdx.x) * args.n;
  Key own = 0;
  for (i64 k = threadIdx.x; k < args.n; k += kThreads) own = max(own, rank_key(x[k], args.largest, true));
  const Key best = block_reduce(own, Max(), Key(0));
  i64 where = args.last ? -1 : args.n;
  for (i64 k = threadIdx.x; k < args.n; k += kThreads) {
    if (rank_key(x[k], args.largest, true) == best) where = args.last ? k : min(where, k);
  }
  where = args.last ? block_reduce(where, Max(), i64(-1)) : block_reduce(where, Min(), i64(args.n));
  if (threadIdx.x == 0) args.y[blockIdx.x] = where;
}

template <class T>
void find(const ArgExtremeArgs& args, Stream stream) {
  const i64 columns = args.outer * args.inner;
  if (args.inner == 1 && args.n > kShortAxis) {
    launch(stream, find_row<T>, dim3(unsigned(args.outer)), dim3(kThreads), 0, args);
  } else {
    launch(stream, find_columns<T>, grid_of(columns), dim3(kThreads), 0, args, Divider(args.inner, columns));
  }
}

// ---- top_k ------------------------------------------------------------------------------------------------------------------------

struct Chosen {
  Key key;
  i64 index;
};

// How many threads before this one say yes, and how many in all. Every thread must call it.
struct Votes {
  int before, all;
};
GRADLOOM_DEVICE Votes vote(bool yes) {
  __shared__ int counts[kThreads / 32];
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  const unsigned long long mask = ballot(yes);
  const auto ones = [](unsigned long long bits) {
    int n = 0;
    for (; bits != 0; bits &= bits - 1) ++n;
    return n;
  };
  if (lane == 0) counts[warp] = ones(mask);
  __syncthreads();
  Votes votes{ones(mask & ((1ull << lane) - 1)), 0};
  for (int w = 0; w < kThreads / kWarp; ++w) {
    votes.before += w < warp ? counts[w] : 0;
    votes.all += counts[w];
  }
  __syncthreads();  // counts are written again
  return votes;
}

template <class T>
__global__ void __launch_bounds__(kThreads) select_column(TopKArgs args) {
  const i64 o = i64(blockIdx.x) / args.inner, i = i64(blockIdx.x) - o * args.inner;
  const T* const x = static_cast<const T*>(args.x) + o * args.n * args.inner + i;
  Chosen* const chosen = static_cast<Chosen*>(args.workspace) + i64(blockIdx.x) * args.k;
  const auto key_of = [&](i64 k) { return rank_key(x[k * args.inner], args.largest, args.largest); };
  const auto count_from = [&](Key least) {
    i64 count = 0;
    for (i64 k = threadIdx.x; k < args.n; k += kThreads) count += key_of(k) >= least ? 1 : 0;
    return block_reduce(count, Sum(), i64(0));
  };
  Key kth = 0;
  for (int bit = kKeyBits<T> - 1; bit >= 0; --bit) {
    const Key with = kth | 1ull << bit;
    if (count_from(with) >= args.k) kth = with;
  }
  const i64 equal_wanted = args.k - (kth == kLargestKey<T> ? 0 : count_from(kth + 1));
  i64 taken = 0, equal_seen = 0;
  for (i64 first = 0; first < args.n && taken < args.k; first += kThreads) {
    const i64 k = first + i64(threadIdx.x);
    const Key key = k < args.n ? key_of(k) : 0;
    const Votes equal = vote(k < args.n && key == kth);
    const bool take = k < args.n && (key > kth || (key == kth && equal_seen + equal.before < equal_wanted));
    const Votes votes = vote(take);
    if (take) chosen[taken + votes.before] = {key, k};
    taken += votes.all;
    equal_seen += equal.all;
  }
  __syncthreads();  // all of them are in the workspace
  for (i64 c = threadIdx.x; c < args.k; c += kThreads) {
    const Chosen own = chosen[c];
    i64 place = 0;
    for (i64 other = 0; other < args.k; ++other)
      place += chosen[other].key > own.key || (chosen[other].key == own.key && other < c) ? 1 : 0;
    const i64 to = (o * args.k + place) * args.inner + i;
    static_cast<T*>(args.values)[to] = x[own.index * args.inner];
    args.indices[to] = own.index;
  }
}

template <class T>
void select(const TopKArgs& args, Stream stream) {
  launch(stream, select_column<T>, dim3(unsigned(args.outer * args.inner)), dim3(kThreads), 0, args);
}

// f<T>(args, stream) for every type of numbers.
#define GRADLOOM_GPU_NUMBERS(type, f, args, stream)            \
  switch (type) {                                              \
    case DType::f64: return f<double>(args, stream);           \
    case DType::f16: return f<f16>(args, stream);              \
    case DType::bf16: return f<bf16>(args, stream);            \
    case DType::i32: return f<std::int32_t>(args, stream);     \
    case DType::i64: return f<std::int64_t>(args, stream);     \
    case DType::u8:                                            \
    case DType::boolean: return f<std::uint8_t>(args, stream); \
    case DType::i8: return f<std::int8_t>(args, stream);       \
    case DType::i16: return f<std::int16_t>(args, stream);     \
    case DType::u16: return f<std::uint16_t>(args, stream);    \
    case DType::u32: return f<std::uint32_t>(args, stream);    \
    case DType::u64: return f<std::uint64_t>(args, stream);    \
    default: return f<float>(args, stream);                    \
  }

}  // namespace

void trilu(const TriluArgs& args, Stream stream) {
  const i64 count = args.matrices * args.rows * args.cols;
  if (count == 0) return;
  switch (args.element_bytes) {
    case 1: return keep_triangles<std::uint8_t>(args, count, stream);
    case 2: return keep_triangles<std::uint16_t>(args, count, stream);
    case 4: return keep_triangles<std::uint32_t>(args, count, stream);
    default: return keep_triangles<std::uint64_t>(args, count, stream);
  }
}

void cum_sum(const CumSumArgs& args, Stream stream) {
  if (args.outer * args.n * args.inner == 0) return;
  switch (args.dtype) {
    case DType::f64: return sum_up<double>(args, stream);
    case DType::f16: return sum_up<f16>(args, stream);
    case DType::bf16: return sum_up<bf16>(args, stream);
    case DType::i32: return sum_up<std::int32_t>(args, stream);
    case DType::i64: return sum_up<std::int64_t>(args, stream);
    default: return sum_up<float>(args, stream);
  }
}

void arg_extreme(const ArgExtremeArgs& args, Stream stream) {
  if (args.outer * args.n * args.inner == 0) return;
  GRADLOOM_GPU_NUMBERS(args.dtype, find, args, stream)
}

void top_k(const TopKArgs& args, Stream stream) {
  if (args.outer * args.k * args.inner == 0) return;
  GRADLOOM_GPU_NUMBERS(args.dtype, select, args, stream)
}

}  // namespace gradloom::kernels::gpu
