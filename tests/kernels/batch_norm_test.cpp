// Batch normalization (training and inference) and its gradient against loops in double.
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

template <class T>
void check(bool training, std::int64_t n, std::int64_t channels, std::int64_t spatial) {
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
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(forward.size());
        T* const tail = out.data() + size;
        k.batch_norm({dtype_of<T>(), training, n, channels, spatial, epsilon, momentum, x.data(),
                      scale.data(), bias.data(), old_mean.data(), old_var.data(), out.data(), tail,
                      tail + channels, tail + 2 * channels, tail + 3 * channels});
        return out;
      },
      forward, reduction_tolerance<T>(), "forward");
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(backward.size());
        k.batch_norm_grad({dtype_of<T>(), training, n, channels, spatial, dy.data(), x.data(), scale.data(),
                           saved_mean.data(), saved_inv_std.data(), out.data(), out.data() + size,
                           out.data() + size + channels});
        return out;
      },
      backward, gradient_tolerance<T>(), "gradient");
}

TEST(BatchNorm, MatchesTheReference) {
  for (const bool training : {true, false}) {
    check<float>(training, 8, 16, 49);
    check<float>(training, 32, 13, 1);
    check<float>(training, 3, 5, 1009);
    check<float>(training, 64, 70, 100);
    check<double>(training, 5, 7, 31);
    check<double>(training, 2, 1, 3);
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
