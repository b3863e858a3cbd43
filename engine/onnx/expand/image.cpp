// Operators on images.
//   Col2Im         sums of overlapping blocks: a transposed convolution whose kernel sets every row of a block in its place
//   AffineGrid     base grid (x, y, [z,] 1) times theta^T; sampling points of GridSample
//   CenterCropPad  a Slice and a Pad around the centre
//   RoiAlign       sampling_ratio^2 bilinear samples per bin, averaged: GridSample and AveragePool; or the largest weighted pixel;
//                  as many samples as the bin has pixels (sampling_ratio 0): sums of them by pixel, as two products
//   MaxRoiPool     the largest pixel of each bin
//   DeformConv     the pixels under the kernel's moved positions (GridSample, 0 outside) times the weights (MatMul)
// Source: ONNX Col2Im-18, AffineGrid-20, CenterCropPad-18, RoiAlign-10 and -16 (He et al., "Mask R-CNN",
// 2017), MaxRoiPool-1, DeformConv-19 (Zhu et al., "Deformable ConvNets v2", 2019).
#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/onnx/expand/expansion.h"
#include "engine/ops/samples.h"

namespace gradloom {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kLargestImage = 1 << 16;  // pixels of a side whose numbers are constants

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
    const std::int64_t size = e.shape(x)[axis];
    if (size < 0) return e.unsupported("the size of axis " + std::to_string(axis) + " is not known");
    if (wanted[k] < 0) return infer_error("a wanted size is negative");
    const std::int64_t more = wanted[k] - size;
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

// Sampling points of all regions along one axis in pixels, [regions, bins * ratio], moved to the image's
// edge, and which of them lie in the image, as 1 or 0.
struct Samples {
  ValueId pixel, inside;
};

struct RoiAxis {
  std::int64_t first, last, bins, size;  // columns of rois; bins; pixels
};

struct RoiExtent {
  ValueId start, length;  // in pixels, [regions, 1]
};

Result<RoiExtent> roi_extent(Expander& e, const RoiAxis& axis, bool half_pixel) {
  const DType type = e.dtype(e.in(1));
  const auto scaled = [&](std::int64_t column) -> Result<ValueId> {
    const ValueId edge = TRY(e.slice(e.in(1), column, column + 1, 1));
    const ValueId x = TRY(e.op("Mul", {edge, e.scalar(type, e.attrs.real("spatial_scale", 1))}));
    return half_pixel ? e.op("Sub", {x, e.scalar(type, 0.5)}) : Result<ValueId>(x);
  };
  const ValueId start = TRY(scaled(axis.first));
  ValueId length = TRY(e.op("Sub", {TRY(scaled(axis.last)), start}));
  if (!half_pixel) length = TRY(e.op("Max", {length, e.scalar(type, 1)}));
  return RoiExtent{start, length};
}

Result<Samples> roi_samples(Expander& e, const RoiAxis& axis, std::int64_t ratio, bool half_pixel) {
  const DType type = e.dtype(e.in(1));
  const auto [start, length] = TRY(roi_extent(e, axis, half_pixel));
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
  return Samples{pixel, inside};
}

// As GridSample counts: 2 (pixel + 1/2) / size - 1.
Result<ValueId> grid_coordinate(Expander& e, ValueId pixel, std::int64_t size) {
  const DType type = e.dtype(pixel);
  const double scale = 2 / static_cast<double>(size);
  const ValueId wide = TRY(e.op("Mul", {pixel, e.scalar(type, scale)}));
  return e.op("Add", {wide, e.scalar(type, scale / 2 - 1)});
}

// Means of the samples of each bin, interpolated. `images`: [r, c, h, w].
Result<ValueId> roi_means(Expander& e, ValueId images, const Samples& rows, const Samples& columns,
                          std::int64_t ratio) {
  const Shape x = e.shape(images);
  const ValueId size = e.ints({1, e.shape(rows.pixel)[1], e.shape(columns.pixel)[1], 1});
  const auto spread = [&](ValueId at, const Ints& axes) -> Result<ValueId> {
    return e.op("Expand", {TRY(e.op("Unsqueeze", {at, e.ints(axes)})), size});
  };
  const ValueId across = TRY(grid_coordinate(e, columns.pixel, x[3])),
                down = TRY(grid_coordinate(e, rows.pixel, x[2]));
  const ValueId grid = TRY(
      e.op("Concat", {TRY(spread(across, {1, 3})), TRY(spread(down, {2, 3}))}, {{"axis", std::int64_t{3}}}));
  ValueId sampled = TRY(e.op("GridSample", {images, TRY(e.cast(grid, e.dtype(images)))},
                             {{"mode", std::string("linear")}, {"padding_mode", std::string("border")}}));
  const ValueId inside = TRY(e.op("Mul", {TRY(e.op("Unsqueeze", {rows.inside, e.ints({1, 3})})),
                                          TRY(e.op("Unsqueeze", {columns.inside, e.ints({1, 2})}))}));
  sampled = TRY(e.op("Mul", {sampled, TRY(e.cast(inside, e.dtype(images)))}));
  if (ratio == 1) return sampled;
  const Ints window{ratio, ratio};
  return e.op("AveragePool", {sampled}, {{"kernel_shape", window}, {"strides", window}});
}

// The largest weighted pixel of each bin: of every sample the four pixels around it times their weights,
// without a sum.
Result<ValueId> roi_maxima(Expander& e, ValueId images, const Samples& rows, const Samples& columns,
                           std::int64_t ratio) {
  const Shape x = e.shape(images);
  if (x[1] < 0 || e.shape(rows.pixel)[0] < 0)
    return e.unsupported("the numbers of regions and channels are not known");
  const DType type = e.dtype(rows.pixel);
  const std::int64_t regions = e.shape(rows.pixel)[0], height = e.shape(rows.pixel)[1],
                     width = e.shape(columns.pixel)[1];
  struct Side {
    ValueId place, weight;  // of the pixel below or above along the axis
  };
  const auto sides = [&](const Samples& s, std::int64_t size) -> Result<std::vector<Side>> {
    const ValueId low = TRY(e.op("Floor", {s.pixel})), part = TRY(e.op("Sub", {s.pixel, low}));
    const ValueId high = TRY(e.op(
        "Min", {TRY(e.op("Add", {low, e.scalar(type, 1)})), e.scalar(type, static_cast<double>(size - 1))}));
    const ValueId rest = TRY(e.op("Sub", {e.scalar(type, 1), part}));
    return std::vector<Side>{{TRY(e.cast(low, DType::i64)), TRY(e.op("Mul", {rest, s.inside}))},
                             {TRY(e.cast(high, DType::i64)), TRY(e.op("Mul", {part, s.inside}))}};
  };
  const auto down = TRY(sides(rows, x[2])), across = TRY(sides(columns, x[3]));
  const ValueId pixels = TRY(e.reshape(images, {0, 0, x[2] * x[3]}));
  const ValueId size = e.ints({regions, x[1], height * width});
  const auto joined = [&](const char* op, ValueId row,
                          ValueId column) -> Result<ValueId> {  // [r, 1, samples]
    const ValueId both = TRY(e.op(
        op, {TRY(e.op("Unsqueeze", {row, e.ints({2})})), TRY(e.op("Unsqueeze", {column, e.ints({1})}))}));
    return e.reshape(both, {regions, 1, height * width});
  };
  ValueId largest = kNone;
  for (const Side& row : down)
    for (const Side& column : across) {
      const ValueId first = TRY(e.op("Mul", {row.place, e.scalar(DType::i64, static_cast<double>(x[3]))}));
      const ValueId place = TRY(e.op("Expand", {TRY(joined("Add", first, column.place)), size}));
      const ValueId picked = TRY(e.op("GatherElements", {pixels, place}, {{"axis", std::int64_t{2}}}));
      const ValueId weight = TRY(e.cast(TRY(joined("Mul", row.weight, column.weight)), e.dtype(images)));
      const ValueId value = TRY(e.op("Mul", {picked, weight}));
      largest = largest == kNone ? value : TRY(e.op("Max", {largest, value}));
    }
  largest = TRY(e.reshape(largest, {0, 0, height, width}));
  if (ratio == 1) return largest;
  const Ints window{ratio, ratio};
  return e.op("MaxPool", {largest}, {{"kernel_shape", window}, {"strides", window}});
}

// What one axis adds to the mean of a bin, as weights of the pixels, [r, bins, pixels]. A bin of length b has
// n = ceil(b) samples, b / n apart. Between two pixels they are an arithmetic sequence, so their weights are
// known from how many there are and from the middle of them. Samples up to one pixel outside count for the
// pixel at the edge.
Result<ValueId> adaptive_weights(Expander& e, const RoiAxis& axis, bool half_pixel) {
  const DType type = e.dtype(e.in(1));
  const auto number = [&](double value) { return e.scalar(type, value); };
  const auto numbers = [&](const Shape& shape, std::int64_t first, std::int64_t count) {
    std::vector<double> line;
    for (std::int64_t i = 0; i < count; ++i) line.push_back(static_cast<double>(first + i));
    return e.constant(Tensor::from_f64(type, shape, line));
  };
  const RoiExtent roi = TRY(roi_extent(e, axis, half_pixel));  // [r, 1]
  const ValueId bin = TRY(e.op(
      "Unsqueeze", {TRY(e.op("Div", {roi.length, number(static_cast<double>(axis.bins))})), e.ints({2})}));
  const ValueId start = TRY(e.op("Unsqueeze", {roi.start, e.ints({2})}));
  const ValueId n = TRY(e.op("Max", {TRY(e.op("Ceil", {bin})), number(0)}));
  const ValueId divisor = TRY(e.op("Max", {n, number(1)}));
  const ValueId some = TRY(e.op("Greater", {n, number(0)}));
  const ValueId step = TRY(e.op("Where", {some, TRY(e.op("Div", {bin, divisor})), number(1)}));
  // [r, bins, 1]
  const ValueId begin =
      TRY(e.op("Add", {start, TRY(e.op("Mul", {bin, numbers({1, axis.bins, 1}, 0, axis.bins)}))}));
  // How many samples lie before each edge: -1, 0, .., pixels.
  const auto samples_at = [&](ValueId edge) -> Result<ValueId> {
    const ValueId steps = TRY(e.op("Div", {TRY(e.op("Sub", {edge, begin})), step}));
    return e.op("Sub", {steps, number(0.5)});
  };
  const ValueId inner =
      TRY(e.op("Ceil", {TRY(samples_at(numbers({1, 1, axis.size + 1}, -1, axis.size + 1)))}));
  const ValueId last = TRY(e.op("Floor", {TRY(samples_at(number(static_cast<double>(axis.size))))}));
  const ValueId all =
      TRY(e.op("Concat", {inner, TRY(e.op("Add", {last, number(1)}))}, {{"axis", std::int64_t{2}}}));
  const ValueId before = TRY(e.op("Min", {TRY(e.op("Max", {all, number(0)})), n}));
  const std::int64_t parts = axis.size + 1;
  const ValueId from = TRY(e.slice(before, 0, parts, 2)), to = TRY(e.slice(before, 1, parts + 1, 2));
  const ValueId count = TRY(e.op("Sub", {to, from}));
  const ValueId half = TRY(e.op("Mul", {TRY(e.op("Add", {from, to})), number(0.5)}));
  const ValueId middle = TRY(e.op("Add", {begin, TRY(e.op("Mul", {step, half}))}));
  // Of the middle between the pixels around it; before the first and behind the last pixel there is one.
  const ValueId part = TRY(e.op("Sub", {middle, numbers({1, 1, parts}, -1, parts)}));
  const auto at_edge = [&](std::int64_t edge) {
    Tensor mask(DType::boolean, {1, 1, parts});
    mask.mutable_as<std::uint8_t>()[edge] = 1;
    return e.constant(std::move(mask));
  };
  const ValueId upper = TRY(e.op("Where", {at_edge(0), number(1), part}));
  const ValueId lower =
      TRY(e.op("Where", {at_edge(parts - 1), number(1), TRY(e.op("Sub", {number(1), part}))}));
  const auto weights = [&](ValueId share, std::int64_t first) -> Result<ValueId> {
    return e.slice(TRY(e.op("Mul", {count, share})), first, first + axis.size, 2);
  };
  const ValueId sum = TRY(e.op("Add", {TRY(weights(lower, 1)), TRY(weights(upper, 0))}));
  return e.op("Div", {sum, divisor});
}

Result<ValueId> adaptive_means(Expander& e, ValueId images, const RoiAxis& rows, const RoiAxis& columns,
                               bool half_pixel) {
  const auto weights = [&](const RoiAxis& axis) -> Result<ValueId> {
    const ValueId w = TRY(e.cast(TRY(adaptive_weights(e, axis, half_pixel)), e.dtype(images)));
    return e.op("Unsqueeze", {w, e.ints({1})});
  };
  const ValueId across = TRY(e.transpose(TRY(weights(columns)), {0, 1, 3, 2}));
  return e.op("MatMul", {TRY(e.op("MatMul", {TRY(weights(rows)), images})), across});
}

// Inputs: x [n, c, h, w], rois [r, 4] (x1, y1, x2, y2), batch_indices [r].
template <bool half_pixel_by_default>
Status roi_align(Expander& e) {
  const Shape x = e.shape(e.in(0));  // adding nodes moves what a reference would see
  const std::int64_t height = e.attrs.integer("output_height", 1), width = e.attrs.integer("output_width", 1),
                     ratio = e.attrs.integer("sampling_ratio");
  if (x.size() != 4 || e.rank(e.in(1)) != 2 || e.rank(e.in(2)) != 1)
    return infer_error("x must be [n, c, h, w], rois [r, 4] and batch_indices [r]");
  const std::string mode = e.attrs.text("mode", "avg");
  if (ratio == 0 && mode == "max")
    return e.unsupported("the maximum of as many samples as the region says (sampling_ratio 0)");
  if (x[2] < 1 || x[3] < 1) return e.unsupported("the size of the image is not known");
  if (height < 1 || width < 1 || ratio < 0 || std::max({height, width, ratio}) > (1 << 12))
    return infer_error("output sizes and sampling_ratio must be from 1 to 4096");
  const std::string transformation = e.attrs.text("coordinate_transformation_mode",
                                                  half_pixel_by_default ? "half_pixel" : "output_half_pixel");
  const bool half_pixel = transformation == "half_pixel";
  const RoiAxis down{1, 3, height, x[2]}, across{0, 2, width, x[3]};
  const ValueId images = TRY(e.op("Gather", {e.in(0), e.in(2)}));
  if (ratio == 0) {
    if (std::max(x[2], x[3]) > kLargestImage) return e.unsupported("an image this large");
    e.outputs[0] = TRY(adaptive_means(e, images, down, across, half_pixel));
    return {};
  }
  const Samples rows = TRY(roi_samples(e, down, ratio, half_pixel));
  const Samples columns = TRY(roi_samples(e, across, ratio, half_pixel));
  e.outputs[0] = TRY(mode == "avg" ? roi_means(e, images, rows, columns, ratio)
                                   : roi_maxima(e, images, rows, columns, ratio));
  return {};
}

// inside[r, bin, pixel] of MaxRoiPool: bins of rounded regions, from whole pixels to whole pixels.
Result<ValueId> pooled_pixels(Expander& e, const RoiAxis& axis) {
  const DType type = e.dtype(e.in(1));
  const auto number = [&](double value) { return e.scalar(type, value); };
  const auto edge = [&](std::int64_t column) -> Result<ValueId> {  // halves are rounded away from 0
    const ValueId x = TRY(e.op(
        "Mul", {TRY(e.slice(e.in(1), column, column + 1, 1)), number(e.attrs.real("spatial_scale", 1))}));
    const ValueId whole = TRY(e.op("Floor", {TRY(e.op("Add", {TRY(e.op("Abs", {x})), number(0.5)}))}));
    return e.op("Unsqueeze", {TRY(e.op("Mul", {TRY(e.op("Sign", {x})), whole})), e.ints({2})});
  };
  const ValueId start = TRY(edge(axis.first));
  const ValueId pixels = TRY(e.op("Add", {TRY(e.op("Sub", {TRY(edge(axis.last)), start})), number(1)}));
  const ValueId bin =
      TRY(e.op("Div", {TRY(e.op("Max", {pixels, number(1)})), number(static_cast<double>(axis.bins))}));
  const auto line = [&](const Shape& shape, std::int64_t first) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < element_count(shape); ++i) values.push_back(static_cast<double>(first + i));
    return e.constant(Tensor::from_f64(type, shape, values));
  };
  const auto bound = [&](const char* rounding, std::int64_t first) -> Result<ValueId> {
    const ValueId at = TRY(e.op("Mul", {bin, line({1, axis.bins, 1}, first)}));
    return e.op("Add", {TRY(e.op(rounding, {at})), start});
  };
  const ValueId pixel = line({1, 1, axis.size}, 0);
  return e.op("And", {TRY(e.op("GreaterOrEqual", {pixel, TRY(bound("Floor", 0))})),
                      TRY(e.op("Less", {pixel, TRY(bound("Ceil", 1))}))});
}

// Inputs: x [n, c, h, w], rois [r, 5] (image, x1, y1, x2, y2). Bins without pixels give 0.
Status max_roi_pool(Expander& e) {
  const Shape x = e.shape(e.in(0));  // adding nodes moves what a reference would see
  if (x.size() != 4 || e.rank(e.in(1)) != 2) return infer_error("x must be [n, c, h, w] and rois [r, 5]");
  const Ints pooled = TRY(list(e, "pooled_shape", 2, 0));
  if (x[2] < 1 || x[3] < 1) return e.unsupported("the size of the image is not known");
  if (std::max(x[2], x[3]) > kLargestImage) return e.unsupported("an image this large");
  if (pooled[0] < 1 || pooled[1] < 1 || std::max(pooled[0], pooled[1]) > (1 << 12))
    return infer_error("pooled_shape must be from 1 to 4096");
  const ValueId image = TRY(e.op("Squeeze", {TRY(e.slice(e.in(1), 0, 1, 1)), e.ints({1})}));
  ValueId y = TRY(e.op("Gather", {e.in(0), TRY(e.cast(image, DType::i64))}));
  const DType type = e.dtype(y);
  const double none = -std::numeric_limits<double>::infinity();
  // [r, c, h, w] -> [r, c, bins of columns, h] -> [r, c, bins of rows, bins of columns].
  for (const RoiAxis& axis : {RoiAxis{1, 3, pooled[1], x[3]}, RoiAxis{2, 4, pooled[0], x[2]}}) {
    const ValueId inside = TRY(e.op("Unsqueeze", {TRY(pooled_pixels(e, axis)), e.ints({1, 3})}));
    y = TRY(e.op("Unsqueeze", {y, e.ints({2})}));
    y = TRY(e.op("Where", {inside, y, e.scalar(type, none)}));
    y = TRY(e.op("ReduceMax", {y, e.ints({4})}, {{"keepdims", std::int64_t{0}}}));
  }
  const ValueId empty = TRY(e.op("Equal", {y, e.scalar(type, none)}));
  e.outputs[0] = TRY(e.op("Where", {empty, e.scalar(type, 0), y}));
  return {};
}

// Attributes and sizes of a DeformConv over [n, c, h, w].
struct DeformWindow {
  Shape x, w, y;  // y: [n, channels, rows, columns]
  std::int64_t groups, offset_groups;
  Ints strides, pads, dilations;
  std::int64_t taps() const { return w[2] * w[3]; }
};

Result<DeformWindow> deform_window(Expander& e) {
  DeformWindow d{e.shape(e.in(0)),
                 e.shape(e.in(1)),
                 {},
                 e.attrs.integer("group", 1),
                 e.attrs.integer("offset_group", 1),
                 {},
                 {},
                 {}};
  const Shape offset = e.shape(e.in(2));
  if (d.x.size() != 4 || d.w.size() != 4) return e.unsupported("other than two spatial axes");
  for (const Shape* shape : std::initializer_list<const Shape*>{&d.x, &d.w, &offset})
    if (!is_static(*shape)) return e.unsupported("sizes that are not known");
  d.strides = TRY(list(e, "strides", 2, 1));
  d.dilations = TRY(list(e, "dilations", 2, 1));
  d.pads = TRY(list(e, "pads", 4, 0));
  if (const Ints kernel = TRY(list(e, "kernel_shape", 2, 0));
      e.attrs.has("kernel_shape") && kernel != Ints{d.w[2], d.w[3]})
    return infer_error("kernel_shape is not the weights'");
  constexpr std::int64_t kMost = 1 << 24;
  for (const std::int64_t dim : {d.x[0], d.x[1], d.x[2], d.x[3], d.w[0], d.w[1], d.w[2], d.w[3], d.groups,
                                 d.offset_groups, d.strides[0], d.strides[1], d.dilations[0], d.dilations[1]})
    if (dim < 1 || dim > kMost) return infer_error("sizes must be from 1 to 2^24");
  for (const std::int64_t pad : d.pads)
    if (pad < 0 || pad > kMost) return infer_error("pads must be from 0 to 2^24");
  if (d.x[1] != d.w[1] * d.groups || d.w[0] % d.groups != 0 || d.x[1] % d.offset_groups != 0)
    return infer_error("weights " + to_string(d.w) + " do not fit the channels of " + to_string(d.x));
  d.y = {d.x[0], d.w[0]};
  for (std::size_t a = 0; a < 2; ++a) {
    const std::int64_t reach = d.x[2 + a] + d.pads[a] + d.pads[2 + a] - d.dilations[a] * (d.w[2 + a] - 1) - 1;
    if (reach < 0) return infer_error("the kernel is larger than the padded image");
    d.y.push_back(reach / d.strides[a] + 1);
  }
  if (offset != Shape{d.x[0], 2 * d.offset_groups * d.taps(), d.y[2], d.y[3]})
    return infer_error("offset " + to_string(offset) + " does not fit a result of " + to_string(d.y));
  if (e.has(4) && e.shape(e.in(4)) != Shape{d.x[0], d.offset_groups * d.taps(), d.y[2], d.y[3]})
    return infer_error("mask " + to_string(e.shape(e.in(4))) + " does not fit a result of " + to_string(d.y));
  if (std::max(d.y[2], d.y[3]) > (kMost - 1) / d.taps() + 1 || d.taps() > kMost)
    return e.unsupported("more than 2^24 positions");
  return d;
}

// Where each tap of the kernel reads along axis `a` (0: rows), as GridSample counts: [n,
// groups, taps, rows, columns].
Result<ValueId> deform_places(Expander& e, const DeformWindow& d, ValueId offset, std::size_t a) {
  const DType type = e.dtype(offset);
  std::vector<double> first;
  for (std::int64_t tap = 0; tap < d.taps(); ++tap)
    for (std::int64_t i = 0; i < d.y[2 + a]; ++i) {
      const std::int64_t at = a == 0 ? tap / d.w[3] : tap % d.w[3];
      first.push_back(static_cast<double>(i * d.strides[a] + at * d.dilations[a] - d.pads[a]));
    }
  const Shape shape = a == 0 ? Shape{d.taps(), d.y[2], 1} : Shape{d.taps(), 1, d.y[3]};
  const ValueId pixel = TRY(e.op("Add", {offset, e.constant(Tensor::from_f64(type, shape, first))}));
  return grid_coordinate(e, pixel, d.x[2 + a]);
}

// Inputs: x [n, c, h, w], weights [o, c / group, kh, kw], offset [n, groups * taps * (y, x), rows, columns],
// bias [o], mask [n, groups * taps, rows, columns].
Status deform_conv(Expander& e) {
  const DeformWindow d = TRY(deform_window(e));
  const std::int64_t n = d.x[0], groups = d.offset_groups, taps = d.taps(), area = d.y[2] * d.y[3];
  const ValueId moved = TRY(e.reshape(e.in(2), {n, groups, taps, 2, d.y[2], d.y[3]}));
  const auto offsets = TRY(e.ops("Split", {moved}, {{"axis", std::int64_t{3}}}, 2));
  ValueId at[2];
  for (std::size_t a = 0; a < 2; ++a) {
    const ValueId alone = TRY(e.op("Squeeze", {offsets[a], e.ints({3})}));
    at[a] = TRY(e.op("Unsqueeze", {TRY(deform_places(e, d, alone, a)), e.ints({5})}));
  }
  const ValueId grid = TRY(e.reshape(TRY(e.op("Concat", {at[1], at[0]}, {{"axis", std::int64_t{5}}})),
                                     {n * groups, taps * d.y[2], d.y[3], 2}));
  const ValueId images = TRY(e.reshape(e.in(0), {n * groups, d.x[1] / groups, d.x[2], d.x[3]}));
  ValueId seen = TRY(e.op("GridSample", {images, grid},
                          {{"mode", std::string("linear")}, {"padding_mode", std::string("zeros")}}));
  if (e.has(4))
    seen = TRY(e.op("Mul", {seen, TRY(e.reshape(e.in(4), {n * groups, 1, taps * d.y[2], d.y[3]}))}));
  seen = TRY(e.reshape(seen, {n, d.groups, d.w[1] * taps, area}));
  const ValueId weights = TRY(e.reshape(e.in(1), {d.groups, d.w[0] / d.groups, d.w[1] * taps}));
  ValueId y = TRY(e.reshape(TRY(e.op("MatMul", {weights, seen})), d.y));
  if (e.has(3)) {
    if (e.shape(e.in(3)) != Shape{d.w[0]})
      return infer_error("bias " + to_string(e.shape(e.in(3))) + " does not fit");
    y = TRY(e.op("Add", {y, TRY(e.reshape(e.in(3), {d.w[0], 1, 1}))}));
  }
  e.outputs[0] = y;
  return {};
}

}  // namespace

std::span<const Expansion> image_expansions() {
  static const std::vector<Expansion> kTable = {
      {"Col2Im", "", 18, kNewest, 3, 3, 1, col2im, {}},
      {"AffineGrid", "", 20, kNewest, 2, 2, 1, affine_grid, {}},
      {"CenterCropPad", "", 18, kNewest, 2, 2, 1, center_crop_pad, {}},
      {"DeformConv", "", 19, kNewest, 3, 5, 1, deform_conv, {}},
      {"MaxRoiPool", "", 1, kNewest, 2, 2, 1, max_roi_pool, {}},
      {"RoiAlign", "", 10, 15, 3, 3, 1, roi_align<false>, {}},
      {"RoiAlign", "", 16, kNewest, 3, 3, 1, roi_align<true>, {}},
  };
  return kTable;
}

}  // namespace gradloom
