// Pooling against loops over a padded plane.
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

struct Window {
  std::int64_t h, w, kh, kw, stride_h, stride_w, pad_top, pad_left, pad_bottom, pad_right, dilation_h,
      dilation_w;
  std::int64_t oh() const { return (h + pad_top + pad_bottom - (kh - 1) * dilation_h - 1) / stride_h + 1; }
  std::int64_t ow() const { return (w + pad_left + pad_right - (kw - 1) * dilation_w - 1) / stride_w + 1; }
};

const Window kWindows[] = {{28, 28, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1}, {13, 17, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},
                           {9, 7, 3, 2, 1, 1, 2, 0, 1, 1, 1, 1},   {11, 11, 3, 3, 1, 2, 0, 1, 2, 1, 2, 3},
                           {1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1},   {7, 7, 7, 7, 1, 1, 0, 0, 0, 0, 1, 1}};

template <class T>
void check_max(const Window& w, std::int64_t planes) {
  const auto x = values<T>(planes * w.h * w.w, 1), dy = values<T>(planes * w.oh() * w.ow(), 2);
  std::vector<double> y, dx(x.size());
  std::vector<std::int64_t> argmax;
  for (std::int64_t p = 0; p < planes; ++p) {
    for (std::int64_t oy = 0; oy < w.oh(); ++oy) {
      for (std::int64_t ox = 0; ox < w.ow(); ++ox) {
        double best = -INFINITY;
        std::int64_t where = -1;
        for (std::int64_t i = 0; i < w.kh * w.kw; ++i) {
          const std::int64_t iy = oy * w.stride_h - w.pad_top + i / w.kw * w.dilation_h;
          const std::int64_t ix = ox * w.stride_w - w.pad_left + i % w.kw * w.dilation_w;
          if (iy < 0 || iy >= w.h || ix < 0 || ix >= w.w) continue;
          const double v = double(x[std::size_t((p * w.h + iy) * w.w + ix)]);
          if (v > best) {
            best = v;
            where = iy * w.w + ix;
          }
        }
        dx[std::size_t(p * w.h * w.w + where)] += double(dy[y.size()]);
        y.push_back(best);
        argmax.push_back(where);
      }
    }
  }
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(y.size());
        std::vector<std::int64_t> found(y.size());
        k.max_pool({dtype_of<T>(), planes, w.h, w.w, w.oh(), w.ow(), w.kh, w.kw, w.stride_h, w.stride_w,
                    w.pad_top, w.pad_left, w.dilation_h, w.dilation_w, x.data(), out.data(), found.data()});
        EXPECT_EQ(found, argmax);
        return out;
      },
      y, {0, 0}, "max");
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(x.size(), T(9));
        k.max_pool_grad(
            {dtype_of<T>(), planes, w.h, w.w, w.oh(), w.ow(), dy.data(), argmax.data(), out.data()});
        return out;
      },
      dx, gradient_tolerance<T>(), "max gradient");
}

template <class T>
void check_average(const Window& w, std::int64_t planes, bool include_pad) {
  const auto x = values<T>(planes * w.h * w.w, 1), dy = values<T>(planes * w.oh() * w.ow(), 2);
  std::vector<double> y, dx(x.size());
  for (std::int64_t p = 0; p < planes; ++p) {
    for (std::int64_t oy = 0; oy < w.oh(); ++oy) {
      for (std::int64_t ox = 0; ox < w.ow(); ++ox) {
        std::vector<std::size_t> inside;
        for (std::int64_t i = 0; i < w.kh * w.kw; ++i) {
          const std::int64_t iy = oy * w.stride_h - w.pad_top + i / w.kw,
                             ix = ox * w.stride_w - w.pad_left + i % w.kw;
          if (iy >= 0 && iy < w.h && ix >= 0 && ix < w.w)
            inside.push_back(std::size_t((p * w.h + iy) * w.w + ix));
        }
        const double count = include_pad ? double(w.kh * w.kw) : double(inside.size());
        double total = 0;
        for (const std::size_t i : inside) total += double(x[i]);
        for (const std::size_t i : inside) dx[i] += double(dy[y.size()]) / count;
        y.push_back(total / count);
      }
    }
  }
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(y.size());
        k.average_pool({dtype_of<T>(), planes, w.h, w.w, w.oh(), w.ow(), w.kh, w.kw, w.stride_h, w.stride_w,
                        w.pad_top, w.pad_left, include_pad, x.data(), out.data()});
        return out;
      },
      y, reduction_tolerance<T>(), "average");
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(x.size(), T(9));
        k.average_pool_grad({dtype_of<T>(), planes, w.h, w.w, w.oh(), w.ow(), w.kh, w.kw, w.stride_h,
                             w.stride_w, w.pad_top, w.pad_left, include_pad, dy.data(), out.data()});
        return out;
      },
      dx, gradient_tolerance<T>(), "average gradient");
}

TEST(Pool, Max) {
  for (const Window& w : kWindows) {
    check_max<float>(w, 5);
    check_max<double>(w, 3);
  }
  check_max<float>(kWindows[0], 200);
}

TEST(Pool, Average) {
  for (Window w : kWindows) {
    w.dilation_h = w.dilation_w = 1;
    for (const bool include_pad : {false, true}) {
      check_average<float>(w, 5, include_pad);
      check_average<double>(w, 3, include_pad);
    }
  }
  check_average<float>(kWindows[1], 200, true);
}

TEST(Pool, MaxKeepsNanAndPaddingNeverWins) {
  const std::vector<float> x = {-5, NAN, -7, -8, -9, -1, -2, -3, -4};
  for (const CpuKernels* k : levels()) {
    std::vector<float> y(4);
    k->max_pool({DType::f32, 1, 3, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, x.data(), y.data(), nullptr});
    EXPECT_EQ(y[0], -5.0f);  // one element and three padded ones
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], -2.0f);
    EXPECT_EQ(y[3], -1.0f);
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
