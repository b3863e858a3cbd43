// Group normalization and its gradient against loops in double.
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

struct Case {
  std::int64_t n, groups, channels, spatial;
  std::int64_t count() const { return n * groups * channels * spatial; }
  std::int64_t all_channels() const { return groups * channels; }
};

template <class T>
struct Reference {
  std::vector<double> y, mean, inv_std, dx, dscale, dbias;
  Reference(const Case& s, double epsilon, const std::vector<T>& x, const std::vector<T>& scale,
            const std::vector<T>& bias, const std::vector<T>& dy)
      : y(x.size()), dx(x.size()), dscale(scale.size()), dbias(scale.size()) {
    const std::int64_t cols = s.channels * s.spatial;
    for (std::int64_t row = 0; row < s.n * s.groups; ++row) {
      const auto at = [&](std::int64_t c) { return std::size_t(row * cols + c); };
      const auto channel = [&](std::int64_t c) {
        return std::size_t(row % s.groups * s.channels + c / s.spatial);
      };
      double total = 0, squares = 0, sum_g = 0, sum_gx = 0;
      for (std::int64_t c = 0; c < cols; ++c) total += double(x[at(c)]);
      const double m = total / double(cols);
      for (std::int64_t c = 0; c < cols; ++c) squares += (double(x[at(c)]) - m) * (double(x[at(c)]) - m);
      const double inverse = 1 / std::sqrt(squares / double(cols) + epsilon);
      mean.push_back(m);
      inv_std.push_back(inverse);
      const auto xhat = [&](std::int64_t c) { return (double(x[at(c)]) - m) * inverse; };
      const auto g = [&](std::int64_t c) { return double(dy[at(c)]) * double(scale[channel(c)]); };
      for (std::int64_t c = 0; c < cols; ++c) {
        y[at(c)] = xhat(c) * double(scale[channel(c)]) + double(bias[channel(c)]);
        dscale[channel(c)] += double(dy[at(c)]) * xhat(c);
        dbias[channel(c)] += double(dy[at(c)]);
        sum_g += g(c);
        sum_gx += g(c) * xhat(c);
      }
      for (std::int64_t c = 0; c < cols; ++c)
        dx[at(c)] = inverse * (g(c) - sum_g / double(cols) - xhat(c) * sum_gx / double(cols));
    }
  }
};

template <class T>
std::vector<T> joined(const std::vector<std::vector<T>>& parts) {
  std::vector<T> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

template <class T>
void check(const Case& s, double center = 0) {
  const auto x = values<T>(s.count(), 1, center - 2, center + 2), dy = values<T>(s.count(), 4);
  const auto scale = values<T>(s.all_channels(), 2), bias = values<T>(s.all_channels(), 3);
  const Reference<T> r(s, 1e-5, x, scale, bias, dy);
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> y(x.size()), mean(r.mean.size()), inv_std(r.mean.size());
        k.group_norm({dtype_of<T>(), s.n, s.groups, s.channels, s.spatial, 1e-5, x.data(), scale.data(),
                      bias.data(), y.data(), mean.data(), inv_std.data()});
        return joined<T>({y, mean, inv_std});
      },
      joined<double>({r.y, r.mean, r.inv_std}), reduction_tolerance<T>(), "forward");
  const std::vector<T> mean(r.mean.begin(), r.mean.end()), inv_std(r.inv_std.begin(), r.inv_std.end());
  for (const bool all : {false, true}) {
    expect_on_every_level(
        [&](const CpuKernels& k) {
          std::vector<T> dx(x.size()), dscale(scale.size()), dbias(scale.size());
          GroupNormGradArgs args{dtype_of<T>(),
                                 s.n,
                                 s.groups,
                                 s.channels,
                                 s.spatial,
                                 dy.data(),
                                 x.data(),
                                 scale.data(),
                                 mean.data(),
                                 inv_std.data(),
                                 dx.data(),
                                 all ? dscale.data() : nullptr,
                                 all ? dbias.data() : nullptr,
                                 nullptr};
          std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
          args.workspace = workspace.data();
          k.group_norm_grad(args);
          return all ? joined<T>({dx, dscale, dbias}) : dx;
        },
        all ? joined<double>({r.dx, r.dscale, r.dbias}) : r.dx, gradient_tolerance<T>(), "gradient");
  }
}

TEST(GroupNorm, MatchesTheReference) {
  check<float>({4, 8, 4, 49});
  check<float>({3, 5, 1, 77}, 1);
  check<float>({2, 1, 7, 1});
  check<float>({1, 2, 3, 5003});
  check<float>({1, 1, 1, 1});
  check<double>({5, 3, 2, 31}, 3);
  check<double>({16, 4, 8, 64});
}

}  // namespace
}  // namespace gradloom::kernels::test
