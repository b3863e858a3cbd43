// Operators on images.
//   Col2Im         sums of overlapping blocks: a transposed convolution whose kernel sets every row of a block in its place
//   AffineGrid     base grid (x, y, [z,] 1) times theta^T; sampling points of GridSample
//   CenterCropPad  a Slice and a Pad around the centre
//   RoiAlign       sampling_ratio^2 bilinear samples per bin, averaged: GridSample and AveragePool
// Source: ONNX Col2Im-18, AffineGrid-20, CenterCropPad-18, RoiAlign-10 and -16 (He et al., "Mask R-CNN",
// 2017).
#include <algorithm>
#include <numeric>

#include "engine/onnx/expansion.h"
#include "engine/ops/common.h"

namespace gradloom {

namespace {

using Ints = std::vector<std::int64_t>;

Result<Ints> known_ints(Expander& e, std::size_t input, const char* what) {
  const Tensor* known = e.known(e.in(input));
  if (known == nullptr) return e.unsupported(std::string("its ") + what + " is not known before running");
  if (is_float(known->dtype())) return infer_error(std::string("its ") + what + " must be integers");
  Ints values;
  for (std::int64_t i = 0; i < known->count(); ++i) values.push_back(static_cast<std::int64_t>(known->at(i)));
  return values;
}

Result<Ints> list(const Expander& e, const char* name, std::size_t size, std::int64_t otherwise) {
  Ints values = e.attrs.integers(name);
  if (values.empty()) values.assign(size, otherwise);
  if (values.size() != size) return infer_error(std::string("attribute '") + name + "' has a wrong size");
  return values;
}

// Inputs: columns [n, c * block, positions], the image's and the block's size.
Status col2im(Expander& e) {
  const Shape x = e.shape(e.in(0));  // adding nodes moves what a reference would see
  const Ints image = TRY(known_ints(e, 1, "image_shape")), block = TRY(known_ints(e, 2, "block_shape"));
  const std::size_t axes = image.size();
  const Ints dilations = TRY(list(e, "dilations", axes, 1)), strides = TRY(list(e, "strides", axes, 1)),
             pads = TRY(list(e, "pads", 2 * axes, 0));
  if (block.size() != axes || axes == 0)
    return infer_error("image_shape and block_shape have different sizes");
  if (x.size() != 3) return infer_error("the input has rank " + std::to_string(x.size()) + ", it needs 3");
  std::int64_t area = 1;
  Ints positions{0}, padding;  // 0 copies
  for (std::size_t d = 0; d < axes; ++d) {
    if (block[d] < 1 || strides[d] < 1 || dilations[d] < 1 || image[d] < 1 || pads[d] < 0 ||
        pads[axes + d] < 0 ||
        std::max({block[d], strides[d], dilations[d], image[d], pads[d], pads[axes + d]}) > (1 << 24))
      return infer_error("sizes must be positive and below 2^24");
    area *= block[d];
    if (area > (1 << 24)) return infer_error("the block has more than 2^24 elements");
    const std::int64_t reach = image[d] + pads[d] + pads[axes + d] - dilations[d] * (block[d] - 1) - 1;
    if (reach < 0) return infer_error("the block is larger than the padded image");
    positions.push_back(reach / strides[d] + 1);
    padding.push_back(reach % strides[d]);
  }
  if (x[1] < 0) return e.unsupported("the number of channels is not known");
  if (x[1] % area != 0) return infer_error(std::to_string(x[1]) + " rows are no whole blocks");
  const std::int64_t channels = x[1] / area;
  if (channels * area * area > (std::int64_t{1} << 26)) return e.unsupported("blocks this large");
  Shape kernel{channels * area, 1};
  kernel.insert(kernel.end(), block.begin(), block.end());
  std::vector<double> ones(static_cast<std::size_t>(channels * area * area), 0);
  for (std::int64_t i = 0; i < channels * area; ++i) ones[static_cast<std::size_t>(i * area + i % area)] = 1;
  positions.insert(positions.begin() + 1, channels * area);
  e.outputs[0] = TRY(
      e.op("ConvTranspose",
           {TRY(e.reshape(e.in(0), positions)), e.constant(Tensor::from_f64(e.dtype(e.in(0)), kernel, ones))},
           {{"group", channels},
            {"dilations", dilations},
            {"strides", strides},
            {"pads", pads},
            {"output_padding", padding},
            {"kernel_shape", block}}));
  return {};
}

// Coordinate i of `size` pixels in [-1, 1]: of corners, or of centres.
double unit_coordinate(std::int64_t i, std::int64_t size, bool corners) {
  if (!corners) return (2.0 * static_cast<double>(i) + 1) / static_cast<double>(size) - 1;
  return size == 1 ? 0 : 2.0 * static_cast<double>(i) / static_cast<double>(size - 1) - 1;
}

// Inputs: theta [n, 2, 3] or [n, 3, 4], size [n, c, (d,) h, w].
Status affine_grid(Expander& e) {
  const ValueId theta = e.in(0);
  const Ints size = TRY(known_ints(e, 1, "size"));
  const std::size_t axes = size.size() - 2;
  if (size.size() < 4 || size.size() > 5 || e.rank(theta) != 3 ||
      *std::min_element(size.begin(), size.end()) < 1 ||
      *std::max_element(size.begin(), size.end()) > (1 << 24))
    return infer_error("theta must have rank 3 and size 4 or 5 positive numbers");
  const bool corners = e.attrs.integer("align_corners") != 0;
  std::int64_t points = 1;
  for (std::size_t d = 0; d < axes; ++d) {
    points *= size[2 + d];
    if (points > (1 << 26)) return infer_error("the grid has more than 2^26 points");
  }
  std::vector<double> base;
  for (std::int64_t i = 0; i < points; ++i) {
    std::int64_t rest = i;
    for (std::size_t d = axes; d-- > 0; rest /= size[2 + d])  // x first
      base.push_back(unit_coordinate(rest % size[2 + d], size[2 + d], corners));
    base.push_back(1);
  }
  const ValueId grid =
      e.constant(Tensor::from_f64(e.dtype(theta), {points, static_cast<std::int64_t>(axes) + 1}, base));
  const ValueId moved = TRY(e.op("MatMul", {grid, TRY(e.transpose(theta, {0, 2, 1}))}));
  Ints shape{0};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(static_cast<std::int64_t>(axes));
  e.outputs[0] = TRY(e.reshape(moved, shape));
  return {};
}

// Inputs: data, the wanted sizes of `axes` (of all without them). An odd element is cut or added at the end.
Status center_crop_pad(Expander& e) {
  ValueId x = e.in(0);
  const Ints wanted = TRY(known_ints(e, 1, "shape"));
  const std::size_t rank = e.rank(x);
  Ints axes = e.attrs.integers("axes");
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (axes.size() != wanted.size()) return infer_error("shape and axes have different sizes");
  Ints pads(2 * rank, 0);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const auto axis = static_cast<std::size_t>(TRY(normalized_axis(axes[k], rank)));
    const std::int64_t size = e.shape(x)[axis], more = wanted[k] - size;
    if (size < 0) return e.unsupported("the size of axis " + std::to_string(axis) + " is not known");
    if (wanted[k] < 0) return infer_error("a wanted size is negative");
    if (more < 0) {
      const std::int64_t begin = -more / 2;
      x = TRY(e.slice(x, begin, begin + wanted[k], static_cast<std::int64_t>(axis)));
    } else {
      pads[axis] = more / 2;
      pads[rank + axis] = more - more / 2;
    }
  }
  e.outputs[0] = TRY(e.op("Pad", {x, e.ints(pads)}));
  return {};
}

// Sampling points of all regions along one axis, [regions, bins * ratio], and which of them lie in the image.
struct Samples {
  ValueId at, inside;
};

struct RoiAxis {
  std::int64_t first, last, bins, size;  // columns of rois; bins; pixels
};

Result<Samples> roi_samples(Expander& e, const RoiAxis& axis, std::int64_t ratio, bool half_pixel) {
  const DType type = e.dtype(e.in(1));
  const auto scaled = [&](std::int64_t column) -> Result<ValueId> {
    const ValueId edge = TRY(e.slice(e.in(1), column, column + 1, 1));
    const ValueId x = TRY(e.op("Mul", {edge, e.scalar(type, e.attrs.real("spatial_scale", 1))}));
    return half_pixel ? e.op("Sub", {x, e.scalar(type, 0.5)}) : Result<ValueId>(x);
  };
  const ValueId start = TRY(scaled(axis.first));
  ValueId length = TRY(e.op("Sub", {TRY(scaled(axis.last)), start}));
  if (!half_pixel) length = TRY(e.op("Max", {length, e.scalar(type, 1)}));
  const std::int64_t count = axis.bins * ratio;
  std::vector<double> parts;
  for (std::int64_t i = 0; i < count; ++i)
    parts.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(count));
  const ValueId part = e.constant(Tensor::from_f64(type, {1, count}, parts));
  const ValueId at = TRY(e.op("Add", {start, TRY(e.op("Mul", {length, part}))}));
  const ValueId after = TRY(e.op("GreaterOrEqual", {at, e.scalar(type, -1)}));
  const ValueId before = TRY(e.op("LessOrEqual", {at, e.scalar(type, static_cast<double>(axis.size))}));
  const ValueId inside = TRY(e.cast(TRY(e.op("And", {after, before})), type));
  const ValueId pixel =
      TRY(e.op("Clip", {at, e.scalar(type, 0), e.scalar(type, static_cast<double>(axis.size - 1))}));
  // As GridSample counts: 2 (pixel + 1/2) / size - 1.
  const double scale = 2 / static_cast<double>(axis.size);
  const ValueId wide = TRY(e.op("Mul", {pixel, e.scalar(type, scale)}));
  return Samples{TRY(e.op("Add", {wide, e.scalar(type, scale / 2 - 1)})), inside};
}

// Inputs: x [n, c, h, w], rois [r, 4] (x1, y1, x2, y2), batch_indices [r].
template <bool half_pixel_by_default>
Status roi_align(Expander& e) {
  const Shape x = e.shape(e.in(0));  // adding nodes moves what a reference would see
  const std::int64_t height = e.attrs.integer("output_height", 1), width = e.attrs.integer("output_width", 1),
                     ratio = e.attrs.integer("sampling_ratio");
  if (x.size() != 4 || e.rank(e.in(1)) != 2 || e.rank(e.in(2)) != 1)
    return infer_error("x must be [n, c, h, w], rois [r, 4] and batch_indices [r]");
  if (e.attrs.text("mode", "avg") != "avg") return e.unsupported("mode '" + e.attrs.text("mode") + "'");
  if (ratio == 0) return e.unsupported("a number of samples that depends on the region (sampling_ratio 0)");
  if (x[2] < 1 || x[3] < 1) return e.unsupported("the size of the image is not known");
  if (height < 1 || width < 1 || ratio < 0 || std::max({height, width, ratio}) > (1 << 12))
    return infer_error("output sizes and sampling_ratio must be from 1 to 4096");
  const std::string transformation = e.attrs.text("coordinate_transformation_mode",
                                                  half_pixel_by_default ? "half_pixel" : "output_half_pixel");
  const bool half_pixel = transformation == "half_pixel";
  if (!half_pixel && transformation != "output_half_pixel")
    return infer_error("coordinate_transformation_mode '" + transformation + "' is not supported");
  const Samples rows = TRY(roi_samples(e, {1, 3, height, x[2]}, ratio, half_pixel));
  const Samples columns = TRY(roi_samples(e, {0, 2, width, x[3]}, ratio, half_pixel));
  const ValueId size = e.ints({1, height * ratio, width * ratio, 1});
  const auto spread = [&](ValueId at, const Ints& axes) -> Result<ValueId> {
    return e.op("Expand", {TRY(e.op("Unsqueeze", {at, e.ints(axes)})), size});
  };
  const ValueId grid = TRY(e.op("Concat", {TRY(spread(columns.at, {1, 3})), TRY(spread(rows.at, {2, 3}))},
                                {{"axis", std::int64_t{3}}}));
  const ValueId images = TRY(e.op("Gather", {e.in(0), e.in(2)}));
  ValueId sampled = TRY(e.op("GridSample", {images, TRY(e.cast(grid, e.dtype(images)))},
                             {{"mode", std::string("linear")}, {"padding_mode", std::string("border")}}));
  const ValueId inside = TRY(e.op("Mul", {TRY(e.op("Unsqueeze", {rows.inside, e.ints({1, 3})})),
                                          TRY(e.op("Unsqueeze", {columns.inside, e.ints({1, 2})}))}));
  sampled = TRY(e.op("Mul", {sampled, TRY(e.cast(inside, e.dtype(images)))}));
  if (ratio > 1) {
    const Ints window{ratio, ratio};
    sampled = TRY(e.op("AveragePool", {sampled}, {{"kernel_shape", window}, {"strides", window}}));
  }
  e.outputs[0] = sampled;
  return {};
}

constexpr int kNewest = 1000;

}  // namespace

std::span<const Expansion> image_expansions() {
  static const std::vector<Expansion> kTable = {
      {"Col2Im", "", 18, kNewest, 3, 3, 1, col2im, {}},
      {"AffineGrid", "", 20, kNewest, 2, 2, 1, affine_grid, {}},
      {"CenterCropPad", "", 18, kNewest, 2, 2, 1, center_crop_pad, {}},
      {"RoiAlign", "", 10, 15, 3, 3, 1, roi_align<false>, {}},
      {"RoiAlign", "", 16, kNewest, 3, 3, 1, roi_align<true>, {}},
  };
  return kTable;
}

}  // namespace gradloom
