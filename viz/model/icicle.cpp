#include "viz/model/icicle.h"

#include <algorithm>

namespace gradloom {

std::vector<IcicleBox> icicle_boxes(const StepTree& tree, int32_t root, double pixels) {
  std::vector<IcicleBox> boxes{{root, -1, 0, 0, 1, 0}};
  const double all = tree.nodes[static_cast<size_t>(root)].total_ns;
  if (!(all > 0)) return boxes;
  for (size_t b = 0; b < boxes.size(); ++b) {  // breadth first: a level's boxes lie from left to right
    const IcicleBox box = boxes[b];
    if (box.node < 0) continue;
    const std::vector<int32_t>& children = tree.nodes[static_cast<size_t>(box.node)].children;
    double left = box.left;
    for (size_t i = 0; i < children.size(); ++i) {
      const double width = tree.nodes[static_cast<size_t>(children[i])].total_ns / all;
      if (width * pixels < 1) {  // and so are all behind it
        if ((box.right - left) * pixels >= 1)
          boxes.push_back(
              {-1, box.node, box.level + 1, left, box.right, static_cast<int64_t>(children.size() - i)});
        break;
      }
      boxes.push_back({children[i], box.node, box.level + 1, left, std::min(left + width, box.right), 0});
      left += width;
    }
  }
  return boxes;
}

int32_t icicle_move(const std::vector<IcicleBox>& boxes, int32_t node, IcicleMove move) {
  const auto at =
      std::find_if(boxes.begin(), boxes.end(), [&](const IcicleBox& b) { return b.node == node; });
  if (at == boxes.end()) return boxes.front().node;
  if (move == IcicleMove::kUp) return at->level > 0 ? at->parent : node;
  if (move == IcicleMove::kDown) {
    const auto first =
        std::find_if(at, boxes.end(), [&](const IcicleBox& b) { return b.parent == node && b.node >= 0; });
    return first == boxes.end() ? node : first->node;
  }
  const int step = move == IcicleMove::kLeft ? -1 : 1;
  for (auto to = at - boxes.begin() + step; to >= 0 && to < static_cast<std::ptrdiff_t>(boxes.size());
       to += step) {
    const IcicleBox& box = boxes[static_cast<size_t>(to)];
    if (box.level != at->level) break;
    if (box.node >= 0) return box.node;
  }
  return node;
}

}  // namespace gradloom
