// Batch normalization of [n, c, spatial] per channel (Ioffe, Szegedy 2015; ONNX-15) and its gradient.
//   xhat = (x - mean) * inv_std;  y = xhat * scale + bias;  N = n * spatial
//   training:  dx = scale * inv_std * (dy - sum(dy) / N - xhat * sum(dy * xhat) / N)
//   inference: dx = scale * inv_std * dy
// One channel is one part: its sums go over the images in order. Channels in blocks: neighbours of one image
// are one part, their sums go through the workspace [n, c, 2] and are joined in the order of the images; x, y
// and their gradients may be bf16, all that belongs to a channel is f32 then.
// The result may be added to and bounded on its way out, and the gradient stopped where a bound held, as separate loops would do it
// to the bit.
// Without y: no more than mean and variance of the batch, as saved_mean and saved_inv_std; scale, bias and running ones are not read.
#include "kernels/cpu/halves.h"
#include "kernels/cpu/planes.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// A number or a register as it comes back out of memory.
template <class Stored, class V>
GRADLOOM_INLINE V as_stored(const V& v) {
  if constexpr (!kWidened<Stored>) {
    return v;
  } else {
    using Words = Pack<unsigned, int(sizeof(V) / sizeof(float))>;
    return __builtin_bit_cast(V, brain_bits<Words>(v) << 16);
  }
}

// What becomes of xhat * scale + bias before it is written; load(added) gives what is added to it.
template <class Stored, bool adds, bool bounds>
struct BoundedSum {
  const Stored* added;
  Computed<Stored> low, high;
  template <class V, class Load>
  GRADLOOM_INLINE V operator()(V v, const Load& load) const {
    if constexpr (adds) v = as_stored<Stored>(v) + load(added);
    if constexpr (bounds) v = min(max(v, V{} + low), V{} + high);
    return v;
  }
};

template <class T>
constexpr T kInfinity = T(__builtin_inf());

// body(ending)
template <class Stored, class Body>
GRADLOOM_INLINE void with_ending(const BatchNormArgs& args, const Body& body) {
  using T = Computed<Stored>;
  const Stored* const added = static_cast<const Stored*>(args.added);
  const bool clip = args.activation == NormActivation::clip;
  const T low = clip ? T(args.low) : T(0), high = clip ? T(args.high) : kInfinity<T>;
  const bool bounds = args.activation != NormActivation::none;
  if (added == nullptr && !bounds) return body(BoundedSum<Stored, false, false>{added, low, high});
  if (added == nullptr) return body(BoundedSum<Stored, false, true>{added, low, high});
  if (!bounds) return body(BoundedSum<Stored, true, false>{added, low, high});
  body(BoundedSum<Stored, true, true>{added, low, high});
}

// The gradient where the activation of result() lets it pass.
template <class Stored, NormActivation activation>
struct Gate {
  Computed<Stored> low, high;
  template <class V, class Result>
  GRADLOOM_INLINE V operator()(V dy, const Result& result) const {
    if constexpr (activation == NormActivation::none) {
      return dy;
    } else {
      const V u = as_stored<Stored>(result());
      if constexpr (activation == NormActivation::relu) return u > V{} ? dy : V{};
      return (u <= V{} + low) | (u >= V{} + high) ? V{} : dy;
    }
  }
};

// body(gate)
template <class Stored, class Body>
GRADLOOM_INLINE void with_gate(const BatchNormGradArgs& args, const Body& body) {
  using T = Computed<Stored>;
  const T low = T(args.low), high = T(args.high);
  switch (args.activation) {
    case NormActivation::none: return body(Gate<Stored, NormActivation::none>{low, high});
    case NormActivation::relu: return body(Gate<Stored, NormActivation::relu>{low, high});
    case NormActivation::clip: return body(Gate<Stored, NormActivation::clip>{low, high});
  }
}

template <class T>
void normalize_channels(const BatchNormArgs& args) {
  const Planes planes{args.n, args.c * args.spatial, args.spatial};
  const i64 per_channel = args.n * args.spatial, ahead = planes.ahead();
  const auto at = [](const void* p, i64 c) {
    return p != nullptr ? double(static_cast<const T*>(p)[c]) : 0.0;
  };
  const auto write = [](void* p, i64 c, double v) {
    if (p != nullptr) static_cast<T*>(p)[c] = T(v);
  };
  parallel_for(args.c, per_channel * args.c * 3, [&](i64 c) {
    const T* const x = static_cast<const T*>(args.x) + c * args.spatial;
    T* const y = args.y != nullptr ? static_cast<T*>(args.y) + c * args.spatial : const_cast<T*>(x);
    double mean = at(args.running_mean, c), var = at(args.running_var, c);
    if (args.training && per_channel > 0) {
      const auto sum = sums_of<1, T>(planes, [&](i64 i, auto& s) {
        fetch_to_write(y + i);
        s[0] += get(x + i, s[0]);
      });
      const double batch_mean = sum.total[0] / double(per_channel);
      const T center = T(batch_mean);
      const auto squares = sums_of<1, T>(planes, [&](i64 i, auto& s) {
        fetch_to_write(y + i);  // again: what was asked for at a busy moment did not come
        const auto apart = get(x + i, s[0]) - center;
        s[0] += apart * apart;
      });
      const double off = batch_mean - double(center);  // the rounding of the centre, corrected
      const double batch_var = squares.total[0] / double(per_channel) - off * off;
      write(args.running_mean_out, c, mean * args.momentum + batch_mean * (1.0 - args.momentum));
      write(args.running_var_out, c, var * args.momentum + batch_var * args.unbias * (1.0 - args.momentum));
      mean = batch_mean;
      var = batch_var;
    } else {
      write(args.running_mean_out, c, mean);
      write(args.running_var_out, c, var);
    }
    write(args.saved_mean, c, mean);
    if (args.y == nullptr) return write(args.saved_inv_std, c, var);
    const double inv_std = 1.0 / sqrt(var + args.epsilon);
    write(args.saved_inv_std, c, inv_std);
    // The factor is that of the gradient, which has the rounded deviation.
    const T center = T(mean), factor = T(at(args.scale, c)) * T(inv_std), shift = T(at(args.bias, c));
    with_ending<T>(args, [&](const auto& ending) {
      for_elements<T>(planes, [&](i64 i, const auto& zero) {
        fetch(x + ahead + i);
        put(y + i, ending((get(x + i, zero) - center) * factor + shift,
                          [&](const T* added) { return get(added + c * args.spatial + i, zero); }));
      });
    });
  });
}

template <class T, class Gates>
void grad_channels(const BatchNormGradArgs& args, const Gates& gate) {
  const Planes planes{args.n, args.c * args.spatial, args.spatial};
  const i64 per_channel = args.n * args.spatial, ahead = planes.ahead();
  parallel_for(args.c, per_channel * args.c * 4, [&](i64 c) {
    const T* const dy = static_cast<const T*>(args.dy) + c * args.spatial;
    const T* const x = static_cast<const T*>(args.x) + c * args.spatial;
    T* const dx = args.dx != nullptr ? static_cast<T*>(args.dx) + c * args.spatial : nullptr;
    const T mean = static_cast<const T*>(args.saved_mean)[c],
            inv_std = static_cast<const T*>(args.saved_inv_std)[c],
            factor = args.scale != nullptr ? static_cast<const T*>(args.scale)[c] * inv_std
                                           : T(0),  // null: sums alone
        shift = args.bias != nullptr ? static_cast<const T*>(args.bias)[c] : T(0);
    const auto sums = sums_of<2, T>(planes, [&](i64 i, auto& s) {
      if (dx != nullptr) fetch_to_write(dx + i);
      const auto apart = get(x + i, s[0]) - mean;
      const auto g = gate(get(dy + i, s[0]), [&] { return apart * factor + shift; });
      s[0] += g;
      s[1] += g * (apart * inv_std);
    });
    const double sum_dy = sums.total[0], sum_dy_xhat = sums.total[1];
    if (args.dscale != nullptr) static_cast<T*>(args.dscale)[c] = T(sum_dy_xhat);
    if (args.dbias != nullptr) static_cast<T*>(args.dbias)[c] = T(sum_dy);
    if (dx == nullptr) return;
    const double count = double(larger(1, per_channel));
    const T mean_dy = args.training ? T(sum_dy / count) : T(0);
    const T mean_dy_xhat = args.training ? T(sum_dy_xhat / count) : T(0);
    for_elements<T>(planes, [&](i64 i, const auto& zero) {
      fetch(dy + ahead + i);
      fetch(x + ahead + i);
      const auto apart = get(x + i, zero) - mean;
      const auto g = gate(get(dy + i, zero), [&] { return apart * factor + shift; });
      put(dx + i, factor * (g - mean_dy - apart * inv_std * mean_dy_xhat));
    });
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

// `count` sums over the positions, for L neighbours: term(offset, sums) adds to each.
template <int count, class T, int L, class Term>
GRADLOOM_INLINE void lane_sums(const Neighbours& g, double (&total)[count][L], const Term& term) {
  for (i64 begin = 0; begin < g.spatial; begin += kRun) {
    const i64 end = smaller(g.spatial, begin + kRun);
    Pack<T, L> s[4][count] = {};
    i64 i = begin;
    for (; i + 4 <= end; i += 4) {
      term(i * g.block, s[0]);
      term((i + 1) * g.block, s[1]);
      term((i + 2) * g.block, s[2]);
      term((i + 3) * g.block, s[3]);
    }
    for (; i < end; ++i) term(i * g.block, s[0]);
    for (int k = 0; k < count; ++k) {
      const Pack<T, L> all = (s[0][k] + s[1][k]) + (s[2][k] + s[3][k]);
      for (int j = 0; j < L; ++j) total[k][j] += double(all[j]);
    }
  }
}

// What the elementwise formula needs of every channel, behind the pairs of its images:
// `count` numbers of T each.
template <class T>
GRADLOOM_INLINE T* channel_numbers(void* workspace, i64 n, i64 c) {
  return static_cast<T*>(static_cast<void*>(static_cast<double*>(workspace) + 2 * n * c));
}

// Mean and squared differences of L channels of one image.
template <class Stored, int L>
void image_moments(const Stored* x, const Neighbours& g, double* pairs) {
  using T = Computed<Stored>;
  double sum[1][L] = {}, squares[1][L] = {};
  lane_sums<1, T, L>(g, sum, [&](i64 at, auto& s) { s[0] += load_computed<Stored, L>(x + at); });
  T centers[L];
  for (int j = 0; j < L; ++j) centers[j] = T(sum[0][j] / double(g.spatial));
  const Pack<T, L> center = load_pack<T, L>(centers);
  lane_sums<1, T, L>(g, squares, [&](i64 at, auto& s) {
    const auto apart = load_computed<Stored, L>(x + at) - center;
    s[0] += apart * apart;
  });
  for (std::ptrdiff_t j = 0; j < L; ++j) {
    const double mean = sum[0][j] / double(g.spatial), off = mean - double(centers[j]);
    pairs[2 * j] = mean;
    pairs[2 * j + 1] = squares[0][j] - off * off * double(g.spatial);
  }
}

// Joins the images of channel `c` (Chan, Golub, LeVeque 1979); writes its statistics and
// the numbers of the formula.
template <class T>
void finish_channel(const BatchNormArgs& args, i64 c, const double* pairs, T* numbers) {
  const auto at = [&](const void* p) { return p != nullptr ? double(static_cast<const T*>(p)[c]) : 0.0; };
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
    running_var = running_var * args.momentum + var * args.unbias * (1.0 - args.momentum);
  }
  put(args.saved_mean, mean);
  if (args.y == nullptr) return put(args.saved_inv_std, var);
  const double inv_std = 1.0 / sqrt(var + args.epsilon);
  put(args.running_mean_out, running_mean);
  put(args.running_var_out, running_var);
  put(args.saved_inv_std, inv_std);
  numbers[c] = T(mean);
  numbers[args.c + c] = T(at(args.scale)) * T(inv_std);
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
      image_moments<Stored, L>(x + g.at(part / g.groups(), part % g.groups()), g, pairs + 2 * i64{L} * part);
    });
  }
  parallel_for(args.c, args.n * args.c * 4, [&](i64 c) { finish_channel(args, c, pairs, numbers); });
  if (args.y == nullptr) return;
  parallel_for(parts, elements, [&](i64 part) {
    const i64 group = part % g.groups(), from = g.at(part / g.groups(), group);
    const auto center = load_pack<T, L>(numbers + group * L),
               factor = load_pack<T, L>(numbers + args.c + group * L),
               shift = load_pack<T, L>(bias + group * L);
    Stored* const y = static_cast<Stored*>(args.y);
    with_ending<Stored>(args, [&](const auto& ending) {
      for (i64 at = from; at < from + g.spatial * g.block; at += g.block) {
        const auto normalized = (load_computed<Stored, L>(x + at) - center) * factor + shift;
        store_computed<Stored, L>(y + at, ending(normalized, [&](const Stored* added) {
                                    return load_computed<Stored, L>(added + at);
                                  }));
      }
    });
  });
}

template <class Stored, int L, class Gates>
void grad_blocks(const BatchNormGradArgs& args, const Gates& gate) {
  using T = Computed<Stored>;
  const Neighbours g{args.c, args.spatial, args.block, L};
  const i64 parts = args.n * g.groups(), elements = args.n * args.c * args.spatial;
  auto* const pairs = static_cast<double*>(args.workspace);
  T* const numbers = channel_numbers<T>(args.workspace, args.n, args.c);
  const Stored *const dy = static_cast<const Stored*>(args.dy), *const x = static_cast<const Stored*>(args.x);
  const T *const means = static_cast<const T*>(args.saved_mean), *const deviations = static_cast<const T*>(
                                                                     args.saved_inv_std);
  const T *const scales = static_cast<const T*>(args.scale), *const biases = static_cast<const T*>(args.bias);
  const auto shift_of = [&](i64 group) {
    return biases != nullptr ? load_pack<T, L>(biases + group * L) : Pack<T, L>{};
  };
  const auto scale_of = [&](i64 group) {  // null: sums alone
    return scales != nullptr ? load_pack<T, L>(scales + group * L) : Pack<T, L>{};
  };
  parallel_for(parts, elements * 2, [&](i64 part) {
    const i64 group = part % g.groups(), from = g.at(part / g.groups(), group);
    const auto mean = load_pack<T, L>(means + group * L), inv_std = load_pack<T, L>(deviations + group * L);
    const auto factor = scale_of(group) * inv_std, shift = shift_of(group);
    double total[2][L] = {};
    lane_sums<2, T, L>(g, total, [&](i64 at, auto& s) {
      const auto apart = load_computed<Stored, L>(x + from + at) - mean;
      const auto d = gate(load_computed<Stored, L>(dy + from + at), [&] { return apart * factor + shift; });
      s[0] += d;
      s[1] += d * (apart * inv_std);
    });
    for (int j = 0; j < L; ++j) {
      pairs[2 * (L * part + j)] = total[0][j];
      pairs[2 * (L * part + j) + 1] = total[1][j];
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
    const auto factor = scale_of(group) * inv_std, shift = shift_of(group);
    const auto mean_dy = load_pack<T, L>(numbers + group * L),
               mean_dy_xhat = load_pack<T, L>(numbers + args.c + group * L);
    Stored* const dx = static_cast<Stored*>(args.dx);
    for (i64 at = from; at < from + g.spatial * g.block; at += g.block) {
      const auto apart = load_computed<Stored, L>(x + at) - mean;
      const auto d = gate(load_computed<Stored, L>(dy + at), [&] { return apart * factor + shift; });
      store_computed<Stored, L>(dx + at, factor * (d - mean_dy - apart * inv_std * mean_dy_xhat));
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
  with_lanes(args.block, [&](auto lanes) {
    with_gate<Stored>(args,
                      [&](const auto& gate) { grad_blocks<Stored, decltype(lanes)::value>(args, gate); });
  });
}
template <class T>
void grad(const BatchNormGradArgs& args) {
  if (args.block == 1) return with_gate<T>(args, [&](const auto& gate) { grad_channels<T>(args, gate); });
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
