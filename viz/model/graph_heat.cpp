#include "viz/model/graph_heat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "engine/base/text.h"
#include "sessions/stats.h"
#include "viz/model/axis.h"

namespace gradloom {
namespace {

double known_or_nan(double value, bool known) { return known ? value : std::nan(""); }

// Time against the other run's; infinite: that one has none.
double change_of(double now_ns, double other_ns) {
  if (std::isnan(now_ns) || std::isnan(other_ns) || now_ns <= 0) return std::nan("");
  return other_ns > 0 ? now_ns / other_ns : HUGE_VAL;
}

double rate_of(double flops, double ns) { return flops > 0 && ns > 0 ? flops / ns * 1e9 : std::nan(""); }

}  // namespace

double GraphModel::value_of(int32_t index, ColorBy by) const {
  const GraphBox& box = boxes[static_cast<size_t>(index)];
  const bool runs = box.plan_step >= 0;
  switch (by) {
    case ColorBy::kTime: return box.time_ns;
    case ColorBy::kBytes: return known_or_nan(box.bytes(), runs);
    case ColorBy::kRate: return rate_of(box.step_flops, box.time_ns);
    case ColorBy::kLive: return known_or_nan(box.live_bytes, box.live_bytes > 0 || runs);
    case ColorBy::kLaunches: return known_or_nan(box.launches, runs);
    case ColorBy::kChange: return change_of(box.time_ns, box.other_ns);
    case ColorBy::kPhase: break;
  }
  return std::nan("");
}

double GraphModel::value_of_scope(int32_t index, LayoutColumn column, ColorBy by) const {
  const ScopeInfo& scope = scopes[static_cast<size_t>(index)];
  const auto c = static_cast<size_t>(column);
  const double ns = known_or_nan(scope.time_ns[c], scope.timed);
  switch (by) {
    case ColorBy::kTime: return ns;
    case ColorBy::kBytes: return scope.bytes[c];
    case ColorBy::kRate: return rate_of(scope.step_flops[c], ns);
    case ColorBy::kLive: return scope.live_bytes[c];
    case ColorBy::kLaunches: return scope.launches[c];
    case ColorBy::kChange: return against.empty() ? std::nan("") : change_of(ns, scope.other_ns[c]);
    case ColorBy::kPhase: break;
  }
  return std::nan("");
}

std::string GraphModel::value_text(double value, ColorBy by) const {
  if (std::isnan(value)) return "not measured";
  const std::string about = other_plan.empty() ? "" : "~";
  switch (by) {
    case ColorBy::kTime: return time_text(value);
    case ColorBy::kBytes:
    case ColorBy::kLive: return bytes_text(value);
    case ColorBy::kRate: return about + count_text(value, "FLOP/s");
    case ColorBy::kLaunches: return fmt::format("{:.0f}", value);
    case ColorBy::kChange:
      if (std::isinf(value)) return "new";
      if (std::abs(value - 1) < 0.005) return about + "\u00b10 %";
      return about + fmt::format("{}{:.0f} %", value > 1 ? "+" : "\u2212", 100 * std::abs(value - 1));
    case ColorBy::kPhase: break;
  }
  return {};
}

double GraphModel::heat(double value, double most, ColorBy by) {
  if (std::isnan(value)) return value;
  if (by == ColorBy::kChange) return std::isinf(value) ? 1 : std::clamp(std::log2(value), -1.0, 1.0);
  return most > 0 ? std::sqrt(std::min(1.0, value / most)) : std::nan("");
}

double GraphModel::heat_of(int32_t box, ColorBy by) const {
  return heat(value_of(box, by), most[static_cast<size_t>(by)], by);
}

namespace {

// What a fold's box has of its layers, by column.
constexpr std::array kColumnSums{&ScopeInfo::time_ns,    &ScopeInfo::bytes,    &ScopeInfo::flops,
                                 &ScopeInfo::step_flops, &ScopeInfo::launches, &ScopeInfo::live_bytes,
                                 &ScopeInfo::other_ns};

}  // namespace

void find_most(GraphModel& model) {
  for (const GraphFold& fold : model.folds) {
    ScopeInfo& box = model.scopes[static_cast<size_t>(fold.box)];
    box.timed = false;
    for (const auto sums : kColumnSums) (box.*sums).fill(0);
    box.boxes.fill(0);
    for (const int32_t id : fold.layers) {
      const ScopeInfo& layer = model.scopes[static_cast<size_t>(id)];
      box.timed |= layer.timed;
      for (size_t c = 0; c < kLayoutColumns; ++c) {
        box.boxes[c] += layer.boxes[c];
        for (const auto sums : kColumnSums) (box.*sums)[c] += (layer.*sums)[c];
      }
    }
  }
  model.most.fill(0);
  for (int32_t b = 0; b < static_cast<int32_t>(model.boxes.size()); ++b)
    for (size_t by = 0; by < model.most.size(); ++by)
      if (const double value = model.value_of(b, static_cast<ColorBy>(by)); std::isfinite(value))
        model.most[by] = std::max(model.most[by], value);
}

LayerSpread spread_of(const GraphModel& model, const GraphFold& fold, LayoutColumn column, ColorBy by) {
  std::vector<double> values;
  LayerSpread spread;
  for (const int32_t layer : fold.layers) {
    const double value = model.value_of_scope(layer, column, by);
    if (std::isnan(value) || std::isinf(value)) continue;
    values.push_back(value);
    if (spread.longest < 0 || value > spread.most) spread.most = value, spread.longest = layer;
  }
  spread.median = median(values);
  if (spread.most <= 0) spread.longest = -1;
  return spread;
}

void apply_memory(GraphModel& model, const MemoryModel& memory) {
  for (GraphBox& box : model.boxes) box.live_bytes = 0;
  for (ScopeInfo& scope : model.scopes) scope.live_bytes = {};
  for (const auto& [node, bytes] : held_at_peak(memory)) {
    const int32_t b = model.find(node);
    if (b < 0) continue;
    GraphBox& box = model.boxes[static_cast<size_t>(b)];
    box.live_bytes = static_cast<double>(bytes);
    for (int32_t s = box.scope; s >= 0; s = model.scopes[static_cast<size_t>(s)].parent)
      model.scopes[static_cast<size_t>(s)].live_bytes[static_cast<size_t>(box.column)] += box.live_bytes;
  }
  find_most(model);
}

namespace {

// Boxes by what rows of a comparison name: their phase, which counts the loss as forward, and a node.
using BoxIndex = std::map<std::pair<std::string_view, std::string_view>, std::vector<int32_t>>;

BoxIndex index_boxes(const GraphModel& model) {
  BoxIndex index;
  for (int32_t b = 0; b < static_cast<int32_t>(model.boxes.size()); ++b) {
    const GraphBox& box = model.boxes[static_cast<size_t>(b)];
    if (std::isnan(box.time_ns)) continue;
    const char* const phase = phase_name(box.phase == Phase::loss ? Phase::forward : box.phase);
    for (const std::string& name : box.onnx_nodes) index[{phase, name}].push_back(b);
    if (box.onnx_nodes.empty()) index[{phase, box.name}].push_back(b);
  }
  return index;
}

}  // namespace

void apply_other(GraphModel& model, const std::vector<ComparedRow>& rows, const std::string& against) {
  model.against = against;
  for (GraphBox& box : model.boxes)
    box.other_ns = against.empty() || std::isnan(box.time_ns) ? std::nan("") : 0;
  for (ScopeInfo& scope : model.scopes) scope.other_ns = {};
  const BoxIndex index = rows.empty() ? BoxIndex() : index_boxes(model);
  for (const ComparedRow& row : rows) {
    std::vector<int32_t> boxes;
    for (const std::string& node : row.nodes)
      if (const auto at = index.find({row.phase, node}); at != index.end())
        boxes.insert(boxes.end(), at->second.begin(), at->second.end());
    std::sort(boxes.begin(), boxes.end());
    boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
    double ns = 0;
    for (const int32_t b : boxes) ns += model.boxes[static_cast<size_t>(b)].time_ns;
    for (const int32_t b : boxes) {
      GraphBox& box = model.boxes[static_cast<size_t>(b)];
      const double part = ns > 0 ? box.time_ns / ns : 1 / static_cast<double>(boxes.size());
      box.other_ns += row.a_ns * part;
      for (int32_t s = box.scope; s >= 0; s = model.scopes[static_cast<size_t>(s)].parent)
        model.scopes[static_cast<size_t>(s)].other_ns[static_cast<size_t>(box.column)] += row.a_ns * part;
    }
  }
  find_most(model);
}

}  // namespace gradloom
