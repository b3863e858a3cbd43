// Layer normalization and its gradient against loops in double.
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

template <class T>
struct Reference {
  std::vector<double> y, mean, inv_std, dx, dscale, dbias;
  Reference(std::int64_t rows, std::int64_t cols, double epsilon, const std::vector<T>& x,
            const std::vector<T>& scale, const std::vector<T>& bias, const std::vector<T>& dy,
            bool centered = true)
      : y(x.size()), dx(x.size()), dscale(std::size_t(cols)), dbias(std::size_t(cols)) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto at = [&](std::int64_t c) { return std::size_t(r * cols + c); };
      double total = 0, squares = 0, sum_g = 0, sum_gx = 0;
      for (std::int64_t c = 0; c < cols; ++c) total += double(x[at(c)]);
      const double m = centered ? total / double(cols) : 0;
      for (std::int64_t c = 0; c < cols; ++c) squares += (double(x[at(c)]) - m) * (double(x[at(c)]) - m);
      const double s = 1 / std::sqrt(squares / double(cols) + epsilon);
      mean.push_back(m);
      inv_std.push_back(s);
      for (std::int64_t c = 0; c < cols; ++c) {
        const double xhat = (double(x[at(c)]) - m) * s, g = double(dy[at(c)]) * double(scale[std::size_t(c)]);
        y[at(c)] = xhat * double(scale[std::size_t(c)]) + double(bias[std::size_t(c)]);
        dscale[std::size_t(c)] += double(dy[at(c)]) * xhat;
        dbias[std::size_t(c)] += double(dy[at(c)]);
        sum_g += g;
        sum_gx += g * xhat;
      }
      for (std::int64_t c = 0; c < cols; ++c) {
        const double xhat = (double(x[at(c)]) - m) * s, g = double(dy[at(c)]) * double(scale[std::size_t(c)]);
        dx[at(c)] = s * (g - (centered ? sum_g / double(cols) : 0) - xhat * sum_gx / double(cols));
      }
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
void check(std::int64_t rows, std::int64_t cols, double center, bool centered = true) {
  const auto x = values<T>(rows * cols, 1, center - 2, center + 2), scale = values<T>(cols, 2),
             bias = values<T>(cols, 3);
  const auto dy = values<T>(rows * cols, 4);
  const Reference<T> r(rows, cols, 1e-5, x, scale, bias, dy, centered);
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> y(x.size()), mean(r.mean.size()), inv_std(r.mean.size());
        k.layer_norm({dtype_of<T>(), rows, cols, 1e-5, x.data(), scale.data(), bias.data(), y.data(),
                      centered ? mean.data() : nullptr, inv_std.data(), centered});
        return joined<T>({y, mean, inv_std});
      },
      joined<double>({r.y, r.mean, r.inv_std}), reduction_tolerance<T>(), "forward");
  const std::vector<T> mean(r.mean.begin(), r.mean.end()), inv_std(r.inv_std.begin(), r.inv_std.end());
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> dx(x.size()), dscale(scale.size()), dbias(scale.size());
        LayerNormGradArgs args{dtype_of<T>(),
                               rows,
                               cols,
                               dy.data(),
                               x.data(),
                               scale.data(),
                               centered ? mean.data() : nullptr,
                               inv_std.data(),
                               dx.data(),
                               dscale.data(),
                               dbias.data(),
                               nullptr,
                               centered};
        std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
        args.workspace = workspace.data();
        k.layer_norm_grad(args);
        return joined<T>({dx, dscale, dbias});
      },
      joined<double>({r.dx, r.dscale, r.dbias}), gradient_tolerance<T>(), "gradient");
}

TEST(LayerNorm, MatchesTheReference) {
  check<float>(512, 128, 0);
  check<float>(1, 1, 0);
  check<float>(7, 13, 1);
  check<float>(2053, 97, 0);
  check<float>(3, 5003, 0.5);
  check<double>(67, 71, 3);
  check<double>(300, 257, 0);
  check<float>(0, 8, 0);
}

TEST(LayerNorm, NotCentered) {
  check<float>(512, 128, 0, false);
  check<float>(7, 13, 1, false);
  check<float>(3, 5003, 0.5, false);
  check<double>(67, 71, 3, false);
}

TEST(LayerNorm, EveryGradientOutputIsOptional) {
  const std::int64_t rows = 9, cols = 21;
  const auto x = values<float>(rows * cols, 1), dy = values<float>(rows * cols, 2),
             scale = values<float>(cols, 3);
  const Reference<float> r(rows, cols, 1e-5, x, scale, scale, dy);
  const std::vector<float> mean(r.mean.begin(), r.mean.end()), inv_std(r.inv_std.begin(), r.inv_std.end());
  for (const CpuKernels* k : levels()) {
    std::vector<float> dx(x.size()), dscale(std::size_t{cols}), dbias(std::size_t{cols}),
        workspace(64 * 2 * cols);
    k->layer_norm_grad({DType::f32, rows, cols, dy.data(), x.data(), scale.data(), mean.data(),
                        inv_std.data(), dx.data(), nullptr, nullptr, workspace.data()});
    expect_close(dx, r.dx, gradient_tolerance<float>(), "dx alone");
    k->layer_norm_grad({DType::f32, rows, cols, dy.data(), x.data(), scale.data(), mean.data(),
                        inv_std.data(), nullptr, dscale.data(), dbias.data(), workspace.data()});
    expect_close(dscale, r.dscale, gradient_tolerance<float>(), "dscale alone");
    expect_close(dbias, r.dbias, gradient_tolerance<float>(), "dbias alone");
  }
}

TEST(LayerNorm, NanStaysInItsRow) {
  std::vector<float> x(3 * 33, 0.0f), y(3 * 33), scale(33, 1.0f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(i % 7);
  x[40] = NAN;
  for (const CpuKernels* k : levels()) {
    k->layer_norm({DType::f32, 3, 33, 1e-5, x.data(), scale.data(), nullptr, y.data(), nullptr, nullptr});
    EXPECT_FALSE(std::isnan(y[0]));
    EXPECT_TRUE(std::isnan(y[33]));
    EXPECT_FALSE(std::isnan(y[66]));
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
