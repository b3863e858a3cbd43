// GridSample against a plain evaluation in double, and its gradients: that of x is its transpose, that of the
// grid agrees with differences.
#include <algorithm>
#include <cstddef>

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using i64 = std::int64_t;

struct Sizes {
  i64 n = 2, c = 9, in[2] = {4, 5}, out[2] = {3, 7};  // height, width
};
struct Case {
  GridMode mode;
  GridPadding padding;
  bool align;
  int rank;
  Sizes sizes = {};
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const auto mode : {GridMode::linear, GridMode::nearest, GridMode::cubic})
    for (const auto padding : {GridPadding::zeros, GridPadding::border, GridPadding::reflection})
      for (const bool align : {false, true})
        for (const int rank : {2, 3}) list.push_back({mode, padding, align, rank});
  // One channel; groups that are not full; a whole one and more; points that read few of the pixels; many
  // images and a large one, in parallel.
  for (const Sizes& sizes :
       {Sizes{2, 1}, Sizes{2, 2}, Sizes{1, 5}, Sizes{1, 16}, Sizes{2, 20}, Sizes{3, 3, {90, 110}, {2, 9}},
        Sizes{5, 40, {8, 9}, {20, 8}}, Sizes{1, 6, {40, 50}, {50, 45}}})
    for (const int rank : {2, 3}) {
      list.push_back({GridMode::linear, GridPadding::zeros, false, rank, sizes});
      list.push_back({GridMode::cubic, GridPadding::reflection, true, rank, sizes});
    }
  return list;
}

GridSampleArgs args_of(const Case& c, DType dtype) {
  GridSampleArgs args{};
  args.dtype = dtype;
  args.mode = c.mode;
  args.padding = c.padding;
  args.align_corners = c.align;
  args.rank = c.rank;
  args.n = c.sizes.n;
  args.c = c.sizes.c;
  const i64 in[] = {c.rank == 3 ? 3 : 1, c.sizes.in[0], c.sizes.in[1]},
            out[] = {c.rank == 3 ? 2 : 1, c.sizes.out[0], c.sizes.out[1]};
  for (int a = 0; a < kGridRank; ++a) {
    args.in[a] = in[a];
    args.out[a] = out[a];
  }
  return args;
}
i64 area(const i64* sizes) { return sizes[0] * sizes[1] * sizes[2]; }

std::string name_of(const Case& c) {
  return "mode " + std::to_string(int(c.mode)) + " padding " + std::to_string(int(c.padding)) + " rank " +
         std::to_string(c.rank) + " channels " + std::to_string(c.sizes.c);
}

// Enough for the kernel, with numbers in it that it must not read.
template <class Args>
std::vector<double> workspace_of(const Args& args) {
  return std::vector<double>(workspace_bytes(Target::cpu, args) / sizeof(double) + 1,
                             std::numeric_limits<double>::quiet_NaN());
}

// The reference implementation of ONNX, for one axis: the position and what it reads.
double reflect(double x, double low, double high) {
  const double range = high - low;
  if (x < low) {
    const double dx = low - x;
    const auto n = i64(dx / range);
    const double r = dx - double(n) * range;
    return n % 2 == 0 ? low + r : high - r;
  }
  if (x > high) {
    const double dx = x - high;
    const auto n = i64(dx / range);
    const double r = dx - double(n) * range;
    return n % 2 == 0 ? high - r : low + r;
  }
  return x;
}
struct Read {
  std::vector<i64> at;
  std::vector<double> weight;
};
Read read(const Case& c, double g, i64 size) {
  const double low = c.align ? 0 : -0.5, high = c.align ? double(size - 1) : double(size) - 0.5;
  double x = c.align ? (g + 1) / 2 * double(size - 1) : ((g + 1) * double(size) - 1) / 2;
  if (c.mode == GridMode::nearest) x = std::nearbyint(x);
  if (x < low || x > high) {
    if (c.padding == GridPadding::border) x = std::min(std::max(x, 0.0), double(size - 1));
    if (c.padding == GridPadding::reflection) x = reflect(x, low, high);
  }
  const auto pixel = [&](double i) {
    if (c.padding == GridPadding::border) return i64(std::min(std::max(i, 0.0), double(size - 1)));
    if (c.padding == GridPadding::reflection) return i64(reflect(i, low, high));
    return i >= 0 && i < double(size) ? i64(i) : i64(-1);
  };
  const double floor = std::floor(x), t = x - floor;
  if (c.mode == GridMode::nearest) return {{pixel(x)}, {1}};
  if (c.mode == GridMode::linear) return {{pixel(floor), pixel(floor + 1)}, {1 - t, t}};
  const auto keys = [](double d) {
    d = std::abs(d);
    const double a = -0.75;
    return d <= 1 ? (a + 2) * d * d * d - (a + 3) * d * d + 1
                  : a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a;
  };
  Read r;
  for (int i = -1; i <= 2; ++i) {
    r.at.push_back(pixel(floor + i));
    r.weight.push_back(keys(t - i));
  }
  return r;
}

template <class T>
std::vector<double> expected(const Case& c, const GridSampleArgs& s, const std::vector<T>& x,
                             const std::vector<T>& grid) {
  std::vector<double> y(std::size_t(s.n * s.c * area(s.out)), 0);
  for (i64 n = 0; n < s.n; ++n)
    for (i64 o = 0; o < area(s.out); ++o) {
      Read axes[3] = {{{0}, {1}}, {}, {}};
      for (int a = 3 - s.rank; a < 3; ++a)
        axes[a] = read(c, double(grid[std::size_t((n * area(s.out) + o) * s.rank + 2 - a)]), s.in[a]);
      for (std::size_t i = 0; i < axes[0].at.size(); ++i)
        for (std::size_t j = 0; j < axes[1].at.size(); ++j)
          for (std::size_t k = 0; k < axes[2].at.size(); ++k) {
            if (axes[0].at[i] < 0 || axes[1].at[j] < 0 || axes[2].at[k] < 0) continue;
            const i64 pixel = (axes[0].at[i] * s.in[1] + axes[1].at[j]) * s.in[2] + axes[2].at[k];
            for (i64 ch = 0; ch < s.c; ++ch)
              y[std::size_t((n * s.c + ch) * area(s.out) + o)] +=
                  axes[0].weight[i] * axes[1].weight[j] * axes[2].weight[k] *
                  double(x[std::size_t((n * s.c + ch) * area(s.in) + pixel)]);
          }
    }
  return y;
}

template <class T>
void check_forward(const Case& c) {
  const GridSampleArgs s = args_of(c, dtype_of<T>());
  const auto x = values<T>(s.n * s.c * area(s.in), 1),
             grid = values<T>(s.n * area(s.out) * s.rank, 2, -1.9, 1.9);
  // Positions are rounded in T: to 2^-24 of the size in float.
  const double tolerance = std::is_same_v<T, float> ? 4e-6 * double(std::max(s.in[1], s.in[2])) : 1e-12;
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> y(std::size_t(s.n * s.c * area(s.out)), T(7));
        GridSampleArgs call = s;
        call.x = x.data();
        call.grid = grid.data();
        call.y = y.data();
        auto workspace = workspace_of(call);
        call.workspace = workspace.data();
        k.grid_sample(call);
        return y;
      },
      expected(c, s, x, grid), {tolerance, tolerance}, name_of(c));
}

TEST(GridSample, AgreesWithTheReference) {
  for (const Case& c : cases()) {
    check_forward<double>(c);
    if (c.mode != GridMode::nearest) check_forward<float>(c);  // rounding in float may take another neighbour
  }
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// dx is the transposed forward, which is linear in x: <dy, J x> = <J^T dy, x>. dgrid: differences of <dy, y>.
TEST(GridSample, GradientsAgreeWithTheForward) {
  for (const Case& c : cases()) {
    const GridSampleArgs s = args_of(c, DType::f64);
    const auto x = values<double>(s.n * s.c * area(s.in), 1),
               grid = values<double>(s.n * area(s.out) * s.rank, 2, -1.9, 1.9);
    const auto dy = values<double>(s.n * s.c * area(s.out), 3), along = values<double>(i64(grid.size()), 4);
    const double forward = dot(expected(c, s, x, grid), dy), step = 1e-6;
    double sides[2];
    for (const int side : {0, 1}) {
      std::vector<double> moved = grid;
      for (std::size_t i = 0; i < grid.size(); ++i) moved[i] += (side == 0 ? -step : step) * along[i];
      sides[side] = dot(expected(c, s, x, moved), dy);
    }
    const double slope = (sides[1] - sides[0]) / (2 * step);
    for (const bool with_dx : {true, false}) {
      on_every_level(
          [&](const CpuKernels& k) {
            std::vector<double> gradients(x.size() + grid.size(), 7);
            GridSampleGradArgs call{s, dy.data(), with_dx ? gradients.data() : nullptr,
                                    gradients.data() + x.size(), nullptr};
            auto workspace = workspace_of(call);
            call.workspace = workspace.data();
            call.shape.x = x.data();
            call.shape.grid = grid.data();
            k.grid_sample_grad(call);
            return gradients;
          },
          [&](const std::vector<double>& gradients, const std::string& level) {
            const auto middle = gradients.begin() + std::ptrdiff_t(x.size());
            if (with_dx) {
              EXPECT_NEAR(dot({gradients.begin(), middle}, x), forward, 1e-9 * std::abs(forward) + 1e-9)
                  << name_of(c) << " " << level;
            }
            EXPECT_NEAR(dot({middle, gradients.end()}, along), slope, 1e-5 * std::abs(slope) + 1e-4)
                << name_of(c) << " " << level;
          });
    }
  }
}

// dx alone, and in float.
TEST(GridSample, FloatsAgreeWithDoubles) {
  for (const Case& c : cases()) {
    if (c.mode == GridMode::nearest) continue;
    const GridSampleArgs s = args_of(c, DType::f64);
    const auto x = values<float>(s.n * s.c * area(s.in), 1),
               grid = values<float>(s.n * area(s.out) * s.rank, 2, -1.9, 1.9);
    const auto dy = values<float>(s.n * s.c * area(s.out), 3);
    const auto run = [&](const CpuKernels& k, auto number, bool with_dgrid) {
      using T = decltype(number);
      const std::vector<T> xs(x.begin(), x.end()), grids(grid.begin(), grid.end()), dys(dy.begin(), dy.end());
      std::vector<T> gradients(x.size() + grid.size(), T(7));
      GridSampleGradArgs call{s, dys.data(), gradients.data(),
                              with_dgrid ? gradients.data() + x.size() : nullptr, nullptr};
      call.shape.dtype = dtype_of<T>();
      call.shape.x = xs.data();
      call.shape.grid = grids.data();
      auto workspace = workspace_of(call);
      call.workspace = workspace.data();
      k.grid_sample_grad(call);
      return gradients;
    };
    for (const bool with_dgrid : {true, false})
      expect_on_every_level([&](const CpuKernels& k) { return run(k, 0.0f, with_dgrid); },
                            run(*levels().front(), 0.0, with_dgrid), {2e-4, 2e-4 * double(s.in[2])},
                            name_of(c));
  }
}

TEST(GridSample, HugeAndMissingNumbersStayInside) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& c : cases()) {
    if (c.rank != 2) continue;
    GridSampleArgs s = args_of(c, DType::f64);
    s.n = 1;
    const auto x = values<double>(s.c * area(s.in), 1);
    std::vector<double> grid(std::size_t(area(s.out) * 2), 0.0), y(std::size_t(s.c * area(s.out)));
    grid[0] = nan;
    grid[3] = 1e300;
    grid[4] = -1e18;
    grid[7] = std::numeric_limits<double>::infinity();
    s.x = x.data();
    s.grid = grid.data();
    s.y = y.data();
    auto workspace = workspace_of(s);
    s.workspace = workspace.data();
    for (const CpuKernels* k : levels())
      k->grid_sample(s);  // no access outside (sanitizers tell), no endless loop
    EXPECT_FALSE(std::isnan(y.back()));
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
