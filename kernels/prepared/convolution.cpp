// Convolution of two or three spatial dims. f32, bf16: oneDNN in the layouts it likes best, with reorders
// through the workspace where operands come in others; channels in blocks are a layout it likes. The gradient
// of the weights is summed over the batch: the batch is cut into chunks, a small one's output channels into
// slices too, all by the sizes only; every piece is one single-threaded primitive, and chunks are added in
// order, so the bits do not depend on the number of threads; in f32 for bf16. f64: im2col and the gemm
// kernel, blocks of channels through the workspace.
#include "kernels/prepared/convolution.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/prepared/bf16.h"
#include "kernels/prepared/dnnl.h"

namespace gradloom::kernels {
namespace {

using dnnl::memory;
using prepared::Call;
using prepared::Layout;
using prepared::ThreadScope;

using Type = memory::data_type;
constexpr Type kF32 = Type::f32;

std::int64_t padding_after(std::int64_t size, std::int64_t out, std::int64_t taps, std::int64_t stride,
                           std::int64_t dilation, std::int64_t before) {
  return (out - 1) * stride + (taps - 1) * dilation + 1 - size - before;
}

struct Shapes {
  memory::dims x, w, y, strides, dilates, pad_before, pad_after;
  std::int64_t x_block, y_block;
  Type type;
};

Shapes shapes_of(const ConvolutionDesc& d, std::int64_t images) {
  Shapes s;
  s.x_block = d.x_block;
  s.y_block = d.y_block;
  s.type = d.dtype == DType::bf16 ? Type::bf16 : Type::f32;
  s.x = {images, d.c, d.h, d.w};
  s.y = {images, d.k, d.oh, d.ow};
  s.w = d.groups == 1 ? memory::dims{d.k, d.c, d.r, d.s}
                      : memory::dims{d.groups, d.k / d.groups, d.c / d.groups, d.r, d.s};
  s.strides = {d.stride_h, d.stride_w};
  s.dilates = {d.dilation_h - 1, d.dilation_w - 1};
  s.pad_before = {d.pad_top, d.pad_left};
  s.pad_after = {padding_after(d.h, d.oh, d.r, d.stride_h, d.dilation_h, d.pad_top),
                 padding_after(d.w, d.ow, d.s, d.stride_w, d.dilation_w, d.pad_left)};
  if (d.d == 1 && d.od == 1 && d.t == 1) return s;
  const auto add_depth = [](memory::dims& dims, std::size_t behind, std::int64_t value) {
    dims.insert(dims.end() - std::ptrdiff_t(behind), value);
  };
  add_depth(s.x, 2, d.d);
  add_depth(s.y, 2, d.od);
  add_depth(s.w, 2, d.t);
  add_depth(s.strides, 2, d.stride_d);
  add_depth(s.dilates, 2, d.dilation_d - 1);
  add_depth(s.pad_before, 2, d.pad_front);
  add_depth(s.pad_after, 2, padding_after(d.d, d.od, d.t, d.stride_d, d.dilation_d, d.pad_front));
  return s;
}

memory::desc plain(const memory::dims& dims, Type type) {
  memory::dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
  return {dims, type, strides};
}
memory::desc any(const memory::dims& dims, Type type) { return {dims, type, memory::format_tag::any}; }

// [n, c, ..] with its channels in blocks: plain for 1, channels last for all of them.
memory::desc blocked(const memory::dims& dims, std::int64_t block, Type type) {
  using Tag = memory::format_tag;
  if (block == 1) return plain(dims, type);
  const bool deep = dims.size() == 5;
  if (block == 16) return {dims, type, deep ? Tag::nCdhw16c : Tag::nChw16c};
  if (block == 8) return {dims, type, deep ? Tag::nCdhw8c : Tag::nChw8c};
  if (block == 4) return {dims, type, deep ? Tag::nCdhw4c : Tag::nChw4c};
  if (block == dims[1]) return {dims, type, deep ? Tag::ndhwc : Tag::nhwc};
  throw std::runtime_error("convolution: no kernel for blocks of " + std::to_string(block) + " of " +
                           std::to_string(dims[1]) + " channels");
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// make(layout of x, layout of y): blocks as they come where oneDNN has a fast implementation, else what it
// likes best.
template <class Make>
auto best(const Shapes& s, const Make& make) {
  const bool x_blocks = s.x_block > 1, y_blocks = s.y_block > 1;
  if (x_blocks || y_blocks) {
    try {
      auto pd = make(x_blocks ? blocked(s.x, s.x_block, s.type) : any(s.x, s.type),
                     y_blocks ? blocked(s.y, s.y_block, s.type) : any(s.y, s.type));
      if (!prepared::is_reference(pd.impl_info_str())) return pd;
    } catch (const dnnl::error&) {  // none at all
    }
  }
  return make(any(s.x, s.type), any(s.y, s.type));
}

dnnl::convolution_forward::primitive_desc forward_pd(const Shapes& s, bool bias) {
  const auto kind = dnnl::prop_kind::forward_training;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const memory::desc b({s.y[1]}, s.type, memory::format_tag::a);
  return best(s, [&](const memory::desc& x, const memory::desc& y) {
    const auto desc = bias ? dnnl::convolution_forward::desc(kind, algorithm, x, any(s.w, s.type), b, y,
                                                             s.strides, s.dilates, s.pad_before, s.pad_after)
                           : dnnl::convolution_forward::desc(kind, algorithm, x, any(s.w, s.type), y,
                                                             s.strides, s.dilates, s.pad_before, s.pad_after);
    return dnnl::convolution_forward::primitive_desc(desc, user_scratchpad(), prepared::engine());
  });
}

// An operand that the primitive may want in another layout than it has: then its place is in the workspace.
class Operand {
 public:
  Operand() = default;
  Operand(const memory::desc& given, const memory::desc& wanted, Layout& layout)
      : reordered_(given != wanted) {
    if (!reordered_) return;
    reorder_ = prepared::reorder(given, wanted);
    offset_ = layout.take(wanted.get_size());
  }
  const void* load(const void* data, void* workspace) {
    if (!reordered_) return data;
    void* const to = prepared::at(workspace, offset_);
    reorder_.run({data, to});
    return to;
  }

 private:
  bool reordered_ = false;
  std::size_t offset_ = 0;
  Call reorder_;
};

// The same for what the primitive writes.
class Output {
 public:
  Output() = default;
  Output(const memory::desc& wanted, const memory::desc& made, Layout& layout) : reordered_(wanted != made) {
    if (!reordered_) return;
    reorder_ = prepared::reorder(made, wanted);
    offset_ = layout.take(made.get_size());
  }
  void* target(void* data, void* workspace) const {
    return reordered_ ? prepared::at(workspace, offset_) : data;
  }
  void finish(void* data, void* workspace) {
    if (reordered_) reorder_.run({target(data, workspace), data});
  }

 private:
  bool reordered_ = false;
  std::size_t offset_ = 0;
  Call reorder_;
};

class Forward final : public Convolution {
 public:
  explicit Forward(const ConvolutionDesc& desc) {
    const ThreadScope scope(threads());
    const Shapes s = shapes_of(desc, desc.n);
    const auto pd = forward_pd(s, desc.bias);
    implementation_ = pd.impl_info_str();
    x_ = Operand(blocked(s.x, s.x_block, s.type), pd.src_desc(), layout_);
    w_ = Operand(plain(s.w, s.type), pd.weights_desc(), layout_);
    y_ = Output(blocked(s.y, s.y_block, s.type), pd.dst_desc(), layout_);
    scratchpad_ = layout_.take(pd.scratchpad_desc().get_size());
    call_ = Call(dnnl::convolution_forward(pd));
    call_.add(DNNL_ARG_SRC, pd.src_desc());
    call_.add(DNNL_ARG_WEIGHTS, pd.weights_desc());
    call_.add(DNNL_ARG_DST, pd.dst_desc());
    call_.add(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
    if (desc.bias) call_.add(DNNL_ARG_BIAS, pd.bias_desc());
  }
  std::size_t workspace_bytes() const override { return layout_.size(); }
  void run(const void* a, const void* b, const void* bias, void* out, void* workspace) override {
    const ThreadScope scope(threads());
    call_.run({x_.load(a, workspace), w_.load(b, workspace), y_.target(out, workspace),
               prepared::at(workspace, scratchpad_), bias});
    y_.finish(out, workspace);
  }
  std::string implementation() const override { return implementation_; }

 private:
  std::string implementation_;
  Layout layout_;
  Operand x_, w_;
  Output y_;
  std::size_t scratchpad_ = 0;
  Call call_;
};

class BackwardData final : public Convolution {
 public:
  explicit BackwardData(const ConvolutionDesc& desc) {
    const ThreadScope scope(threads());
    const Shapes s = shapes_of(desc, desc.n);
    const auto pd = best(s, [&](const memory::desc& x, const memory::desc& y) {
      const dnnl::convolution_backward_data::desc op(dnnl::algorithm::convolution_direct, x, any(s.w, s.type),
                                                     y, s.strides, s.dilates, s.pad_before, s.pad_after);
      return dnnl::convolution_backward_data::primitive_desc(op, user_scratchpad(), prepared::engine(),
                                                             forward_pd(s, false));
    });
    implementation_ = pd.impl_info_str();
    dx_ = Output(blocked(s.x, s.x_block, s.type), pd.diff_src_desc(), layout_);
    w_ = Operand(plain(s.w, s.type), pd.weights_desc(), layout_);
    dy_ = Operand(blocked(s.y, s.y_block, s.type), pd.diff_dst_desc(), layout_);
    scratchpad_ = layout_.take(pd.scratchpad_desc().get_size());
    call_ = Call(dnnl::convolution_backward_data(pd));
    call_.add(DNNL_ARG_DIFF_DST, pd.diff_dst_desc());
    call_.add(DNNL_ARG_WEIGHTS, pd.weights_desc());
    call_.add(DNNL_ARG_DIFF_SRC, pd.diff_src_desc());
    call_.add(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
  }
  std::size_t workspace_bytes() const override { return layout_.size(); }
  void run(const void* a, const void* b, const void*, void* out, void* workspace) override {
    const ThreadScope scope(threads());
    call_.run({dy_.load(a, workspace), w_.load(b, workspace), dx_.target(out, workspace),
               prepared::at(workspace, scratchpad_)});
    dx_.finish(out, workspace);
  }
  std::string implementation() const override { return implementation_; }

 private:
  std::string implementation_;
  Layout layout_;
  Operand w_, dy_;
  Output dx_;
  std::size_t scratchpad_ = 0;
  Call call_;
};

// dw of a number of images, single-threaded, with a workspace of its own. Copies run side by side.
struct WeightsChunk {
  WeightsChunk() = default;
  WeightsChunk(const ConvolutionDesc& desc, std::int64_t images, const memory::desc* weights) {
    const Shapes s = shapes_of(desc, images);
    const auto pd = best(s, [&](const memory::desc& for_x, const memory::desc& for_y) {
      const dnnl::convolution_backward_weights::desc op(dnnl::algorithm::convolution_direct, for_x,
                                                        weights != nullptr ? *weights : any(s.w, kF32), for_y,
                                                        s.strides, s.dilates, s.pad_before, s.pad_after);
      return dnnl::convolution_backward_weights::primitive_desc(op, user_scratchpad(), prepared::engine(),
                                                                forward_pd(s, false));
    });
    implementation = pd.impl_info_str();
    dw_desc = pd.diff_weights_desc();
    x = Operand(blocked(s.x, s.x_block, s.type), pd.src_desc(), layout);
    dy = Operand(blocked(s.y, s.y_block, s.type), pd.diff_dst_desc(), layout);
    scratchpad = layout.take(pd.scratchpad_desc().get_size());
    dw = layout.take(dw_desc.get_size());
    call = Call(dnnl::convolution_backward_weights(pd));
    call.add(DNNL_ARG_DIFF_DST, pd.diff_dst_desc());
    call.add(DNNL_ARG_SRC, pd.src_desc());
    call.add(DNNL_ARG_DIFF_WEIGHTS, dw_desc);
    call.add(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
  }
  void run(const void* dy_data, const void* x_data, void* workspace) {
    call.run({dy.load(dy_data, workspace), x.load(x_data, workspace), prepared::at(workspace, dw),
              prepared::at(workspace, scratchpad)});
  }
  std::string implementation;
  memory::desc dw_desc;
  Layout layout;
  Operand x, dy;
  std::size_t scratchpad = 0, dw = 0;
  Call call;
};

constexpr std::int64_t kMostPieces = 16;
constexpr std::size_t kMostPartialBytes = std::size_t{64} << 20;

// Into how many slices of output channels (of groups where there are some) the work of one or two images is
// cut: four pieces in all, of 32 channels or more. A slice is one part of dy and of dw, but each slice
// prepares x for itself, so more of them cost more than other threads gain (ResNet-18, batch 8, two slices: 4
// %).
std::int64_t slices_of(const ConvolutionDesc& d, std::int64_t images) {
  constexpr std::int64_t kLeast = 32, kEnough = 4;
  const std::int64_t most = kEnough / std::max<std::int64_t>(images, 1);
  const auto fits = [&](std::int64_t channels, std::int64_t block, std::int64_t slices) {
    return block < channels && channels % (slices * 16) == 0 && channels / slices >= kLeast;
  };
  std::int64_t slices = 1;
  while (2 * slices <= most && fits(d.k, d.y_block, 2 * slices) &&
         (d.groups == 1 || (d.groups % (2 * slices) == 0 && fits(d.c, d.x_block, 2 * slices))))
    slices *= 2;
  return slices;
}

ConvolutionDesc slice_of(ConvolutionDesc d, std::int64_t slices) {
  d.k /= slices;
  if (d.groups == 1) return d;
  d.c /= slices;
  d.groups /= slices;
  return d;
}

class BackwardWeights final : public Convolution {
 public:
  explicit BackwardWeights(const ConvolutionDesc& desc) {
    const ThreadScope scope(1);
    const std::int64_t weights = desc.k * desc.c / desc.groups * desc.t * desc.r * desc.s;
    const auto affordable =
        std::int64_t(kMostPartialBytes / std::max<std::size_t>(std::size_t(weights) * sizeof(float), 1));
    chunks_ = std::max<std::int64_t>(1, std::min({desc.n, kMostPieces, affordable}));
    slices_ = chunks_ == desc.n ? slices_of(desc, desc.n) : 1;
    const ConvolutionDesc slice = slice_of(desc, slices_);
    const std::int64_t images = desc.n / chunks_, larger = desc.n % chunks_;  // so many have one image more
    const WeightsChunk small(slice, images, nullptr);
    const WeightsChunk large = larger > 0 ? WeightsChunk(slice, images + 1, &small.dw_desc) : small;
    const auto x_bytes = desc.c * desc.d * desc.h * desc.w * std::int64_t(dtype_bytes(desc.dtype)),
               y_bytes = desc.k * desc.od * desc.oh * desc.ow * std::int64_t(dtype_bytes(desc.dtype));
    const Shapes s = shapes_of(slice, 1);
    elements_ = std::int64_t(small.dw_desc.get_size() / sizeof(float));
    slice_bytes_ = weights / slices_ * std::int64_t(dtype_bytes(desc.dtype));
    for (std::int64_t number = 0; number < slices_; ++number) {
      dw_.emplace_back(plain(s.w, s.type), small.dw_desc, layout_);
      for (std::int64_t chunk = 0, image = 0; chunk < chunks_; ++chunk) {
        const std::int64_t x_at = image * x_bytes + (desc.groups > 1 ? number * x_bytes / slices_ : 0);
        pieces_.push_back(
            {x_at, image * y_bytes + number * y_bytes / slices_, 0, chunk < larger ? large : small});
        pieces_.back().offset = layout_.take(pieces_.back().part.layout.size());
        image += images + (chunk < larger ? 1 : 0);
      }
    }
  }
  std::size_t workspace_bytes() const override { return layout_.size(); }

  void run(const void* a, const void* b, const void*, void* out, void* workspace) override {
    const auto count = std::int64_t(pieces_.size());
    const int team = int(std::min<std::int64_t>(threads(), count));
    const float* partial[kMostPieces];
#pragma omp parallel for schedule(static, 1) num_threads(team)
    for (std::int64_t number = 0; number < count; ++number) {
      const ThreadScope scope(1);
      Piece& piece = pieces_[std::size_t(number)];
      void* const own = prepared::at(workspace, piece.offset);
      piece.part.run(static_cast<const char*>(a) + piece.y_at, static_cast<const char*>(b) + piece.x_at, own);
      partial[number] = static_cast<const float*>(prepared::at(own, piece.part.dw));
    }
    const auto place = [&](std::int64_t slice) { return static_cast<char*>(out) + slice * slice_bytes_; };
    constexpr std::int64_t kPart = 16384;  // elements that are summed at a time
    const std::int64_t parts = (elements_ + kPart - 1) / kPart;
#pragma omp parallel for schedule(static) num_threads(threads()) if (elements_ * count > 65536)
    for (std::int64_t number = 0; number < slices_ * parts; ++number) {
      const std::int64_t slice = number / parts, begin = number % parts * kPart;
      const float* const* const summands = partial + slice * chunks_;
      float* const sum = static_cast<float*>(dw_[std::size_t(slice)].target(place(slice), workspace));
      for (std::int64_t i = begin; i < std::min(elements_, begin + kPart); ++i) {
        float value = summands[0][i];
        for (std::int64_t chunk = 1; chunk < chunks_; ++chunk) value += summands[chunk][i];
        sum[i] = value;
      }
    }
    const ThreadScope scope(threads());
    for (std::int64_t slice = 0; slice < slices_; ++slice)
      dw_[std::size_t(slice)].finish(place(slice), workspace);
  }
  std::string implementation() const override { return pieces_[0].part.implementation; }

 private:
  struct Piece {
    std::int64_t x_at, y_at;  // bytes
    std::size_t offset;       // in the workspace
    WeightsChunk part;
  };

  std::int64_t chunks_ = 1, slices_ = 1, elements_ = 0, slice_bytes_ = 0;
  Layout layout_;
  std::vector<Piece> pieces_;  // slice by slice
  std::vector<Output> dw_;     // of a slice
};

// ---- f64 ------------------------------------------------------------------------------------------------

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
#pragma omp parallel for schedule(static) num_threads(threads()) if (taps_ * pixels_ > 32768)
    for (std::int64_t tap = 0; tap < taps_; ++tap) {
      visit_tap(tap, [&](std::int64_t c, std::int64_t i) { columns[c] = i >= 0 ? image[i] : 0.0; });
    }
  }

  // Taps of one channel add to the same pixels, in order; channels are independent.
  void scatter_columns(const double* columns, double* image) const {
    const std::int64_t window = d_.t * d_.r * d_.s;
#pragma omp parallel for schedule(static) num_threads(threads()) if (taps_ * pixels_ > 32768)
    for (std::int64_t channel = 0; channel < taps_ / window; ++channel) {
      for (std::int64_t tap = channel * window; tap < (channel + 1) * window; ++tap) {
        visit_tap(tap, [&](std::int64_t c, std::int64_t i) {
          if (i >= 0) image[i] += columns[c];
        });
      }
    }
  }

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

std::unique_ptr<Convolution> Convolution::create(const ConvolutionDesc& desc, ConvolutionKind kind) {
  if (desc.dtype == DType::f64 && desc.x_block * desc.y_block > 1)
    return std::make_unique<BlockedFloat64Convolution>(desc, kind);
  if (desc.dtype == DType::f64) return std::make_unique<Float64Convolution>(desc, kind);
  const bool bf16 = desc.dtype == DType::bf16 && has_bf16_products();
  if (desc.dtype != DType::f32 && !bf16)
    throw std::runtime_error("convolution: only f32 and f64 are supported, and bf16 by some processors");
  try {
    std::unique_ptr<Convolution> made;
    switch (kind) {
      case ConvolutionKind::forward: made = std::make_unique<Forward>(desc); break;
      case ConvolutionKind::backward_data: made = std::make_unique<BackwardData>(desc); break;
      case ConvolutionKind::backward_weights: made = std::make_unique<BackwardWeights>(desc); break;
    }
    if (bf16 && prepared::is_reference(made->implementation().c_str()))
      throw std::runtime_error("convolution: oneDNN has no fast bf16 for it");
    return made;
  } catch (const dnnl::error& error) {
    throw std::runtime_error(std::string("convolution: oneDNN: ") + error.what());
  }
}

}  // namespace gradloom::kernels
