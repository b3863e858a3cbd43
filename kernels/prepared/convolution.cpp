// Convolution of two or three spatial dims. f32, bf16: oneDNN in the layouts it likes best, with reorders
// through the workspace where operands come in others; channels in blocks are a layout it likes. The batch is
// cut into chunks, a small one's channels into slices too, all by the sizes only; every piece is one call of
// a primitive for one thread, so the bits do not depend on the number of threads. The gradient of the weights
// is summed over the batch: chunks are added in order, in f32 for bf16. f64: im2col and the gemm kernel,
// blocks of channels through the workspace.
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
using prepared::OneThread;

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

// make(layout of x, layout of y): blocks as they come where oneDNN has a fast
// implementation, else what it likes best.
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

dnnl::convolution_forward::primitive_desc forward_pd(const Shapes& s, bool bias, const memory::desc& w) {
  const auto kind = dnnl::prop_kind::forward_training;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const memory::desc b({s.y[1]}, s.type, memory::format_tag::a);
  return best(s, [&](const memory::desc& x, const memory::desc& y) {
    const auto desc = bias ? dnnl::convolution_forward::desc(kind, algorithm, x, w, b, y, s.strides,
                                                             s.dilates, s.pad_before, s.pad_after)
                           : dnnl::convolution_forward::desc(kind, algorithm, x, w, y, s.strides, s.dilates,
                                                             s.pad_before, s.pad_after);
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
    reorder_ = prepared::Reorder(given, wanted);
    offset_ = layout.take(wanted.get_size());
  }
  const void* load(const void* data, void* workspace) {
    if (!reordered_) return data;
    void* const to = prepared::at(workspace, offset_);
    reorder_.run(data, to);
    return to;
  }

 private:
  bool reordered_ = false;
  std::size_t offset_ = 0;
  prepared::Reorder reorder_;
};

// The same for what the primitive writes.
class Output {
 public:
  Output() = default;
  Output(const memory::desc& wanted, const memory::desc& made, Layout& layout) : reordered_(wanted != made) {
    if (!reordered_) return;
    reorder_ = prepared::Reorder(made, wanted);
    offset_ = layout.take(made.get_size());
  }
  void* target(void* data, void* workspace) const {
    return reordered_ ? prepared::at(workspace, offset_) : data;
  }
  void finish(void* data, void* workspace) {
    if (reordered_) reorder_.run(target(data, workspace), data);
  }

 private:
  bool reordered_ = false;
  std::size_t offset_ = 0;
  prepared::Reorder reorder_;
};

// ---- pieces ---------------------------------------------------------------------------------------------

// So many groups of so many images each; the first `larger` groups have one image more.
struct Chunks {
  std::int64_t count = 1, images = 1, larger = 0;
  Chunks(std::int64_t all, std::int64_t most)
      : count(std::max<std::int64_t>(1, std::min(all, most))), images(all / count), larger(all % count) {}
};

// Channels of an operand that are cut, and how they lie in memory.
struct Channels {
  std::int64_t count, block;
};

// Into how many slices of 32 channels or more the work of few images is cut, at most so many. With groups
// these are cut, and `others` are the channels of the other operand. Each slice prepares what it reads for
// itself, so more of them cost more than other threads gain (ResNet-18, batch 8, gradient of the weights, two
// slices: 4 %).
constexpr std::int64_t kMostSlices = 4;
std::int64_t slices_of(const Channels& cut, const Channels& others, std::int64_t groups, std::int64_t most) {
  constexpr std::int64_t kLeast = 32;
  const auto fits = [](const Channels& channels, std::int64_t slices) {
    return channels.block < channels.count && channels.count % (slices * 16) == 0 &&
           channels.count / slices >= kLeast;
  };
  std::int64_t slices = 1;
  while (2 * slices <= most && fits(cut, 2 * slices) &&
         (groups == 1 || (groups % (2 * slices) == 0 && fits(others, 2 * slices))))
    slices *= 2;
  return slices;
}

// One of so many slices of the channels of y, or of x.
ConvolutionDesc slice_of(ConvolutionDesc d, std::int64_t slices, bool of_y) {
  if (of_y || d.groups > 1) d.k /= slices;
  if (!of_y || d.groups > 1) d.c /= slices;
  if (d.groups > 1) d.groups /= slices;
  return d;
}

std::int64_t bytes_of(const memory::dims& dims, DType type) {
  std::int64_t bytes = std::int64_t(dtype_bytes(type));
  for (const std::int64_t size : dims) bytes *= size;
  return bytes;
}

// Images of a slice of an operand's channels, as they lie in all of its channels.
memory::desc slice_in(const memory::dims& all, const memory::dims& slice, std::int64_t block, Type type) {
  if (all == slice || slice[0] == 1) return blocked(slice, block, type);
  return blocked(all, block, type).submemory_desc(slice, memory::dims(slice.size(), 0));
}

// y, or dx from dy, of a number of images, by one thread, with a workspace of its own.
struct ImageChunk {
  // all: the convolution of which desc is a slice. weights: their layout, or null for the one that oneDNN likes best.
  ImageChunk(const ConvolutionDesc& desc, const ConvolutionDesc& all, ConvolutionKind kind,
             std::int64_t images, const memory::desc* weights) {
    prepared::require_room();
    const Shapes s = shapes_of(desc, images), whole = shapes_of(all, images);
    const memory::desc w = weights != nullptr ? *weights : any(s.w, s.type),
                       x_given = slice_in(whole.x, s.x, s.x_block, s.type),
                       y_given = slice_in(whole.y, s.y, s.y_block, s.type);
    if (kind == ConvolutionKind::forward) {
      const auto pd = forward_pd(s, desc.bias, w);
      call = Call(dnnl::convolution_forward(pd));
      call.add(DNNL_ARG_SRC, pd.src_desc());
      call.add(DNNL_ARG_WEIGHTS, pd.weights_desc());
      call.add(DNNL_ARG_DST, pd.dst_desc());
      call.add(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
      if (desc.bias) call.add(DNNL_ARG_BIAS, pd.bias_desc());
      place(pd, x_given, pd.src_desc(), y_given, pd.dst_desc());
    } else {
      const auto pd = best(s, [&](const memory::desc& x, const memory::desc& y) {
        const dnnl::convolution_backward_data::desc op(dnnl::algorithm::convolution_direct, x, w, y,
                                                       s.strides, s.dilates, s.pad_before, s.pad_after);
        return dnnl::convolution_backward_data::primitive_desc(op, user_scratchpad(), prepared::engine(),
                                                               forward_pd(s, false, any(s.w, s.type)));
      });
      call = Call(dnnl::convolution_backward_data(pd));
      call.add(DNNL_ARG_DIFF_DST, pd.diff_dst_desc());
      call.add(DNNL_ARG_WEIGHTS, pd.weights_desc());
      call.add(DNNL_ARG_DIFF_SRC, pd.diff_src_desc());
      call.add(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
      place(pd, y_given, pd.diff_dst_desc(), x_given, pd.diff_src_desc());
    }
  }
  void run(const void* from, const void* weights, const void* bias, void* to, void* workspace) {
    call.run({in.load(from, workspace), weights, out.target(to, workspace),
              prepared::at(workspace, scratchpad), bias});
    out.finish(to, workspace);
  }

  std::string implementation;
  memory::desc weights_desc;
  Layout layout;
  Operand in;
  Output out;
  std::size_t scratchpad = 0;
  Call call;

 private:
  template <class Pd>
  void place(const Pd& pd, const memory::desc& in_given, const memory::desc& in_wanted,
             const memory::desc& out_wanted, const memory::desc& out_made) {
    implementation = pd.impl_info_str();
    weights_desc = pd.weights_desc();
    in = Operand(in_given, in_wanted, layout);
    out = Output(out_wanted, out_made, layout);
    scratchpad = layout.take(pd.scratchpad_desc().get_size());
  }
};

// Forward, and the gradient of x.
class ByImages final : public Convolution {
 public:
  ByImages(const ConvolutionDesc& desc, ConvolutionKind kind) {
    const OneThread scope;
    const bool forward = kind == ConvolutionKind::forward;
    const std::int64_t taps = desc.c / desc.groups * desc.t * desc.r * desc.s;
    const double in = double(desc.n * desc.c) * double(desc.d * desc.h * desc.w),
                 out = double(desc.n * desc.k) * double(desc.od * desc.oh * desc.ow),
                 flops = 2 * out * double(taps);
    const Channels x{desc.c, desc.x_block}, y{desc.k, desc.y_block};
    const auto slices_at_most = [&](std::int64_t most) {
      return slices_of(forward ? y : x, forward ? x : y, desc.groups, most);
    };
    Chunks chunks(desc.n, prepared::worthwhile_parts(flops, in + out));
    std::int64_t slices =
        chunks.count == desc.n ? slices_at_most(kMostSlices / std::max<std::int64_t>(desc.n, 1)) : 1;
    // Weights beside which an image is small are read once for several images, by pieces of fewer channels.
    if (const double weights = double(desc.k * taps);
        desc.groups == 1 && weights > kHeavy * (in + out) / double(desc.n)) {
      slices = slices_at_most(kMostSlices);
      chunks = Chunks(desc.n, std::max<std::int64_t>(chunks.count / slices, 1));
    }
    const ConvolutionDesc slice = slice_of(desc, slices, forward);
    parts_.emplace_back(slice, desc, kind, chunks.images, nullptr);
    if (chunks.larger > 0) parts_.emplace_back(slice, desc, kind, chunks.images + 1, &parts_[0].weights_desc);
    const Shapes all = shapes_of(desc, 1), s = shapes_of(slice, 1);
    const bool cut_inputs =
        !forward && desc.groups == 1;  // of the weights; else slices lie one behind the other
    const memory::desc weights = cut_inputs
                                     ? plain(all.w, s.type).submemory_desc(s.w, memory::dims(s.w.size(), 0))
                                     : plain(s.w, s.type);
    const std::int64_t image_in = bytes_of(forward ? all.x : all.y, desc.dtype),
                       image_out = bytes_of(forward ? all.y : all.x, desc.dtype),
                       element = std::int64_t(dtype_bytes(desc.dtype));
    for (std::int64_t number = 0; number < slices; ++number) {
      w_.push_back(
          {number * (cut_inputs ? slice.c * desc.t * desc.r * desc.s * element : bytes_of(s.w, desc.dtype)),
           Operand(weights, parts_[0].weights_desc, layout_)});
      for (std::int64_t chunk = 0, image = 0; chunk < chunks.count; ++chunk) {
        const bool large = chunk < chunks.larger;
        pieces_.push_back({image * image_in + (desc.groups > 1 ? number * image_in / slices : 0),
                           image * image_out + number * image_out / slices,
                           number * (desc.k / slices) * element, std::size_t(number),
                           std::size_t(large ? 1 : 0)});
        image += chunks.images + (large ? 1 : 0);
      }
    }
    for (const ImageChunk& part : parts_) own_bytes_ = std::max(own_bytes_, part.layout.size());
    own_ = layout_.take(own_bytes_ * std::size_t(team()));
  }
  std::size_t workspace_bytes() const override { return layout_.size(); }
  void run(const void* a, const void* b, const void* bias, void* out, void* workspace) override {
    const void* weights[kMostSlices];
    for (std::size_t i = 0; i < w_.size(); ++i)
      weights[i] = w_[i].operand.load(static_cast<const char*>(b) + w_[i].at, workspace);
    const auto run_piece = [&](std::int64_t number) {
      const OneThread scope;
      const Piece& piece = pieces_[std::size_t(number)];
      void* const own = prepared::at(workspace, own_ + own_bytes_ * std::size_t(worker_number()));
      parts_[piece.part].run(static_cast<const char*>(a) + piece.in, weights[piece.slice],
                             static_cast<const char*>(bias) + (bias != nullptr ? piece.bias : 0),
                             static_cast<char*>(out) + piece.out, own);
    };
    for_parts(std::int64_t(pieces_.size()), run_piece, team());
  }
  std::string implementation() const override { return parts_[0].implementation; }

 private:
  static constexpr double kHeavy = 8;  // elements of the weights for each of an image's
  struct Piece {
    std::int64_t in, out, bias;  // bytes
    std::size_t slice, part;
  };
  struct Weights {
    std::int64_t at;  // bytes
    Operand operand;
  };

  int team() const { return parts_[0].call.team(); }

  Layout layout_;
  std::vector<ImageChunk> parts_;  // of the usual number of images, of one more
  std::vector<Weights> w_;         // by slice
  std::vector<Piece> pieces_;
  std::size_t own_ = 0, own_bytes_ = 0;  // of each thread
};

// dw of a number of images, by one thread, with a workspace of its own.
struct WeightsChunk {
  WeightsChunk(const ConvolutionDesc& desc, std::int64_t images, const memory::desc* weights) {
    prepared::require_room();
    const Shapes s = shapes_of(desc, images);
    const auto pd = best(s, [&](const memory::desc& for_x, const memory::desc& for_y) {
      const dnnl::convolution_backward_weights::desc op(dnnl::algorithm::convolution_direct, for_x,
                                                        weights != nullptr ? *weights : any(s.w, kF32), for_y,
                                                        s.strides, s.dilates, s.pad_before, s.pad_after);
      return dnnl::convolution_backward_weights::primitive_desc(op, user_scratchpad(), prepared::engine(),
                                                                forward_pd(s, false, any(s.w, s.type)));
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

class BackwardWeights final : public Convolution {
 public:
  explicit BackwardWeights(const ConvolutionDesc& desc) {
    const OneThread scope;
    const std::int64_t weights = desc.k * desc.c / desc.groups * desc.t * desc.r * desc.s;
    const auto affordable =
        std::int64_t(kMostPartialBytes / std::max<std::size_t>(std::size_t(weights) * sizeof(float), 1));
    const Chunks chunks(desc.n, std::min(kMostPieces, affordable));
    chunks_ = chunks.count;
    if (chunks_ == desc.n)
      slices_ = slices_of({desc.k, desc.y_block}, {desc.c, desc.x_block}, desc.groups,
                          kMostSlices / std::max<std::int64_t>(desc.n, 1));
    const ConvolutionDesc slice = slice_of(desc, slices_, true);
    parts_.emplace_back(slice, chunks.images, nullptr);
    if (chunks.larger > 0) parts_.emplace_back(slice, chunks.images + 1, &parts_[0].dw_desc);
    const Shapes s = shapes_of(slice, 1), all = shapes_of(desc, 1);
    const std::int64_t x_bytes = bytes_of(all.x, desc.dtype), y_bytes = bytes_of(all.y, desc.dtype);
    elements_ = std::int64_t(parts_[0].dw_desc.get_size() / sizeof(float));
    slice_bytes_ = bytes_of(s.w, desc.dtype);
    for (std::int64_t number = 0; number < slices_; ++number) {
      dw_.emplace_back(plain(s.w, s.type), parts_[0].dw_desc, layout_);
      for (std::int64_t chunk = 0, image = 0; chunk < chunks_; ++chunk) {
        const std::size_t part = chunk < chunks.larger ? 1 : 0;
        const std::int64_t x_at = image * x_bytes + (desc.groups > 1 ? number * x_bytes / slices_ : 0);
        pieces_.push_back({x_at, image * y_bytes + number * y_bytes / slices_,
                           layout_.take(parts_[part].layout.size()), part});
        image += chunks.images + std::int64_t(part);
      }
    }
  }
  std::size_t workspace_bytes() const override { return layout_.size(); }

  void run(const void* a, const void* b, const void*, void* out, void* workspace) override {
    const auto count = std::int64_t(pieces_.size());
    const float* partial[kMostPieces];
    const auto run_piece = [&](std::int64_t number) {
      const OneThread scope;
      const Piece& piece = pieces_[std::size_t(number)];
      WeightsChunk& part = parts_[piece.part];
      void* const own = prepared::at(workspace, piece.offset);
      part.run(static_cast<const char*>(a) + piece.y_at, static_cast<const char*>(b) + piece.x_at, own);
      partial[number] = static_cast<const float*>(prepared::at(own, part.dw));
    };
    for_parts(count, run_piece, parts_[0].call.team());
    const auto place = [&](std::int64_t slice) { return static_cast<char*>(out) + slice * slice_bytes_; };
    constexpr std::int64_t kPart = 16384, kShared = 65536;  // elements: summed at a time; worth sharing
    const std::int64_t parts = (elements_ + kPart - 1) / kPart;
    const auto sum_part = [&](std::int64_t number) {
      const std::int64_t slice = number / parts, begin = number % parts * kPart;
      const float* const* const summands = partial + slice * chunks_;
      float* const sum = static_cast<float*>(dw_[std::size_t(slice)].target(place(slice), workspace));
      for (std::int64_t i = begin; i < std::min(elements_, begin + kPart); ++i) {
        float value = summands[0][i];
        for (std::int64_t chunk = 1; chunk < chunks_; ++chunk) value += summands[chunk][i];
        sum[i] = value;
      }
    };
    for_parts(slices_ * parts, sum_part, elements_ * count > kShared ? kMostThreads : 1);
    for (std::int64_t slice = 0; slice < slices_; ++slice)
      dw_[std::size_t(slice)].finish(place(slice), workspace);
  }
  std::string implementation() const override { return parts_[0].implementation; }

 private:
  static constexpr std::int64_t kMostPieces = 16;
  static constexpr std::size_t kMostPartialBytes = std::size_t{64} << 20;
  struct Piece {
    std::int64_t x_at, y_at;  // bytes
    std::size_t offset;       // in the workspace
    std::size_t part;
  };

  std::int64_t chunks_ = 1, slices_ = 1, elements_ = 0, slice_bytes_ = 0;
  Layout layout_;
  std::vector<WeightsChunk> parts_;  // of the usual number of images, of one more
  std::vector<Piece> pieces_;        // slice by slice
  std::vector<Output> dw_;           // of a slice
};

}  // namespace

std::unique_ptr<Convolution> Convolution::create(const ConvolutionDesc& desc, ConvolutionKind kind) {
  if (desc.dtype == DType::f64) return create_f64_convolution(desc, kind);
  const bool bf16 = desc.dtype == DType::bf16 && has_bf16_products();
  if (desc.dtype != DType::f32 && !bf16)
    throw std::runtime_error("convolution: only f32 and f64 are supported, and bf16 by some processors");
  try {
    std::unique_ptr<Convolution> made;
    switch (kind) {
      case ConvolutionKind::forward:
      case ConvolutionKind::backward_data: made = std::make_unique<ByImages>(desc, kind); break;
      case ConvolutionKind::backward_weights: made = std::make_unique<BackwardWeights>(desc); break;
    }
    if (bf16 && prepared::is_reference(made->implementation().c_str()))
      throw std::runtime_error("convolution: oneDNN has no fast bf16 for it");
    return made;
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw prepared::OutOfMemory();
    throw std::runtime_error(std::string("convolution: oneDNN: ") + error.what());
  }
}

}  // namespace gradloom::kernels
