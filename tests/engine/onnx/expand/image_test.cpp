// Operators on images as bodies.
#include "engine/onnx/expand/expansion.h"

#include <algorithm>
#include <array>

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

TEST(ExpandImage, BlocksWithStridesPadsAndDilations) {
  // Rows: 4 + 1 of padding, blocks of 2 every 2 pixels: 2. Columns: 5, blocks 3 apart: 2.
  const Expanded e = expanded(
      "g (float[2, 8, 4] x, int64[2] image, int64[2] block) => (float[2, 2, 4, 5] y)"
      "{ y = Col2Im<strides = [2, 1], pads = [0, 0, 1, 0], dilations = [1, 3]>(x, image, block) }",
      18, {{"image", Tensor::from_i64({4, 5})}, {"block", Tensor::from_i64({2, 2})}});
  const Array& x = e.inputs.at("x");
  Array want(80, 0);
  for (std::size_t nc = 0; nc < 4; ++nc)
    for (std::size_t b = 0; b < 4; ++b)
      for (std::size_t p = 0; p < 4; ++p) {
        const std::size_t row = p / 2 * 2 + b / 2, column = p % 2 + b % 2 * 3;
        if (row < 4) want[nc * 20 + row * 5 + column] += x[(nc * 4 + b) * 4 + p];
      }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandImage, ColumnsOfAKnownImage) {
  const Expanded e = expanded(
      "g (float[1, 8, 6] x, int64[2] image, int64[2] block) => (float[1, 2, 3, 4] y)"
      "{ y = Col2Im(x, image, block) }",
      18, {{"image", Tensor::from_i64({3, 4})}, {"block", Tensor::from_i64({2, 2})}});
  const Array& x = e.inputs.at("x");
  Array want(24, 0);
  for (std::size_t c = 0; c < 2; ++c)
    for (std::size_t b = 0; b < 4; ++b)
      for (std::size_t p = 0; p < 6; ++p)  // 2 rows of 3 positions
        want[c * 12 + (p / 3 + b / 2) * 4 + p % 3 + b % 2] += x[(c * 4 + b) * 6 + p];
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandImage, GridsOfAffineMaps) {
  for (const bool corners : {false, true}) {
    const Expanded e = expanded(
        "g (float[1, 2, 3] t, int64[4] size) => (float[1, 2, 3, 2] y) { y = AffineGrid<align_corners = " +
            std::string(corners ? "1" : "0") + ">(t, size) }",
        20, {{"size", Tensor::from_i64({1, 1, 2, 3})}});
    const Array& t = e.inputs.at("t");
    Array want;
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j) {
        const double y = corners ? 2.0 * i - 1 : (2.0 * i + 1) / 2 - 1,
                     x = corners ? j - 1.0 : (2.0 * j + 1) / 3 - 1;
        want.push_back(t[0] * x + t[1] * y + t[2]);
        want.push_back(t[3] * x + t[4] * y + t[5]);
      }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

TEST(ExpandImage, CentresAreCutAndFilled) {
  const Expanded e =
      expanded("g (float[3, 4] x, int64[2] size) => (float[6, 1] y) { y = CenterCropPad(x, size) }", 18,
               {{"size", Tensor::from_i64({6, 1})}});
  const Array& x = e.inputs.at("x");
  expect_near(outputs_of(e)[0], {0, x[1], x[5], x[9], 0, 0});
  expect_gradients(e);
}

// The mean of bilinear samples, as the operator defines it.
double roi_value(const Array& image, int height, int width, double y, double x) {
  if (y < -1 || y > height || x < -1 || x > width) return 0;
  y = std::min(std::max(y, 0.0), height - 1.0);
  x = std::min(std::max(x, 0.0), width - 1.0);
  const int y0 = static_cast<int>(y), x0 = static_cast<int>(x);
  const int y1 = std::min(y0 + 1, height - 1), x1 = std::min(x0 + 1, width - 1);
  const auto at = [&](int i, int j) { return image[static_cast<std::size_t>(i * width + j)]; };
  return (1 - (y - y0)) * ((1 - (x - x0)) * at(y0, x0) + (x - x0) * at(y0, x1)) +
         (y - y0) * ((1 - (x - x0)) * at(y1, x0) + (x - x0) * at(y1, x1));
}

TEST(ExpandImage, RegionsAreSampled) {
  Tensor rois = Tensor::from_f64(DType::f64, {2, 4}, {0.5, 1, 6.25, 5.5, -3, 0.25, 3.5, 7.75});
  for (const bool half_pixel : {false, true}) {
    const Expanded e = expanded(
        "g (float[2, 1, 4, 5] x, float[2, 4] rois, int64[2] which) => (float[2, 1, 2, 3] y)"
        "{ y = RoiAlign<output_height = 2, output_width = 3, sampling_ratio = 2, spatial_scale = 0.5"
        ", coordinate_transformation_mode = \"" +
            std::string(half_pixel ? "half_pixel" : "output_half_pixel") + "\">(x, rois, which) }",
        16, {{"which", Tensor::from_i64({1, 0})}, {"rois", rois}});
    const Array& x = e.inputs.at("x");
    Array want;
    for (std::int64_t r = 0; r < 2; ++r) {
      const Array image(x.begin() + (1 - r) * 20, x.begin() + (2 - r) * 20);
      const double offset = half_pixel ? 0.5 : 0, x0 = rois.at(4 * r) / 2 - offset,
                   y0 = rois.at(4 * r + 1) / 2 - offset;
      const double width = rois.at(4 * r + 2) / 2 - offset - x0,
                   height = rois.at(4 * r + 3) / 2 - offset - y0;
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 3; ++j) {
          double sum = 0;
          for (const double a : {0.25, 0.75})
            for (const double b : {0.25, 0.75})
              sum += roi_value(image, 4, 5, y0 + (i + a) * height / 2, x0 + (j + b) * width / 3) / 4;
          want.push_back(sum);
        }
    }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

// As many samples as a bin has pixels: regions of one and of several samples, outside of the image, and of
// negative extent; with the regions known and not.
TEST(ExpandImage, RoiAlignWithAsManySamplesAsPixels) {
  const Tensor rois =
      Tensor::from_f64(DType::f64, {3, 4}, {0.3, 0.4, 5.1, 6.3, -40, 1, 9.7, 33.2, 3.1, 2.2, 1.4, 6.1});
  for (const bool half_pixel : {true, false})
    for (const bool known : {true, false}) {
      std::map<std::string, Tensor> contents = {{"which", Tensor::from_i64({1, 0, 1})}};
      if (known) contents["rois"] = rois;
      const double scale = known ? 0.5 : 6;
      const Expanded e = expanded(
          "g (float[2, 1, 4, 5] x, float[3, 4] rois, int64[3] which) => (float[3, 1, 2, 3] y)"
          "{ y = RoiAlign<output_height = 2, output_width = 3, spatial_scale = " +
              std::string(known ? "0.5" : "6.0") + ", coordinate_transformation_mode = \"" +
              std::string(half_pixel ? "half_pixel" : "output_half_pixel") + "\">(x, rois, which) }",
          16, contents);
      const Array &x = e.inputs.at("x"), r = known ? rois.to_f64() : e.inputs.at("rois");
      Array want;
      for (std::size_t region = 0; region < 3; ++region) {
        const std::ptrdiff_t first = region == 1 ? 0 : 20;
        const Array image(x.begin() + first, x.begin() + first + 20);
        const double offset = half_pixel ? 0.5 : 0;
        const auto edge = [&](std::size_t i) { return r[4 * region + i] * scale - offset; };
        const auto bin = [&](std::size_t axis, int bins) {
          const double length = edge(axis + 2) - edge(axis);
          return (half_pixel ? length : std::max(length, 1.0)) / bins;
        };
        const double down = bin(1, 2), across = bin(0, 3);
        const int rows = static_cast<int>(std::ceil(down)), columns = static_cast<int>(std::ceil(across));
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < 3; ++j) {
            double sum = 0;
            for (int a = 0; a < rows; ++a)
              for (int b = 0; b < columns; ++b)
                sum += roi_value(image, 4, 5, edge(1) + down * (i + (a + 0.5) / rows),
                                 edge(0) + across * (j + (b + 0.5) / columns));
            want.push_back(rows > 0 && columns > 0 ? sum / (rows * columns) : 0);
          }
      }
      expect_near(outputs_of(e)[0], want);
      expect_gradients(e);
    }
}

TEST(ExpandImage, MaxRoiPool) {
  const Array rois = {1, 0.4, 1, 7.5, 6, 0, 2, 2, 2.4, 2.1, 0, 20, 3, 30, 5};
  const Expanded e = expanded(
      "g (float[2, 2, 4, 5] x, float[3, 5] rois) => (float[3, 2, 2, 3] y)"
      "{ y = MaxRoiPool<pooled_shape = [2, 3], spatial_scale = 0.5>(x, rois) }",
      17, {{"rois", Tensor::from_f64(DType::f64, {3, 5}, rois)}});
  Array want;
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t c = 0; c < 2; ++c)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 3; ++j) {
          const auto edge = [&](std::size_t k) { return std::round(rois[5 * r + k] * 0.5); };
          const double rows = std::max(edge(4) - edge(2) + 1, 1.0) / 2,
                       columns = std::max(edge(3) - edge(1) + 1, 1.0) / 3;
          double largest = -1e9;
          for (int p = 0; p < 4; ++p)
            for (int q = 0; q < 5; ++q)
              if (p >= std::floor(i * rows) + edge(2) && p < std::ceil((i + 1) * rows) + edge(2) &&
                  q >= std::floor(j * columns) + edge(1) && q < std::ceil((j + 1) * columns) + edge(1))
                largest = std::max(
                    largest,
                    e.inputs.at("x")[static_cast<std::size_t>(
                        ((static_cast<int>(rois[5 * r]) * 2 + static_cast<int>(c)) * 4 + p) * 5 + q)]);
          want.push_back(largest == -1e9 ? 0 : largest);
        }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

// The largest of the four weighted pixels around every sample of a bin;
// samples outside of the image count as 0.
TEST(ExpandImage, RoiAlignOfMaxima) {
  const Tensor rois = Tensor::from_f64(DType::f64, {2, 4}, {0.3, 0.4, 5.1, 6.3, -4, 1, 9.7, 3.2});
  const Expanded e = expanded(
      "g (float[2, 1, 4, 5] x, float[2, 4] rois, int64[2] which) => (float[2, 1, 2, 3] y)"
      "{ y = RoiAlign<output_height = 2, output_width = 3, sampling_ratio = 2, mode = \"max\""
      ", coordinate_transformation_mode = \"half_pixel\">(x, rois, which) }",
      16, {{"which", Tensor::from_i64({1, 0})}, {"rois", rois}});
  const Array& x = e.inputs.at("x");
  Array want;
  for (std::int64_t r = 0; r < 2; ++r) {
    const Array image(x.begin() + (1 - r) * 20, x.begin() + (2 - r) * 20);
    const double x0 = rois.at(4 * r) - 0.5, y0 = rois.at(4 * r + 1) - 0.5;
    const double width = rois.at(4 * r + 2) - 0.5 - x0, height = rois.at(4 * r + 3) - 0.5 - y0;
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j) {
        double largest = -1e300;
        for (const double a : {0.25, 0.75})
          for (const double b : {0.25, 0.75}) {
            double row = y0 + (i + a) * height / 2, column = x0 + (j + b) * width / 3;
            const bool inside = row >= -1 && row <= 4 && column >= -1 && column <= 5;
            row = std::clamp(row, 0.0, 3.0);
            column = std::clamp(column, 0.0, 4.0);
            for (const int down : {0, 1})
              for (const int across : {0, 1}) {
                const double part_y = row - std::floor(row), part_x = column - std::floor(column);
                const double weight = (down == 1 ? part_y : 1 - part_y) * (across == 1 ? part_x : 1 - part_x);
                const int at = std::min(static_cast<int>(row) + down, 3) * 5 +
                               std::min(static_cast<int>(column) + across, 4);
                largest = std::max(largest, inside ? weight * image[static_cast<std::size_t>(at)] : 0);
              }
          }
        want.push_back(largest);
      }
  }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

// Two groups of channels and of offsets, strides, dilations and padding on one side; positions up to outside
// of the image.
TEST(ExpandImage, DeformConv) {
  const Expanded e = expanded(
      "g (float[2, 4, 5, 4] x, float[6, 2, 2, 3] w, float[2, 24, 3, 2] o, float[6] b, float[2, 12, 3, 2] m) "
      "=> (float[2, 6, 3, 2] y)"
      "{ y = DeformConv<group = 2, offset_group = 2, strides = [2, 1], dilations = [1, 2], pads = [0, 1, 1, "
      "1]>(x, w, o, b, m) }",
      19);
  const auto in = [&](const char* name,
                      std::initializer_list<std::array<std::int64_t, 2>> at) {  // {index, size} by axis
    std::int64_t place = 0;
    for (const auto& [index, size] : at) place = place * size + index;
    return e.inputs.at(name)[static_cast<std::size_t>(place)];
  };
  Array want;
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t o = 0; o < 6; ++o)
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < 2; ++j) {
          double sum = e.inputs.at("b")[static_cast<std::size_t>(o)];
          for (std::int64_t c = 0; c < 2; ++c)
            for (std::int64_t tap = 0; tap < 6; ++tap) {
              const std::int64_t channel = o / 3 * 2 + c, group = channel / 2;
              const auto moved = [&](std::int64_t axis) {
                return in("o", {{n, 2}, {group, 2}, {tap, 6}, {axis, 2}, {i, 3}, {j, 2}});
              };
              const double row = static_cast<double>(2 * i + tap / 3) + moved(0),
                           column = static_cast<double>(j + 2 * (tap % 3) - 1) + moved(1);
              double value = 0;
              for (const int down : {0, 1})
                for (const int across : {0, 1}) {
                  const double y = std::floor(row) + down, x = std::floor(column) + across;
                  if (y < 0 || y > 4 || x < 0 || x > 3) continue;
                  value += (1 - std::fabs(row - y)) * (1 - std::fabs(column - x)) *
                           in("x", {{n, 2},
                                    {channel, 4},
                                    {static_cast<std::int64_t>(y), 5},
                                    {static_cast<std::int64_t>(x), 4}});
                }
              sum += value * in("m", {{n, 2}, {group, 2}, {tap, 6}, {i, 3}, {j, 2}}) *
                     in("w", {{o, 6}, {c, 2}, {tap, 6}});
            }
          want.push_back(sum);
        }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandImage, WhatIsNotKnownIsTheReason) {
  const auto refused = [](const std::string& text, const std::string& reason) {
    expect_refused(import_model(model_from_text(text, 20)), Errc::bad_input, {reason});
  };
  refused("g (float[1, 8, 6] x, int64[2] i, int64[2] b) => (float[1, 2, 3, 4] y) { y = Col2Im(x, i, b) }",
          "its image_shape is not known before running");
  refused("g (float[1, 2, 3] t, int64[4] s) => (float[1, 2, 3, 2] y) { y = AffineGrid(t, s) }",
          "its size is not known before running");
  const std::string roi =
      "g (float[1, 1, 4, 4] x, float[2, 4] r, int64[2] b) => (float[2, 1, 1, 1] y) { y = RoiAlign";
  refused(roi + "<mode = \"max\">(x, r, b) }", "sampling_ratio 0");
  refused(roi + "<mode = \"min\", sampling_ratio = 1>(x, r, b) }",
          "attribute 'mode' is 'min', it must be avg or max");
}

}  // namespace
}  // namespace gradloom::expand_test
