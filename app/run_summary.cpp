#include "app/run_summary.h"

#include "engine/base/text.h"

namespace gradloom {

std::int64_t lower_bound_bytes(const RunSummary& s) {
  return s.plan_peak_bytes - s.arena_bytes + s.lower_bound_bytes;
}

Json run_summary_json(const RunSummary& s) {
  return {{"run_id", s.id},
          {"name", s.name},
          {"tags", s.tags},
          {"note", s.note},
          {"pinned", s.pinned},
          {"status", s.status},
          {"message", s.message},
          {"started", s.started_utc},
          {"finished", s.finished_utc.empty() ? Json(nullptr) : Json(s.finished_utc)},
          {"recorded_by", s.has_recipe() ? "gradloom" : s.data},
          {"model", s.model},
          {"device", s.device},
          {"precision", s.precision},
          {"optimizer", s.optimizer},
          {"loss", s.loss},
          {"data", s.data},
          {"seed", s.seed},
          {"passes", s.passes},
          {"planner", s.planner},
          {"steps", s.steps},
          {"planned_steps", s.planned_steps},
          {"steps_before", s.steps_before},
          {"first_loss", json_number(s.first_loss)},
          {"last_loss", json_number(s.last_loss)},
          {"median_step_ns", s.median_step_ns},
          {"plan_peak_bytes", s.plan_peak_bytes},
          {"measured_peak_bytes", s.measured_peak_bytes},
          {"lower_bound_bytes", lower_bound_bytes(s)},
          {"kernels_per_step", s.kernels_per_step},
          {"plan_hash", s.plan_hash},
          {"graph_hash", s.graph_hash},
          {"command", s.command}};
}

std::string run_annotation_text(const RunSummary& s) {
  std::string text = s.pinned ? "pinned" : "";
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (std::size_t i = 0; i < s.tags.size(); ++i) add((i == 0 ? "tagged " : "") + escaped(s.tags[i]));
  if (!s.note.empty()) add("noted: " + escaped(s.note));
  return text;
}

}  // namespace gradloom
