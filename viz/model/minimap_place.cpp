#include "viz/model/minimap_place.h"

#include <algorithm>

namespace gradloom {

MinimapCorners minimap_corners(float left, float top, float right, float bottom, float head, float margin,
                               float width, float height) {
  const float x[] = {right - width - margin, left + margin},
              y[] = {bottom - height - margin, top + head + margin};
  return {LayoutBox{x[0], y[0], width, height},
          {x[1], y[0], width, height},
          {x[0], y[1], width, height},
          {x[1], y[1], width, height}};
}

int covered_by(const LayoutBox& map, const std::vector<LayoutBox>& shapes) {
  return static_cast<int>(std::count_if(shapes.begin(), shapes.end(),
                                        [&](const LayoutBox& shape) { return map.overlaps(shape); }));
}

int minimap_place(const MinimapCorners& corners, const std::vector<LayoutBox>& shapes,
                  const std::vector<LayoutBox>& precious, int now) {
  constexpr int kPrecious = 100;
  const auto cost = [&](int corner) {
    const LayoutBox& map = corners[static_cast<std::size_t>(corner)];
    return covered_by(map, shapes) + kPrecious * covered_by(map, precious);
  };
  int best = std::clamp(now, 0, 3);
  int least = cost(best);
  for (int corner = 0; corner < 4; ++corner)
    if (const int covered = cost(corner); covered < least) {
      least = covered;
      best = corner;
    }
  return best;
}

}  // namespace gradloom
