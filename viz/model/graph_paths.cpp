#include "viz/model/graph_paths.h"

#include <algorithm>
#include <utility>

namespace gradloom {
namespace {

// Breadth first from `from`: the box before each, -1 where none was reached.
std::vector<int32_t> boxes_before(const GraphModel& model, int32_t from) {
  const std::size_t n = model.boxes.size();
  std::vector<std::size_t> begin(n + 1, 0);  // of each box's links in `to`
  for (const GraphLink& link : model.links) ++begin[link.src + 1];
  for (std::size_t i = 0; i < n; ++i) begin[i + 1] += begin[i];
  std::vector<uint32_t> to(model.links.size());
  std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
  for (const GraphLink& link : model.links) to[next[link.src]++] = link.dst;
  for (std::size_t i = 0; i < n; ++i)
    std::sort(to.begin() + static_cast<std::ptrdiff_t>(begin[i]),
              to.begin() + static_cast<std::ptrdiff_t>(begin[i + 1]));
  std::vector<int32_t> before(n, -1), queue{from};
  before[static_cast<std::size_t>(from)] = from;
  for (std::size_t k = 0; k < queue.size(); ++k) {
    const auto at = static_cast<std::size_t>(queue[k]);
    for (std::size_t i = begin[at]; i < begin[at + 1]; ++i) {
      if (before[to[i]] >= 0) continue;
      before[to[i]] = queue[k];
      queue.push_back(static_cast<int32_t>(to[i]));
    }
  }
  return before;
}

}  // namespace

std::vector<int32_t> graph_neighbours(const GraphModel& model, std::span<const int32_t> boxes) {
  std::vector<bool> given(model.boxes.size(), false), near(model.boxes.size(), false);
  for (const int32_t box : boxes) given[static_cast<std::size_t>(box)] = true;
  for (const GraphLink& link : model.links) {
    if (given[link.src]) near[link.dst] = true;
    if (given[link.dst]) near[link.src] = true;
  }
  std::vector<int32_t> found;
  for (std::size_t i = 0; i < near.size(); ++i)
    if (near[i] && !given[i]) found.push_back(static_cast<int32_t>(i));
  return found;
}

std::vector<int32_t> graph_path(const GraphModel& model, int32_t a, int32_t b) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    const std::vector<int32_t> before = boxes_before(model, from);
    if (before[static_cast<std::size_t>(to)] < 0) continue;
    std::vector<int32_t> path{to};
    while (path.back() != from) path.push_back(before[static_cast<std::size_t>(path.back())]);
    std::reverse(path.begin(), path.end());
    return path;
  }
  return {};
}

}  // namespace gradloom
