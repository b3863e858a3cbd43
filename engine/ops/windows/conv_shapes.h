// What Conv, ConvTranspose and the two gradient rows share: the prepared kernel.
#pragma once

#include "engine/ops/windows/sliding_window.h"
#include "kernels/prepared/convolution.h"
#include "kernels/launcher.h"

namespace gradloom {

// x: [n, c, ..], w: [k, c / groups, ..], y: [n, k, ..] with one to three spatial dims.
struct ConvolutionShape {
  Shape x, w, y;
  SlidingWindow window;
  std::int64_t groups = 1;
  bool bias = false;
  std::int64_t x_block = 1, y_block = 1;  // how x and y lie in memory; their shapes above are plain
};
// Attributes x_block and y_block of a row, for another.
void copy_blocks(const Attrs& from, Attrs& to);
// Inputs of the launch: x, w, bias | dy, w | dy, x. node: whose kernel it is, or a part of it.
Result<Kernel> prepare_convolution(const NodeTypes& node, kernels::ConvolutionKind kind,
                                   const ConvolutionShape& shape);
double convolution_flops(const Shape& y, const Shape& w);  // 2 * |y| * c / groups * r * s, for all three

// Checks shared by the gradient rows: ranks of dy and of the shape attribute `name`, which is returned.
Result<Shape> shape_attribute(const Attrs& attrs, const char* name, std::size_t rank);

}  // namespace gradloom
