// Batch normalization (training and inference) and its gradient against loops in double.
#include "tests/kernels/blocks.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

template <class T>
void check(bool training, std::int64_t n, std::int64_t channels, std::int64_t spatial,
           std::int64_t block = 1) {
  const std::int64_t size = n * channels * spatial;
  const double epsilon = 1e-5, momentum = 0.9, count = double(n * spatial);
  const auto x = values<T>(size, 1, -1, 3), dy = values<T>(size, 2), scale = values<T>(channels, 3),
             bias = values<T>(channels, 4), old_mean = values<T>(channels, 5),
             old_var = values<T>(channels, 6, 0.5, 2);
  std::vector<double> forward(std::size_t(size + 4 * channels)), backward(std::size_t(size + 2 * channels));
  std::vector<T> saved_mean, saved_inv_std;
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto at = [&](std::int64_t i) {
      return std::size_t((i / spatial * channels + c) * spatial + i % spatial);
    };
    const auto channel = std::size_t(c), end = std::size_t(size);
    double mean = double(old_mean[channel]), var = double(old_var[channel]);
    forward[end + channel] = mean;
    forward[end + std::size_t(channels) + channel] = var;
    if (training) {
      mean = var = 0;
      for (std::int64_t i = 0; i < n * spatial; ++i) mean += double(x[at(i)]) / count;
      for (std::int64_t i = 0; i < n * spatial; ++i)
        var += (double(x[at(i)]) - mean) * (double(x[at(i)]) - mean) / count;
      forward[end + channel] = double(old_mean[channel]) * momentum + mean * (1 - momentum);
      forward[end + std::size_t(channels) + channel] =
          double(old_var[channel]) * momentum + var * (1 - momentum);
    }
    const double inv_std = 1 / std::sqrt(var + epsilon);
    forward[end + std::size_t(2 * channels) + channel] = mean;
    forward[end + std::size_t(3 * channels) + channel] = inv_std;
    saved_mean.push_back(T(mean));
    saved_inv_std.push_back(T(inv_std));
    double sum_dy = 0, sum_dy_xhat = 0;
    for (std::int64_t i = 0; i < n * spatial; ++i) {
      const double xhat = (double(x[at(i)]) - mean) * inv_std;
      forward[at(i)] = xhat * double(scale[channel]) + double(bias[channel]);
      sum_dy += double(dy[at(i)]);
      sum_dy_xhat += double(dy[at(i)]) * xhat;
    }
    for (std::int64_t i = 0; i < n * spatial; ++i) {
      const double xhat = (double(x[at(i)]) - mean) * inv_std, factor = double(scale[channel]) * inv_std;
      backward[at(i)] = factor * (training ? double(dy[at(i)]) - sum_dy / count - xhat * sum_dy_xhat / count
                                           : double(dy[at(i)]));
    }
    backward[end + channel] = sum_dy_xhat;
    backward[end + std::size_t(channels) + channel] = sum_dy;
  }
  const auto blocks = [&](const auto& plain) { return in_blocks(plain, n * channels, spatial, block); };
  const auto own_x = blocks(x), own_dy = blocks(dy);
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(forward.size());
        T* const tail = out.data() + size;
        BatchNormArgs args{dtype_of<T>(),
                           training,
                           n,
                           channels,
                           spatial,
                           epsilon,
                           momentum,
                           own_x.data(),
                           scale.data(),
                           bias.data(),
                           old_mean.data(),
                           old_var.data(),
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
      },
      blocks(forward), reduction_tolerance<T>(), "forward");
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(backward.size());
        BatchNormGradArgs args{dtype_of<T>(),
                               training,
                               n,
                               channels,
                               spatial,
                               own_dy.data(),
                               own_x.data(),
                               scale.data(),
                               saved_mean.data(),
                               saved_inv_std.data(),
                               out.data(),
                               out.data() + size,
                               out.data() + size + channels};
        args.block = block;
        std::vector<double> workspace(workspace_bytes(Target::cpu, args) / sizeof(double));
        args.workspace = workspace.data();
        k.batch_norm_grad(args);
        return out;
      },
      blocks(backward), gradient_tolerance<T>(), "gradient");
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
