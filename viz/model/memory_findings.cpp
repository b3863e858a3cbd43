#include "viz/model/memory_findings.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "passes/node_patterns.h"
#include "passes/phases.h"
#include "passes/recompute.h"
#include "passes/repeatable.h"

namespace gradloom {
namespace {

struct Use {
  std::int32_t step = 0;
  bool writes = false;
};

// Who touches which buffer when, and what each step costs.
class Uses {
 public:
  Uses(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan), of_(plan.buffers.size()) {
    for (std::size_t s = 0; s < plan.steps.size(); ++s) {
      const Node& node = graph.nodes[plan.steps[s].node];
      for (const ValueId in : node.inputs) add(in, s, false);
      for (const ValueId out : node.outputs) add(out, s, true);
    }
  }
  const std::vector<Use>& of(std::int32_t buffer) const { return of_[static_cast<std::size_t>(buffer)]; }
  std::int32_t buffer(ValueId value) const {
    return value != kNone && value < plan_.buffer_of.size() ? plan_.buffer_of[value] : -1;
  }
  const Node& node(std::int32_t step) const {
    return graph_.nodes[plan_.steps[static_cast<std::size_t>(step)].node];
  }

  // The first place in the order that a step could have, were it moved alone: behind who writes what it reads, and behind all who use
  // what it writes. Steps of other streams stay, and what runs once for all micro-batches stays behind them.
  std::int32_t earliest(std::int32_t step) const {
    const PlanStep& self = plan_.steps[static_cast<std::size_t>(step)];
    if (self.stream != 0) return step;
    std::int32_t first = 0;
    for (std::int32_t s = step - 1; !self.micro && s >= 0 && first == 0; --s)
      if (plan_.steps[static_cast<std::size_t>(s)].micro) first = s + 1;
    const auto behind = [&](ValueId value, bool writes) {
      if (buffer(value) < 0) return;
      for (const Use& use : of(buffer(value)))
        if (use.step < step && (writes || use.writes)) first = std::max(first, use.step + 1);
    };
    for (const ValueId in : node(step).inputs) behind(in, false);
    for (const ValueId out : node(step).outputs) behind(out, true);
    return first;
  }

  // Whether all that a step read is still there, unchanged, when a later one runs.
  bool inputs_hold(std::int32_t step, std::int32_t later) const {
    for (const ValueId in : node(step).inputs) {
      const std::int32_t at = buffer(in);
      if (at < 0) continue;
      const Buffer& b = plan_.buffers[static_cast<std::size_t>(at)];
      if (b.place == Place::arena && b.last_step < later) return false;
      for (const Use& use : of(at))
        if (use.writes && use.step > step && use.step < later) return false;
    }
    return true;
  }

 private:
  void add(ValueId value, std::size_t step, bool writes) {
    const std::int32_t at = buffer(value);
    if (at < 0) return;
    std::vector<Use>& uses = of_[static_cast<std::size_t>(at)];
    const auto s = static_cast<std::int32_t>(step);
    if (uses.empty() || uses.back().step != s)
      uses.push_back({s, writes});
    else
      uses.back().writes |= writes;
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<std::vector<Use>> of_;  // by buffer, in the order of the steps
};

std::vector<double> shares(const Plan& plan, const std::vector<double>& step_ns) {
  std::vector<double> cost(plan.steps.size());
  double all = 0;
  for (std::size_t s = 0; s < cost.size(); ++s) {
    const PlanStep& step = plan.steps[s];
    const double guess =
        std::max(step.flops / RecomputeOptions().flops_per_byte, step.bytes_read + step.bytes_written);
    cost[s] = step_ns.size() == cost.size() ? step_ns[s] : guess;
    all += cost[s];
  }
  for (double& c : cost) c = all > 0 ? c / all : 0;
  return cost;
}

class Search {
 public:
  Search(const Graph& graph, const Plan& plan, const std::vector<double>& step_ns)
      : graph_(graph),
        plan_(plan),
        uses_(graph, plan),
        share_(shares(plan, step_ns)),
        repeatable_(repeatable_nodes(graph)),
        is_result_(plan.buffers.size(), false) {
    for (const ValueId out : graph.outputs)
      if (const std::int32_t at = uses_.buffer(out); at >= 0) is_result_[static_cast<std::size_t>(at)] = true;
  }

  std::vector<MemoryFinding> run() {
    std::vector<MemoryFinding> found;
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const Buffer& buffer = plan_.buffers[b];
      const bool live = buffer.place == Place::arena && buffer.bytes > 0 &&
                        buffer.first_step < plan_.peak_step && buffer.last_step > plan_.peak_step;
      if (!live || is_result_[b]) continue;
      if (std::optional<MemoryFinding> finding = judge(static_cast<std::int32_t>(b)))
        found.push_back(std::move(*finding));
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const MemoryFinding& a, const MemoryFinding& b) { return a.bytes > b.bytes; });
    return found;
  }

 private:
  std::optional<MemoryFinding> judge(std::int32_t buffer) const {
    const std::vector<Use>& uses = uses_.of(buffer);
    // Held for another stream: the last use is not what keeps it.
    if (uses.empty() || plan_.buffers[static_cast<std::size_t>(buffer)].last_step > uses.back().step)
      return {};
    const auto after =
        std::find_if(uses.begin(), uses.end(), [&](const Use& use) { return use.step >= plan_.peak_step; });
    if (after == uses.begin() || after == uses.end() || after->step == plan_.peak_step) return {};
    MemoryFinding finding;
    finding.last_use = std::prev(after)->step;
    finding.read_step = uses.back().step;
    const std::int32_t made = last_write(uses.begin(), after);
    finding.node = uses_.node(made).name;
    finding.value = value_of(made, buffer);
    if (finding.value.empty()) return {};
    finding.reader = uses_.node(uses.back().step).name;
    finding.bytes = plan_.buffers[static_cast<std::size_t>(buffer)].bytes;
    if (moves_before_peak(buffer, after, finding)) return finding;
    if (std::next(after) != uses.end() || after->writes) return {};
    finding.kind = MemoryFinding::kept_for_one_reader;
    // A buffer with several writers is no result of one step.
    const auto writers = std::count_if(uses.begin(), uses.end(), [](const Use& use) { return use.writes; });
    finding.can_run_again = writers == 1 && repeatable_[plan_.steps[static_cast<std::size_t>(made)].node] &&
                            runs_after_loss(uses_.node(after->step)) && names_itself(finding.node) &&
                            uses_.inputs_hold(made, after->step);
    finding.again = share_[static_cast<std::size_t>(made)];
    return finding;
  }

  static std::int32_t last_write(std::vector<Use>::const_iterator use, std::vector<Use>::const_iterator end) {
    std::int32_t step = use->step;
    for (; use != end; ++use)
      if (use->writes) step = use->step;
    return step;
  }

  // What a step wrote into a buffer: all of it, or a part where parts are all that there is.
  std::string value_of(std::int32_t step, std::int32_t buffer) const {
    std::string part;
    for (const ValueId out : uses_.node(step).outputs) {
      if (uses_.buffer(out) != buffer) continue;
      if (plan_.pieces.count(out) == 0) return graph_.values[out].name;
      part = graph_.values[out].name;
    }
    return part;
  }

  // Freed late: then the finding says so.
  bool moves_before_peak(std::int32_t buffer, std::vector<Use>::const_iterator after,
                         MemoryFinding& finding) const {
    std::int64_t made = 0;
    std::int32_t could = 0;
    for (auto use = after; use != uses_.of(buffer).end(); ++use) {
      could = std::max(could, uses_.earliest(use->step));
      if (could > plan_.peak_step) return false;
      for (const ValueId out : uses_.node(use->step).outputs) {
        const std::int32_t at = uses_.buffer(out);
        if (at < 0 || at == buffer) continue;
        const Buffer& b = plan_.buffers[static_cast<std::size_t>(at)];
        if (b.place == Place::arena && b.first_step > plan_.peak_step) made += b.bytes;
      }
      // It would go on in its own memory: nothing is freed.
      if (use->writes) return false;
    }
    if (made >= finding.bytes) return false;
    finding.kind = MemoryFinding::freed_late;
    finding.bytes -= made;
    finding.could_step = could;
    return true;
  }

  const Graph& graph_;
  const Plan& plan_;
  Uses uses_;
  std::vector<double> share_;
  std::vector<bool> repeatable_;  // by node
  std::vector<bool> is_result_;   // by buffer: an output of the graph, kept to its end
};

}  // namespace

const char* memory_finding_name(MemoryFinding::Kind kind) {
  return kind == MemoryFinding::freed_late ? "freed late" : "kept for one reader";
}

std::vector<MemoryFinding> find_memory(const Graph& graph, const Plan& plan,
                                       const std::vector<double>& step_ns) {
  return Search(graph, plan, step_ns).run();
}

std::string memory_finding_text(const MemoryFinding& f) {
  if (f.kind == MemoryFinding::freed_late)
    return "read last in step " + std::to_string(f.read_step) + ", which could run at step " +
           std::to_string(f.could_step) + ", before the peak";
  const std::string kept = "kept over " + plural_text(f.read_step - f.last_use, "step") + " for one reader";
  return f.can_run_again ? kept + "; making it again there takes " + percent_text(f.again) + " of a step"
                         : kept;
}

}  // namespace gradloom
