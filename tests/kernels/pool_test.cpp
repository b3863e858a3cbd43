// Pooling against loops over padded planes.
#include "tests/kernels/blocks.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

struct Dim {
  std::int64_t size, kernel, stride, pad_begin, pad_end, dilation,
      extra = 0;  // extra: windows beyond the pads (ceil_mode)
  std::int64_t out() const {
    return (size + pad_begin + pad_end - (kernel - 1) * dilation - 1) / stride + 1 + extra;
  }
};
struct Window {
  Dim dims[3];
};
constexpr Dim kFlat{1, 1, 1, 0, 0, 1};

PoolShape shape_of(const Window& w, std::int64_t planes) {
  PoolShape s{};
  s.planes = planes;
  for (int d = 0; d < 3; ++d) {
    const Dim& dim = w.dims[d];
    s.in[d] = dim.size;
    s.out[d] = dim.out();
    s.kernel[d] = dim.kernel;
    s.stride[d] = dim.stride;
    s.pad_begin[d] = dim.pad_begin;
    s.pad_end[d] = dim.pad_end;
    s.dilation[d] = dim.dilation;
  }
  return s;
}
std::int64_t area(const std::int64_t (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

const Window kWindows[] = {
    {{kFlat, {28, 2, 2, 0, 0, 1}, {28, 2, 2, 0, 0, 1}}},
    {{kFlat, {13, 3, 2, 1, 1, 1}, {17, 3, 2, 1, 1, 1}}},
    {{kFlat, {9, 3, 1, 2, 1, 1}, {7, 2, 1, 0, 1, 1}}},
    {{kFlat, {11, 3, 1, 0, 2, 2}, {11, 3, 2, 1, 1, 3}}},
    {{kFlat, kFlat, kFlat}},
    {{kFlat, {7, 7, 1, 0, 0, 1}, {7, 7, 1, 0, 0, 1}}},  // whole planes
    {{{3, 3, 1, 0, 0, 1}, {5, 5, 2, 0, 0, 1}, {9, 9, 1, 0, 0, 1}}},
    {{kFlat, {130, 130, 1, 0, 0, 1}, {127, 127, 1, 0, 0, 1}}},
    {{kFlat, {7, 7, 1, 0, 3, 1}, {1, 1, 1, 0, 0, 4}}},
    {{{5, 2, 2, 1, 0, 1}, {6, 3, 1, 1, 1, 2}, {70, 3, 1, 1, 1, 1}}},
    {{{4, 2, 1, 0, 1, 3}, {3, 1, 1, 0, 0, 1}, {9, 4, 3, 2, 2, 1}}},
    {{kFlat, {6, 3, 2, 0, 0, 1, 1}, {5, 3, 2, 1, 0, 1, 1}}},
    {{kFlat, {5, 3, 2, 1, 1, 1}, {112, 3, 2, 1, 1, 1}}},  // several registers of outputs, some whole
    {{kFlat, {6, 3, 1, 1, 1, 1}, {83, 5, 1, 2, 2, 1}}},
    {{kFlat, {4, 2, 2, 0, 0, 1}, {150, 4, 3, 1, 1, 2}}},
    {{kFlat, {3, 1, 1, 0, 0, 1}, {97, 1, 2, 0, 0, 1}}},
    {{kFlat, {9, 9, 1, 4, 4, 1}, {33, 9, 1, 4, 4, 1}}},    // more taps than are summed in f32
    {{kFlat, {3, 2, 1, 0, 1, 1}, {2500, 3, 1, 1, 1, 1}}},  // rows of several strips
    {{kFlat, {3, 3, 2, 1, 1, 1}, {4300, 3, 2, 1, 1, 1}}},
    {{kFlat, {300, 3, 1, 1, 1, 1}, {35, 3, 1, 1, 1, 1}}},  // planes of several pieces
    {{kFlat, {61, 2, 2, 0, 0, 1}, {65, 2, 2, 1, 0, 1}}},
    {{{3, 2, 1, 0, 0, 1}, {40, 3, 1, 1, 1, 1}, {80, 3, 2, 0, 1, 1}}},
    {{kFlat, {24, 4, 4, 0, 0, 1}, {90, 4, 4, 1, 0, 1}}},
    {{kFlat, {7, 2, 3, 0, 0, 1}, {71, 2, 5, 0, 1, 1}}},  // inputs that no window has
    {{kFlat, {40, 3, 20, 0, 0, 1}, {80, 3, 20, 1, 0, 1}}},
};

// visit(output, positions inside the plane, taps inside the plane and its pads).
template <class Visit>
void for_windows(const PoolShape& s, const Visit& visit) {
  for (std::int64_t output = 0; output < area(s.out); ++output) {
    const std::int64_t at[] = {output / s.out[2] / s.out[1], output / s.out[2] % s.out[1], output % s.out[2]};
    std::vector<std::int64_t> inside;
    std::int64_t padded = 0;
    for (std::int64_t tap = 0; tap < area(s.kernel); ++tap) {
      const std::int64_t taps[] = {tap / s.kernel[2] / s.kernel[1], tap / s.kernel[2] % s.kernel[1],
                                   tap % s.kernel[2]};
      std::int64_t position = 0;
      bool in = true, in_pads = true;
      for (int d = 0; d < 3; ++d) {
        const std::int64_t p = at[d] * s.stride[d] - s.pad_begin[d] + taps[d] * s.dilation[d];
        in = in && p >= 0 && p < s.in[d];
        in_pads = in_pads && p < s.in[d] + s.pad_end[d];
        position = position * s.in[d] + p;
      }
      if (in) inside.push_back(position);
      padded += in_pads;
    }
    visit(output, inside, padded);
  }
}

template <class T>
void check_max(const Window& w, std::int64_t planes, bool many_equal) {
  const PoolShape s = shape_of(w, planes);
  const std::int64_t in = area(s.in), out = area(s.out);
  auto x = values<T>(planes * in, 1);
  for (T& v : x) v = many_equal ? std::round(v) : v;
  const auto dy = values<T>(planes * out, 2);
  std::vector<double> y, dx(x.size());
  std::vector<std::int64_t> argmax, rows, columns;
  for (std::int64_t p = 0; p < planes; ++p) {
    for_windows(s, [&](std::int64_t, const std::vector<std::int64_t>& inside, std::int64_t) {
      double best = -INFINITY;
      std::int64_t where = -1;
      for (const std::int64_t i : inside) {
        if (double(x[std::size_t(p * in + i)]) > best) {
          best = double(x[std::size_t(p * in + i)]);
          where = i;
        }
      }
      dx[std::size_t(p * in + where)] += double(dy[y.size()]);
      y.push_back(best);
      argmax.push_back(where);
      rows.push_back(p * in + where);
      const std::int64_t column = where % s.in[2], row = where / s.in[2] % s.in[1],
                         deep = where / s.in[2] / s.in[1];
      columns.push_back(p * in + deep + s.in[0] * row + s.in[0] * s.in[1] * column);
    });
  }
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> result(y.size());
        std::vector<std::int64_t> found(y.size()), indices(y.size());
        for (const bool column_major : {false, true}) {
          k.max_pool({dtype_of<T>(), s, x.data(), result.data(), found.data(), column_major, indices.data()});
          EXPECT_EQ(found, argmax);
          EXPECT_EQ(indices, column_major ? columns : rows);
        }
        return result;
      },
      y, {0, 0}, "max");
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> result(x.size(), T(9));
        k.max_pool_grad({dtype_of<T>(), planes, s.in[0] * s.in[1], s.in[2], s.out[0] * s.out[1], s.out[2],
                         dy.data(), argmax.data(), result.data()});
        return result;
      },
      dx, gradient_tolerance<T>(), "max gradient");
}

template <class T>
void check_average(const Window& w, std::int64_t planes, PoolDivisor divisor) {
  const PoolShape s = shape_of(w, planes);
  const std::int64_t in = area(s.in);
  const auto x = values<T>(planes * in, 1), dy = values<T>(planes * area(s.out), 2);
  std::vector<double> y, dx(x.size());
  for (std::int64_t p = 0; p < planes; ++p) {
    for_windows(s, [&](std::int64_t, const std::vector<std::int64_t>& inside, std::int64_t padded) {
      const double count = divisor == PoolDivisor::one      ? 1
                           : divisor == PoolDivisor::padded ? double(padded)
                                                            : double(inside.size());
      double total = 0;
      for (const std::int64_t i : inside) total += double(x[std::size_t(p * in + i)]);
      for (const std::int64_t i : inside) dx[std::size_t(p * in + i)] += double(dy[y.size()]) / count;
      y.push_back(total / count);
    });
  }
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> result(y.size());
        k.average_pool({dtype_of<T>(), s, divisor, x.data(), result.data()});
        return result;
      },
      y, reduction_tolerance<T>(), "average");
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> result(x.size(), T(9));
        k.average_pool_grad({dtype_of<T>(), s, divisor, dy.data(), result.data()});
        return result;
      },
      dx, gradient_tolerance<T>(), "average gradient");
}

// Planes in blocks give what each plane gives by itself, to the bit; averages of whole planes are sums of
// neighbours or of every channel, so in another order.
template <class T>
void check_blocks(const Window& w, std::int64_t block) {
  const std::int64_t planes = 2 * block;
  const PoolShape plain = shape_of(w, planes);
  PoolShape blocks = shape_of(w, 2);
  blocks.block = block;
  const std::int64_t in = area(plain.in), out = area(plain.out), h = plain.in[0] * plain.in[1],
                     oh = plain.out[0] * plain.out[1];
  const auto x = values<T>(planes * in, 1), dy = values<T>(planes * out, 2);
  const auto own_x = in_blocks(x, planes, in, block), own_dy = in_blocks(dy, planes, out, block);
  std::vector<T> y(dy.size()), dx(x.size()), own_y(dy.size()), own_dx(x.size(), T(9));
  std::vector<std::int64_t> argmax(y.size()), own_argmax(y.size()), indices(y.size()), own_indices(y.size());
  cpu().max_pool({dtype_of<T>(), plain, x.data(), y.data(), argmax.data(), true, indices.data()});
  cpu().max_pool(
      {dtype_of<T>(), blocks, own_x.data(), own_y.data(), own_argmax.data(), true, own_indices.data()});
  EXPECT_EQ(own_indices, in_blocks(indices, planes, out, block));
  EXPECT_TRUE(same_bits(own_y, in_blocks(y, planes, out, block)));
  EXPECT_EQ(own_argmax, in_blocks(argmax, planes, out, block));
  cpu().max_pool_grad(
      {dtype_of<T>(), planes, h, plain.in[2], oh, plain.out[2], dy.data(), argmax.data(), dx.data()});
  cpu().max_pool_grad({dtype_of<T>(), 2, h, plain.in[2], oh, plain.out[2], own_dy.data(), own_argmax.data(),
                       own_dx.data(), block});
  EXPECT_TRUE(same_bits(own_dx, in_blocks(dx, planes, in, block)));
  for (const PoolDivisor divisor : {PoolDivisor::inside, PoolDivisor::padded, PoolDivisor::one}) {
    cpu().average_pool({dtype_of<T>(), plain, divisor, x.data(), y.data()});
    cpu().average_pool({dtype_of<T>(), blocks, divisor, own_x.data(), own_y.data()});
    const std::vector<T> expected = in_blocks(y, planes, out, block);
    if (out == 1 && area(plain.kernel) == in) {
      expect_close(own_y, {expected.begin(), expected.end()}, reduction_tolerance<T>(), "average in blocks");
    } else {
      EXPECT_TRUE(same_bits(own_y, expected));
    }
    cpu().average_pool_grad({dtype_of<T>(), plain, divisor, dy.data(), dx.data()});
    cpu().average_pool_grad({dtype_of<T>(), blocks, divisor, own_dy.data(), own_dx.data()});
    EXPECT_TRUE(same_bits(own_dx, in_blocks(dx, planes, in, block)));
  }
}

// Infinities and NaN in some lanes: as in planes.
TEST(Pool, NotANumberInBlocks) {
  const PoolShape plain = shape_of(kWindows[1], 16);
  PoolShape blocks = shape_of(kWindows[1], 1);
  blocks.block = 16;
  const std::int64_t in = area(plain.in), out = area(plain.out);
  std::vector<float> x = values<float>(16 * in, 1);
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    const float odd[] = {-INFINITY, INFINITY, NAN};
    x[std::size_t(random.below(16 * in))] = odd[i % 3];
  }
  std::fill(x.begin() + 2 * in, x.begin() + 3 * in, -INFINITY);
  std::vector<float> y(std::size_t(16 * out)), own_y(y.size());
  std::vector<std::int64_t> argmax(y.size()), own_argmax(y.size());
  cpu().max_pool({DType::f32, plain, x.data(), y.data(), argmax.data()});
  const auto own_x = in_blocks(x, 16, in, 16);
  cpu().max_pool({DType::f32, blocks, own_x.data(), own_y.data(), own_argmax.data()});
  EXPECT_TRUE(same_bits(own_y, in_blocks(y, 16, out, 16)));
  EXPECT_EQ(own_argmax, in_blocks(argmax, 16, out, 16));
}

TEST(Pool, PlanesInBlocks) {
  for (const Window& w : kWindows) {
    for (const std::int64_t block : {16, 8, 4, 3, 48}) {
      check_blocks<float>(w, block);
      check_blocks<double>(w, block);
    }
  }
}

TEST(Pool, Max) {
  for (const Window& w : kWindows) {
    for (const bool many_equal : {false, true}) {
      check_max<float>(w, 5, many_equal);
      check_max<double>(w, 3, many_equal);
    }
  }
  check_max<float>(kWindows[0], 200, false);
}

// Positions may come from a file (MaxUnpool): those outside of the plane get nothing, and the last outputs
// may reach back to the first inputs.
TEST(Pool, MaxGradientIgnoresPositionsOutside) {
  constexpr std::int64_t in = 700, out = 600;
  for (const std::int64_t block : {1, 3, 16}) {
    std::vector<float> dy = values<float>(2 * out * block, 1);
    std::vector<std::int64_t> argmax(dy.size());
    std::vector<double> dx(std::size_t(2 * in * block));
    Random random(2);
    for (std::size_t i = 0; i < argmax.size(); ++i) {
      const std::int64_t outside[] = {-1, in, INT64_MAX, INT64_MIN};
      argmax[i] = i % 7 == 0 ? outside[i / 7 % 4] : random.below(in);
      const std::int64_t plane = std::int64_t(i) / (out * block), lane = std::int64_t(i) % block;
      if (i % 7 != 0) dx[std::size_t((plane * in + argmax[i]) * block + lane)] += double(dy[i]);
    }
    expect_on_every_level(
        [&](const CpuKernels& k) {
          std::vector<float> result(dx.size(), 9.0f);
          k.max_pool_grad({DType::f32, 2, 7, 100, 6, 100, dy.data(), argmax.data(), result.data(), block});
          return result;
        },
        dx, gradient_tolerance<float>(), "max gradient");
  }
}

TEST(Pool, Average) {
  for (const Window& w : kWindows) {
    for (const PoolDivisor divisor : {PoolDivisor::inside, PoolDivisor::padded, PoolDivisor::one}) {
      check_average<float>(w, 5, divisor);
      check_average<double>(w, 3, divisor);
    }
  }
  check_average<float>(kWindows[1], 200, PoolDivisor::padded);
}

TEST(Pool, MaxKeepsNanAndPaddingNeverWins) {
  const std::vector<float> x = {-5, NAN, -7, -8, -9, -1, -2, -3, -4};
  for (const CpuKernels* k : levels()) {
    std::vector<float> y(4);
    k->max_pool({DType::f32, shape_of({{kFlat, {3, 2, 2, 1, 0, 1}, {3, 2, 2, 1, 0, 1}}}, 1), x.data(),
                 y.data(), nullptr});
    EXPECT_EQ(y[0], -5.0f);  // one element and three padded ones
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], -2.0f);
    EXPECT_EQ(y[3], -1.0f);
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
