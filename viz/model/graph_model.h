// The graph view's data: one box per live node and graph input of a compiled graph, links with shapes, the
// scope tree, and who belongs to whom (forward <-> backward <-> optimizer) through the ONNX nodes they stand
// for. No GUI, immutable once built apart from measured times; built in the background.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/names.h"
#include "engine/ir/graph.h"
#include "engine/plan/plan.h"
#include "sessions/compare.h"
#include "sessions/store.h"
#include "viz/layout/layout.h"
#include "viz/model/memory_model.h"
#include "viz/model/search.h"

namespace gradloom {

struct PortInfo {
  std::string value, type;  // value name, "f32[8, 64, 128]"
  std::string role;         // activation, parameter, constant, ...
  int32_t box = -1;         // the other end of an input: the producer's box, -1 when it has none
  int64_t bytes = 0;        // 0: unknown
  bool trained = false;     // of an initializer, see apply_training
  std::string why;          // it is trained or not; empty: not known
};

struct TrainingOf {  // what becomes of an initializer
  bool trained = false;
  std::string why;
};

struct GraphBox {
  NodeId node = kNone;  // kNone: a graph input
  std::string name, op, title, subtitle, attributes, kernel, passes;
  std::string type;  // of the first output, short: "f32 8x64x128" with a multiplication sign
  Phase phase = Phase::forward;
  LayoutColumn column = LayoutColumn::kForward;
  int32_t scope = -1;            // index in GraphModel::scopes
  int32_t partner = -1;          // backward, optimizer: the forward box whose row it sits on
  std::vector<int32_t> related;  // forward: its backward and optimizer boxes; others: all forward boxes they
                                 // share a source with
  std::vector<std::string> onnx_nodes;
  std::vector<PortInfo> inputs, outputs;
  bool unsupported = false;  // an operator Gradloom lacks: opened for viewing only
  int32_t plan_step = -1;
  double flops = 0, bytes_read = 0, bytes_written = 0;  // in each micro-batch
  double time_ns = std::nan("");                        // per optimizer step; NaN: not measured
  double step_flops = 0, step_bytes = 0;                // of all that time_ns counts
  int64_t samples = 0;
  double launches = 0;             // of kernels, in each micro-batch
  double live_bytes = 0;           // of what it makes, live at the step's peak
  double other_ns = std::nan("");  // what its part of the step took in the run that it is compared with
  double bytes() const { return bytes_read + bytes_written; }
};

struct GraphLink {
  uint32_t src = 0, dst = 0;  // boxes
  ValueId value = kNone;
  bool saved = false;  // a forward value that backward reads
};

// Layers that are alike, children of one scope: one box stands for all of them, or beside one of them for the others.
struct GraphFold {
  int32_t box = -1;  // the scope "12 x h.*", whose sums are those of its layers; it is no layer's parent
  std::vector<int32_t> layers;  // scopes, in schedule order
};
// Which layer of a fold is shown, by its place; else none beside the box, or all of them without one.
inline constexpr int32_t kFolded = -1, kUnfolded = -2;
inline constexpr size_t kFewestFolded = 4;

struct ScopeInfo {
  std::string name, path;  // last part and whole path
  int32_t parent = -1;
  int32_t depth = 0;
  int32_t layer_of = -1, box_of = -1;            // folds
  std::array<uint32_t, kLayoutColumns> boxes{};  // in the whole subtree
  std::array<double, kLayoutColumns> time_ns{}, bytes{}, flops{}, step_flops{}, launches{}, live_bytes{},
      other_ns{};
  bool timed = false;
};

// What colours the boxes. kChange: time against that of another run, from half or less to double or more.
enum class ColorBy : uint8_t { kPhase, kTime, kBytes, kRate, kLive, kLaunches, kChange };
struct ColorKind {
  const char *name, *title;
};
inline constexpr std::array<ColorKind, 7> kColorKinds{{{"Phase", "phase"},
                                                       {"Time", "time per step"},
                                                       {"Bytes", "bytes moved"},
                                                       {"FLOP/s", "FLOP/s"},
                                                       {"Live at peak", "bytes live at the peak"},
                                                       {"Launches", "kernels launched"},
                                                       {"Change", "time against"}}};

struct GraphModel {
  std::string name;
  std::vector<GraphBox> boxes;  // graph inputs, then live nodes in schedule order
  std::vector<GraphLink> links;
  // Parents first; those that are nothing but one other's parent are one with it
  std::vector<ScopeInfo> scopes;
  std::vector<GraphFold> folds;
  std::vector<std::string> value_labels;  // by ValueId: the shape shown on an edge
  NameMap<int32_t> by_name;
  double total_time_ns = 0;
  std::array<double, kColorKinds.size()> most{};  // of all boxes, by ColorBy; 0: none has any
  bool timed = false;
  bool planned = false;    // costs and kernels are known
  std::string other_plan;  // "run 3": the times are of a run with another plan; empty: of this very plan
  std::string against;     // "run 2": whose times other_ns has; empty: none

  int32_t find(const std::string& name) const;
  SearchFields fields(int32_t box) const;
  std::vector<int32_t> search(const Query& query) const;  // boxes in schedule order
  std::string example() const;                            // a query that finds something
  // A time as it is shown: "~35 us" when it was measured with another plan.
  std::string time_text(double ns) const;
  // What a box, or a scope in a column, is coloured by; NaN: not known, or not measured. Of kChange the ratio of times, infinite
  // where the other run did not have it.
  double value_of(int32_t box, ColorBy by) const;
  double value_of_scope(int32_t scope, LayoutColumn column, ColorBy by) const;
  std::string value_text(double value, ColorBy by) const;  // "~35 us", "12 MiB", "+20 %"
  // 0..1 for the heat ramp (square root: small kernels stay distinguishable), of kChange -1 (half) .. 1 (double); NaN where not
  // measured.
  double heat_of(int32_t box, ColorBy by) const;
  static double heat(double value, double most, ColorBy by);
  // Collapse flags that show at most about `most_boxes` boxes: whole levels are opened while they fit.
  std::vector<bool> default_collapsed(size_t most_boxes = 60) const;
  // `layers`: by fold kFolded, kUnfolded or the layer that is shown; those that it has not are folded.
  LayoutInput layout_input(const std::vector<bool>& collapsed, const std::vector<int32_t>& layers = {}) const;
  // By scope the box of a fold that stands for it; -1: it is shown.
  std::vector<int32_t> folded_into(const std::vector<int32_t>& layers) const;
};

// `plan` may be null (a graph opened for viewing only): then there are no costs, kernels or steps.
GraphModel build_graph_model(const Graph& graph, const Plan* plan);
// Times of a recorded run, matched by node name; boxes without a row become "not measured". `other_plan`: the
// run's name when its plan is not the model's.
void apply_times(GraphModel& model, const std::vector<KernelRow>& kernels,
                 const std::string& other_plan = {});

// Bytes that each box makes and that are live at the peak of the step, by the names of nodes.
void apply_memory(GraphModel& model, const MemoryModel& memory);
// Times of another run, side A of `rows`, which are the kernel rows of a comparison with the run whose times the model has: what a
// row took is spread over its boxes as their own times are. REQUIRES apply_times of side B. Empty `against`: none.
void apply_other(GraphModel& model, const std::vector<ComparedRow>& rows, const std::string& against);

// Which initializers are trained, by name, and why.
void apply_training(GraphModel& model, const NameMap<TrainingOf>& initializers);

// The boxes that a row of a comparison stands for: those of its phase that share an ONNX node with its
// kernels. The compared runs may have had other passes than the model.
std::vector<int32_t> boxes_of_row(const GraphModel& model, const ComparedRow& row);

// What changed between two graphs, by node name: for the diff after a pass was toggled.
struct GraphDiff {
  std::vector<int32_t> added, removed;  // boxes of the new and of the old model
  size_t common = 0;
};
GraphDiff diff_graphs(const GraphModel& before, const GraphModel& after);

}  // namespace gradloom
