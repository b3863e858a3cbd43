#include "app/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/text.h"

namespace gradloom {
namespace {

std::string step_name(const MemoryModel& m, std::int32_t step) {
  return step >= 0 && static_cast<std::size_t>(step) < m.step_names.size()
             ? escaped(m.step_names[static_cast<std::size_t>(step)])
             : "";
}

std::string size_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

// Long names would move the numbers out of sight.
std::string cut(const std::string& name) {
  constexpr std::size_t kMost = 44;
  return name.size() <= kMost ? name : "..." + name.substr(name.size() - (kMost - 3));
}

std::string more_text(std::size_t count, std::size_t most) {
  return count > most ? fmt::format("and {} more; --json tells all\n", count - most) : "";
}

std::string live_text(const MemoryModel& m, std::size_t most) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < std::min(most, m.live_at_peak.size()); ++i) {
    const MemoryBlock& b = m.blocks[static_cast<std::size_t>(m.live_at_peak[i])];
    rows.push_back({cut(escaped(b.name)), size_text(b.bytes), b.workspace ? "workspace" : phase_name(b.phase),
                    fmt::format("{} - {}", b.first_step, b.last_step), cut(step_name(m, b.last_step))});
  }
  return table_text({"live at the peak", "size", "made in", "steps", "last used by"}, rows, {2, 4}) + "\n" +
         more_text(m.live_at_peak.size(), most);
}

// What would have to be done for it.
std::string remedy_text(const MemoryFinding& f) {
  if (f.kind == MemoryFinding::freed_late)
    return fmt::format("its reader could run at step {}", f.could_step);
  if (f.can_run_again) return fmt::format("made again: +{} of a step", percent_text(f.again));
  return "made again: needs more than is kept";
}

std::string findings_text(const MemoryModel& m, std::size_t most) {
  if (m.findings.empty()) return "nothing at the peak is freed late or kept for one reader\n";
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < std::min(most, m.findings.size()); ++i) {
    const MemoryFinding& f = m.findings[i];
    rows.push_back({cut(escaped(f.node)), size_text(f.bytes), memory_finding_name(f.kind),
                    cut(escaped(f.reader)), plural_text(f.read_step - f.last_use, "step"), remedy_text(f)});
  }
  return table_text(
             {"could leave the peak: made by", "size", "because it is", "last read by", "unused for", ""},
             rows, {2, 3, 5}) +
         "\n" + more_text(m.findings.size(), most) + "--recompute NODE makes a node's results again\n";
}

}  // namespace

Json memory_json(const MemoryModel& m) {
  Json live = Json::array(), findings = Json::array();
  for (const std::int32_t b : m.live_at_peak) {
    const MemoryBlock& block = m.blocks[static_cast<std::size_t>(b)];
    live.push_back({{"value", block.name},
                    {"node", block.node},
                    {"bytes", block.bytes},
                    {"offset", block.offset},
                    {"phase", phase_name(block.phase)},
                    {"workspace", block.workspace},
                    {"first_step", block.first_step},
                    {"last_step", block.last_step},
                    {"values", block.values}});
  }
  for (const MemoryFinding& f : m.findings) {
    Json row = {{"finding", memory_finding_name(f.kind)},
                {"value", f.value},
                {"node", f.node},
                {"reader", f.reader},
                {"bytes", f.bytes},
                {"last_use", f.last_use},
                {"read_step", f.read_step}};
    if (f.kind == MemoryFinding::freed_late) row["could_step"] = f.could_step;
    if (f.can_run_again) row["again"] = f.again;
    findings.push_back(std::move(row));
  }
  return {{"arena_bytes", m.arena_bytes}, {"total_bytes", m.total_bytes()},
          {"peak_step", m.peak_step},     {"peak_node", step_name(m, m.peak_step)},
          {"live", std::move(live)},      {"findings", std::move(findings)}};
}

std::string memory_report_text(const MemoryModel& m, std::size_t most, bool findings) {
  const std::size_t steps = m.live.size();
  const std::int64_t live = steps > 0 ? m.live[static_cast<std::size_t>(m.peak_step)] : 0;
  return fmt::format("{} in the arena at step {} of {}, {}\n\n", size_text(live), m.peak_step, steps,
                     step_name(m, m.peak_step)) +
         live_text(m, most) + (findings ? "\n" + findings_text(m, most) : "");
}

}  // namespace gradloom
