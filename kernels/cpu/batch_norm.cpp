// Batch normalization of [n, c, spatial] per channel (Ioffe, Szegedy 2015; ONNX-15) and its gradient.
//   xhat = (x - mean) * inv_std;  y = xhat * scale + bias;  N = n * spatial
//   training:  dx = scale * inv_std * (dy - sum(dy) / N - xhat * sum(dy * xhat) / N)
//   inference: dx = scale * inv_std * dy
// One channel is one part: its sums go over the images in order. Channels in blocks: neighbours of one image
// are one part, their sums go through the workspace [parts, c, 2] and are joined in the order of the parts; x, y
// and their gradients may be bf16, all that belongs to a channel is f32 then. Of a matrix [n, c] rows are read as they lie, many
// rows a part: a channel's numbers are apart, and two channels' of two threads in one line of memory.
// The result may be added to and bounded on its way out, and the gradient stopped where a bound held, as separate loops would do it
// to the bit.
// Without y: no more than mean and variance of the batch, as saved_mean and saved_inv_std; scale, bias and running ones are not read.
#include "kernels/cpu/halves.h"
#include "kernels/cpu/planes.h"
#include "kernels/cpu/workspace.h"

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

// ---- neighbours at a time: blocks [n, c / block, spatial, block], and rows [n, c] ------------------------------

// What has sums of its own: an image, or so many rows.
struct Parts {
  i64 count, positions, last;  // of a channel in each, and in the last one
  GRADLOOM_INLINE i64 positions_of(i64 part) const { return part + 1 < count ? positions : last; }
};
template <class Args>
Parts parts_of(const Args& args) {
  const i64 count = batch_norm_parts(args);
  if (args.block > 1) return {count, args.spatial, args.spatial};
  return {count, kBatchNormRows, args.n - (count - 1) * kBatchNormRows};
}

// Neighbouring channels of a part.
struct Strip {
  i64 part, channel;          // the first of them
  i64 from, positions, step;  // offset of its first number; of each channel, and from one to the next
  GRADLOOM_INLINE i64 end() const { return from + positions * step; }
};

// body(Lanes<L>, strip of L channels) for all; `work`: of the whole.
template <class Args, class Body>
GRADLOOM_INLINE void for_strips(const Args& args, i64 work, const Body& body) {
  const Parts parts = parts_of(args);
  if (args.block > 1) {
    with_lanes(args.block, [&](auto lanes) {
      constexpr i64 count = decltype(lanes)::value;
      const i64 groups = args.c / count;
      parallel_for(parts.count * groups, work, [&](i64 at) {
        const i64 image = at / groups, channel = at % groups * count, block = args.block;
        const i64 from = image * args.c * args.spatial + channel / block * block * args.spatial;
        body(lanes, Strip{image, channel, from + channel % block, args.spatial, block});
      });
    });
    return;
  }
  constexpr i64 kTile = 64;  // channels: whole lines of memory
  const i64 tiles = ceil_div(args.c, kTile);
  parallel_for(parts.count * tiles, work, [&](i64 at) {
    const i64 part = at / tiles, begin = at % tiles * kTile;
    for_lanes(begin, smaller(args.c, begin + kTile), [&](auto lanes, i64 channel) {
      body(lanes,
           Strip{part, channel, part * kBatchNormRows * args.c + channel, parts.positions_of(part), args.c});
    });
  });
}

// `count` sums over the positions, for L neighbours: term(offset, sums) adds to each.
template <int count, class T, int L, class Term>
GRADLOOM_INLINE void lane_sums(const Strip& strip, double (&total)[count][L], const Term& term) {
  for (i64 begin = 0; begin < strip.positions; begin += kRun) {
    const i64 end = smaller(strip.positions, begin + kRun);
    Pack<T, L> s[4][count] = {};
    i64 i = begin;
    for (; i + 4 <= end; i += 4) {
      term(strip.from + i * strip.step, s[0]);
      term(strip.from + (i + 1) * strip.step, s[1]);
      term(strip.from + (i + 2) * strip.step, s[2]);
      term(strip.from + (i + 3) * strip.step, s[3]);
    }
    for (; i < end; ++i) term(strip.from + i * strip.step, s[0]);
    for (int k = 0; k < count; ++k) {
      const Pack<T, L> all = (s[0][k] + s[1][k]) + (s[2][k] + s[3][k]);
      for (int j = 0; j < L; ++j) total[k][j] += double(all[j]);
    }
  }
}

// The pairs of the strip's channels.
template <class Args>
GRADLOOM_INLINE double* pairs_of(const Args& args, const Strip& strip) {
  return static_cast<double*>(args.workspace) + 2 * (strip.part * args.c + strip.channel);
}
// What the elementwise formula needs of every channel, behind the pairs: `count` numbers of T each.
template <class T, class Args>
GRADLOOM_INLINE T* channel_numbers(const Args& args) {
  return static_cast<T*>(
      static_cast<void*>(static_cast<double*>(args.workspace) + 2 * batch_norm_parts(args) * args.c));
}

// Mean and squared differences of L channels of one part.
template <class Stored, int L>
void part_moments(const Stored* x, const Strip& strip, double* pairs) {
  using T = Computed<Stored>;
  double sum[1][L] = {}, squares[1][L] = {};
  lane_sums<1, T, L>(strip, sum, [&](i64 at, auto& s) { s[0] += load_computed<Stored, L>(x + at); });
  const double count = double(strip.positions);
  T centers[L];
  for (int j = 0; j < L; ++j) centers[j] = T(sum[0][j] / count);
  const Pack<T, L> center = load_pack<T, L>(centers);
  lane_sums<1, T, L>(strip, squares, [&](i64 at, auto& s) {
    const auto apart = load_computed<Stored, L>(x + at) - center;
    s[0] += apart * apart;
  });
  for (std::ptrdiff_t j = 0; j < L; ++j) {
    const double mean = sum[0][j] / count, off = mean - double(centers[j]);
    pairs[2 * j] = mean;
    pairs[2 * j + 1] = squares[0][j] - off * off * count;
  }
}

// Joins the parts of channel `c` (Chan, Golub, LeVeque 1979); writes its statistics and
// the numbers of the formula.
template <class T>
void finish_channel(const BatchNormArgs& args, const Parts& parts, i64 c, T* numbers) {
  const auto at = [&](const void* p) { return p != nullptr ? double(static_cast<const T*>(p)[c]) : 0.0; };
  const auto put = [&](void* p, double v) {
    if (p != nullptr) static_cast<T*>(p)[c] = T(v);
  };
  double mean = at(args.running_mean), var = at(args.running_var);
  double running_mean = mean, running_var = var;
  if (args.training) {
    const double* const pairs = static_cast<const double*>(args.workspace);
    const double last = double(parts.last) / double(parts.positions);  // of a part
    double sum = 0, squares = 0;
    for (i64 i = 0; i < parts.count; ++i)
      sum += pairs[2 * (i * args.c + c)] * (i + 1 < parts.count ? 1.0 : last);
    mean = sum / (double(parts.count - 1) + last);
    for (i64 i = 0; i < parts.count; ++i) {
      const double apart = pairs[2 * (i * args.c + c)] - mean;
      squares += pairs[2 * (i * args.c + c) + 1] + double(parts.positions_of(i)) * apart * apart;
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
void write_results(const BatchNormArgs& args, const Strip& strip) {
  using T = Computed<Stored>;
  const T* const numbers = channel_numbers<T>(args) + strip.channel;
  const auto center = load_pack<T, L>(numbers), factor = load_pack<T, L>(numbers + args.c),
             shift = load_pack<T, L>(static_cast<const T*>(args.bias) + strip.channel);
  const Stored* const x = static_cast<const Stored*>(args.x);
  Stored* const y = static_cast<Stored*>(args.y);
  with_ending<Stored>(args, [&](const auto& ending) {
    for (i64 at = strip.from; at < strip.end(); at += strip.step) {
      const auto normalized = (load_computed<Stored, L>(x + at) - center) * factor + shift;
      store_computed<Stored, L>(y + at, ending(normalized, [&](const Stored* added) {
                                  return load_computed<Stored, L>(added + at);
                                }));
    }
  });
}

template <class Stored>
void normalize_strips(const BatchNormArgs& args) {
  using T = Computed<Stored>;
  const i64 elements = args.n * args.c * args.spatial;
  const Stored* const x = static_cast<const Stored*>(args.x);
  if (args.training) {
    for_strips(args, elements * 2, [&](auto lanes, const Strip& strip) {
      part_moments<Stored, decltype(lanes)::value>(x, strip, pairs_of(args, strip));
    });
  }
  const Parts parts = parts_of(args);
  T* const numbers = channel_numbers<T>(args);
  parallel_for(args.c, parts.count * args.c * 4, [&](i64 c) { finish_channel(args, parts, c, numbers); });
  if (args.y == nullptr) return;
  for_strips(args, elements, [&](auto lanes, const Strip& strip) {
    write_results<Stored, decltype(lanes)::value>(args, strip);
  });
}

// What the gradient needs of L channels.
template <class T, int L>
struct GradNumbers {
  Pack<T, L> mean, inv_std, factor, shift;
  GradNumbers(const BatchNormGradArgs& args, i64 channel) {
    const auto load = [&](const void* p) {
      return p != nullptr ? load_pack<T, L>(static_cast<const T*>(p) + channel) : Pack<T, L>{};
    };
    mean = load(args.saved_mean);
    inv_std = load(args.saved_inv_std);
    factor = load(args.scale) * inv_std;  // null: sums alone
    shift = load(args.bias);
  }
};

template <class Stored, int L, class Gates>
void grad_sums(const BatchNormGradArgs& args, const Gates& gate, const Strip& strip) {
  using T = Computed<Stored>;
  const GradNumbers<T, L> of(args, strip.channel);
  const Stored *const dy = static_cast<const Stored*>(args.dy), *const x = static_cast<const Stored*>(args.x);
  double total[2][L] = {};
  lane_sums<2, T, L>(strip, total, [&](i64 at, auto& s) {
    const auto apart = load_computed<Stored, L>(x + at) - of.mean;
    const auto d = gate(load_computed<Stored, L>(dy + at), [&] { return apart * of.factor + of.shift; });
    s[0] += d;
    s[1] += d * (apart * of.inv_std);
  });
  double* const pairs = pairs_of(args, strip);
  for (int j = 0; j < L; ++j) {
    pairs[2 * j] = total[0][j];
    pairs[2 * j + 1] = total[1][j];
  }
}

template <class Stored, int L, class Gates>
void write_gradient(const BatchNormGradArgs& args, const Gates& gate, const Strip& strip) {
  using T = Computed<Stored>;
  const GradNumbers<T, L> of(args, strip.channel);
  const T* const numbers = channel_numbers<T>(args) + strip.channel;
  const auto mean_dy = load_pack<T, L>(numbers), mean_dy_xhat = load_pack<T, L>(numbers + args.c);
  const Stored *const dy = static_cast<const Stored*>(args.dy), *const x = static_cast<const Stored*>(args.x);
  Stored* const dx = static_cast<Stored*>(args.dx);
  for (i64 at = strip.from; at < strip.end(); at += strip.step) {
    const auto apart = load_computed<Stored, L>(x + at) - of.mean;
    const auto d = gate(load_computed<Stored, L>(dy + at), [&] { return apart * of.factor + of.shift; });
    store_computed<Stored, L>(dx + at, of.factor * (d - mean_dy - apart * of.inv_std * mean_dy_xhat));
  }
}

template <class Stored, class Gates>
void grad_strips(const BatchNormGradArgs& args, const Gates& gate) {
  using T = Computed<Stored>;
  const i64 elements = args.n * args.c * args.spatial, parts = batch_norm_parts(args);
  for_strips(args, elements * 2, [&](auto lanes, const Strip& strip) {
    grad_sums<Stored, decltype(lanes)::value>(args, gate, strip);
  });
  const double* const pairs = static_cast<const double*>(args.workspace);
  T* const numbers = channel_numbers<T>(args);
  const double count = double(larger(1, args.n * args.spatial));
  parallel_for(args.c, parts * args.c * 2, [&](i64 c) {
    double sum_dy = 0, sum_dy_xhat = 0;
    for (i64 i = 0; i < parts; ++i) {
      sum_dy += pairs[2 * (i * args.c + c)];
      sum_dy_xhat += pairs[2 * (i * args.c + c) + 1];
    }
    if (args.dscale != nullptr) static_cast<T*>(args.dscale)[c] = T(sum_dy_xhat);
    if (args.dbias != nullptr) static_cast<T*>(args.dbias)[c] = T(sum_dy);
    numbers[c] = args.training ? T(sum_dy / count) : T(0);
    numbers[args.c + c] = args.training ? T(sum_dy_xhat / count) : T(0);
  });
  if (args.dx == nullptr) return;
  for_strips(args, elements * 2, [&](auto lanes, const Strip& strip) {
    write_gradient<Stored, decltype(lanes)::value>(args, gate, strip);
  });
}

template <class T>
void normalize(const BatchNormArgs& args) {
  if (batch_norm_parts(args) == 0) return normalize_channels<T>(args);
  normalize_strips<T>(args);
}
template <class T>
void grad(const BatchNormGradArgs& args) {
  with_gate<T>(args, [&](const auto& gate) {
    if (batch_norm_parts(args) == 0) return grad_channels<T>(args, gate);
    grad_strips<T>(args, gate);
  });
}

}  // namespace

void batch_norm(const BatchNormArgs& args) {
  if (args.dtype == DType::bf16) return normalize_strips<Brain>(args);
  GRADLOOM_FLOAT_DISPATCH(args.dtype, normalize, args);
}
void batch_norm_grad(const BatchNormGradArgs& args) {
  if (args.dtype == DType::bf16)
    return with_gate<Brain>(args, [&](const auto& gate) { grad_strips<Brain>(args, gate); });
  GRADLOOM_FLOAT_DISPATCH(args.dtype, grad, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
