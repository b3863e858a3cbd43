// Convolution in f64: im2col and the gemm kernel; blocks of channels through the workspace.
#include <cstring>

#include "kernels/cpu.h"
#include "kernels/prepared/convolution.h"
#include "kernels/prepared/dnnl.h"

namespace gradloom::kernels {
namespace {

using prepared::Layout;

// One image and group at a time: columns [c / groups * t * r * s, od * oh * ow] and a matrix product.
class Float64Convolution final : public Convolution {
 public:
  Float64Convolution(const ConvolutionDesc& desc, ConvolutionKind kind) : d_(desc), kind_(kind) {
    taps_ = d_.c / d_.groups * d_.t * d_.r * d_.s;
    pixels_ = d_.od * d_.oh * d_.ow;
  }
  std::size_t workspace_bytes() const override { return std::size_t(taps_ * pixels_) * sizeof(double); }

  void run(const void* a, const void* b, const void* bias, void* out, void* workspace) override {
    auto* const columns = static_cast<double*>(workspace);
    auto* const result = static_cast<double*>(out);
    const auto* const first = static_cast<const double*>(a);
    const auto* const second = static_cast<const double*>(b);
    const std::int64_t k = d_.k / d_.groups, x_group = d_.c / d_.groups * d_.d * d_.h * d_.w,
                       y_group = k * pixels_;
    const std::int64_t w_group = k * taps_;
    if (kind_ != ConvolutionKind::forward) {
      const std::int64_t count =
          kind_ == ConvolutionKind::backward_data ? d_.n * d_.groups * x_group : d_.groups * w_group;
      std::memset(result, 0, std::size_t(count) * sizeof(double));
    }
    for (std::int64_t part = 0; part < d_.n * d_.groups; ++part) {
      const std::int64_t group = part % d_.groups;
      switch (kind_) {
        case ConvolutionKind::forward: {
          gather_columns(first + part * x_group, columns);
          double* const y = result + part * y_group;
          multiply(k, pixels_, taps_, second + group * w_group, taps_, 1, columns, pixels_, 1, y, false);
          if (!d_.bias) break;
          for (std::int64_t i = 0; i < y_group; ++i) {
            y[i] += static_cast<const double*>(bias)[group * k + i / pixels_];
          }
          break;
        }
        case ConvolutionKind::backward_data:
          multiply(taps_, pixels_, k, second + group * w_group, 1, taps_, first + part * y_group, pixels_, 1,
                   columns, false);
          scatter_columns(columns, result + part * x_group);
          break;
        case ConvolutionKind::backward_weights:
          gather_columns(second + part * x_group, columns);
          multiply(k, taps_, pixels_, first + part * y_group, pixels_, 1, columns, 1, pixels_,
                   result + group * w_group, true);
          break;
      }
    }
  }
  std::string implementation() const override { return "f64 im2col"; }

 private:
  static void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t a_row,
                       std::int64_t a_col, const double* b, std::int64_t b_row, std::int64_t b_col, double* c,
                       bool accumulate) {
    GemmArgs args{};
    args.dtype = DType::f64;
    args.m = m;
    args.n = n;
    args.k = k;
    args.a_row = a_row;
    args.a_col = a_col;
    args.b_row = b_row;
    args.b_col = b_col;
    args.c_row = n;
    args.c_col = 1;
    args.alpha = 1.0;
    args.a = a;
    args.b = b;
    args.c = c;
    args.accumulate = accumulate;
    cpu().gemm(args);
  }

  // Calls visit(index into columns, index into the image or -1) for one tap row.
  template <class Visit>
  void visit_tap(std::int64_t tap, const Visit& visit) const {
    const std::int64_t kx = tap % d_.s, ky = tap / d_.s % d_.r, kz = tap / (d_.s * d_.r) % d_.t;
    const std::int64_t channel = tap / (d_.t * d_.r * d_.s);
    for (std::int64_t line = 0; line < d_.od * d_.oh; ++line) {
      const std::int64_t z = line / d_.oh * d_.stride_d - d_.pad_front + kz * d_.dilation_d;
      const std::int64_t y = line % d_.oh * d_.stride_h - d_.pad_top + ky * d_.dilation_h;
      const bool row_inside = z >= 0 && z < d_.d && y >= 0 && y < d_.h;
      for (std::int64_t ox = 0; ox < d_.ow; ++ox) {
        const std::int64_t x = ox * d_.stride_w - d_.pad_left + kx * d_.dilation_w;
        const bool inside = row_inside && x >= 0 && x < d_.w;
        visit(tap * pixels_ + line * d_.ow + ox,
              inside ? ((channel * d_.d + z) * d_.h + y) * d_.w + x : std::int64_t{-1});
      }
    }
  }

  void gather_columns(const double* image, double* columns) const {
    const auto gather = [&](std::int64_t tap) {
      visit_tap(tap, [&](std::int64_t c, std::int64_t i) { columns[c] = i >= 0 ? image[i] : 0.0; });
    };
    for_parts(taps_, gather, most_threads());
  }

  // Taps of one channel add to the same pixels, in order; channels are independent.
  void scatter_columns(const double* columns, double* image) const {
    const std::int64_t window = d_.t * d_.r * d_.s;
    const auto scatter = [&](std::int64_t channel) {
      for (std::int64_t tap = channel * window; tap < (channel + 1) * window; ++tap) {
        visit_tap(tap, [&](std::int64_t c, std::int64_t i) {
          if (i >= 0) image[i] += columns[c];
        });
      }
    };
    for_parts(taps_ / window, scatter, most_threads());
  }

  // Few columns are not worth sharing.
  int most_threads() const { return taps_ * pixels_ > 32768 ? kMostThreads : 1; }

  ConvolutionDesc d_;
  ConvolutionKind kind_;
  std::int64_t taps_ = 0, pixels_ = 0;
};

// Channels in blocks: x and y are copied to and from the plain layout around the convolution above.
class BlockedFloat64Convolution final : public Convolution {
 public:
  BlockedFloat64Convolution(const ConvolutionDesc& desc, ConvolutionKind kind)
      : plain_(desc, kind),
        kind_(kind),
        x_{desc.n, desc.c, desc.d * desc.h * desc.w, desc.x_block},
        y_{desc.n, desc.k, desc.od * desc.oh * desc.ow, desc.y_block} {
    x_at_ = layout_.take(x_.bytes());
    y_at_ = layout_.take(y_.bytes());
    inner_ = layout_.take(plain_.workspace_bytes());
  }
  std::size_t workspace_bytes() const override { return layout_.size(); }

  void run(const void* a, const void* b, const void* bias, void* out, void* workspace) override {
    void *const x = prepared::at(workspace, x_at_), *const y = prepared::at(workspace, y_at_),
                *const inner = prepared::at(workspace, inner_);
    switch (kind_) {
      case ConvolutionKind::forward:
        x_.copy<false>(a, x);
        plain_.run(x, b, bias, y, inner);
        return y_.copy<true>(y, out);
      case ConvolutionKind::backward_data:
        y_.copy<false>(a, y);
        plain_.run(y, b, bias, x, inner);
        return x_.copy<true>(x, out);
      case ConvolutionKind::backward_weights:
        y_.copy<false>(a, y);
        x_.copy<false>(b, x);
        return plain_.run(y, x, bias, out, inner);
    }
  }
  std::string implementation() const override { return plain_.implementation() + " of blocks"; }

 private:
  struct Blocks {
    std::int64_t images, channels, pixels, block;
    std::size_t bytes() const { return std::size_t(images * channels * pixels) * sizeof(double); }
    // Plain to blocks, or back.
    template <bool to_blocks>
    void copy(const void* from, void* to) const {
      const auto* const in = static_cast<const double*>(from);
      auto* const result = static_cast<double*>(to);
      for (std::int64_t plane = 0; plane < images * channels; ++plane) {
        const std::int64_t first = plane / block * block * pixels + plane % block;
        for (std::int64_t i = 0; i < pixels; ++i) {
          const std::int64_t in_plane = plane * pixels + i, in_block = first + i * block;
          result[to_blocks ? in_block : in_plane] = in[to_blocks ? in_plane : in_block];
        }
      }
    }
  };

  Float64Convolution plain_;
  ConvolutionKind kind_;
  Blocks x_, y_;
  Layout layout_;
  std::size_t x_at_ = 0, y_at_ = 0, inner_ = 0;
};

}  // namespace

std::unique_ptr<Convolution> create_f64_convolution(const ConvolutionDesc& desc, ConvolutionKind kind) {
  if (desc.x_block * desc.y_block > 1) return std::make_unique<BlockedFloat64Convolution>(desc, kind);
  return std::make_unique<Float64Convolution>(desc, kind);
}

}  // namespace gradloom::kernels
