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

}  // namespace
}  // namespace gradloom::kernels::test
