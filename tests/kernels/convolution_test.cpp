// Convolution of two and three spatial dims forward and both gradients against loops in double; equal bits
// for any thread count.
#include "kernels/prepared/convolution.h"

#include <algorithm>
#include <cmath>

#include "kernels/prepared/bf16.h"
#include "tests/kernels/blocks.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

ConvolutionDesc convolution(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t k,
                            std::int64_t r, std::int64_t s, std::int64_t stride, std::int64_t pad,
                            std::int64_t dilation, std::int64_t groups) {
  ConvolutionDesc d{};
  d.n = n;
  d.c = c;
  d.h = h;
  d.w = w;
  d.k = k;
  d.r = r;
  d.s = s;
  d.stride_h = d.stride_w = stride;
  d.pad_top = d.pad_left = d.pad_bottom = d.pad_right = pad;
  d.dilation_h = d.dilation_w = dilation;
  d.groups = groups;
  d.oh = (h + 2 * pad - (r - 1) * dilation - 1) / stride + 1;
  d.ow = (w + 2 * pad - (s - 1) * dilation - 1) / stride + 1;
  return d;
}

// Calls visit(x index, w index, y index) for every product of the convolution.
template <class Visit>
void products(const ConvolutionDesc& d, const Visit& visit) {
  const std::int64_t cg = d.c / d.groups, kg = d.k / d.groups;
  for (std::int64_t n = 0; n < d.n; ++n) {
    for (std::int64_t k = 0; k < d.k; ++k) {
      for (std::int64_t p = 0; p < d.od * d.oh * d.ow; ++p) {
        for (std::int64_t t = 0; t < cg * d.t * d.r * d.s; ++t) {
          const std::int64_t channel = k / kg * cg + t / (d.t * d.r * d.s), kz = t / (d.r * d.s) % d.t,
                             ky = t / d.s % d.r, kx = t % d.s;
          const std::int64_t z = p / d.ow / d.oh * d.stride_d - d.pad_front + kz * d.dilation_d;
          const std::int64_t y = p / d.ow % d.oh * d.stride_h - d.pad_top + ky * d.dilation_h;
          const std::int64_t x = p % d.ow * d.stride_w - d.pad_left + kx * d.dilation_w;
          if (z < 0 || z >= d.d || y < 0 || y >= d.h || x < 0 || x >= d.w) continue;
          visit(std::size_t((((n * d.c + channel) * d.d + z) * d.h + y) * d.w + x),
                std::size_t(k * cg * d.t * d.r * d.s + t),
                std::size_t((n * d.k + k) * d.od * d.oh * d.ow + p));
        }
      }
    }
  }
}

template <class T>
void expect_run(const ConvolutionDesc& d, ConvolutionKind kind, const std::vector<T>& a,
                const std::vector<T>& b, const std::vector<T>& bias, const std::vector<double>& expected,
                Tolerance tolerance) {
  std::vector<T> first;
  for (const int team : {1, 2, 3}) {
    set_threads(team);
    const auto convolution = Convolution::create(d, kind);
    EXPECT_EQ(convolution->implementation().find("ref"), std::string::npos) << convolution->implementation();
    std::vector<std::uint8_t> workspace(convolution->workspace_bytes() + 64);
    for (int repeat = 0; repeat < 2; ++repeat) {
      std::fill(workspace.begin(), workspace.end(), 0xff);  // NaN, also where a blocked layout has padding
      std::vector<T> out(expected.size(), T(9));
      convolution->run(a.data(), b.data(), d.bias ? bias.data() : nullptr, out.data(), workspace.data());
      if (first.empty()) {
        first = out;
        expect_close(out, expected, tolerance, convolution->implementation());
      }
      EXPECT_TRUE(same_bits(out, first))
          << team << " threads, kind " << int(kind) << ", " << convolution->implementation();
    }
  }
  set_threads(2);
}

template <class T>
void check(ConvolutionDesc d) {
  d.dtype = dtype_of<T>();
  // Weights are as small as those of networks: sums of many products stay near 1, of which tolerances are.
  const std::int64_t terms = d.c / d.groups * d.t * d.r * d.s;
  const double most = std::min(1.0, 24 / std::sqrt(double(terms)));
  const auto x = values<T>(d.n * d.c * d.d * d.h * d.w, 1, -1, 1), w = values<T>(d.k * terms, 2, -most, most),
             dy = values<T>(d.n * d.k * d.od * d.oh * d.ow, 3, -1, 1), bias = values<T>(d.k, 4);
  std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
  for (std::size_t i = 0; i < y.size() && d.bias; ++i)
    y[i] = double(bias[i / std::size_t(d.od * d.oh * d.ow) % std::size_t(d.k)]);
  products(d, [&](std::size_t xi, std::size_t wi, std::size_t yi) {
    y[yi] += double(x[xi]) * double(w[wi]);
    dx[xi] += double(dy[yi]) * double(w[wi]);
    dw[wi] += double(dy[yi]) * double(x[xi]);
  });
  const auto x_blocks = [&](const auto& plain) {
    return in_blocks(plain, d.n * d.c, d.d * d.h * d.w, d.x_block);
  };
  const auto y_blocks = [&](const auto& plain) {
    return in_blocks(plain, d.n * d.k, d.od * d.oh * d.ow, d.y_block);
  };
  const auto own_x = x_blocks(x), own_dy = y_blocks(dy);
  expect_run<T>(d, ConvolutionKind::forward, own_x, w, bias, y_blocks(y), reduction_tolerance<T>());
  d.bias = false;
  expect_run<T>(d, ConvolutionKind::backward_data, own_dy, w, bias, x_blocks(dx), gradient_tolerance<T>());
  expect_run<T>(d, ConvolutionKind::backward_weights, own_dy, own_x, bias, dw, gradient_tolerance<T>());
}

// As far as oneDNN has it: what it has not is computed in f32 (engine/ops/prepare_kernel.cpp).
bool check_bf16(ConvolutionDesc d) {
  d.dtype = DType::bf16;
  try {
    for (const ConvolutionKind kind :
         {ConvolutionKind::forward, ConvolutionKind::backward_data, ConvolutionKind::backward_weights})
      (void)Convolution::create(d, kind);
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("bf16"), std::string::npos) << error.what();
    return false;
  }
  check<Bf16>(d);
  return true;
}

TEST(Convolution, MatchesTheReference) {
  std::vector<ConvolutionDesc> all = {
      convolution(4, 16, 14, 14, 32, 3, 3, 1, 1, 1, 1), convolution(19, 1, 28, 28, 6, 5, 5, 1, 2, 1, 1),
      convolution(3, 3, 33, 31, 16, 7, 7, 2, 3, 1, 1),  convolution(2, 8, 9, 9, 8, 3, 3, 1, 2, 2, 1),
      convolution(5, 12, 10, 10, 18, 3, 3, 2, 1, 1, 3), convolution(2, 8, 11, 11, 8, 3, 3, 1, 1, 1, 8),
      convolution(1, 5, 7, 7, 3, 1, 1, 1, 0, 1, 1),     convolution(32, 32, 7, 7, 64, 1, 1, 1, 0, 1, 1)};
  for (ConvolutionDesc& d : all) {
    d.bias = d.k % 3 != 0;
    check<float>(d);
    check<double>(d);
  }
}

TEST(Convolution, InBf16MatchesTheReference) {
  if (!has_bf16_products()) GTEST_SKIP() << "the processor has no bf16";
  std::vector<ConvolutionDesc> all = {
      convolution(4, 16, 14, 14, 32, 3, 3, 1, 1, 1, 1), convolution(19, 1, 28, 28, 6, 5, 5, 1, 2, 1, 1),
      convolution(3, 3, 33, 31, 16, 7, 7, 2, 3, 1, 1),  convolution(2, 8, 9, 9, 8, 3, 3, 1, 2, 2, 1),
      convolution(5, 12, 10, 10, 18, 3, 3, 2, 1, 1, 3), convolution(2, 16, 11, 11, 16, 3, 3, 1, 1, 1, 16),
      convolution(1, 5, 7, 7, 3, 1, 1, 1, 0, 1, 1),     convolution(32, 32, 7, 7, 64, 1, 1, 1, 0, 1, 1)};
  int computed = 0;
  for (ConvolutionDesc& d : all) {
    d.bias = d.k % 3 != 0;
    computed += check_bf16(d);
    if (d.c % 16 != 0 || d.k % 16 != 0) continue;
    d.x_block = d.y_block = 16;
    computed += check_bf16(d);
  }
  EXPECT_GE(computed, 8);
}

TEST(Convolution, ThreeDims) {
  ConvolutionDesc plain = convolution(2, 16, 6, 7, 32, 3, 3, 1, 1, 1, 1),
                  all = convolution(3, 4, 9, 8, 6, 2, 3, 2, 1, 2, 2);
  plain.d = plain.od = 5;
  plain.t = 3;
  plain.pad_front = plain.pad_back = 1;
  plain.bias = true;
  all.d = 7;
  all.t = 2;
  all.stride_d = 3;
  all.dilation_d = 2;
  all.pad_back = 1;
  all.od = (7 + 1 - 3) / 3 + 1;
  ConvolutionDesc depth_only = convolution(1, 3, 1, 1, 4, 1, 1, 1, 0, 1, 1);
  depth_only.d = 9;
  depth_only.t = 4;
  depth_only.od = 6;
  for (const ConvolutionDesc& d : {plain, all, depth_only}) {
    check<float>(d);
    check<double>(d);
  }
}

TEST(Convolution, UnevenPaddingAndCeilingSizes) {
  ConvolutionDesc d = convolution(2, 3, 12, 12, 4, 3, 3, 2, 0, 1, 1);
  d.pad_bottom = d.pad_right = 1;  // SAME_UPPER
  d.oh = d.ow = 6;
  check<float>(d);
  check<double>(d);
}

TEST(Convolution, ChannelsInBlocks) {
  struct Case {
    ConvolutionDesc desc;
    std::int64_t x_block, y_block;
  };
  ConvolutionDesc deep = convolution(2, 16, 6, 7, 32, 3, 3, 1, 1, 1, 1);
  deep.d = deep.od = 5;
  deep.t = 3;
  deep.pad_front = deep.pad_back = 1;
  for (Case c : {Case{convolution(4, 16, 14, 14, 32, 3, 3, 1, 1, 1, 1), 16, 16},
                 Case{convolution(3, 3, 33, 31, 16, 7, 7, 2, 3, 1, 1), 1, 16},
                 Case{convolution(5, 32, 10, 9, 10, 1, 1, 1, 0, 1, 1), 16, 1},
                 Case{convolution(2, 24, 9, 9, 48, 3, 3, 2, 1, 1, 1), 8, 16},
                 Case{convolution(2, 32, 11, 11, 32, 3, 3, 1, 1, 1, 32), 16, 16},
                 Case{convolution(2, 12, 8, 8, 20, 3, 3, 1, 1, 1, 1), 12, 20}, Case{deep, 16, 16}}) {
    c.desc.x_block = c.x_block;
    c.desc.y_block = c.y_block;
    c.desc.bias = c.desc.k % 3 != 0;
    check<float>(c.desc);
    check<double>(c.desc);
  }
}

// Of one or two images the gradient of the weights is made in slices of output channels or of groups.
TEST(Convolution, SmallBatchesInSlices) {
  for (ConvolutionDesc d :
       {convolution(1, 16, 9, 9, 256, 3, 3, 1, 1, 1, 1), convolution(2, 32, 8, 7, 128, 1, 1, 1, 0, 1, 1),
        convolution(1, 16, 6, 6, 64, 3, 3, 1, 1, 1, 1), convolution(1, 128, 6, 6, 256, 3, 3, 1, 1, 1, 2),
        convolution(1, 256, 7, 7, 256, 3, 3, 2, 1, 1, 256)}) {
    for (const std::int64_t block : {1, 16}) {
      d.x_block = d.y_block = block;
      check<float>(d);
      if (has_bf16_products()) check_bf16(d);
    }
  }
}

// Weights beside which an image is small: pieces of several images, not of the same number, and few channels.
TEST(Convolution, HeavyWeightsAreReadOnceForSeveralImages) {
  for (ConvolutionDesc d :
       {convolution(9, 128, 4, 4, 128, 3, 3, 1, 1, 1, 1), convolution(5, 256, 3, 3, 64, 1, 1, 1, 0, 1, 1),
        convolution(6, 64, 5, 4, 130, 3, 3, 2, 1, 1, 1)}) {
    d.bias = true;
    for (const std::int64_t block : {1, 16}) {
      if (d.k % block != 0) continue;
      d.x_block = d.y_block = block;
      check<float>(d);
      check<double>(d);
      if (has_bf16_products()) check_bf16(d);
    }
  }
}

// Blocks of 16 are what oneDNN computes in with AVX-512: no operand but the weights goes through the
// workspace. Of others each thread keeps a part there.
TEST(Convolution, BlocksAreNotReordered) {
  if (std::string(cpu().isa) != "v4") GTEST_SKIP() << "another layout there";
  ConvolutionDesc d = convolution(4, 64, 28, 28, 64, 3, 3, 1, 1, 1, 1);
  const std::size_t weights = 64 * 64 * 9 * sizeof(float) + 4096;
  for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::backward_data}) {
    d.x_block = d.y_block = 1;
    const std::size_t plain = Convolution::create(d, kind)->workspace_bytes();
    d.x_block = d.y_block = 16;
    const std::size_t blocks = Convolution::create(d, kind)->workspace_bytes();
    EXPECT_GT(plain, weights + std::size_t(threads()) * 2 * 64 * 28 * 28 * sizeof(float) - 8192);
    EXPECT_LT(blocks, weights + 65536);
  }
}

TEST(Convolution, RefusesWhatItCannotDo) {
  ConvolutionDesc odd = convolution(1, 6, 4, 4, 6, 3, 3, 1, 0, 1, 1);
  odd.x_block = 3;
  EXPECT_THROW(Convolution::create(odd, ConvolutionKind::forward), std::runtime_error);
  ConvolutionDesc d = convolution(1, 1, 4, 4, 1, 3, 3, 1, 0, 1, 1);
  d.dtype = DType::i32;
  EXPECT_THROW(Convolution::create(d, ConvolutionKind::forward), std::runtime_error);
}

}  // namespace
}  // namespace gradloom::kernels::test
