// Minimum cut between two nodes of a network with capacities: Dinic's algorithm (Dinic, 1970), O(V^2 E), in
// practice near linear on the layered networks that graphs of models give.
#pragma once

#include <cstdint>
#include <vector>

namespace gradloom {

class MinCut {
 public:
  static constexpr double kUnlimited = 1e300;
  explicit MinCut(std::size_t nodes) : first_(nodes, -1) {}
  void add_edge(std::size_t from, std::size_t to, double capacity);
  // The least capacity whose removal parts `source` from `sink`. Once.
  double solve(std::size_t source, std::size_t sink);
  // After solve: whether the node is on the source's side of the cut that lies nearest to the source.
  bool on_source_side(std::size_t node) const { return level_[node] >= 0; }

 private:
  struct Edge {
    std::size_t to;
    double left;        // capacity that is not used
    std::int64_t next;  // of the same node; -1: none
  };
  bool find_levels(std::size_t source, std::size_t sink);
  double augment(std::size_t source, std::size_t sink);
  std::vector<Edge> edges_;  // each followed by its reverse
  std::vector<std::int64_t> first_, current_;
  std::vector<std::int32_t> level_;
  double least_ = 0;  // what is less counts as nothing: rounding
};

}  // namespace gradloom
