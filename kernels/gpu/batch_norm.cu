// Batch normalization of [n, c, spatial] per channel (Ioffe, Szegedy 2015; ONNX-15) and its gradient.
//   xhat = (x - mean) * inv_std;  y = xhat * scale + bias;  N = n * spatial
//   training: dx = scale * inv_std * (dy - sum(dy) / N - xhat * sum(dy * xhat) / N);  inference: dx = dy * scale * inv_std
// Three kernels: sums of the slots of every channel (batch_norm_cut in workspace.h), one pair of doubles
// each; the sums of a channel, its statistics and what the last kernel needs of them; the elementwise
// formula. Long planes: a block per slice of a channel, 16-byte accesses. Short planes ([n, c] above all):
// neighbouring threads take neighbouring columns of an image. Variance: a thread takes the mean and the
// squared differences of 16 elements at a time, and joins them with its own as Chan, Golub, LeVeque 1979 do;
// all numbers are relative to the slot's first element, so that a large mean costs no digits. y may be x, dx
// may be dy. The result may be added to and bounded on its way out, and the gradient stopped where a bound held, to the bit as kernels
// of their own would do it: both directions compute (x - mean) * (inv_std * scale) + bias by the same multiply-add from the same rounded
// numbers. T: of x, y and their gradients; P: of scale, bias, their gradients and the running statistics;
// the statistics of the batch are in Accum<T>. Without y: no more than mean and variance of the batch, as saved_mean and
// saved_inv_std; scale, bias and running ones are not read. Without dx: the sums alone, and scale is not read.
#include "kernels/gpu/batch_norm.h"

#include "kernels/gpu/kernels.h"
#include "kernels/gpu/rows.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = 256, kValues = 16;  // elements at a time

// ---- where elements are -----------------------------------------------------------------------------------------------------------

// [n, c, spatial], how its channels are cut, and the workspace.
struct Layout {
  i64 n, c, spatial;
  BatchNormCut cut;
  double* workspace;

  // Elements in slice `slice` of a channel, or its images.
  GRADLOOM_DEVICE i64 length(i64 slice) const {
    const i64 left = (cut.long_planes ? n * spatial : n) - slice * cut.length;
    return left < cut.length ? left : cut.length;
  }
  // Elements in a slot.
  GRADLOOM_DEVICE i64 count(i64 slot) const { return length(cut.long_planes ? slot : slot / spatial); }
  // The pair of a channel, and that of a slot.
  GRADLOOM_DEVICE double* totals(i64 channel) const { return workspace + 2 * channel; }
  GRADLOOM_DEVICE double* slot(i64 channel, i64 at) const {
    return workspace + 2 * (c + channel * cut.slots + at);
  }
};

// The elements of this thread, V neighbours at a time; next() gives their offset in the tensor. Long planes:
// the block's slot.
template <int V_>
struct PlaneWalk {
  static constexpr int V = V_;
  static constexpr bool kBlockPerSlot = true;
  i64 channel, slot, origin;  // origin: offset of the slot's first element

  GRADLOOM_DEVICE explicit PlaneWalk(const Layout& l)
      : channel(blockIdx.x / l.cut.slices), slot(blockIdx.x % l.cut.slices) {
    const i64 begin = slot * l.cut.length, step = i64(kThreads) * V;
    origin = offset(l, begin / l.spatial, begin % l.spatial);
    at_ = begin + i64(threadIdx.x) * V;
    end_ = begin + l.length(slot);
    image_ = at_ / l.spatial;
    position_ = at_ % l.spatial;
    step_images_ = step / l.spatial;
    step_positions_ = step % l.spatial;
  }
  GRADLOOM_DEVICE bool more() const { return at_ < end_; }
  GRADLOOM_DEVICE i64 next(const Layout& l) {
    const i64 here = offset(l, image_, position_);
    at_ += i64(kThreads) * V;
    image_ += step_images_;
    position_ += step_positions_;
    if (position_ >= l.spatial) {
      position_ -= l.spatial;
      ++image_;
    }
    return here;
  }

 private:
  GRADLOOM_DEVICE i64 offset(const Layout& l, i64 image, i64 position) const {
    return (image * l.c + channel) * l.spatial + position;
  }
  i64 at_, end_, image_, position_, step_images_, step_positions_;
};

// Short planes: the thread's slot, one element of every image of its slice.
// Threads behind the last slot have none.
struct ColumnWalk {
  static constexpr int V = 1;
  static constexpr bool kBlockPerSlot = false;
  i64 channel, slot, origin;

  GRADLOOM_DEVICE explicit ColumnWalk(const Layout& l) {
    const i64 columns = l.c * l.spatial, index = i64(blockIdx.x) * kThreads + threadIdx.x;
    const i64 slice = index / columns, column = index % columns;
    channel = column / l.spatial;
    slot = slice * l.spatial + column % l.spatial;
    left_ = slice < l.cut.slices ? l.length(slice) : 0;
    origin = at_ = slice * l.cut.length * columns + column;
  }
  GRADLOOM_DEVICE bool more() const { return left_ > 0; }
  GRADLOOM_DEVICE i64 next(const Layout& l) {
    const i64 here = at_;
    at_ += l.c * l.spatial;
    --left_;
    return here;
  }

 private:
  i64 at_, left_;
};

// f(i, offset) for the next kValues elements of a walk in packs, as many as there are; returns how many. i:
// of the pack's first.
template <class Walk, class F>
GRADLOOM_DEVICE int next_values(Walk& walk, const Layout& l, const F& f) {
  int count = 0;
#pragma unroll
  for (int i = 0; i < kValues; i += Walk::V) {
    if (!walk.more()) break;
    f(i, walk.next(l));
    count = i + Walk::V;
  }
  return count;
}

// ---- a channel's formula ----------------------------------------------------------------------------------------------------------

#if defined(__CUDACC__) || defined(__HIPCC__)
GRADLOOM_DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
GRADLOOM_DEVICE double multiply_add(double a, double b, double c) { return fma(a, b, c); }
#else
GRADLOOM_DEVICE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GRADLOOM_DEVICE double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }
#endif

// xhat * scale + bias, as forward and backward have it.
template <class A>
struct Affine {
  A center, factor, shift;
  GRADLOOM_DEVICE A operator()(A x) const { return multiply_add(x - center, factor, shift); }
};

// A number as it comes back out of memory.
template <class T>
GRADLOOM_DEVICE Accum<T> as_stored(Accum<T> v) {
  return to_accum(from_accum<T>(v));
}

// The activation; a NaN stays one.
template <class A>
struct Bounds {
  A low, high;
  GRADLOOM_DEVICE explicit Bounds(const BatchNormArgs& args)
      : low(args.activation == NormActivation::clip   ? A(args.low)
            : args.activation == NormActivation::relu ? A(0)
                                                      : -infinity<A>()),
        high(args.activation == NormActivation::clip ? A(args.high) : infinity<A>()) {}
  GRADLOOM_DEVICE A operator()(A v) const { return min(max(v, low), high); }
};

// The gradient where the activation of what Affine gave lets it pass.
template <class T, class P>
struct Gate {
  using A = Accum<T>;
  Affine<A> affine{};
  A low, high;
  NormActivation activation;
  GRADLOOM_DEVICE Gate(const BatchNormGradArgs& args, i64 channel)
      : low(A(args.low)), high(A(args.high)), activation(args.activation) {
    if (activation == NormActivation::none) return;
    const A inv_std = static_cast<const A*>(args.saved_inv_std)[channel];
    affine = {static_cast<const A*>(args.saved_mean)[channel],
              to_accum(static_cast<const P*>(args.scale)[channel]) * inv_std,
              to_accum(static_cast<const P*>(args.bias)[channel])};
  }
  GRADLOOM_DEVICE A operator()(A dy, A x) const {
    if (activation == NormActivation::none) return dy;
    const A y = as_stored<T>(affine(x));
    const bool passes = activation == NormActivation::relu ? y > A(0) : !((y <= low) | (y >= high));
    return passes ? dy : A(0);
  }
};

// ---- sums of slots ----------------------------------------------------------------------------------------------------------------

// Number of elements, their mean and the sum of their squared differences from it.
template <class A>
struct Moments {
  A count = 0, mean = 0, squares = 0;

  // Joins the first n of kValues numbers.
  GRADLOOM_DEVICE void add(const A* x, int n) {
    A sum = 0, other = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum += i < n ? x[i] : A(0);
    const A center = sum / A(n);
#pragma unroll
    for (int i = 0; i < kValues; ++i) other += i < n ? (x[i] - center) * (x[i] - center) : A(0);
    const A share = A(n) / (count + A(n)), apart = center - mean;
    squares += other + apart * apart * (count * share);
    mean += apart * share;
    count += A(n);
  }
};

// Mean and squared differences of every slot.
template <class T, class Walk>
__global__ void __launch_bounds__(kThreads) batch_norm_moments(const T* x, Layout l) {
  using A = Accum<T>;
  Walk walk(l);
  const bool exists = Walk::kBlockPerSlot || walk.more();
  const A origin = exists ? to_accum(x[walk.origin]) : A(0);
  Moments<A> m;
  while (walk.more()) {
    A v[kValues];
    const int count = next_values(walk, l, [&](int i, i64 at) {
      load_values<Walk::V>(x + at, v + i);
#pragma unroll
      for (int e = i; e < i + Walk::V; ++e) v[e] -= origin;
    });
    m.add(v, count);
  }
  if constexpr (Walk::kBlockPerSlot) {
    const A mean = block_reduce(m.count * m.mean, Sum(), A(0)) / A(l.count(walk.slot)), apart = m.mean - mean;
    m.squares = block_reduce(m.squares + m.count * apart * apart, Sum(), A(0));
    m.mean = mean;
  }
  if (Walk::kBlockPerSlot ? threadIdx.x > 0 : !exists) return;
  double* const slot = l.slot(walk.channel, walk.slot);
  slot[0] = double(origin) + double(m.mean);
  slot[1] = double(m.squares);
}

// sum(dy) and sum(dy * xhat) of every slot.
template <class T, class P, class Walk>
__global__ void __launch_bounds__(kThreads) batch_norm_grad_sums(BatchNormGradArgs args, Layout l) {
  using A = Accum<T>;
  Walk walk(l);
  const bool exists = Walk::kBlockPerSlot || walk.more();
  const A mean = static_cast<const A*>(args.saved_mean)[walk.channel];
  const A inv_std = static_cast<const A*>(args.saved_inv_std)[walk.channel];
  const Gate<T, P> gate(args, walk.channel);
  A sum = 0, sum_xhat = 0;
  while (walk.more()) {
    A g[kValues], v[kValues];
    const int count = next_values(walk, l, [&](int i, i64 at) {
      load_values<Walk::V>(static_cast<const T*>(args.dy) + at, g + i);
      load_values<Walk::V>(static_cast<const T*>(args.x) + at, v + i);
    });
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if (i >= count) break;
      const A dy = gate(g[i], v[i]);
      sum += dy;
      sum_xhat += dy * ((v[i] - mean) * inv_std);
    }
  }
  if constexpr (Walk::kBlockPerSlot) {
    sum = block_reduce(sum, Sum(), A(0));
    sum_xhat = block_reduce(sum_xhat, Sum(), A(0));
  }
  if (Walk::kBlockPerSlot ? threadIdx.x > 0 : !exists) return;
  double* const slot = l.slot(walk.channel, walk.slot);
  slot[0] = double(sum);
  slot[1] = double(sum_xhat);
}

// ---- channels: one block each -----------------------------------------------------------------------------------------------------

constexpr int kChannelThreads = 64;

template <class T>
GRADLOOM_DEVICE double get(const void* from, i64 channel) {
  return double(to_accum(static_cast<const T*>(from)[channel]));
}
template <class T>
GRADLOOM_DEVICE void put(void* to, i64 channel, double v) {
  if (to != nullptr) static_cast<T*>(to)[channel] = from_accum<T>(Accum<T>(v));
}

// Sum of f(slot) over the slots of a channel, for every thread of the block.
template <class F>
GRADLOOM_DEVICE double sum_of_slots(const Layout& l, const F& f) {
  double sum = 0;
  for (i64 slot = threadIdx.x; slot < l.cut.slots; slot += kChannelThreads) sum += f(slot);
  return block_reduce(sum, Sum(), 0.0);
}

// Statistics, and for the formula: mean, and inv_std as it is saved * scale. Without slots: those of the running statistics. Without y there is no formula.
template <class T, class P>
__global__ void __launch_bounds__(kChannelThreads) batch_norm_channels(BatchNormArgs args, Layout l) {
  const i64 c = blockIdx.x;
  const bool moments_alone = args.y == nullptr;
  const bool reads =
      !moments_alone && threadIdx.x == 0;  // the thread that writes them, perhaps in their place
  double mean = reads ? get<P>(args.running_mean, c) : 0.0, var = reads ? get<P>(args.running_var, c) : 0.0;
  double running_mean = mean, running_var = var;
  if (l.cut.slots > 0) {
    const double count = double(l.n * l.spatial);
    mean = sum_of_slots(l, [&](i64 slot) { return double(l.count(slot)) * l.slot(c, slot)[0]; }) / count;
    var = sum_of_slots(l,
                       [&](i64 slot) {
                         const double apart = l.slot(c, slot)[0] - mean;
                         return l.slot(c, slot)[1] + double(l.count(slot)) * apart * apart;
                       }) /
          count;
    running_mean = running_mean * args.momentum + mean * (1.0 - args.momentum);
    running_var = running_var * args.momentum + var * args.unbias * (1.0 - args.momentum);
  }
  if (threadIdx.x > 0) return;
  if (moments_alone) {
    put<Accum<T>>(args.saved_mean, c, mean);
    put<Accum<T>>(args.saved_inv_std, c, var);
    return;
  }
  const double inv_std = 1.0 / sqrt(var + args.epsilon);
  put<P>(args.running_mean_out, c, running_mean);
  put<P>(args.running_var_out, c, running_var);
  put<Accum<T>>(args.saved_mean, c, mean);
  put<Accum<T>>(args.saved_inv_std, c, inv_std);
  l.totals(c)[0] = mean;
  l.totals(c)[1] = double(Accum<T>(inv_std)) * get<P>(args.scale, c);
}

// dscale, dbias, and for the formula: sum(dy) / N, sum(dy * xhat) / N.
template <class T, class P>
__global__ void __launch_bounds__(kChannelThreads)
    batch_norm_grad_channels(BatchNormGradArgs args, Layout l) {
  const i64 c = blockIdx.x;
  const double sum = sum_of_slots(l, [&](i64 slot) { return l.slot(c, slot)[0]; });
  const double sum_xhat = sum_of_slots(l, [&](i64 slot) { return l.slot(c, slot)[1]; });
  if (threadIdx.x > 0) return;
  put<P>(args.dbias, c, sum);
  put<P>(args.dscale, c, sum_xhat);
  const double count = double(l.n * l.spatial);
  l.totals(c)[0] = args.training ? sum / count : 0.0;
  l.totals(c)[1] = args.training ? sum_xhat / count : 0.0;
}

// ---- elements ---------------------------------------------------------------------------------------------------------------------

template <class T, class P, class Walk>
__global__ void __launch_bounds__(kThreads) batch_norm_elements(BatchNormArgs args, Layout l) {
  using A = Accum<T>;
  constexpr int V = Walk::V;
  Walk walk(l);
  if (!walk.more()) return;
  const double* const totals = l.totals(walk.channel);
  const Affine<A> affine{A(totals[0]), A(totals[1]),
                         to_accum(static_cast<const P*>(args.bias)[walk.channel])};
  const Bounds<A> bounded(args);
  const bool adds = args.added != nullptr;
  while (walk.more()) {
    A v[kValues];
    i64 offsets[kValues / V];
    const int count = next_values(walk, l, [&](int i, i64 at) {
      load_values<V>(static_cast<const T*>(args.x) + at, v + i);
      offsets[i / V] = at;
    });
#pragma unroll
    for (int i = 0; i < kValues; i += V) {
      if (i >= count) break;
      A added[V];
      if (adds) load_values<V>(static_cast<const T*>(args.added) + offsets[i / V], added);
#pragma unroll
      for (int e = 0; e < V; ++e) {
        A y = affine(v[i + e]);
        if (adds) y = as_stored<T>(y) + added[e];
        v[i + e] = bounded(y);
      }
      store_values<V>(static_cast<T*>(args.y) + offsets[i / V], v + i);
    }
  }
}

template <class T, class P, class Walk>
__global__ void __launch_bounds__(kThreads) batch_norm_grad_elements(BatchNormGradArgs args, Layout l) {
  using A = Accum<T>;
  constexpr int V = Walk::V;
  Walk walk(l);
  if (!walk.more()) return;
  const i64 c = walk.channel;
  const A mean_dy = A(l.totals(c)[0]), mean_dy_xhat = A(l.totals(c)[1]);
  const A mean = static_cast<const A*>(args.saved_mean)[c],
          inv_std = static_cast<const A*>(args.saved_inv_std)[c];
  const A factor = to_accum(static_cast<const P*>(args.scale)[c]) * inv_std;
  const Gate<T, P> gate(args, c);
  while (walk.more()) {
    A g[kValues], v[kValues];
    i64 offsets[kValues / V];
    const int count = next_values(walk, l, [&](int i, i64 at) {
      load_values<V>(static_cast<const T*>(args.dy) + at, g + i);
      load_values<V>(static_cast<const T*>(args.x) + at, v + i);
      offsets[i / V] = at;
    });
#pragma unroll
    for (int i = 0; i < kValues; i += V) {
      if (i >= count) break;
#pragma unroll
      for (int e = i; e < i + V; ++e)
        g[e] = factor * (gate(g[e], v[e]) - mean_dy - (v[e] - mean) * inv_std * mean_dy_xhat);
      store_values<V>(static_cast<T*>(args.dx) + offsets[i / V], g + i);
    }
  }
}

// A thread per channel.
__global__ void __launch_bounds__(kThreads) batch_norm_running_statistics(BatchNormArgs args) {
  const i64 c = i64(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= args.c) return;
  const double inv_std = get<float>(args.saved_inv_std, c), var = 1.0 / (inv_std * inv_std) - args.epsilon;
  const auto join = [&](const void* running, double batch) {
    return get<float>(running, c) * args.momentum + batch * (1.0 - args.momentum);
  };
  put<float>(args.running_mean_out, c, join(args.running_mean, get<float>(args.saved_mean, c)));
  put<float>(args.running_var_out, c, join(args.running_var, (var > 0 ? var : 0.0) * args.unbias));
}

// ---- launchers --------------------------------------------------------------------------------------------------------------------

// One of three kernels: of long planes with packs, of long planes, of short planes.
template <class Kernel, class... Args>
void launch_walk(Stream stream, Kernel packs, Kernel planes, Kernel columns, bool packable, const Layout& l,
                 const Args&... args) {
  const i64 blocks = l.cut.long_planes ? l.c * l.cut.slices : ceil_div(l.c * l.cut.slots, kThreads);
  launch(stream,
         !l.cut.long_planes ? columns
         : packable         ? packs
                            : planes,
         unsigned(blocks), kThreads, 0, args..., l);
}

template <class T, class P>
void batch_norm_typed(const BatchNormArgs& args, Stream stream) {
  if (args.c == 0) return;
  constexpr int V = Pack<T>::kCount;
  const Layout l{args.n, args.c, args.spatial, batch_norm_cut(args.n, args.c, args.spatial),
                 static_cast<double*>(args.workspace)};
  Layout statistics = l;
  if (!args.training) statistics.cut.slots = 0;
  const bool packs = packable<T>(args.spatial, args.x, args.y, args.added), empty = l.cut.slots == 0;
  if (statistics.cut.slots > 0) {
    launch_walk(stream, batch_norm_moments<T, PlaneWalk<V>>, batch_norm_moments<T, PlaneWalk<1>>,
                batch_norm_moments<T, ColumnWalk>, packs, l, static_cast<const T*>(args.x));
  }
  launch(stream, batch_norm_channels<T, P>, unsigned(args.c), kChannelThreads, 0, args, statistics);
  if (empty || args.y == nullptr) return;
  launch_walk(stream, batch_norm_elements<T, P, PlaneWalk<V>>, batch_norm_elements<T, P, PlaneWalk<1>>,
              batch_norm_elements<T, P, ColumnWalk>, packs, l, args);
}

template <class T, class P>
void batch_norm_grad_typed(const BatchNormGradArgs& args, Stream stream) {
  if (args.c == 0) return;
  constexpr int V = Pack<T>::kCount;
  const Layout l{args.n, args.c, args.spatial, batch_norm_cut(args.n, args.c, args.spatial),
                 static_cast<double*>(args.workspace)};
  const bool packs = packable<T>(args.spatial, args.dy, args.x, args.dx), empty = l.cut.slots == 0;
  if (!empty) {
    launch_walk(stream, batch_norm_grad_sums<T, P, PlaneWalk<V>>, batch_norm_grad_sums<T, P, PlaneWalk<1>>,
                batch_norm_grad_sums<T, P, ColumnWalk>, packs, l, args);
  }
  launch(stream, batch_norm_grad_channels<T, P>, unsigned(args.c), kChannelThreads, 0, args, l);
  if (empty || args.dx == nullptr) return;
  launch_walk(stream, batch_norm_grad_elements<T, P, PlaneWalk<V>>,
              batch_norm_grad_elements<T, P, PlaneWalk<1>>, batch_norm_grad_elements<T, P, ColumnWalk>, packs,
              l, args);
}

}  // namespace

void batch_norm(const BatchNormArgs& args, Stream stream) {
  GRADLOOM_GPU_MIXED(args.dtype, args.parameters, batch_norm_typed, args, stream);
}
void batch_norm_running(const BatchNormArgs& args, Stream stream) {
  if (args.c > 0)
    launch(stream, batch_norm_running_statistics, unsigned(ceil_div(args.c, kThreads)), kThreads, 0, args);
}
void batch_norm_grad(const BatchNormGradArgs& args, Stream stream) {
  GRADLOOM_GPU_MIXED(args.dtype, args.parameters, batch_norm_grad_typed, args, stream);
}

}  // namespace gradloom::kernels::gpu
