// One axis of GridSample: the pixels that a number of the grid reads, their weights, and how the weights change
// with it. For every device; without branches on numbers, so that the CPU takes a register of them at once.
//   position   align_corners: (g + 1) / 2 * (size - 1), -1 and 1 are the centers of the outer pixels; else ((g + 1) * size - 1) / 2, they
//              are their edges. Positions outside are moved in: border to the outer center, reflection at the outer centers or edges.
//   pixels     linear: the two neighbours; nearest: rounded to even; cubic: four, Keys's kernel with a = -0.75. Pixels outside are
//              moved in the same way, or count as 0 (zeros).
// Source: ONNX GridSample-20 and its reference implementation.
#pragma once

#include "kernels/arguments.h"
#include "kernels/math.h"

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

constexpr int kGridTaps = 4;

template <class A>
struct GridTaps {
  int count;
  int index[kGridTaps];                   // -1: outside, counts as 0
  A weight[kGridTaps], slope[kGridTaps];  // slope: derivative of the weight by the number of the grid
};

// Mirrored into [low, high]; `sign` is negated for every mirroring that changes the direction.
template <class A>
GRADLOOM_HD A grid_reflected(A x, A low, A high, A* sign) {
  const A range = high - low;
  const bool below = x<low, outside = below | (x > high), mirrors = range> A(0);
  const A distance = below ? low - x : x - high, turns = floor(distance / range),
          rest = distance - turns * range;
  const bool even = turns == A(2) * floor(turns / A(2));
  const A inside = even == below ? low + rest : high - rest, turned = even ? -*sign : *sign;
  *sign = outside ? (mirrors ? turned : A(0)) : *sign;
  return outside ? (mirrors ? inside : low) : x;
}

template <class A>
GRADLOOM_HD A grid_rounded(A x) {  // half to even
  const A up = floor(x + A(0.5));
  return (up - x == A(0.5)) & (up != A(2) * floor(up / A(2))) ? up - A(1) : up;
}

// The pixel of a whole number, moved in as `padding` asks; safe for any number.
template <class A>
GRADLOOM_HD int grid_pixel(A at, std::int64_t size, GridPadding padding, A low, A high) {
  const A last = A(size - 1);
  A unused = A(1);
  if (padding == GridPadding::reflection) at = grid_reflected(at, low, high, &unused);
  const bool positive = at >= A(0), inside = positive & (at <= last);
  const int pixel = int(positive ? (inside ? at : last) : A(0)), most = int(size - 1);
  return (padding == GridPadding::zeros) & !inside ? -1 : (pixel < most ? pixel : most);
}

// Keys's kernel for |x| <= 1 and for 1 < |x| < 2, and their derivatives.
template <class A>
GRADLOOM_HD A keys_near(A x) {
  return (A(1.25) * x - A(2.25)) * x * x + A(1);
}
template <class A>
GRADLOOM_HD A keys_far(A x) {
  return ((A(-0.75) * x + A(3.75)) * x - A(6)) * x + A(3);
}
template <class A>
GRADLOOM_HD A keys_near_slope(A x) {
  return (A(3.75) * x - A(4.5)) * x;
}
template <class A>
GRADLOOM_HD A keys_far_slope(A x) {
  return (A(-2.25) * x + A(7.5)) * x - A(6);
}

template <class A>
GRADLOOM_HD GridTaps<A> grid_taps(A g, std::int64_t size, GridMode mode, GridPadding padding,
                                  bool align_corners) {
  const A extent = A(align_corners ? size - 1 : size), low = align_corners ? A(0) : A(-0.5);
  const A high = low + extent;
  A x = (g + A(1)) / A(2) * extent + low, slope = extent / A(2);
  if (mode == GridMode::nearest) x = grid_rounded(x);
  if (padding == GridPadding::reflection) x = grid_reflected(x, low, high, &slope);
  if (padding == GridPadding::border) {
    const bool below = x < low, outside = below | (x > high);
    x = outside ? (below ? A(0) : A(size - 1)) : x;
    slope = outside ? A(0) : slope;
  }
  GridTaps<A> taps;
  const A first = floor(x), t = x - first, u = A(1) - t;
  if (mode == GridMode::nearest) {
    taps.count = 1;
    taps.index[0] = grid_pixel(x, size, padding, low, high);
    taps.weight[0] = A(1);
    taps.slope[0] = A(0);
    return taps;
  }
  const bool cubic = mode == GridMode::cubic;
  taps.count = cubic ? 4 : 2;
  for (int i = 0; i < taps.count; ++i)
    taps.index[i] = grid_pixel(first + A(cubic ? i - 1 : i), size, padding, low, high);
  if (cubic) {
    taps.weight[0] = keys_far(A(1) + t);
    taps.weight[1] = keys_near(t);
    taps.weight[2] = keys_near(u);
    taps.weight[3] = keys_far(A(1) + u);
    taps.slope[0] = slope * keys_far_slope(A(1) + t);
    taps.slope[1] = slope * keys_near_slope(t);
    taps.slope[2] = -slope * keys_near_slope(u);
    taps.slope[3] = -slope * keys_far_slope(A(1) + u);
  } else {
    // Where the border, or its mirror, holds x: it has no gradient there (torch's clip_coordinates_set_grad).
    if (padding != GridPadding::zeros && (x <= A(0)) | (x >= A(size - 1))) slope = A(0);
    taps.weight[0] = u;
    taps.weight[1] = t;
    taps.slope[0] = -slope;
    taps.slope[1] = slope;
  }
  return taps;
}

// An axis that the grid does not have: one pixel.
template <class A>
GRADLOOM_HD GridTaps<A> grid_no_axis() {
  GridTaps<A> taps;
  taps.count = 1;
  taps.index[0] = 0;
  taps.weight[0] = A(1);
  taps.slope[0] = A(0);
  return taps;
}

GRADLOOM_HD std::int64_t grid_area(const std::int64_t* sizes) { return sizes[0] * sizes[1] * sizes[2]; }

// Pixels that one point reads at most.
GRADLOOM_HD int grid_point_taps(GridMode mode, int rank) {
  const int each = mode == GridMode::nearest ? 1 : mode == GridMode::linear ? 2 : kGridTaps;
  return rank == 2 ? each * each : each * each * each;
}

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
