// Batch normalization (training and inference) and its gradient against loops in double.
#include "tests/kernels/blocks.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

constexpr double kEpsilon = 1e-5, kMomentum = 0.9;

struct Dims {
  std::int64_t n, channels, spatial;
  std::int64_t size() const { return n * channels * spatial; }
  std::int64_t per_channel() const { return n * spatial; }
  std::size_t at(std::int64_t c, std::int64_t i) const {  // element i of channel c
    return std::size_t((i / spatial * channels + c) * spatial + i % spatial);
  }
};

// Operands, and what loops in double make of them: results with the new and the saved statistics
// behind them, gradients with those of scale and bias behind them.
template <class T>
struct Reference {
  Dims dims;
  bool training;
  std::vector<T> x = values<T>(dims.size(), 1, -1, 3), dy = values<T>(dims.size(), 2),
                 scale = values<T>(dims.channels, 3), bias = values<T>(dims.channels, 4),
                 old_mean = values<T>(dims.channels, 5), old_var = values<T>(dims.channels, 6, 0.5, 2);
  std::vector<double> forward = std::vector<double>(std::size_t(dims.size() + 4 * dims.channels)),
                      backward = std::vector<double>(std::size_t(dims.size() + 2 * dims.channels));
  std::vector<T> saved_mean{}, saved_inv_std{};

  void compute() {
    for (std::int64_t c = 0; c < dims.channels; ++c) {
      const auto [mean, inv_std] = statistics(c);
      saved_mean.push_back(T(mean));
      saved_inv_std.push_back(T(inv_std));
      results(c, mean, inv_std);
    }
  }

 private:
  std::pair<double, double> statistics(std::int64_t c) {
    const auto channel = std::size_t(c), end = std::size_t(dims.size()), all = std::size_t(dims.channels);
    const double count = double(dims.per_channel());
    double mean = double(old_mean[channel]), var = double(old_var[channel]);
    forward[end + channel] = mean;
    forward[end + all + channel] = var;
    if (training) {
      mean = var = 0;
      for (std::int64_t i = 0; i < dims.per_channel(); ++i) mean += double(x[dims.at(c, i)]) / count;
      for (std::int64_t i = 0; i < dims.per_channel(); ++i)
        var += (double(x[dims.at(c, i)]) - mean) * (double(x[dims.at(c, i)]) - mean) / count;
      forward[end + channel] = double(old_mean[channel]) * kMomentum + mean * (1 - kMomentum);
      forward[end + all + channel] = double(old_var[channel]) * kMomentum + var * (1 - kMomentum);
    }
    const double inv_std = 1 / std::sqrt(var + kEpsilon);
    forward[end + 2 * all + channel] = mean;
    forward[end + 3 * all + channel] = inv_std;
    return {mean, inv_std};
  }

  void results(std::int64_t c, double mean, double inv_std) {
    const auto channel = std::size_t(c), end = std::size_t(dims.size());
    const double count = double(dims.per_channel()), factor = double(scale[channel]) * inv_std;
    double sum_dy = 0, sum_dy_xhat = 0;
    for (std::int64_t i = 0; i < dims.per_channel(); ++i) {
      const std::size_t at = dims.at(c, i);
      const double xhat = (double(x[at]) - mean) * inv_std;
      forward[at] = xhat * double(scale[channel]) + double(bias[channel]);
      sum_dy += double(dy[at]);
      sum_dy_xhat += double(dy[at]) * xhat;
    }
    for (std::int64_t i = 0; i < dims.per_channel(); ++i) {
      const std::size_t at = dims.at(c, i);
      const double xhat = (double(x[at]) - mean) * inv_std;
      backward[at] =
          factor * (training ? double(dy[at]) - sum_dy / count - xhat * sum_dy_xhat / count : double(dy[at]));
    }
    backward[end + channel] = sum_dy_xhat;
    backward[end + std::size_t(dims.channels) + channel] = sum_dy;
  }
};

template <class T>
std::vector<T> run_forward(const CpuKernels& k, const Reference<T>& ref, const std::vector<T>& x,
                           std::int64_t block) {
  const auto [n, channels, spatial] = ref.dims;
  std::vector<T> out(ref.forward.size());
  T* const tail = out.data() + ref.dims.size();
  BatchNormArgs args{dtype_of<T>(),
                     ref.training,
                     n,
                     channels,
                     spatial,
                     kEpsilon,
                     kMomentum,
                     x.data(),
                     ref.scale.data(),
                     ref.bias.data(),
                     ref.old_mean.data(),
                     ref.old_var.data(),
                     out.data(),
                     tail,
                     tail + channels,
                     tail + 2 * channels,
                     tail + 3 * channels};
  args.block = block;
  std::vector<double> workspace(workspace_bytes(Target::cpu, args) / sizeof(double));
  args.workspace = workspace.data();
  k.batch_norm(args);
  return out;
}

template <class T>
std::vector<T> run_gradient(const CpuKernels& k, const Reference<T>& ref, const std::vector<T>& x,
                            const std::vector<T>& dy, std::int64_t block) {
  const auto [n, channels, spatial] = ref.dims;
  std::vector<T> out(ref.backward.size());
  T* const tail = out.data() + ref.dims.size();
  BatchNormGradArgs args{dtype_of<T>(),
                         ref.training,
                         n,
                         channels,
                         spatial,
                         dy.data(),
                         x.data(),
                         ref.scale.data(),
                         ref.saved_mean.data(),
                         ref.saved_inv_std.data(),
                         out.data(),
                         tail,
                         tail + channels};
  args.block = block;
  std::vector<double> workspace(workspace_bytes(Target::cpu, args) / sizeof(double));
  args.workspace = workspace.data();
  k.batch_norm_grad(args);
  return out;
}

template <class T>
void check(bool training, std::int64_t n, std::int64_t channels, std::int64_t spatial,
           std::int64_t block = 1) {
  Reference<T> ref{{n, channels, spatial}, training};
  ref.compute();
  const auto blocks = [&](const auto& plain) { return in_blocks(plain, n * channels, spatial, block); };
  const auto x = blocks(ref.x), dy = blocks(ref.dy);
  expect_on_every_level([&](const CpuKernels& k) { return run_forward(k, ref, x, block); },
                        blocks(ref.forward), reduction_tolerance<T>(), "forward");
  expect_on_every_level([&](const CpuKernels& k) { return run_gradient(k, ref, x, dy, block); },
                        blocks(ref.backward), gradient_tolerance<T>(), "gradient");
}

TEST(BatchNorm, MatchesTheReference) {
  for (const bool training : {true, false}) {
    check<float>(training, 8, 16, 49);
    check<float>(training, 32, 13, 1);
    check<float>(training, 3, 5, 1009);
    check<float>(training, 64, 70, 100);
    check<float>(training, 3, 2, 4115);  // sums of more than a block
    check<double>(training, 3, 2, 4115);
    check<double>(training, 5, 7, 31);
    check<double>(training, 2, 1, 3);
  }
}

TEST(BatchNorm, ChannelsInBlocks) {
  for (const bool training : {true, false}) {
    check<float>(training, 8, 64, 49, 16);
    check<float>(training, 3, 32, 1009, 32);
    check<float>(training, 32, 24, 1, 8);
    check<float>(training, 2, 12, 70, 4);
    check<float>(training, 5, 9, 11, 3);
    check<double>(training, 5, 32, 31, 16);
    check<double>(training, 2, 6, 600, 2);
  }
}

// A matrix [n, c]: the last of its parts has fewer rows.
TEST(BatchNorm, RowsOfAMatrix) {
  for (const bool training : {true, false}) {
    check<float>(training, 257, 70, 1);
    check<float>(training, 1500, 5, 1);
    check<float>(training, 40, 300, 1);
    check<float>(training, 2, 3, 1);
    check<double>(training, 700, 13, 1);
    check<double>(training, 256, 64, 1);
  }
}

// The mean is large against the deviation: no digits are lost in blocks either.
TEST(BatchNorm, BlocksOfLargeMeans) {
  const std::int64_t n = 4, spatial = 777;
  std::vector<float> x = values<float>(n * 16 * spatial, 1, -1, 1), y(x.size()), c(16, 1), zero(16, 0),
                     out(64);
  for (float& v : x) v += 1000;
  BatchNormArgs args{DType::f32, true,     n,        16,          spatial,     0,
                     0.9,        x.data(), c.data(), zero.data(), zero.data(), c.data(),
                     y.data(),   &out[0],  &out[16], &out[32],    &out[48]};
  args.block = 16;
  std::vector<double> workspace(workspace_bytes(Target::cpu, args) / sizeof(double));
  args.workspace = workspace.data();
  cpu().batch_norm(args);
  for (std::size_t channel = 0; channel < 16; ++channel) {
    double mean = 0, var = 0;
    for (std::size_t i = channel; i < x.size(); i += 16) mean += double(x[i]) / double(n * spatial);
    for (std::size_t i = channel; i < x.size(); i += 16)
      var += (double(x[i]) - mean) * (double(x[i]) - mean) / double(n * spatial);
    EXPECT_NEAR(out[32 + channel], mean, 1e-4);
    EXPECT_NEAR(out[48 + channel], 1 / std::sqrt(var), 1e-4 / std::sqrt(var));
  }
}

// What a loop of its own each would make of a plain result, and of the gradient on its way back to it.
template <class Stored, class P>
struct Followed {
  Dims dims;
  std::int64_t block;
  NormActivation activation;
  bool adds;
  double low = -0.25, high = 0.5;
  std::vector<Stored> x = values<Stored>(dims.size(), 1, -1, 3), dy = values<Stored>(dims.size(), 2),
                      added = values<Stored>(dims.size(), 3, -1, 1);
  std::vector<P> scale = values<P>(dims.channels, 4), bias = values<P>(dims.channels, 5),
                 zeros = std::vector<P>(std::size_t(dims.channels), P(0)),
                 statistics = std::vector<P>(std::size_t(4 * dims.channels), P(0));

  std::vector<Stored> forward(const CpuKernels& k, bool followed) {
    std::vector<Stored> y(x.size());
    P* const s = statistics.data();
    BatchNormArgs args{dtype_of<Stored>(),
                       true,
                       dims.n,
                       dims.channels,
                       dims.spatial,
                       kEpsilon,
                       kMomentum,
                       x.data(),
                       scale.data(),
                       bias.data(),
                       zeros.data(),
                       zeros.data(),
                       y.data(),
                       s,
                       s + dims.channels,
                       s + 2 * dims.channels,
                       s + 3 * dims.channels};
    args.parameters = dtype_of<P>();
    args.block = block;
    if (followed) {
      args.activation = activation;
      args.low = low;
      args.high = high;
      args.added = adds ? added.data() : nullptr;
    }
    std::vector<double> workspace(workspace_bytes(Target::cpu, args) / sizeof(double) + 1);
    args.workspace = workspace.data();
    k.batch_norm(args);
    if (followed) return y;
    for (std::size_t i = 0; i < y.size(); ++i) {
      P v = P(y[i]);
      if (adds) v = P(Stored(v + P(added[i])));
      if (activation == NormActivation::relu) v = v > P(0) ? v : P(0);
      if (activation == NormActivation::clip) v = std::min(std::max(v, P(low)), P(high));
      y[i] = Stored(v);
    }
    return y;
  }

  // dx, and the gradients of scale and bias behind it. `y`: what is not followed.
  std::vector<P> gradient(const CpuKernels& k, bool followed, const std::vector<Stored>& y) {
    std::vector<Stored> dx(x.size()), in = dy;
    std::vector<P> sums(std::size_t(2 * dims.channels));
    for (std::size_t i = 0; i < in.size() && !followed; ++i) {
      const P v = P(y[i]);
      const bool passes = activation == NormActivation::relu   ? v > P(0)
                          : activation == NormActivation::clip ? v > P(low) && v < P(high)
                                                               : true;
      if (!passes) in[i] = Stored(0);
    }
    BatchNormGradArgs args{dtype_of<Stored>(),
                           true,
                           dims.n,
                           dims.channels,
                           dims.spatial,
                           in.data(),
                           x.data(),
                           scale.data(),
                           statistics.data() + 2 * dims.channels,
                           statistics.data() + 3 * dims.channels,
                           dx.data(),
                           sums.data(),
                           sums.data() + dims.channels};
    args.parameters = dtype_of<P>();
    args.block = block;
    if (followed) {
      args.activation = activation;
      args.low = low;
      args.high = high;
      args.bias = bias.data();
    }
    std::vector<double> workspace(workspace_bytes(Target::cpu, args) / sizeof(double) + 1);
    args.workspace = workspace.data();
    k.batch_norm_grad(args);
    std::vector<P> all(dx.begin(), dx.end());
    all.insert(all.end(), sums.begin(), sums.end());
    return all;
  }
};

template <class Stored, class P = Stored>
void check_followed(Dims dims, std::int64_t block) {
  for (const NormActivation activation : {NormActivation::none, NormActivation::relu, NormActivation::clip})
    for (const bool adds : {false, true}) {
      Followed<Stored, P> one{dims, block, activation, adds};
      on_every_level([&](const CpuKernels& k) { return one.forward(k, true); },
                     [&](const std::vector<Stored>& y, const std::string& level) {
                       for (const CpuKernels* k : levels()) {
                         if (level != std::string("level ") + k->isa) continue;
                         EXPECT_TRUE(same_bits(y, one.forward(*k, false))) << level << " block " << block;
                       }
                     });
      if (adds) continue;
      Followed<Stored, P> plain{dims, block, NormActivation::none, false};
      for (const CpuKernels* k : levels()) {
        const std::vector<Stored> y = plain.forward(*k, false);
        one.statistics = plain.statistics;
        const std::vector<P> fused = one.gradient(*k, true, y), apart = one.gradient(*k, false, y);
        for (std::size_t i = 0; i < fused.size(); ++i)
          EXPECT_EQ(fused[i], apart[i]) << k->isa << " block " << block << " activation " << int(activation)
                                        << " element " << i << " of " << y.size();
      }
    }
}

TEST(BatchNorm, WhatFollowsItIsToTheBitWhatLoopsOfItsOwnMake) {
  check_followed<float>({3, 5, 1009}, 1);
  check_followed<double>({5, 7, 31}, 1);
  check_followed<float>({600, 27, 1}, 1);
  check_followed<double>({300, 70, 1}, 1);
  check_followed<float>({8, 64, 49}, 16);
  check_followed<float>({2, 12, 70}, 4);
  check_followed<float>({5, 9, 11}, 3);
  check_followed<double>({5, 32, 31}, 16);
  check_followed<Bf16, float>({8, 64, 49}, 16);
  check_followed<Bf16, float>({3, 24, 70}, 8);
  check_followed<Bf16, float>({5, 9, 11}, 3);
}

}  // namespace
}  // namespace gradloom::kernels::test
