// Negative log-likelihood and softmax cross-entropy over classes n of [outer, n, inner], and their gradients
// (ONNX NegativeLogLikelihoodLoss-13, SoftmaxCrossEntropyLoss-13).
//   loss_i = -w[label_i] * log_prob[label_i];  mean: sum(loss) / sum(w[label]);  ignored rows add nothing
//   cross-entropy: log_prob = x - lse, lse = max + log(sum(exp(x - max)));  dx = (exp(x - lse) - onehot) * w * dloss / total
// A label outside [0, n) counts as ignored. Cross-entropy reads the logits once (rows.h; long rows in
// one pass) and writes no probabilities; its gradient reads and writes them once and may do so in place.
// Loss and weight of the rows go through the workspace and are added in double in a fixed order, by one
// block, or by one per kRowsPerSum rows and then one; negative log-likelihood leaves only the sums of
// its blocks there. T: of scores and their gradients; P: of losses, their gradients and weights;
// log-sum-exp and total weight are in Accum<T>. Where the gradient of the loss is known before, one kernel makes loss and gradient.
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/rows.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

// ---- labels, weights, sums --------------------------------------------------------------------------------------------------------

// The label of a row, or -1 when the row adds nothing.
template <class Args>
GRADLOOM_DEVICE i64 label_of(const Args& args, i64 row) {
  const i64 label = args.label_dtype == DType::i64 ? static_cast<const std::int64_t*>(args.labels)[row]
                                                   : static_cast<const std::int32_t*>(args.labels)[row];
  if (args.has_ignore && label == args.ignore_index) return -1;
  return label >= 0 && label < args.n ? label : -1;
}

template <class P, class Args>
GRADLOOM_DEVICE Accum<P> weight_of(const Args& args, i64 label) {
  return args.weight != nullptr ? to_accum(static_cast<const P*>(args.weight)[label]) : Accum<P>(1);
}

// What a row's gradient is multiplied with: its weight and the gradient of its loss.
template <class P, class Args>
GRADLOOM_DEVICE Accum<P> factor_of(const Args& args, i64 row, i64 label) {
  const P* const dloss = static_cast<const P*>(args.dloss);
  const Accum<P> up =
      to_accum(dloss[args.reduction == LossReduction::none ? row : 0]) * weight_of<P>(args, label);
  return args.reduction == LossReduction::mean ? up / *static_cast<const Accum<P>*>(args.total_weight) : up;
}

// From one row of the logits to the next, where inner is 1.
template <class Args>
GRADLOOM_HD i64 pitch_of(const Args& args) {
  return args.pitch > 0 ? args.pitch : args.n;
}

template <class P, class Args>
GRADLOOM_DEVICE void finish_loss(const Args& args, double loss, double weight) {
  using A = Accum<P>;
  if (args.reduction == LossReduction::mean) *static_cast<P*>(args.loss) = from_accum<P>(A(loss / weight));
  if (args.reduction == LossReduction::sum) *static_cast<P*>(args.loss) = from_accum<P>(A(loss));
  if (args.total_weight != nullptr) *static_cast<A*>(args.total_weight) = A(weight);
}

constexpr int kSumThreads = 512;

// ---- negative log-likelihood ------------------------------------------------------------------------------------------------------

// Rows [begin, begin + per_block) of every block; labels and probabilities of
// several of a thread's rows are under way at once. One block writes the loss,
// several leave their sums in the workspace: losses, then weights.
template <class T>
__global__ void __launch_bounds__(kSumThreads) nll_rows(NllLossArgs args, i64 per_block) {
  constexpr int kAtOnce = 8;
  const T* const log_prob = static_cast<const T*>(args.log_prob);
  const i64 begin = i64(blockIdx.x) * per_block, all = args.outer * args.inner;
  const i64 rows = begin + per_block < all ? begin + per_block : all;
  double loss = 0, weight = 0;
  for (i64 first = begin + threadIdx.x; first < rows; first += kAtOnce * kSumThreads) {
    i64 labels[kAtOnce];
    double values[kAtOnce], weights[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const i64 row = first + i * kSumThreads;
      labels[i] = row < rows ? label_of(args, row) : -1;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const i64 row = first + i * kSumThreads;
      const bool counts = labels[i] >= 0;
      weights[i] = counts ? double(weight_of<T>(args, labels[i])) : 0.0;
      values[i] = counts ? -weights[i] *
                               double(to_accum(
                                   log_prob[column_offset(row, args.n, args.inner) + labels[i] * args.inner]))
                         : 0.0;
      if (args.reduction == LossReduction::none && row < rows) {
        static_cast<T*>(args.loss)[row] = from_accum<T>(Accum<T>(values[i]));
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      loss += values[i];
      weight += weights[i];
    }
  }
  loss = block_reduce(loss, Sum(), 0.0);
  weight = block_reduce(weight, Sum(), 0.0);
  if (threadIdx.x > 0) return;
  if (gridDim.x == 1) return finish_loss<T>(args, loss, weight);
  double* const sums = static_cast<double*>(args.workspace);
  sums[blockIdx.x] = loss;
  sums[gridDim.x + blockIdx.x] = weight;
}

// The blocks' sums, in a fixed order.
template <class T>
__global__ void __launch_bounds__(kSumThreads) nll_total(NllLossArgs args, i64 parts) {
  const double* const sums = static_cast<const double*>(args.workspace);
  double loss = 0, weight = 0;
  for (i64 part = threadIdx.x; part < parts; part += kSumThreads) {
    loss += sums[part];
    weight += sums[parts + part];
  }
  loss = block_reduce(loss, Sum(), 0.0);
  weight = block_reduce(weight, Sum(), 0.0);
  if (threadIdx.x == 0) finish_loss<T>(args, loss, weight);
}

// Zeros; `head` elements lie before the first 16-byte boundary.
template <class T>
__global__ void __launch_bounds__(256) fill_zeros(T* out, i64 count, int head) {
  constexpr int V = Pack<T>::kCount;
  const i64 at = i64(blockIdx.x) * 256 + threadIdx.x, threads = i64(gridDim.x) * 256,
            packs = (count - head) / V;
  const T zero = from_accum<T>(Accum<T>(0));
  Pack<T> zeros;
  for (int e = 0; e < V; ++e) zeros.v[e] = zero;
  for (i64 p = at; p < packs; p += threads) store_pack(out + head + p * V, zeros);
  if (at < head) out[at] = zero;
  const i64 tail = head + packs * V + at;
  if (tail < count) out[tail] = zero;
}

template <class T>
__global__ void __launch_bounds__(256) nll_grad_rows(NllLossGradArgs args) {
  const i64 rows = args.outer * args.inner;
  for (i64 row = i64(blockIdx.x) * 256 + threadIdx.x; row < rows; row += i64(gridDim.x) * 256) {
    const i64 label = label_of(args, row);
    if (label < 0) continue;
    static_cast<T*>(args.dlog_prob)[column_offset(row, args.n, args.inner) + label * args.inner] =
        from_accum<T>(-factor_of<T>(args, row, label));
  }
}

// ---- softmax cross-entropy --------------------------------------------------------------------------------------------------------

// By one thread of each row: what is known of it goes to log_sum_exp,
// workspace and loss. x: its first element.
template <class T, class P>
GRADLOOM_DEVICE void finish_row(const SoftmaxCrossEntropyArgs& args, i64 row, const T* x,
                                const LogSumExp<Accum<T>>& sum) {
  using A = Accum<T>;
  const A log_total = log(sum.total);
  if (args.log_sum_exp != nullptr) static_cast<A*>(args.log_sum_exp)[row] = sum.peak + log_total;
  const i64 label = label_of(args, row);
  if (args.targets != nullptr)
    static_cast<A*>(args.targets)[row] = label >= 0 ? to_accum(x[label * args.inner]) : A(0);
  const A weight = label >= 0 ? weight_of<P>(args, label) : A(0);
  const A loss = label >= 0 ? weight * (log_total + (sum.peak - to_accum(x[label * args.inner]))) : A(0);
  double* const losses = static_cast<double*>(args.workspace);
  losses[row] = double(loss);
  losses[args.outer * args.inner + row] = double(weight);
  if (args.reduction == LossReduction::none && args.loss != nullptr)
    static_cast<P*>(args.loss)[row] = from_accum<P>(loss);
}

template <class T, class P, int V, bool held>
__global__ void __launch_bounds__(kRowThreads) cross_entropy_rows(SoftmaxCrossEntropyArgs args, int lanes) {
  using A = Accum<T>;
  const RowGroup group(lanes);
  for (i64 first = group.first(); first < args.outer; first += group.step()) {
    const i64 row = first + group.row, cols = row < args.outer ? args.n : 0;
    const T* const x = static_cast<const T*>(args.logits) + row * pitch_of(args);
    LogSumExp<A> sum;
    if constexpr (held) {
      A v[kRowValues];
      sum = held_log_sum_exp<V>(group, x, cols, v);
    } else {
      sum = streamed_log_sum_exp<V>(group, x, cols);
    }
    if (group.lane == 0 && row < args.outer) finish_row<T, P>(args, row, x, sum);
  }
}

template <class T, class P>
__global__ void __launch_bounds__(kColumnThreads)
    cross_entropy_columns(SoftmaxCrossEntropyArgs args, int slices) {
  const ColumnGroup group(slices);
  const i64 columns = args.outer * args.inner;
  for (i64 first = group.first(); first < columns; first += group.step()) {
    const i64 column = first + group.column;
    const bool exists = column < columns;
    const T* const x =
        static_cast<const T*>(args.logits) + (exists ? column_offset(column, args.n, args.inner) : 0);
    const auto sum = column_log_sum_exp(group, x, exists, args.n, args.inner);
    if (group.slice == 0 && exists) finish_row<T, P>(args, column, x, sum);
  }
}

// Sums of `per_block` losses and weights that are `apart` from each other; each block leaves its own where
// its first ones were, the last launch (finish) where the loss goes.
template <class P>
__global__ void __launch_bounds__(kSumThreads)
    add_rows(SoftmaxCrossEntropyArgs args, i64 per_block, i64 apart, bool finish) {
  double* const losses = static_cast<double*>(args.workspace);
  const i64 rows = args.outer * args.inner, begin = i64(blockIdx.x) * per_block * apart;
  const i64 all = begin + per_block * apart, end = all < rows ? all : rows;
  double loss = 0, weight = 0;
#pragma unroll 4
  for (i64 row = begin + threadIdx.x * apart; row < end; row += kSumThreads * apart) {
    loss += losses[row];
    weight += losses[rows + row];
  }
  loss = block_reduce(loss, Sum(), 0.0);
  weight = block_reduce(weight, Sum(), 0.0);
  if (threadIdx.x > 0) return;
  if (finish) {
    finish_loss<P>(args, loss, weight);
  } else {
    losses[begin] = loss;
    losses[rows + begin] = weight;
  }
}

// What the gradient of a row is made of: dx = (exp(x - shift) - onehot) * factor, or of a part of the classes exp(x - shift) * factor + onehot * hot.
template <class A>
struct RowSlope {
  i64 label;  // -1: none
  A factor, shift, hot;
  bool part;
  template <class P>
  GRADLOOM_DEVICE static RowSlope of(const SoftmaxCrossEntropyArgs& args, i64 row, A log_sum_exp, P) {
    RowSlope s{label_of(args, row), A(0), log_sum_exp, A(0), false};
    if (s.label >= 0) s.factor = to_accum(*static_cast<const P*>(args.dloss)) * weight_of<P>(args, s.label);
    return s;
  }
  template <class P>
  GRADLOOM_DEVICE static RowSlope of(const SoftmaxCrossEntropyGradArgs& args, i64 row, P) {
    RowSlope s{label_of(args, row), A(0), static_cast<const A*>(args.log_sum_exp)[row], A(0),
               args.dtargets != nullptr};
    if (s.part) {
      s.factor = to_accum(static_cast<const P*>(args.dloss)[row]);
      s.hot = to_accum(static_cast<const P*>(args.dtargets)[row]);
    } else if (s.label >= 0) {
      s.factor = factor_of<P>(args, row, s.label);
    }
    return s;
  }
  GRADLOOM_DEVICE A at(A x, bool is_label) const {
    if (part) return exp(x - shift) * factor + (is_label ? hot : A(0));
    return label < 0 ? A(0) : (exp(x - shift) - A(is_label ? 1 : 0)) * factor;
  }
};

// Four packs of a row per thread; `lanes` threads per row, `chunks` times as many for rows that are longer.
template <class T, class P, int V>
__global__ void __launch_bounds__(256)
    cross_entropy_grad_rows(SoftmaxCrossEntropyGradArgs args, int lanes, i64 chunks) {
  using A = Accum<T>;
  constexpr int kPacks = 4;
  const i64 unit = (i64(blockIdx.x) * 256 + threadIdx.x) / lanes, row = unit / chunks, chunk = unit % chunks;
  if (row >= args.outer) return;
  const i64 begin = chunk * kPacks * lanes * V + i64(threadIdx.x) % lanes * V;
  const auto of_row = RowSlope<A>::of(args, row, P());
  const T* const x = static_cast<const T*>(args.logits) + row * pitch_of(args);
  T* const dx = static_cast<T*>(args.dlogits) + row * pitch_of(args);
  const auto slope = [&](A value, i64 c) { return of_row.at(value, c == of_row.label); };
  A v[kPacks * V];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const i64 c = begin + i64(p) * lanes * V;
    if (c + V <= args.n) load_values<V>(x + c, v + p * V);
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const i64 c = begin + i64(p) * lanes * V;
    if (c + V > args.n) {  // the row's end, shorter than a pack
      for (i64 last = c; last < args.n; ++last) dx[last] = from_accum<T>(slope(to_accum(x[last]), last));
      break;
    }
#pragma unroll
    for (int e = 0; e < V; ++e) v[p * V + e] = slope(v[p * V + e], c + e);
    store_values<V>(dx + c, v + p * V);
  }
}

// Loss and gradient of a row by one block: its threads hold the row as it is stored, so that it is read once; longer rows are read again
// from the cache. In place, so the logit at the label is read before anything is written.
template <class T, class P, int V, bool held>
__global__ void __launch_bounds__(kWholeRowThreads) cross_entropy_whole_rows(SoftmaxCrossEntropyArgs args) {
  using A = Accum<T>;
  const RowGroup group{int(blockDim.x)};
  const i64 step = i64(blockDim.x) * V, begin = i64(threadIdx.x) * V, n = args.n;
  for (i64 row = blockIdx.x; row < args.outer; row += gridDim.x) {
    const T* const x = static_cast<const T*>(args.logits) + row * pitch_of(args);
    T* const dx = static_cast<T*>(args.dlogits) + row * pitch_of(args);
    Pack<T> packs[held ? kWholeRowPacks : 1];
    LogSumExp<A> part;
    if constexpr (held) {
#pragma unroll
      for (int p = 0; p < kWholeRowPacks; ++p)
        if (begin + p * step < n) packs[p] = load_pack(x + begin + p * step);
#pragma unroll
      for (int p = 0; p < kWholeRowPacks; ++p) {
        A v[V];
#pragma unroll
        for (int e = 0; e < V; ++e)
          v[e] = begin + p * step + e < n ? to_accum(packs[p].v[e]) : -infinity<A>();
        if (begin + p * step < n) part.template add<V>(v);
      }
      part = join(group, part);
    } else {
      part = streamed_log_sum_exp<V>(group, x, n);
    }
    if (threadIdx.x == 0) finish_row<T, P>(args, row, x, part);
    __syncthreads();
    const auto of_row = RowSlope<A>::of(args, row, part.peak + log(part.total), P());
    const auto put = [&](const T* values, i64 c) {
      A v[V];
#pragma unroll
      for (int e = 0; e < V; ++e) v[e] = of_row.at(to_accum(values[e]), c + e == of_row.label);
      if (c + V <= n) return store_values<V>(dx + c, v);
      for (int e = 0; c + e < n; ++e) dx[c + e] = from_accum<T>(v[e]);
    };
    if constexpr (held) {
#pragma unroll
      for (int p = 0; p < kWholeRowPacks; ++p)
        if (begin + p * step < n) put(packs[p].v, begin + p * step);
    } else {
      for (i64 c = begin; c < n; c += step) {
        T values[V];
        for (int e = 0; e < V; ++e) values[e] = c + e < n ? x[c + e] : T{};
        put(values, c);
      }
    }
  }
}

template <class T, class P>
__global__ void __launch_bounds__(kColumnThreads)
    cross_entropy_grad_columns(SoftmaxCrossEntropyGradArgs args, int slices) {
  using A = Accum<T>;
  const ColumnGroup group(slices);
  const i64 columns = args.outer * args.inner;
  for (i64 column = group.first() + group.column; column < columns; column += group.step()) {
    const i64 at = column_offset(column, args.n, args.inner);
    const T* const x = static_cast<const T*>(args.logits) + at;
    T* const dx = static_cast<T*>(args.dlogits) + at;
    const auto of_column = RowSlope<A>::of(args, column, P());
    group.each(true, args.n, args.inner, [&](i64 k) {
      const bool is_label = of_column.label >= 0 && k == of_column.label * args.inner;
      dx[k] = from_accum<T>(of_column.at(to_accum(x[k]), is_label));
    });
  }
}

// ---- launchers --------------------------------------------------------------------------------------------------------------------

unsigned blocks_of(i64 threads) {
  const i64 blocks = ceil_div(threads, 256);
  return unsigned(blocks < kMostBlocks ? blocks : kMostBlocks);
}

template <class T>
void nll_loss_typed(const NllLossArgs& args, Stream stream) {
  const i64 rows = args.outer * args.inner, parts = loss_parts(rows);
  launch(stream, nll_rows<T>, unsigned(parts), kSumThreads, 0, args, parts == 1 ? rows : i64(kRowsPerSum));
  if (parts > 1) launch(stream, nll_total<T>, 1, kSumThreads, 0, args, parts);
}

template <class T>
void nll_loss_grad_typed(const NllLossGradArgs& args, Stream stream) {
  const i64 count = args.outer * args.n * args.inner;
  if (count == 0) return;
  T* const out = static_cast<T*>(args.dlog_prob);
  const i64 before = i64(-reinterpret_cast<unsigned long long>(out) % 16 / sizeof(T)),
            head = before < count ? before : count;
  launch(stream, fill_zeros<T>, blocks_of(ceil_div(count, Pack<T>::kCount) + Pack<T>::kCount), 256, 0, out,
         count, int(head));
  launch(stream, nll_grad_rows<T>, blocks_of(args.outer * args.inner), 256, 0, args);
}

template <class T, class P>
void launch_whole_rows(const SoftmaxCrossEntropyArgs& args, Stream stream) {
  constexpr int V = Pack<T>::kCount;
  const bool packs = packable<T>(pitch_of(args), args.logits, args.dlogits);
  const bool held = packs && args.n * i64(sizeof(T)) <= kWholeRowBytes;
  int threads = 64;
  while (threads < kWholeRowThreads && threads * V < args.n) threads *= 2;
  launch(stream,
         held    ? cross_entropy_whole_rows<T, P, V, true>
         : packs ? cross_entropy_whole_rows<T, P, V, false>
                 : cross_entropy_whole_rows<T, P, 1, false>,
         unsigned(args.outer < kMostBlocks ? args.outer : kMostBlocks), threads, 0, args);
}

template <class T, class P>
void cross_entropy_typed(const SoftmaxCrossEntropyArgs& args, Stream stream) {
  const i64 rows = args.outer * args.inner;
  if (rows > 0 && args.dlogits != nullptr) {
    launch_whole_rows<T, P>(args, stream);
  } else if (rows > 0 && args.inner == 1) {
    constexpr int V = Pack<T>::kCount;
    const RowPlan plan = plan_rows(args.outer, args.n);
    const bool packs = packable<T>(pitch_of(args), args.logits) && (!plan.held || args.n % V == 0);
    const auto kernel =
        plan.held ? (packs ? cross_entropy_rows<T, P, V, true> : cross_entropy_rows<T, P, 1, true>)
                  : (packs ? cross_entropy_rows<T, P, V, false> : cross_entropy_rows<T, P, 1, false>);
    launch(stream, kernel, plan.blocks, plan.threads, 0, args, plan.lanes);
  } else if (rows > 0) {
    const ColumnPlan plan = plan_columns(args.outer, args.n, args.inner);
    launch(stream, cross_entropy_columns<T, P>, plan.blocks, kColumnThreads, 0, args, plan.slices);
  }
  if (!adds_losses(args)) return;
  const i64 parts = loss_parts(rows), per_part = kRowsPerSum;
  if (parts == 1) {
    launch(stream, add_rows<P>, 1, kSumThreads, 0, args, rows, 1, true);
  } else {
    launch(stream, add_rows<P>, unsigned(parts), kSumThreads, 0, args, per_part, 1, false);
    launch(stream, add_rows<P>, 1, kSumThreads, 0, args, parts, per_part, true);
  }
}

template <class T, class P>
void cross_entropy_grad_typed(const SoftmaxCrossEntropyGradArgs& args, Stream stream) {
  if (args.outer * args.n * args.inner == 0) return;
  if (args.inner > 1) {
    const ColumnPlan plan = plan_columns(args.outer, args.n, args.inner);
    return launch(stream, cross_entropy_grad_columns<T, P>, plan.blocks, kColumnThreads, 0, args,
                  plan.slices);
  }
  const bool packs = packable<T>(pitch_of(args), args.logits, args.dlogits);
  const i64 per_thread = 4 * (packs ? Pack<T>::kCount : 1);
  int lanes = 1;
  while (lanes < 256 && lanes * per_thread < args.n) lanes *= 2;
  const i64 chunks = ceil_div(args.n, lanes * per_thread),
            blocks = ceil_div(args.outer * chunks, 256 / lanes);
  launch(stream, packs ? cross_entropy_grad_rows<T, P, Pack<T>::kCount> : cross_entropy_grad_rows<T, P, 1>,
         unsigned(blocks), 256, 0, args, lanes, chunks);
}

}  // namespace

void nll_loss(const NllLossArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, nll_loss_typed, args, stream);
}
void nll_loss_grad(const NllLossGradArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, nll_loss_grad_typed, args, stream);
}
void softmax_cross_entropy(const SoftmaxCrossEntropyArgs& args, Stream stream) {
  GRADLOOM_GPU_MIXED(args.dtype, args.losses, cross_entropy_typed, args, stream);
}
void softmax_cross_entropy_grad(const SoftmaxCrossEntropyGradArgs& args, Stream stream) {
  GRADLOOM_GPU_MIXED(args.dtype, args.losses, cross_entropy_grad_typed, args, stream);
}

}  // namespace gradloom::kernels::gpu
