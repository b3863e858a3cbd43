// Reductions of [outer, n, inner] over n, every op of Reduction. Float and half types add in float, double in
// double, integers in 64 bits.
//   log_sum_exp: pairs (m, s), s = sum(exp(x - m)) so far, m the maximum so far;
//   (m1, s1) + (m2, s2) = (m, s1 exp(m1 - m) + s2 exp(m2 - m)), m = max(m1, m2)     (Milakov and Gimelshein 2018)
// Three ways, chosen by the shape (reduce_cut in workspace.h):
//   serial   short n: one thread per result
//   rows     inner = 1: 32 to 256 threads per row, neighbours read neighbours
//   columns  inner > 1 (bias gradients): threads side by side along inner, groups of them take every so-manieth of n
// Rows and columns end in a tree over shared memory. When there are too few results to fill a device, n is
// cut into parts whose results go to the workspace [outer, parts, inner] and are joined in order of the parts
// by a second kernel. No order depends on the warp size or on alignment.
#include "kernels/gpu/divider.h"
#include "kernels/gpu/group.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;  // loads of a thread on their way at a time

// ---- operations: State of a part, map of one element, join of two parts, the value at the end -------------------------------------

template <class T>
struct WideOf {
  using type = Accum<T>;
  static constexpr bool kFloating = true;
};
template <>
struct WideOf<std::int32_t> {
  using type = long long;
  static constexpr bool kFloating = false;
};
template <>
struct WideOf<std::int64_t> {
  using type = long long;
  static constexpr bool kFloating = false;
};
template <class T>
using Wide = typename WideOf<T>::type;
template <class T>
constexpr bool kFloating = WideOf<T>::kFloating;

template <class W>
struct Plain {
  using State = W;
  static GRADLOOM_DEVICE W map(W x) { return x; }
  static GRADLOOM_DEVICE W value(W s) { return s; }
};
template <class W>
constexpr bool kHasInfinity = W(0.5) != W(0);
using U64 = unsigned long long;
// Sums and products, where integers wrap around.
template <class W>
GRADLOOM_DEVICE W plus(W a, W b) {
  if constexpr (kHasInfinity<W>) {
    return a + b;
  } else {
    return W(U64(a) + U64(b));
  }
}
template <class W>
GRADLOOM_DEVICE W times(W a, W b) {
  if constexpr (kHasInfinity<W>) {
    return a * b;
  } else {
    return W(U64(a) * U64(b));
  }
}
template <class W>
struct SumOf : Plain<W> {
  static GRADLOOM_DEVICE W start() { return W(0); }
  static GRADLOOM_DEVICE W join(W a, W b) { return plus(a, b); }
};
template <class W>
struct AbsSumOf : SumOf<W> {
  static GRADLOOM_DEVICE W map(W x) { return x < W(0) ? times(W(-1), x) : x; }
};
template <class W>
struct SquareSumOf : SumOf<W> {
  static GRADLOOM_DEVICE W map(W x) { return times(x, x); }
};
template <class W>
struct ProductOf : Plain<W> {
  static GRADLOOM_DEVICE W start() { return W(1); }
  static GRADLOOM_DEVICE W join(W a, W b) { return times(a, b); }
};
template <class W>
GRADLOOM_DEVICE W lowest() {
  if constexpr (kHasInfinity<W>) {
    return W(-__builtin_inf());
  } else {
    return W(1ull << 63);
  }
}
template <class W>
struct MaxOf : Plain<W> {
  static GRADLOOM_DEVICE W start() { return lowest<W>(); }
  static GRADLOOM_DEVICE W join(W a, W b) { return Max()(a, b); }
};
template <class W>
struct MinOf : Plain<W> {
  static GRADLOOM_DEVICE W start() {
    if constexpr (kHasInfinity<W>) {
      return W(__builtin_inf());
    } else {
      return W(~(1ull << 63));
    }
  }
  static GRADLOOM_DEVICE W join(W a, W b) { return Min()(a, b); }
};

// A peak that is infinite or NaN is the result; its sum is not used.
template <class W>
struct PeakAndSum {
  W peak, sum;
};
template <class W>
struct LogSumExpOf {
  using State = PeakAndSum<W>;
  static GRADLOOM_DEVICE bool finite(W m) { return m < W(__builtin_inf()) && m > W(-__builtin_inf()); }
  static GRADLOOM_DEVICE State start() { return {W(-__builtin_inf()), W(0)}; }
  static GRADLOOM_DEVICE State map(W x) { return {x, W(1)}; }
  static GRADLOOM_DEVICE State join(const State& a, const State& b) {
    const W peak = Max()(a.peak, b.peak);
    if (!finite(peak)) return {peak, W(0)};
    return {peak, a.sum * exp(a.peak - peak) + b.sum * exp(b.peak - peak)};
  }
  static GRADLOOM_DEVICE W value(const State& s) { return finite(s.peak) ? s.peak + log(s.sum) : s.peak; }
};

template <class T, class W>
GRADLOOM_DEVICE T finished(Reduction op, W value, long long n) {
  if constexpr (!kFloating<T>) {
    if (op == Reduction::mean) return T(n > 0 ? value / W(n) : W(0));
    if (op == Reduction::l2) return T(sqrt(double(value)));
    return T(value);
  } else {
    if (op == Reduction::mean) value = value / W(n);
    if (op == Reduction::l2) value = sqrt(value);
    return from_accum<T>(value);
  }
}

// ---- kernels --------------------------------------------------------------------------------------------------------------------

// What all kernels of one reduction get. partial: where results of parts go, null when there is one part.
template <class T, class Op>
struct Problem {
  Reduction op;
  long long outer, n, inner, parts, length;  // length: of a part
  const T* in;
  T* out;
  typename Op::State* partial;
};

template <class T, class Op>
GRADLOOM_DEVICE void put(const Problem<T, Op>& p, long long o, long long part, long long column,
                         const typename Op::State& s) {
  if (p.partial != nullptr) {
    p.partial[(o * p.parts + part) * p.inner + column] = s;
  } else {
    p.out[o * p.inner + column] = finished<T>(p.op, Op::value(s), p.n);
  }
}

template <class T, class Op>
__global__ void serial_kernel(Problem<T, Op> p, Divider by_inner) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.outer * p.inner) return;
  const long long o = by_inner(i), column = i - o * p.inner;
  typename Op::State s = Op::start();
  for (long long k = 0; k < p.n; ++k)
    s = Op::join(s, Op::map(Wide<T>(to_accum(p.in[(o * p.n + k) * p.inner + column]))));
  put(p, o, 0, column, s);
}

// s of thread (group, lane), thread number group * lanes + lane,
// joined over the groups: group 0 gets the result.
template <class Op, int kCount>
GRADLOOM_DEVICE void join_groups(typename Op::State (&s)[kCount], int lanes) {
  __shared__ typename Op::State shared[kCount][kThreads];
  const int thread = int(threadIdx.x);
  for (int active = kThreads / 2; active >= lanes; active /= 2) {
    if (thread >= active && thread < 2 * active) {
      for (int j = 0; j < kCount; ++j) shared[j][thread] = s[j];
    }
    __syncthreads();
    if (thread < active) {
      for (int j = 0; j < kCount; ++j) s[j] = Op::join(s[j], shared[j][thread + active]);
    }
  }
}

// One block: 256 / width rows of one part; the threads of a row are `rows` apart in number, so that
// join_groups joins them.
template <class T, class Op>
__global__ void rows_kernel(Problem<T, Op> p, int width, Divider by_parts, bool packed) {
  constexpr int kCount = Pack<T>::kCount;
  using State = typename Op::State;
  const int rows = kThreads / width, row = int(threadIdx.x) / width, position = int(threadIdx.x) % width;
  const long long block = by_parts(blockIdx.x), part = blockIdx.x - block * p.parts, o = block * rows + row;
  State s[kCount];
  for (int j = 0; j < kCount; ++j) s[j] = Op::start();
  if (o < p.outer) {
    const long long end = min((part + 1) * p.length, p.n);
    const int step = width * kCount;
    for (long long i = part * p.length + position * kCount; i < end; i += kAhead * step) {
      Pack<T> packs[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (i + a * step < end) packs[a] = fetch(p.in + o * p.n + i + a * step, end - i - a * step, packed);
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        for (int j = 0; j < kCount; ++j) {
          if (i + a * step + j < end) s[j] = Op::join(s[j], Op::map(Wide<T>(to_accum(packs[a].v[j]))));
        }
      }
    }
  }
  State all[1] = {s[0]};
  for (int j = 1; j < kCount; ++j) all[0] = Op::join(all[0], s[j]);
  // Turned around: thread (position, row) of the tree.
  __shared__ State turned[kThreads];
  turned[position * rows + row] = all[0];
  __syncthreads();
  all[0] = turned[threadIdx.x];
  join_groups<Op>(all, rows);
  const long long result = block * rows + threadIdx.x;
  if (int(threadIdx.x) < rows && result < p.outer) put(p, result, part, 0, all[0]);
}

// One block: lanes * kCount columns of one part.
template <class T, class Op>
__global__ void columns_kernel(Problem<T, Op> p, int lanes, Divider by_tiles, Divider by_parts, bool packed) {
  constexpr int kCount = Pack<T>::kCount;
  const int lane = int(threadIdx.x) % lanes, group = int(threadIdx.x) / lanes, groups = kThreads / lanes;
  const long long strip = by_tiles(blockIdx.x), o = by_parts(strip), part = strip - o * p.parts;
  const long long column = ((blockIdx.x - strip * by_tiles.divisor) * lanes + lane) * kCount;
  typename Op::State s[kCount];
  for (int j = 0; j < kCount; ++j) s[j] = Op::start();
  if (column < p.inner) {
    const long long end = min((part + 1) * p.length, p.n);
    for (long long k = part * p.length + group; k < end; k += kAhead * groups) {
      Pack<T> packs[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (k + a * groups < end)
          packs[a] = fetch(p.in + (o * p.n + k + a * groups) * p.inner + column, p.inner - column, packed);
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (k + a * groups >= end) break;
        for (int j = 0; j < kCount; ++j) s[j] = Op::join(s[j], Op::map(Wide<T>(to_accum(packs[a].v[j]))));
      }
    }
  }
  join_groups<Op>(s, lanes);
  for (int j = 0; j < kCount; ++j) {
    if (group == 0 && column + j < p.inner) put(p, o, part, column + j, s[j]);
  }
}

// Joins the parts: 32 results in each block, 8 threads for each.
template <class T, class Op>
__global__ void join_kernel(Problem<T, Op> p, Divider by_inner) {
  constexpr int kLanes = 32;
  const int lane = int(threadIdx.x) % kLanes, group = int(threadIdx.x) / kLanes;
  const long long i = static_cast<long long>(blockIdx.x) * kLanes + lane, o = by_inner(i),
                  column = i - o * p.inner;
  typename Op::State s[1] = {Op::start()};
  if (o < p.outer) {
    for (long long part = group; part < p.parts; part += kThreads / kLanes) {
      s[0] = Op::join(s[0], p.partial[(o * p.parts + part) * p.inner + column]);
    }
  }
  join_groups<Op>(s, kLanes);
  if (group == 0 && o < p.outer) p.out[i] = finished<T>(p.op, Op::value(s[0]), p.n);
}

// ---- launchers ------------------------------------------------------------------------------------------------------------------

// The smallest power of two that is at least n, within [least, most].
int power_of_two(long long n, int least, int most) {
  int p = least;
  while (p < n && p < most) p *= 2;
  return p;
}

template <class T, class Op>
void reduce_with(const ReduceArgs& args, Stream stream) {
  constexpr int kCount = Pack<T>::kCount;
  const ReduceCut cut = reduce_cut(args);
  const auto* const in = static_cast<const T*>(args.in);
  const bool split = cut.parts > 1;
  const Problem<T, Op> p{args.op,
                         args.outer,
                         args.n,
                         args.inner,
                         cut.parts,
                         cut.length,
                         in,
                         static_cast<T*>(args.out),
                         split ? static_cast<typename Op::State*>(args.workspace) : nullptr};
  const long long results = p.outer * p.inner;
  const dim3 block(kThreads);
  if (cut.way == ReduceWay::serial) {
    return launch(stream, serial_kernel<T, Op>, dim3(unsigned(ceil_div(results, kThreads))), block, 0, p,
                  Divider(p.inner, results));
  }
  if (cut.way == ReduceWay::rows) {
    const int width = power_of_two(ceil_div(p.length, 4 * kCount), 32, kThreads);
    const long long blocks = ceil_div(p.outer, kThreads / width) * p.parts;
    const bool packed = aligned16(in) && p.n % kCount == 0 && p.length % kCount == 0;
    launch(stream, rows_kernel<T, Op>, dim3(unsigned(blocks)), block, 0, p, width, Divider(p.parts, blocks),
           packed);
  } else {
    const int lanes = power_of_two(ceil_div(p.inner, kCount), 1, 32);
    const long long tiles = ceil_div(p.inner, lanes * kCount), blocks = p.outer * p.parts * tiles;
    const bool packed = aligned16(in) && p.inner % kCount == 0;
    launch(stream, columns_kernel<T, Op>, dim3(unsigned(blocks)), block, 0, p, lanes, Divider(tiles, blocks),
           Divider(p.parts, blocks), packed);
  }
  if (!split) return;
  launch(stream, join_kernel<T, Op>, dim3(unsigned(ceil_div(results, 32))), block, 0, p,
         Divider(p.inner, results + 32));
}

template <class T>
void reduce_typed(const ReduceArgs& args, Stream stream) {
  using W = Wide<T>;
  switch (args.op) {
    case Reduction::sum:
    case Reduction::mean: return reduce_with<T, SumOf<W>>(args, stream);
    case Reduction::max: return reduce_with<T, MaxOf<W>>(args, stream);
    case Reduction::min: return reduce_with<T, MinOf<W>>(args, stream);
    case Reduction::prod: return reduce_with<T, ProductOf<W>>(args, stream);
    case Reduction::l1: return reduce_with<T, AbsSumOf<W>>(args, stream);
    case Reduction::l2:
    case Reduction::sum_square: return reduce_with<T, SquareSumOf<W>>(args, stream);
    case Reduction::log_sum_exp:
      if constexpr (kFloating<T>) {
        return reduce_with<T, LogSumExpOf<W>>(args, stream);
      } else {
        return reduce_with<T, LogSumExpOf<double>>(args, stream);
      }
  }
}

}  // namespace

void reduce(const ReduceArgs& args, Stream stream) {
  if (args.outer * args.inner == 0) return;
  switch (args.dtype) {
    case DType::i32: return reduce_typed<std::int32_t>(args, stream);
    case DType::i64: return reduce_typed<std::int64_t>(args, stream);
    default: GRADLOOM_GPU_FLOATS(args.dtype, reduce_typed, args, stream);
  }
}

}  // namespace gradloom::kernels::gpu
