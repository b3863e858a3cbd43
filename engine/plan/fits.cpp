// Whether a plan's memory is there, and what takes it where it is fullest.
#include <algorithm>

#include "engine/base/text.h"
#include "engine/plan/plan.h"

namespace gradloom {

std::vector<std::pair<std::string, std::int64_t>> largest_at_peak(const Graph& graph, const Plan& plan,
                                                                  std::size_t limit) {
  std::vector<std::pair<std::string, std::int64_t>> rows;
  std::vector<bool> seen(plan.buffers.size(), false);
  for (ValueId v = 0; v < graph.values.size(); ++v) {
    const std::int32_t b = plan.buffer_of[v];
    if (b < 0 || seen[static_cast<std::size_t>(b)] || plan.pieces.count(v) != 0) continue;
    const Buffer& buffer = plan.buffers[static_cast<std::size_t>(b)];
    if (buffer.place != Place::arena || plan.peak_step < buffer.first_step ||
        plan.peak_step > buffer.last_step)
      continue;
    seen[static_cast<std::size_t>(b)] = true;
    rows.emplace_back(graph.values[v].name, buffer.bytes);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (rows.size() > limit) rows.resize(limit);
  return rows;
}

Status check_fits(const Graph& graph, const Plan& plan, const std::string& device,
                  std::int64_t available_bytes) {
  const std::int64_t needed = plan.peak_bytes();
  if (needed <= available_bytes) return {};
  const auto text = [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  std::string message = "the plan needs " + text(needed) + ", " + device + " has " + text(available_bytes) +
                        " free; largest at the peak:";
  bool first = true;
  for (const auto& [name, bytes] : largest_at_peak(graph, plan, 5)) {
    message += (first ? " " : ", ") + escaped(name) + " " + text(bytes);
    first = false;
  }
  // Parameters and states: no smaller batch helps them.
  const std::int64_t fixed = plan.state_bytes + plan.constant_bytes;
  message += "; would help: ";
  if (fixed > available_bytes)
    message += "a smaller model or optimizer state (" + text(fixed) + " alone)";
  else
    message += "a smaller batch (--dim, with --accumulate for the same total)";
  if (plan.peak_lower_bound_bytes() <= available_bytes)
    message += ", --planner best-fit (the lower bound is " + text(plan.peak_lower_bound_bytes()) + ")";
  return Error{Errc::device, message};
}

}  // namespace gradloom
