// The icicle of a step tree: below each node its children side by side, the longest first, each as wide as its time. Only what
// is wider than a pixel has a box, so that a frame's work does not grow with the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "viz/model/step_tree.h"

namespace gradloom {

struct IcicleBox {
  int32_t node = -1;  // -1: children of `parent` too narrow for boxes of their own
  int32_t parent = -1;
  int32_t level = 0;           // 0: the node that fills the width
  double left = 0, right = 0;  // 0 .. 1 of the width
  int64_t more = 0;            // how many children the box of the narrow ones stands for
};
// `root` fills the width of so many pixels. Boxes come parents first, of one level from left to right.
std::vector<IcicleBox> icicle_boxes(const StepTree& tree, int32_t root, double pixels);

enum class IcicleMove : uint8_t { kUp, kDown, kLeft, kRight };
// Where an arrow key goes from `node`; the node itself where there is nothing. Sideways along the level.
int32_t icicle_move(const std::vector<IcicleBox>& boxes, int32_t node, IcicleMove move);

}  // namespace gradloom
