// Pass time travel: every node that ever was on the way of a graph through its passes as one graph, with one layout, and
// which of it is there at each stage. Stepping from stage to stage moves nothing and computes no layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "passes/stages.h"
#include "viz/model/graph_model.h"
#include "viz/model/scene.h"

namespace gradloom {

struct StageStep {
  std::string pass, rule, site, why;
  PassPhase at = PassPhase::pre_gradient;
  std::vector<int32_t> added, removed, changed;  // boxes
  int64_t nodes = 0;                             // after it
};

// A run of a pass that changed something: its steps follow each other.
struct StageRun {
  std::string pass;
  PassPhase at = PassPhase::pre_gradient;
  int32_t first = 0, last = 0;  // steps
  int64_t node_change = 0;
};

struct StageModel {
  std::vector<StageStep> steps;
  std::vector<StageRun> runs;
  std::vector<StageSpan> boxes, links;  // of the graph model's
  // By box: steps that made, changed or removed it, or what it came from
  std::vector<std::vector<int32_t>> touched;

  int32_t last() const { return static_cast<int32_t>(steps.size()) - 1; }
  int32_t run_of(int32_t step) const;
  // "after fuse-gelu (3 of 12): 16 nodes fewer"; of a step inside a run: "fuse-gelu at NAME (2 of 4): 4 nodes fewer".
  std::string label(int32_t step) const;
  // The last step of the run before or after the step's, or the same one.
  int32_t step_by_run(int32_t step, int direction) const;
  // What happened to a box in a step: "made by", "changed by", "removed by", "takes the place of what it replaced".
  std::string blame(int32_t box, int32_t step) const;
};

// `model`: the graph of all stages; kernels and costs are those of what runs in the end.
struct StagedModel {
  GraphModel model;
  StageModel stages;
};
StagedModel build_stage_model(const StageHistory& history, const Plan& plan);

enum class StageShown : uint8_t {
  kHidden,
  kGhost,
  kShown,
  kChanged,
  kAdded
};  // kGhost: it went in this step

// What of a scene of StagedModel::model is there at a step.
struct StageShapes {
  std::vector<StageShown> shapes;     // by shape: boxes, then groups, which are as the most of what they hold
  std::vector<uint32_t> group_nodes;  // by group: nodes of its column in the subtree
  std::vector<bool> routes;
};
StageShapes shapes_at(const GraphScene& scene, const StageModel& stages, int32_t step);

}  // namespace gradloom
