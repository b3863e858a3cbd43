// Predictions of the session, and what runs measured since: how far the what-if tab can be trusted.
#include <fmt/format.h>
#include <imgui.h>

#include <cmath>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr double kGoal = 0.08;  // median error

void draw_headline(const std::vector<PredictionScore>& scores) {
  std::int64_t measured = 0, in_range = 0, waiting = 0;
  for (const PredictionScore& s : scores) {
    measured += s.run > 0 ? 1 : 0;
    in_range += s.run > 0 && s.in_range() ? 1 : 0;
    waiting += s.run == 0 && !s.prediction.plan_hash.empty() ? 1 : 0;
  }
  const double error = median_error(scores);
  figure("scores.error", "Median error", measured > 0 ? percent_text(error) : "not measured",
         measured == 0    ? palette().text_dim
         : error <= kGoal ? palette().good
                          : palette().warn,
         true);
  figure("scores.in_range", "In their range", fmt::format("{} of {}", in_range, measured), palette().text,
         false);
  figure("scores.waiting", "Not measured yet", std::to_string(waiting), palette().text, false);
}

// A button as high as a line of the table.
bool line_button(const std::string& id, const char* label, ButtonKind kind, const std::string& help) {
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {px(6), 0});
  const bool pressed = button(id, label, kind, help);
  ImGui::PopStyleVar();
  return pressed;
}

// The command lines of the table: each is made of a recipe that is read from text.
void follow_measures(Ui& ui) {
  WhatIfForm& form = ui.what_if;
  const AppState& s = ui.state();
  if (form.measure_of == s.scores && form.measure_session == s.session_path) return;
  form.measure_of = s.scores;
  form.measure_session = s.session_path;
  form.measure.clear();
  for (const PredictionScore& score : *s.scores)
    form.measure.push_back(score.run > 0 ? std::string() : ui.app.measure_command(score.prediction));
}

void run_cell(Ui& ui, const PredictionScore& s, int row) {
  const std::string number = std::to_string(row + 1);
  if (s.run > 0) {
    const std::string run = "run " + std::to_string(s.run);
    if (line_button("scores.show." + number, run.c_str(), ButtonKind::kGhost,
                    "Shows the run that measured it"))
      ui.app.show_run(s.run);
    return;
  }
  const std::string& command = ui.what_if.measure[static_cast<std::size_t>(&s - ui.state().scores->data())];
  if (command.empty()) {
    text("no run can", palette().text_faint);
    tip("Faster kernels and other processors are not settings of a run");
    return;
  }
  ImGui::BeginDisabled(ui.state().progress.running);
  if (line_button("scores.run." + number, "Run it", ButtonKind::kPlain, command)) {
    ui.app.measure_prediction(s.prediction);
    if (ui.state().settings.follow_run) ui.panes.show("Curve");
  }
  ImGui::EndDisabled();
}

void score_cell(Ui& ui, const PredictionScore& s, int row, int column) {
  const KeptPrediction& p = s.prediction;
  const Palette& c = palette();
  const bool measured = s.run > 0;
  switch (column) {
    case 0:
      text(fit_text(theme().ui, theme().ui->FontSize, escaped(p.question), ImGui::GetContentRegionAvail().x));
      tip(escaped(p.question) + "\nasked " + escaped(p.created_utc) + " of a step of " +
          duration_text(p.step_ns));
      break;
    case 1: number_cell(duration_text(p.predicted_ns)); break;
    case 2: number_cell(duration_text(p.low_ns) + " \u2013 " + duration_text(p.high_ns)); break;
    case 3: number_cell(measured ? duration_text(s.measured_ns) : "\u2013"); break;
    case 4: run_cell(ui, s, row); break;
    case 5:
      if (measured)
        text(fmt::format("{:+.1f} %", 100 * s.error()), std::abs(s.error()) <= kGoal ? c.good : c.warn);
      break;
    case 6:
      if (measured) text(s.in_range() ? "\u2713 yes" : "\u2717 no", s.in_range() ? c.good : c.warn);
      break;
    default: break;
  }
}

}  // namespace

void draw_scores(Ui& ui) {
  ui.app.read_scores();
  const AppState& s = ui.state();
  if (!s.session || (s.scores && s.scores->empty()))
    return empty_state(
        "No predictions are kept",
        "A question about settings is kept in the session with its answer, and the first run with "
        "these settings scores it.");
  if (!s.scores) return empty_state("Reading\u2026", ui.app.running_job());
  follow_measures(ui);
  const std::vector<PredictionScore>& scores = *s.scores;
  draw_headline(scores);
  spacer(4);
  const auto at = [&](int row) -> const PredictionScore& {  // the newest first
    return scores[scores.size() - 1 - static_cast<std::size_t>(row)];
  };
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(scores.size());
  rows.id = [](int r) { return std::to_string(r + 1); };
  rows.value = [&](int r) {
    return at(r).run > 0 ? fmt::format("{:+.1f} %", 100 * at(r).error()) : std::string("not measured");
  };
  rows.cell = [&](int r, int c) { score_cell(ui, at(r), r, c); };
  draw_table("scores",
             {{"What if"},
              {"Predicted", 72, true},
              {"Range", 118, true, false, "", 3},
              {"Measured", 70, true},
              {"By", 60, false, false, "the first run since with these settings on this hardware"},
              {"Error", 58, false, false, "of the prediction, against what was measured"},
              {"In range", 60, false, false, "", 2}},
             rows, ui.what_if.scores);
}

}  // namespace gradloom
