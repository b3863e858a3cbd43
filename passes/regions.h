// Regions: connected nodes that become one node of straight-line code (engine/ops/elementwise/fused.h), for fuse-elementwise and
// fuse-rows.
//
// Regions grow greedily in topological order: a node joins the regions of its producers when no path leaves the joined region and
// enters it again (convexity, checked on the graph of regions), what both compute has one shape, or the same rows, and the phase is
// the same: a region across forward and backward would keep forward values alive for longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/elementwise/fused.h"
#include "passes/pass.h"

namespace gradloom {

// What a node is in a region.
struct RegionCode {
  std::vector<FusedStatement> statements;  // over the node's inputs and, behind these, `constants`
  std::vector<std::pair<DType, double>> constants{};
  std::vector<std::int64_t> results{};  // the statement behind each output of the node
  Shape space{};                        // all of it broadcasts to this shape
  std::size_t row_dims = 0;             // the last dims, over which it reduces; 0: it reduces nothing
};
// Nothing: the node is in no region.
using RegionCodeFn = std::function<std::optional<RegionCode>(const Graph& graph, const Node& node)>;

// Of an elementwise node.
std::optional<RegionCode> elementwise_code(const Graph& graph, const Node& node);

struct Region {
  std::vector<NodeId> nodes;          // in topological order
  std::uint32_t first = 0, last = 0;  // positions in the order
  std::size_t statements = 0;
  Shape space{};
  std::size_t row_dims = 0;
  bool draws = false;  // random numbers, by the places of elements
};

// Of which regions it is told why they are not larger: all, those that reduce over rows, none.
enum class RegionReasons : std::uint8_t { all, of_rows, none };

struct RegionLimits {
  std::size_t nodes = 0, inputs = 0;
  RegionReasons reasons = RegionReasons::all;
};

// Regions over the nodes of a graph; every live node is in one, most of them alone.
class Regions {
 public:
  Regions(const Rewriter& rw, std::vector<NodeId> order, RegionLimits limits, RegionCodeFn code);

  // Joins what can be joined; told are, at most a hundred times, the reasons of what is left apart.
  void grow(Rewriter& rw);
  // Those of at least two nodes, by their last.
  std::vector<Region> joined() const;
  // One node of `op` in the place of the region.
  Status build(Rewriter& rw, const Region& region, const char* op) const;

 private:
  const Region& region_of(NodeId id) const { return regions_[region_of_[id]]; }
  bool is_code(NodeId id) const { return region_of(id).statements > 0; }
  bool together(NodeId a, NodeId b) const { return region_of_[a] == region_of_[b]; }
  // Why the regions of a producer and a consumer cannot be one; empty when they can.
  std::string problem(NodeId producer, NodeId consumer);
  void join(NodeId producer, NodeId consumer);
  std::size_t joined_inputs(std::uint32_t a, std::uint32_t b) const;
  NodeId path_between(std::uint32_t a, std::uint32_t b);
  NodeId search(std::uint32_t from, std::uint32_t to);

  const Rewriter& rw_;
  const Graph& graph_;
  const std::vector<NodeId> order_;
  const RegionLimits limits_;
  const RegionCodeFn code_;
  std::vector<std::uint32_t> region_of_;  // by node
  std::vector<std::uint32_t> position_;   // by node
  std::vector<Region> regions_;
  std::vector<std::uint32_t> visited_;  // by region
  std::uint32_t stamp_ = 0;
};

}  // namespace gradloom
