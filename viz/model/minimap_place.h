// Where the map of the whole graph lies over the graph: in the corner of the canvas where it covers least. Pure.
#pragma once

#include <array>
#include <vector>

#include "viz/layout/layout.h"

namespace gradloom {

// Bottom right, bottom left, top right, top left: of equal ones the first is taken.
using MinimapCorners = std::array<LayoutBox, 4>;
// The map's places in a canvas from (left, top) to (right, bottom), `margin` from its edges, below `head`; all in one unit.
MinimapCorners minimap_corners(float left, float top, float right, float bottom, float head, float margin,
                               float width, float height);
// Which corner covers the fewest shapes, one of `precious` counting as a hundred. `now` stays unless another covers fewer.
int minimap_place(const MinimapCorners& corners, const std::vector<LayoutBox>& shapes,
                  const std::vector<LayoutBox>& precious, int now);
int covered_by(const LayoutBox& map, const std::vector<LayoutBox>& shapes);

}  // namespace gradloom
