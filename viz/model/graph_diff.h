// What two compiled graphs do differently: those of two recipes, or of two runs as a session holds them.
//
// Nodes are paired by name, then by the ONNX nodes that they stand for, then by structure (the same operator reading
// paired values). Nodes of a pair are equal: same operator, attributes, types and kernel, and no input comes from
// two paired nodes that are not each other's. So what only reads another result is no difference, what reads it from
// elsewhere is.
//
// What has no equal is gathered into regions: nodes of both sides, of all phases, that share an ONNX node, directly or
// through others. A node without ONNX nodes joins those next to it that differ, in its phase; the optimizer's are one
// region.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/plan/plan.h"
#include "sessions/store.h"

namespace gradloom {

struct DiffNode {
  std::string name, op, kernel, phase, passes, types, attributes;  // kernel: empty for a view
  std::vector<std::string> onnx_nodes;
  std::vector<std::string> inputs;  // of a whole graph: names of what it reads, those of constants empty
  std::vector<int32_t> producers;   // and who made it: indices of nodes, -1: nobody
  bool has_kernel = true;
  double time_ns = std::nan("");  // per optimizer step; NaN: not known
  double bytes = 0, flops = 0;
};

struct DiffGraph {
  std::string name;
  std::vector<DiffNode> nodes;  // in the order of the schedule
  bool whole = false;           // false: kernels alone, without what they read (a recorded run)
  std::string times;            // whose times they are, "predicted"; empty: none are known
};

// `step_ns`: by plan step, predicted; empty: not known.
DiffGraph diff_graph_of(const Graph& graph, const Plan& plan, std::string name,
                        std::span<const double> step_ns = {});
DiffGraph diff_graph_of(const RunRecord& run);  // with the times that it measured

struct DiffSums {
  int64_t nodes = 0, kernels = 0, timed = 0;  // timed: kernels whose time is known
  double time_ns = 0, bytes = 0, flops = 0;
  bool is_timed() const { return timed > 0; }
};

struct DiffRegion {
  std::string name;                     // "layers.0/mlp: Add, Div, Erf, Mul"; "optimizer"
  std::vector<std::string> onnx_nodes;  // that it stands for, in the order of the left side's schedule
  std::vector<int32_t> left, right;     // nodes of the sides, in the order of their schedules
  std::vector<std::string> left_passes, right_passes;  // that made nodes of this side alone
  std::string why;  // where no pass tells it: "only in A", "other types", "other kernels", ..
  DiffSums left_sums, right_sums;
  bool is_timed() const { return left_sums.is_timed() || right_sums.is_timed(); }
  double change_ns() const { return right_sums.time_ns - left_sums.time_ns; }
  double change_bytes() const { return right_sums.bytes - left_sums.bytes; }
};

struct GraphDifference {
  DiffGraph left, right;
  // The largest change first: of time where times are known, else of bytes.
  std::vector<DiffRegion> regions;
  DiffSums left_sums, right_sums;    // of all regions
  DiffSums left_equal, right_equal;  // of what is the same
  bool empty() const { return regions.empty(); }
};

// Where one side is kernels alone, views and inputs of the other count for nothing.
// Errc::usage: the graphs have too little in common to be of one model, or a side has no ONNX nodes at all.
Result<GraphDifference> difference_of(DiffGraph left, DiffGraph right);

}  // namespace gradloom
