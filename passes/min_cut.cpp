#include "passes/min_cut.h"

#include <algorithm>

namespace gradloom {

void MinCut::add_edge(std::size_t from, std::size_t to, double capacity) {
  edges_.push_back({to, capacity, first_[from]});
  first_[from] = static_cast<std::int64_t>(edges_.size()) - 1;
  edges_.push_back({from, 0, first_[to]});
  first_[to] = static_cast<std::int64_t>(edges_.size()) - 1;
}

bool MinCut::find_levels(std::size_t source, std::size_t sink) {
  level_.assign(first_.size(), -1);
  std::vector<std::size_t> queue{source};
  level_[source] = 0;
  for (std::size_t i = 0; i < queue.size(); ++i)
    for (std::int64_t e = first_[queue[i]]; e >= 0; e = edges_[static_cast<std::size_t>(e)].next) {
      const Edge& edge = edges_[static_cast<std::size_t>(e)];
      if (edge.left <= least_ || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[queue[i]] + 1;
      queue.push_back(edge.to);
    }
  return level_[sink] >= 0;
}

// One path by levels, without recursion: networks are as deep as models. 0: there is none any more.
double MinCut::augment(std::size_t source, std::size_t sink) {
  std::vector<std::int64_t> path;
  std::size_t at = source;
  while (at != sink) {
    std::int64_t& e = current_[at];
    while (e >= 0 && (edges_[static_cast<std::size_t>(e)].left <= least_ ||
                      level_[edges_[static_cast<std::size_t>(e)].to] != level_[at] + 1))
      e = edges_[static_cast<std::size_t>(e)].next;
    if (e >= 0) {
      path.push_back(e);
      at = edges_[static_cast<std::size_t>(e)].to;
      continue;
    }
    if (path.empty()) return 0;
    level_[at] = -1;  // a dead end
    at = edges_[static_cast<std::size_t>(path.back() ^ 1)].to;
    path.pop_back();
  }
  double flow = kUnlimited;
  for (const std::int64_t e : path) flow = std::min(flow, edges_[static_cast<std::size_t>(e)].left);
  for (const std::int64_t e : path) {
    edges_[static_cast<std::size_t>(e)].left -= flow;
    edges_[static_cast<std::size_t>(e ^ 1)].left += flow;
  }
  return flow;
}

double MinCut::solve(std::size_t source, std::size_t sink) {
  double largest = 0, total = 0;
  for (const Edge& edge : edges_)
    if (edge.left < kUnlimited) largest = std::max(largest, edge.left);
  least_ = largest * 1e-12;
  while (find_levels(source, sink)) {
    current_ = first_;
    while (const double flow = augment(source, sink)) total += flow;
  }
  return total;
}

}  // namespace gradloom
