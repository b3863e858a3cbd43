#include "viz/model/stage_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "engine/base/result.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

const char* phase_suffix(PassPhase at) { return at == PassPhase::post_gradient ? " after autodiff" : ""; }

// `replaced`: came or went.
std::string change_text(int64_t change, size_t replaced, size_t changed) {
  if (change > 0) return plural_text(change, "node") + " more";
  if (change < 0) return plural_text(-change, "node") + " fewer";
  if (replaced > 0) return "others in their place";
  return changed > 0 ? plural_text(static_cast<int64_t>(changed), "node") + " changed"
                     : "nodes in another order";
}

std::vector<int32_t> boxes_of(const std::vector<NodeId>& nodes, const std::vector<int32_t>& box_of) {
  std::vector<int32_t> boxes;
  for (const NodeId id : nodes)
    if (box_of[id] >= 0) boxes.push_back(box_of[id]);
  return boxes;
}

void collect_steps(const StageHistory& history, const std::vector<int32_t>& box_of, StagedModel& out) {
  for (const Stage& stage : history.stages) {
    const auto step = static_cast<int32_t>(out.stages.steps.size());
    const int64_t before = out.stages.steps.empty() ? 0 : out.stages.steps.back().nodes;
    out.stages.steps.push_back({stage.pass, stage.rule, stage.site, stage.why, stage.at,
                                boxes_of(stage.added, box_of), boxes_of(stage.removed, box_of),
                                boxes_of(stage.changed, box_of), static_cast<int64_t>(stage.nodes)});
    const bool goes_on = !out.stages.runs.empty() && out.stages.runs.back().pass == stage.pass &&
                         out.stages.runs.back().at == stage.at;
    if (!goes_on) out.stages.runs.push_back({stage.pass, stage.at, step, step, 0});
    out.stages.runs.back().last = step;
    out.stages.runs.back().node_change += static_cast<int64_t>(stage.nodes) - before;
  }
}

// The links of all stages: those that the model has, of what the nodes read last, and those before.
void collect_links(const StageHistory& history, const std::vector<int32_t>& box_of, StagedModel& out) {
  std::map<ValueId, int32_t> made_by;  // a value's box
  for (const GraphLink& link : out.model.links) made_by[link.value] = static_cast<int32_t>(link.src);
  for (NodeId id = 0; id < history.nodes.size(); ++id)
    if (box_of[id] >= 0)
      for (const ValueId v : history.all.nodes[id].outputs)
        if (v != kNone) made_by[v] = box_of[id];
  out.model.links.clear();
  for (const StageRead& read : history.reads) {
    const auto from = made_by.find(read.value);
    const int32_t to = box_of[read.reader];
    if (from == made_by.end() || to < 0) continue;
    const GraphBox &src = out.model.boxes[static_cast<size_t>(from->second)],
                   &dst = out.model.boxes[static_cast<size_t>(to)];
    const bool saved = src.column == LayoutColumn::kForward && dst.column == LayoutColumn::kBackward;
    out.model.links.push_back(
        {static_cast<uint32_t>(from->second), static_cast<uint32_t>(to), read.value, saved});
    out.stages.links.push_back(read.span);
  }
}

// A box is touched by what made, changed or removed it, and by the rewrites of what it took the place of: those before
// it that removed or changed a node of its phase with one of its ONNX nodes.
void collect_touches(const StageHistory& history, StagedModel& out) {
  const auto boxes = out.model.boxes.size();
  out.stages.touched.resize(boxes);
  std::map<uint32_t, std::vector<int32_t>> by_source;  // boxes
  for (size_t b = 0; b < boxes; ++b)
    if (const NodeId id = out.model.boxes[b].node; id != kNone)
      for (const uint32_t source : history.all.nodes[id].origin.sources)
        by_source[source].push_back(static_cast<int32_t>(b));
  for (size_t s = 0; s < out.stages.steps.size(); ++s) {
    const StageStep& step = out.stages.steps[s];
    const auto touch = [&](int32_t box) {
      std::vector<int32_t>& steps = out.stages.touched[static_cast<size_t>(box)];
      if (steps.empty() || steps.back() != static_cast<int32_t>(s)) steps.push_back(static_cast<int32_t>(s));
    };
    for (const auto* list : {&step.added, &step.changed, &step.removed})
      for (const int32_t box : *list) touch(box);
    if (step.rule.empty()) continue;
    for (const uint32_t source : history.stages[s].sources) {
      const auto sharing = by_source.find(source);
      if (sharing == by_source.end()) continue;
      for (const int32_t box : sharing->second) {
        const bool later = out.stages.boxes[static_cast<size_t>(box)].from > static_cast<int32_t>(s);
        const Phase phase = out.model.boxes[static_cast<size_t>(box)].phase;
        const bool same_phase = std::any_of(step.removed.begin(), step.removed.end(), [&](int32_t r) {
          return out.model.boxes[static_cast<size_t>(r)].phase == phase;
        });
        if (later && same_phase) touch(box);
      }
    }
  }
}

}  // namespace

StagedModel build_stage_model(const StageHistory& history, const Plan& plan) {
  StagedModel out;
  out.model = build_graph_model(history.all, &plan);
  // Whether layers are alike changes on the way.
  for (ScopeInfo& scope : out.model.scopes) scope.layer_of = -1;
  out.model.folds.clear();
  std::vector<int32_t> box_of(history.all.nodes.size(), -1);
  for (size_t b = 0; b < out.model.boxes.size(); ++b) {
    const NodeId id = out.model.boxes[b].node;
    if (id != kNone) box_of[id] = static_cast<int32_t>(b);
    out.stages.boxes.push_back(id == kNone ? StageSpan{0, StageSpan::kEver} : history.nodes[id]);
  }
  collect_steps(history, box_of, out);
  collect_links(history, box_of, out);
  collect_touches(history, out);
  return out;
}

int32_t StageModel::run_of(int32_t step) const {
  const auto after = std::upper_bound(runs.begin(), runs.end(), step,
                                      [](int32_t s, const StageRun& run) { return s < run.first; });
  return static_cast<int32_t>(after - runs.begin()) - 1;
}

std::string StageModel::label(int32_t step) const {
  const StageStep& s = steps[static_cast<size_t>(step)];
  const int32_t r = run_of(step);
  const StageRun& run = runs[static_cast<size_t>(r)];
  if (r == 0) return "before all passes: " + plural_text(s.nodes, "node");
  const auto of = static_cast<int32_t>(runs.size()) - 1;
  if (step == run.last) {
    size_t changed = 0, replaced = 0;
    for (int32_t i = run.first; i <= run.last; ++i) {
      const StageStep& one = steps[static_cast<size_t>(i)];
      changed += one.changed.size();
      replaced += one.added.size() + one.removed.size();
    }
    return fmt::format("after {} ({} of {}): {}", run.pass, r, of,
                       change_text(run.node_change, replaced, changed));
  }
  const int64_t change = s.nodes - steps[static_cast<size_t>(step) - 1].nodes;
  return fmt::format("in {} ({} of {}), rewrite {} of {} at {}: {}", run.pass, r, of, step - run.first + 1,
                     run.last - run.first + 1, escaped(s.site),
                     change_text(change, s.added.size() + s.removed.size(), s.changed.size()));
}

int32_t StageModel::step_by_run(int32_t step, int direction) const {
  const int32_t r = run_of(step);
  const StageRun& run = runs[static_cast<size_t>(r)];
  if (direction > 0 && step < run.last) return run.last;
  const int32_t next = r + direction;
  if (next < 0) return 0;
  return runs[static_cast<size_t>(std::min(next, static_cast<int32_t>(runs.size()) - 1))].last;
}

std::string StageModel::blame(int32_t box, int32_t step) const {
  const StageStep& s = steps[static_cast<size_t>(step)];
  const auto has = [box](const std::vector<int32_t>& list) {
    return std::find(list.begin(), list.end(), box) != list.end();
  };
  const bool start = s.pass == kStartStage;
  const std::string by = s.pass + phase_suffix(s.at);
  if (has(s.added))
    return start ? "in the model" : s.pass == kAutodiffStage ? "made by autodiff" : "made by " + by;
  if (has(s.removed)) return "removed by " + by;
  if (has(s.changed)) return "changed by " + by;
  return "what it replaced was rewritten by " + by;
}

StageShapes shapes_at(const GraphScene& scene, const StageModel& stages, int32_t step) {
  StageShapes out;
  const GraphModel& model = *scene.model;
  const size_t boxes = model.boxes.size();
  CHECK(stages.boxes.size() == boxes, "the stages are of another graph");
  out.shapes.assign(scene.shape_count(), StageShown::kHidden);
  out.group_nodes.assign(scene.layout.groups.size(), 0);
  out.routes.assign(scene.layout.routes.size(), false);
  const StageStep& now = stages.steps[static_cast<size_t>(step)];
  for (size_t b = 0; b < boxes; ++b) {
    const StageSpan& span = stages.boxes[b];
    if (span.holds(step))
      out.shapes[b] = span.from == step && step > 0 ? StageShown::kAdded : StageShown::kShown;
    else if (span.until == step && step > 0)
      out.shapes[b] = StageShown::kGhost;
  }
  for (const int32_t box : now.changed)
    if (out.shapes[static_cast<size_t>(box)] == StageShown::kShown)
      out.shapes[static_cast<size_t>(box)] = StageShown::kChanged;
  for (size_t b = 0; b < boxes; ++b) {
    if (out.shapes[b] == StageShown::kHidden) continue;
    const bool there = out.shapes[b] != StageShown::kGhost;
    for (int32_t s = model.boxes[b].scope; s >= 0; s = model.scopes[static_cast<size_t>(s)].parent) {
      const int32_t group = scene.group_of(s, model.boxes[b].column);
      if (group < 0) continue;
      StageShown& shown = out.shapes[boxes + static_cast<size_t>(group)];
      if (there) ++out.group_nodes[static_cast<size_t>(group)];
      shown = there ? StageShown::kShown : std::max(shown, StageShown::kGhost);
    }
  }
  for (size_t l = 0; l < stages.links.size(); ++l)
    if (const int32_t route = scene.layout.edge_route[l]; route >= 0 && stages.links[l].holds(step))
      out.routes[static_cast<size_t>(route)] = true;
  return out;
}

}  // namespace gradloom
