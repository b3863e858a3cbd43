// The advice tab: what would make the job faster, each with its gain as a bar and a button that proves it.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

constexpr float kGainWidth = 180;  // points, of a bar

void draw_advice_offer(Ui& ui) {
  const AppState& s = ui.state();
  title("What would make it faster");
  muted("Some steps are timed, and what other settings would do is predicted from their kernels.");
  spacer(4);
  ImGui::BeginDisabled(s.progress.running || !s.has_model());
  if (button("advice.find", "Find out", ButtonKind::kPrimary, ui.app.advise_command(false)))
    ui.app.start_advice(false);
  ImGui::EndDisabled();
  const auto run = s.own_run();
  if (!run) return;
  ImGui::SameLine(0, px(6));
  ImGui::BeginDisabled(s.progress.running);
  if (button("advice.run", fmt::format("From run {}", run->record.summary.id), ButtonKind::kPlain,
             ui.app.advise_command(true)))
    ui.app.start_advice(true);
  ImGui::EndDisabled();
}

void draw_advice_progress(Ui& ui) {
  const RunProgress& r = ui.state().progress;
  title("Looking for what would make it faster");
  spacer(4);
  if (button("advice.stop", r.stopping ? "Kill" : "Stop", ButtonKind::kDanger)) ui.app.stop_run();
  ImGui::SameLine(0, px(10));
  ImGui::BeginGroup();
  progress("advice.progress", static_cast<float>(r.fraction), r.what);
  ImGui::EndGroup();
  ui.host.animate();
}

// How many there are, whether they are of what stands, and the way to ask again.
void draw_head(Ui& ui) {
  const AppState& s = ui.state();
  const AdviceView& advice = s.advice;
  const auto count = static_cast<std::int64_t>(advice.rows.size());
  const std::string said =
      advice.rows.empty()
          ? "Nothing was found that is worth 1 % of a step"
          : fmt::format("{} for a step of {}", plural_text(count, "finding"), duration_text(advice.step_ns));
  title(said);
  register_item("advice.count", said, std::to_string(count));
  const char* const again = "Again";
  ImGui::SameLine(std::max(0.f, ImGui::GetContentRegionMax().x - button_width(again)));
  ImGui::BeginDisabled(s.progress.running);
  const bool of_run = advice.command == ui.app.advise_command(true);
  if (button("advice.again", again, ButtonKind::kPlain, advice.command)) ui.app.start_advice(of_run);
  ImGui::EndDisabled();
  if (!of_run && advice.command != ui.app.advise_command(false))
    text("The recipe was changed since.", palette().warn, theme().small);
  spacer(4);
}

std::string gain_text(const AdviceRow& row) {
  if (row.gain_ns <= 0) return bytes_text(static_cast<double>(row.saved_bytes)) + " less memory";
  return fmt::format("{}, {}  [{}, {}]", duration_text(row.gain_ns), percent_text(row.gain),
                     percent_text(row.low), percent_text(row.high));
}

// The gain against the largest, and a line for its range.
void gain_bar(const AdviceRow& row, double largest) {
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float height = ImGui::GetTextLineHeight(), width = px(kGainWidth), thick = px(8);
  const float top = min.y + (height - thick) / 2, middle = min.y + height / 2;
  const auto at = [&](double part) {
    return min.x + width * std::clamp(static_cast<float>(part / largest), 0.f, 1.f);
  };
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled({min.x, top}, {min.x + width, top + thick}, palette().raised, px(3));
  list->AddRectFilled({min.x, top}, {std::max(at(row.gain), min.x + px(2)), top + thick}, palette().good,
                      px(3));
  list->AddLine({at(row.low), middle}, {at(row.high), middle}, palette().text, px(1.5f));
  for (const double end : {row.low, row.high})
    list->AddLine({at(end), middle - px(3)}, {at(end), middle + px(3)}, palette().text, px(1.5f));
  ImGui::Dummy({width, height});
}

void draw_row(Ui& ui, std::size_t i, const AdviceRow& row, double largest) {
  const std::string number = std::to_string(i + 1);
  const float proof = button_width("Compare"), apply = button_width("Apply"), gap = px(6);
  const float title_width = std::max(px(40), ImGui::GetContentRegionAvail().x - proof - apply - gap - px(16));
  const std::string title = number + ".  " + escaped(row.title);
  ImGui::AlignTextToFramePadding();
  if (selectable_row("advice.row." + number, fit_text(theme().ui, theme().ui->FontSize, title, title_width),
                     !row.node.empty() && ui.selected() == row.node, title_width) &&
      !row.node.empty())
    ui.go_to(row.node);
  tip(escaped(row.title));
  ImGui::SameLine(ImGui::GetContentRegionMax().x - proof - gap - apply);
  const bool applies = ui.app.can_apply(row.change);
  ImGui::BeginDisabled(!applies);
  if (button("advice.apply." + number, "Apply", ButtonKind::kPlain,
             applies ? "The recipe takes this change (" + key_label("app.undo") + " takes it back)"
                     : "What is to be changed is no setting of the job",
             apply))
    ui.app.apply_change(row.change);
  ImGui::EndDisabled();
  ImGui::SameLine(0, gap);
  ImGui::BeginDisabled(ui.state().progress.running || !row.compares);
  if (button("advice.prove." + number, "Compare", ButtonKind::kPlain, row.command, proof)) {
    ui.app.start_compare(row.command);
    ui.panes.show("Compare");
  }
  ImGui::EndDisabled();
  ImGui::Indent(px(22));
  gain_bar(row, largest);
  ImGui::SameLine(0, px(10));
  text(gain_text(row), palette().text);
  register_item("advice.gain." + number, "gain", gain_text(row));
  const auto line = [&](const std::string& said, ImU32 color, ImFont* font) {
    if (said.empty()) return;
    text(fit_text(font, font->FontSize, said, ImGui::GetContentRegionAvail().x), color, font);
    tip(said);
  };
  line(escaped(joined(row.numbers, "; ")), palette().text_dim, theme().small);
  line(escaped(row.remedy), palette().text_dim, theme().small);
  line(escaped(row.change), palette().accent, theme().mono);
  ImGui::Unindent(px(22));
  spacer(8);
}

}  // namespace

void draw_advice_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model() && !s.run) return empty_state("No advice", "Open a model or a session.");
  const bool looking = s.progress.running && s.progress.kind == RunKind::advise;
  if (looking) return draw_advice_progress(ui);
  if (s.advice.command.empty() || s.advice.step_ns <= 0) return draw_advice_offer(ui);
  draw_head(ui);
  double largest = 0.01;
  for (const AdviceRow& row : s.advice.rows) largest = std::max({largest, row.gain, row.high});
  for (std::size_t i = 0; i < s.advice.rows.size(); ++i) draw_row(ui, i, s.advice.rows[i], largest);
}

}  // namespace gradloom
