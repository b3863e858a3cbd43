// The what-if tab: the predicted step beside the measured one. What is asked: what_if_form.cpp.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"

namespace gradloom {
namespace {

constexpr const char* kPhases[] = {"forward", "loss", "backward", "optimizer"};

// The measured or the predicted step to a scale that both have.
void step_bar(const char* id, const std::string& label, const WhatIfView& w, bool after, double most_ns) {
  const float left = px(70), height = px(20),
              width = std::max(px(100), ImGui::GetContentRegionAvail().x - left - px(8));
  const ImVec2 min = ImGui::GetCursorScreenPos();
  ImGui::GetWindowDrawList()->AddText(theme().ui, theme().ui->FontSize,
                                      {min.x, min.y + (height - theme().ui->FontSize) / 2}, palette().text,
                                      label.c_str());
  const double scale = width / most_ns;
  draw_step_phases(w, after, {min.x + left, min.y}, height, scale);
  if (after) draw_range_line(w, min.x + left, min.y + height / 2, min.x + left + width, scale);
  ImGui::Dummy({left + width, height});
  register_item(id, label, duration_text(after ? w.after_ns : w.before_ns));
}

void legend() {
  for (const char* name : kPhases) {
    badge(name, phase_color(std::string(name)));
    ImGui::SameLine(0, px(6));
  }
  ImGui::AlignTextToFramePadding();
  muted("grey: launches and waiting");
}

void draw_ops(const WhatIfView& w, TableState& state) {
  double most = 1;
  for (const WhatIfPart& p : w.ops) most = std::max(most, std::abs(p.after_ns - p.before_ns));
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(w.ops.size());
  rows.id = [&](int r) { return w.ops[static_cast<std::size_t>(r)].name; };
  rows.value = [&](int r) { return duration_text(w.ops[static_cast<std::size_t>(r)].after_ns); };
  rows.cell = [&](int r, int c) {
    const WhatIfPart& p = w.ops[static_cast<std::size_t>(r)];
    const double change = p.after_ns - p.before_ns;
    if (c == 0) name_cell(p.name);
    if (c == 1) number_cell(fmt::format("{} \u2192 {}", p.before, p.after));
    if (c == 2) number_cell(duration_text(p.before_ns));
    if (c == 3) number_cell(duration_text(p.after_ns));
    if (c == 4)
      cell_bar(std::abs(change) / most, change < 0 ? palette().good : palette().bad,
               format_change(change, Unit::kNs));
  };
  draw_table(
      "whatif.ops",
      {{"Operator"}, {"Kernels", 100, true}, {"Now", 90, true}, {"Then", 90, true}, {"Change", 150, true}},
      rows, state, std::max(px(180), ImGui::GetContentRegionAvail().y));
}

// Before anything was asked: what can be, and one question to begin with.
void draw_what_if_offer(Ui& ui) {
  const AppState& s = ui.state();
  spacer(14);
  title("How long would a step take, if \u2026");
  const std::string from = !ui.app.predicts_run()
                               ? "some steps that are timed first"
                               : fmt::format("the kernels of run {}", s.run->record.summary.id);
  wrapped(
      "Choose another precision, size, number of ranks or processor above, or what would be faster. The answer is predicted from " +
          from + "; nothing is changed, and a later run of it tells how right it was (Scores).",
      palette().text_dim);
  const std::string longest = ui.longest_operator();
  if (longest.empty()) return;
  spacer(4);
  ImGui::BeginDisabled(s.progress.running);
  if (button("whatif.try", longest + " twice as fast?", ButtonKind::kPlain,
             "The operator whose kernels take most of the step"))
    ui.ask_twice_as_fast({"op:" + longest});
  ImGui::EndDisabled();
}

void draw_answer(Ui& ui) {
  const WhatIfView& w = ui.state().what_if;
  const std::string said =
      fmt::format("{} instead of {}: {:.2f}\u00d7 [{:.2f}, {:.2f}]", duration_text(w.after_ns),
                  duration_text(w.before_ns), w.ratio, w.low, w.high);
  spacer(6);
  title(said, w.low > 1 ? palette().good : w.high < 1 ? palette().bad : palette().text);
  register_item("whatif.answer", said, fmt::format("{:.4f}", w.ratio));
  muted(fmt::format(
      "If {}. {}{}", w.question,
      w.note.empty() ? percent_text(w.known) + " of what differs was measured" : escaped(w.note),
      w.samples != 1 ? fmt::format("; a step has {} times as many samples", number_text(w.samples)) : ""));
  register_item("whatif.question", w.question, w.question);
  spacer(4);
  const double scale = 1.02 * std::max({w.before_ns, w.after_ns, w.high_ns, 1.0});
  step_bar("whatif.now", "Now", w, false, scale);
  step_bar("whatif.then", "Then", w, true, scale);
  legend();
  muted(fmt::format("Peak {} \u2192 {}", bytes_text(static_cast<double>(w.before_peak_bytes)),
                    bytes_text(static_cast<double>(w.after_peak_bytes))));
  spacer(4);
  draw_ops(w, ui.what_if.table);
}

}  // namespace

float draw_step_phases(const WhatIfView& answer, bool after, ImVec2 at, float height, double points_per_ns) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  double left_ns = after ? answer.after_ns : answer.before_ns;
  const auto part = [&](double ns, ImU32 color) {
    const float to = at.x + static_cast<float>(ns * points_per_ns);
    list->AddRectFilled(at, {to, at.y + height}, color);
    at.x = to;
  };
  for (const char* name : kPhases)
    for (const WhatIfPart& p : answer.phases) {
      if (p.name != name) continue;
      const double ns = after ? p.after_ns : p.before_ns;
      part(ns, mix(palette().panel, phase_color(p.name), 0.75f));
      left_ns -= ns;
    }
  part(std::max(0.0, left_ns), palette().raised);
  return at.x;
}

void draw_range_line(const WhatIfView& answer, float x, float middle, float most_x, double points_per_ns) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  const auto at = [&](double ns) { return std::min(most_x, x + static_cast<float>(ns * points_per_ns)); };
  const float low = at(answer.low_ns), high = at(answer.high_ns);
  list->AddLine({low, middle}, {high, middle}, palette().text, px(2));
  for (const float end : {low, high})
    list->AddLine({end, middle - px(5)}, {end, middle + px(5)}, palette().text, px(2));
}

void draw_what_if_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model() && !s.run) return empty_state("Nothing to predict", "Open a model or a session.");
  segmented("whatif.tab", &ui.what_if.tab, {"A question", "Scores"});
  if (ui.what_if.tab == 1) return draw_scores(ui);
  draw_what_if_question(ui);
  if (s.progress.running && s.progress.kind == RunKind::what_if) {
    ui.host.animate();
    spacer(6);
    muted("Predicting\u2026");
    return;
  }
  if (s.what_if.before_ns > 0) return draw_answer(ui);
  draw_what_if_offer(ui);
}

}  // namespace gradloom
