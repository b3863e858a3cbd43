#include "app/desktop/timeline_pair.h"

#include <algorithm>
#include <map>

namespace gradloom {
namespace {

// As the table of a comparison has them.
std::string table_phase(const KernelInfo& k) { return k.phase == "loss" ? "forward" : k.phase; }

// Where the first kernel of a phase begins; of "step", and where there is none, the step.
double start_of(const TimelineModel& model, std::size_t step, const std::string& phase) {
  const double start_ns = model.steps[step].start_ns;
  for (const TimelineLane& lane : model.lanes) {
    if (lane.name != "Phase") continue;
    for (const TimelineBar& bar : lane.bars)
      if (bar.step == static_cast<std::int32_t>(step) && bar.phase == phase) return bar.start_ns;
  }
  return start_ns;
}

std::vector<std::string> phases_of(const TimelineModel& model) {
  std::vector<std::string> phases;
  for (const TimelineLane& lane : model.lanes)
    for (const TimelineBar& bar : lane.bars)
      if (lane.name == "Phase" && std::find(phases.begin(), phases.end(), bar.phase) == phases.end())
        phases.push_back(bar.phase);
  return phases;
}

}  // namespace

std::int32_t pair_of(const std::vector<std::int32_t>& of, const TimelineBar& bar) {
  const bool known = bar.kernel >= 0 && static_cast<std::size_t>(bar.kernel) < of.size();
  return known ? of[static_cast<std::size_t>(bar.kernel)] : -1;
}

Result<TimelinePair> pair_runs(const RunRecord& a, const RunRecord& b) {
  const Comparison comparison = TRY(compare_runs(a, b));
  TimelinePair out;
  std::map<std::pair<std::string, std::string>, std::int32_t> by_node;
  for (const ComparedRow& row : comparison.kernels) {
    const auto pair = static_cast<std::int32_t>(out.pairs.size());
    out.pairs.push_back({row.name, row.phase, row.a_ns, row.b_ns});
    for (const std::string& node : row.nodes) by_node.try_emplace({row.phase, node}, pair);
  }
  const auto find = [&](const KernelInfo& k) {
    const auto at = by_node.find({table_phase(k), k.onnx_nodes.empty() ? k.node : k.onnx_nodes.front()});
    return at == by_node.end() ? -1 : at->second;
  };
  for (const KernelRow& row : a.kernels) out.of_a.push_back(find(row.info));
  for (const KernelRow& row : b.kernels) out.of_b.push_back(find(row.info));
  return out;
}

std::vector<std::string> alignments(const TimelineModel& a, const TimelineModel& b) {
  std::vector<std::string> out{"step"};
  const std::vector<std::string> of_b = phases_of(b);
  for (const std::string& phase : phases_of(a))
    if (phase != "forward" && !phase.empty() && std::find(of_b.begin(), of_b.end(), phase) != of_b.end())
      out.push_back(phase);
  return out;
}

void align(TimelineModel& b, const TimelineModel& a, const std::string& to) {
  std::vector<double> shift;
  for (std::size_t s = 0; s < b.steps.size(); ++s)
    shift.push_back(s < a.steps.size() ? start_of(a, s, to) - start_of(b, s, to)
                    : shift.empty()    ? 0
                                       : shift.back());
  const auto shift_of = [&](std::int32_t step) { return shift[static_cast<std::size_t>(step)]; };
  for (std::size_t s = 0; s < b.steps.size(); ++s) {
    b.steps[s].start_ns += shift[s];
    b.steps[s].end_ns += shift[s];
  }
  for (TimelineLane& lane : b.lanes)
    for (TimelineBar& bar : lane.bars) {
      bar.start_ns += shift_of(bar.step);
      bar.end_ns += shift_of(bar.step);
    }
  b.live_ns = b.live_bytes = b.live_most = {};  // drawn of the shown run alone
  b.duration_ns = b.steps.empty() ? 0 : b.steps.back().end_ns;
}

TimeRange bars_of_pair(const TimelineModel& model, const std::vector<std::int32_t>& of, std::int32_t pair) {
  TimeRange found;
  std::int32_t step = -1;  // the first that has any
  for (const TimelineLane& lane : model.lanes)
    for (const TimelineBar& bar : lane.bars) {
      if (lane.repeats() || pair_of(of, bar) != pair) continue;
      if (step < 0 || bar.step < step) found = {bar.start_ns, bar.end_ns};
      if (bar.step == step)
        found = {std::min(found.from_ns, bar.start_ns), std::max(found.to_ns, bar.end_ns)};
      step = step < 0 ? bar.step : std::min(step, bar.step);
    }
  return found;
}

std::pair<std::int64_t, std::int64_t> steps_beside(const TimelineModel& shown, const TraceDocument& other) {
  if (other.steps.empty() || shown.steps.empty()) return {0, -1};
  const auto distance = [&](const TraceStep& s) { return std::abs(s.step - shown.steps.front().step); };
  const auto first =
      std::min_element(other.steps.begin(), other.steps.end(),
                       [&](const TraceStep& x, const TraceStep& y) { return distance(x) < distance(y); });
  const auto left = static_cast<std::size_t>(other.steps.end() - first);
  const auto last = first + static_cast<std::ptrdiff_t>(std::min(left, shown.steps.size())) - 1;
  return {first->step, last->step};
}

}  // namespace gradloom
