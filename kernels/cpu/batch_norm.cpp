// Batch normalization of [n, c, spatial] per channel (Ioffe, Szegedy 2015; ONNX-15) and its gradient.
//   xhat = (x - mean) * inv_std;  y = xhat * scale + bias;  N = n * spatial
//   training: dx = scale * inv_std * (dy - sum(dy) / N - xhat * sum(dy * xhat) / N);  inference: dx = dy *
//   scale * inv_std
// One channel is one part: its sums go over the images in order. Channels in blocks: neighbours of one image
// are one part, their sums go through the workspace [n, c, 2] and are joined in the order of the images; x, y
// and their gradients may be bf16, all that belongs to a channel is f32 then.
#include "kernels/cpu/halves.h"
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kShortPlane = 16;  // below this, sums go element by element in double

// Sum of f(x[i], y[i]) over one channel.
template <class T, class F>
GRADLOOM_INLINE double channel_sum(const T* x, const T* y, i64 n, i64 stride, i64 spatial, const F& f) {
  double total = 0;
  for (i64 i = 0; i < n; ++i) {
    const T* const a = x + i * stride;
    const T* const b = y + i * stride;
    if (spatial >= kShortPlane) {
      total += sum_of(a, b, spatial, f);
    } else {
      for (i64 s = 0; s < spatial; ++s) total += double(f(a[s], b[s]));
    }
  }
  return total;
}

template <class T>
void normalize_channels(const BatchNormArgs& args) {
  const i64 stride = args.c * args.spatial, per_channel = args.n * args.spatial;
  const auto at = [](const void* p, i64 c) { return double(static_cast<const T*>(p)[c]); };
  const auto put = [](void* p, i64 c, double v) {
    if (p != nullptr) static_cast<T*>(p)[c] = T(v);
  };
  parallel_for(args.c, per_channel * args.c * 3, [&](i64 c) {
    const T* const x = static_cast<const T*>(args.x) + c * args.spatial;
    T* const y = static_cast<T*>(args.y) + c * args.spatial;
    double mean = at(args.running_mean, c), var = at(args.running_var, c);
    if (args.training && per_channel > 0) {
      const double batch_mean =
          channel_sum(x, x, args.n, stride, args.spatial, [](const auto& a, const auto&) { return a; }) /
          double(per_channel);
      const T center = T(batch_mean);
      const double squares = channel_sum(x, x, args.n, stride, args.spatial, [&](const auto& a, const auto&) {
        return (a - center) * (a - center);
      });
      const double off = batch_mean - double(center);  // the rounding of the centre, corrected
      const double batch_var = squares / double(per_channel) - off * off;
      put(args.running_mean_out, c, mean * args.momentum + batch_mean * (1.0 - args.momentum));
      put(args.running_var_out, c, var * args.momentum + batch_var * (1.0 - args.momentum));
      mean = batch_mean;
      var = batch_var;
    } else {
      put(args.running_mean_out, c, mean);
      put(args.running_var_out, c, var);
    }
    const double inv_std = 1.0 / sqrt(var + args.epsilon);
    put(args.saved_mean, c, mean);
    put(args.saved_inv_std, c, inv_std);
    const T center = T(mean), factor = T(inv_std * at(args.scale, c)), shift = T(at(args.bias, c));
    for (i64 i = 0; i < args.n; ++i) {
      const T* const in = x + i * stride;
      T* const out = y + i * stride;
#pragma GCC ivdep
      for (i64 s = 0; s < args.spatial; ++s) out[s] = (in[s] - center) * factor + shift;
    }
  });
}

template <class T>
void grad_channels(const BatchNormGradArgs& args) {
  const i64 stride = args.c * args.spatial, per_channel = args.n * args.spatial;
  parallel_for(args.c, per_channel * args.c * 4, [&](i64 c) {
    const T* const dy = static_cast<const T*>(args.dy) + c * args.spatial;
    const T* const x = static_cast<const T*>(args.x) + c * args.spatial;
    const T mean = static_cast<const T*>(args.saved_mean)[c],
            inv_std = static_cast<const T*>(args.saved_inv_std)[c];
    const double sum_dy =
        channel_sum(dy, dy, args.n, stride, args.spatial, [](const auto& a, const auto&) { return a; });
    const double sum_dy_xhat =
        channel_sum(dy, x, args.n, stride, args.spatial,
                    [&](const auto& a, const auto& b) { return a * ((b - mean) * inv_std); });
    if (args.dscale != nullptr) static_cast<T*>(args.dscale)[c] = T(sum_dy_xhat);
    if (args.dbias != nullptr) static_cast<T*>(args.dbias)[c] = T(sum_dy);
    if (args.dx == nullptr) return;
    T* const dx = static_cast<T*>(args.dx) + c * args.spatial;
    const T factor = static_cast<const T*>(args.scale)[c] * inv_std;
    const double count = double(larger(1, per_channel));
    const T mean_dy = args.training ? T(sum_dy / count) : T(0);
    const T mean_dy_xhat = args.training ? T(sum_dy_xhat / count) : T(0);
    for (i64 i = 0; i < args.n; ++i) {
      const T* const g = dy + i * stride;
      const T* const in = x + i * stride;
      T* const out = dx + i * stride;
#pragma GCC ivdep
      for (i64 s = 0; s < args.spatial; ++s) {
        out[s] = factor * (g[s] - mean_dy - (in[s] - mean) * inv_std * mean_dy_xhat);
      }
    }
  });
}

// ---- channels in blocks: [n, c / block, spatial, block] -------------------------------------------------------

// `count` neighbouring channels at a time, numbered over all blocks.
struct Neighbours {
  i64 c, spatial, block, count;
  i64 groups() const { return c / count; }
  // Offset of group `group` of image `image`; positions are `block` elements apart.
  GRADLOOM_INLINE i64 at(i64 image, i64 group) const {
    const i64 channel = group * count;
    return image * c * spatial + channel / block * block * spatial + channel % block;
  }
};

// Sums of f(x, y) over the positions, for L neighbours.
template <class Stored, int L, class F>
GRADLOOM_INLINE void lane_sums(const Stored* x, const Stored* y, const Neighbours& g, double* total,
                               const F& f) {
  using T = Computed<Stored>;
  constexpr i64 kRun = 512;  // positions that are added in T
  for (int j = 0; j < L; ++j) total[j] = 0;
  for (i64 begin = 0; begin < g.spatial; begin += kRun) {
    const i64 end = smaller(g.spatial, begin + kRun);
    Pack<T, L> s0 = {}, s1 = {}, s2 = {}, s3 = {};
    i64 i = begin;
    const auto term = [&](i64 at) {
      return f(load_computed<Stored, L>(x + at * g.block), load_computed<Stored, L>(y + at * g.block));
    };
    for (; i + 4 <= end; i += 4) {
      s0 += term(i);
      s1 += term(i + 1);
      s2 += term(i + 2);
      s3 += term(i + 3);
    }
    for (; i < end; ++i) s0 += term(i);
    const Pack<T, L> all = (s0 + s1) + (s2 + s3);
    for (int j = 0; j < L; ++j) total[j] += double(all[j]);
  }
}

// What the elementwise formula needs of every channel, behind the pairs of its images: `count` numbers of T
// each.
template <class T>
GRADLOOM_INLINE T* channel_numbers(void* workspace, i64 n, i64 c) {
  return static_cast<T*>(static_cast<void*>(static_cast<double*>(workspace) + 2 * n * c));
}

// Mean and squared differences of L channels of one image.
template <class Stored, int L>
void image_moments(const Stored* x, const Neighbours& g, double* pairs) {
  using T = Computed<Stored>;
  double sum[L], squares[L];
  lane_sums<Stored, L>(x, x, g, sum, [](const auto& a, const auto&) { return a; });
  T centers[L];
  for (int j = 0; j < L; ++j) centers[j] = T(sum[j] / double(g.spatial));
  const Pack<T, L> center = load_pack<T, L>(centers);
  lane_sums<Stored, L>(x, x, g, squares,
                       [&](const auto& a, const auto&) { return (a - center) * (a - center); });
  for (int j = 0; j < L; ++j) {
    const double mean = sum[j] / double(g.spatial), off = mean - double(centers[j]);
    pairs[2 * j] = mean;
    pairs[2 * j + 1] = squares[j] - off * off * double(g.spatial);
  }
}

// Joins the images of channel `c` (Chan, Golub, LeVeque 1979); writes its statistics and the numbers of the
// formula.
template <class T>
void finish_channel(const BatchNormArgs& args, i64 c, const double* pairs, T* numbers) {
  const auto at = [&](const void* p) { return double(static_cast<const T*>(p)[c]); };
  const auto put = [&](void* p, double v) {
    if (p != nullptr) static_cast<T*>(p)[c] = T(v);
  };
  double mean = at(args.running_mean), var = at(args.running_var);
  double running_mean = mean, running_var = var;
  if (args.training) {
    double sum = 0, squares = 0;
    for (i64 i = 0; i < args.n; ++i) sum += pairs[2 * (i * args.c + c)];
    mean = sum / double(args.n);
    for (i64 i = 0; i < args.n; ++i) {
      const double apart = pairs[2 * (i * args.c + c)] - mean;
      squares += pairs[2 * (i * args.c + c) + 1] + double(args.spatial) * apart * apart;
    }
    var = squares / double(args.n * args.spatial);
    running_mean = running_mean * args.momentum + mean * (1.0 - args.momentum);
    running_var = running_var * args.momentum + var * (1.0 - args.momentum);
  }
  const double inv_std = 1.0 / sqrt(var + args.epsilon);
  put(args.running_mean_out, running_mean);
  put(args.running_var_out, running_var);
  put(args.saved_mean, mean);
  put(args.saved_inv_std, inv_std);
  numbers[c] = T(mean);
  numbers[args.c + c] = T(inv_std * at(args.scale));
}

template <class Stored, int L>
void normalize_blocks(const BatchNormArgs& args) {
  using T = Computed<Stored>;
  const Neighbours g{args.c, args.spatial, args.block, L};
  const i64 parts = args.n * g.groups(), elements = args.n * args.c * args.spatial;
  auto* const pairs = static_cast<double*>(args.workspace);
  T* const numbers = channel_numbers<T>(args.workspace, args.n, args.c);
  const Stored* const x = static_cast<const Stored*>(args.x);
  const T* const bias = static_cast<const T*>(args.bias);
  if (args.training) {
    parallel_for(parts, elements * 2, [&](i64 part) {
      image_moments<Stored, L>(x + g.at(part / g.groups(), part % g.groups()), g, pairs + 2 * L * part);
    });
  }
  parallel_for(args.c, args.n * args.c * 4, [&](i64 c) { finish_channel(args, c, pairs, numbers); });
  parallel_for(parts, elements, [&](i64 part) {
    const i64 group = part % g.groups(), from = g.at(part / g.groups(), group);
    const auto center = load_pack<T, L>(numbers + group * L),
               factor = load_pack<T, L>(numbers + args.c + group * L),
               shift = load_pack<T, L>(bias + group * L);
    Stored* const y = static_cast<Stored*>(args.y);
    for (i64 at = from; at < from + g.spatial * g.block; at += g.block)
      store_computed<Stored, L>(y + at, (load_computed<Stored, L>(x + at) - center) * factor + shift);
  });
}

template <class Stored, int L>
void grad_blocks(const BatchNormGradArgs& args) {
  using T = Computed<Stored>;
  const Neighbours g{args.c, args.spatial, args.block, L};
  const i64 parts = args.n * g.groups(), elements = args.n * args.c * args.spatial;
  auto* const pairs = static_cast<double*>(args.workspace);
  T* const numbers = channel_numbers<T>(args.workspace, args.n, args.c);
  const Stored *const dy = static_cast<const Stored*>(args.dy), *const x = static_cast<const Stored*>(args.x);
  const T *const means = static_cast<const T*>(args.saved_mean), *const deviations = static_cast<const T*>(
                                                                     args.saved_inv_std);
  parallel_for(parts, elements * 2, [&](i64 part) {
    const i64 group = part % g.groups(), from = g.at(part / g.groups(), group);
    const auto mean = load_pack<T, L>(means + group * L), inv_std = load_pack<T, L>(deviations + group * L);
    double sum[L], product[L];
    lane_sums<Stored, L>(dy + from, dy + from, g, sum, [](const auto& a, const auto&) { return a; });
    lane_sums<Stored, L>(dy + from, x + from, g, product,
                         [&](const auto& a, const auto& b) { return a * ((b - mean) * inv_std); });
    for (int j = 0; j < L; ++j) {
      pairs[2 * (L * part + j)] = sum[j];
      pairs[2 * (L * part + j) + 1] = product[j];
    }
  });
  const double count = double(larger(1, args.n * args.spatial));
  parallel_for(args.c, args.n * args.c * 2, [&](i64 c) {
    double sum_dy = 0, sum_dy_xhat = 0;
    for (i64 i = 0; i < args.n; ++i) {
      sum_dy += pairs[2 * (i * args.c + c)];
      sum_dy_xhat += pairs[2 * (i * args.c + c) + 1];
    }
    if (args.dscale != nullptr) static_cast<T*>(args.dscale)[c] = T(sum_dy_xhat);
    if (args.dbias != nullptr) static_cast<T*>(args.dbias)[c] = T(sum_dy);
    numbers[c] = args.training ? T(sum_dy / count) : T(0);
    numbers[args.c + c] = args.training ? T(sum_dy_xhat / count) : T(0);
  });
  if (args.dx == nullptr) return;
  parallel_for(parts, elements * 2, [&](i64 part) {
    const i64 group = part % g.groups(), from = g.at(part / g.groups(), group);
    const auto mean = load_pack<T, L>(means + group * L), inv_std = load_pack<T, L>(deviations + group * L);
    const auto factor = load_pack<T, L>(static_cast<const T*>(args.scale) + group * L) * inv_std;
    const auto mean_dy = load_pack<T, L>(numbers + group * L),
               mean_dy_xhat = load_pack<T, L>(numbers + args.c + group * L);
    Stored* const dx = static_cast<Stored*>(args.dx);
    for (i64 at = from; at < from + g.spatial * g.block; at += g.block) {
      const auto xhat = (load_computed<Stored, L>(x + at) - mean) * inv_std;
      store_computed<Stored, L>(dx + at,
                                factor * (load_computed<Stored, L>(dy + at) - mean_dy - xhat * mean_dy_xhat));
    }
  });
}

template <class Stored>
void normalize_in_blocks(const BatchNormArgs& args) {
  with_lanes(args.block, [&](auto lanes) { normalize_blocks<Stored, decltype(lanes)::value>(args); });
}
template <class T>
void normalize(const BatchNormArgs& args) {
  if (args.block == 1) return normalize_channels<T>(args);
  normalize_in_blocks<T>(args);
}
template <class Stored>
void grad_in_blocks(const BatchNormGradArgs& args) {
  with_lanes(args.block, [&](auto lanes) { grad_blocks<Stored, decltype(lanes)::value>(args); });
}
template <class T>
void grad(const BatchNormGradArgs& args) {
  if (args.block == 1) return grad_channels<T>(args);
  grad_in_blocks<T>(args);
}

}  // namespace

void batch_norm(const BatchNormArgs& args) {
  if (args.dtype == DType::bf16) return normalize_in_blocks<Brain>(args);
  GRADLOOM_FLOAT_DISPATCH(args.dtype, normalize, args);
}
void batch_norm_grad(const BatchNormGradArgs& args) {
  if (args.dtype == DType::bf16) return grad_in_blocks<Brain>(args);
  GRADLOOM_FLOAT_DISPATCH(args.dtype, grad, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
