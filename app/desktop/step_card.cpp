// The node tab while no node is selected: what one step is made of, and what is worth looking at.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <memory>
#include <string>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "viz/draw/plots.h"

namespace gradloom {
namespace {

constexpr std::size_t kOperatorRows = 8, kAdviceRows = 3;

// A line over a bar of its part of the longest, that can be pressed.
struct PartRow {
  std::string id, label, value, tip;
  double part = 0;  // 0..1
  ImU32 color = 0;
};

bool draw_part(const PartRow& row, bool node) {
  ImFont* const font = theme().small;
  ImDrawList* const list = ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = std::max(ImGui::GetContentRegionAvail().x, px(20)), height = font->FontSize + px(7);
  ImGui::PushID(row.id.c_str());
  const bool clicked = ImGui::InvisibleButton("part", {width, height - px(1)});
  ImGui::PopID();
  register_item(row.id, row.label, row.value);
  focus_stop(row.id);
  if (ImGui::IsItemHovered()) {
    list->AddRectFilled(at, {at.x + width, at.y + height - px(1)}, palette().hover, px(3));
    tip(row.tip);
  }
  const float bar = width * std::clamp(static_cast<float>(row.part), 0.f, 1.f);
  list->AddRectFilled(at, {at.x + std::max(bar, px(2)), at.y + height - px(1)}, with_alpha(row.color, 0.28f),
                      px(3));
  const float value_width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, row.value.c_str()).x;
  const float room = width - value_width - px(18), y = at.y + px(3);
  const std::string label = node ? fit_name(font, font->FontSize, row.label, room)
                                 : fit_text(font, font->FontSize, row.label, room);
  list->AddText(font, font->FontSize, {at.x + px(6), y}, palette().text, label.c_str());
  list->AddText(font, font->FontSize, {at.x + width - value_width - px(4), y}, palette().text_dim,
                row.value.c_str());
  return clicked;
}

std::string part_value(const StepSums& sums, const KernelLine& line) {
  if (!sums.timed) return bytes_text(line.bytes);
  return duration_text(line.time_ns) + "  " + percent_text(line.share);
}

// Kernels of one phase or operator; a click lists them. `of`: what the longest bar stands for.
void draw_group(Ui& ui, const StepSums& sums, const char* key, const KernelLine& line, double of,
                ImU32 color) {
  const double amount = sums.timed ? line.time_ns : line.bytes;
  const std::string label = fmt::format("{}  \u00d7{}", escaped(line.name), line.count);
  const std::string tip =
      fmt::format("{}: {}\nLists them", escaped(line.name), plural_text(line.count, "kernel"));
  if (draw_part({fmt::format("step-card.{}.{}", key, line.name), label, part_value(sums, line), tip,
                 of > 0 ? amount / of : 0, color},
                false))
    ui.asks.filter_kernels = fmt::format("{}~\"^{}$\"", key, line.name);
}

double largest_of(const StepSums& sums, const std::vector<KernelLine>& lines) {
  double most = 0;
  for (const KernelLine& line : lines) most = std::max(most, sums.timed ? line.time_ns : line.bytes);
  return most;
}

void draw_longest(Ui& ui, const StepSums& sums) {
  if (sums.longest.empty()) return;
  heading("Longest kernels");
  const double most = sums.longest.front().time_ns;
  for (std::size_t i = 0; i < sums.longest.size(); ++i) {
    const KernelLine& line = sums.longest[i];
    const std::string name = escaped(line.name);
    if (draw_part({fmt::format("step-card.longest.{}", i + 1), name, part_value(sums, line),
                   name + "\nSelects it", most > 0 ? line.time_ns / most : 0, phase_color(line.phase)},
                  true))
      ui.go_to(line.name);
    if (ImGui::IsItemHovered()) ui.asks.hover_node = line.name;
  }
}

void draw_advice_rows(Ui& ui) {
  const AdviceView& advice = ui.state().advice;
  if (!ui.state().has_model()) return;
  heading("What would make it faster");
  bool pressed = false;
  for (std::size_t i = 0; i < std::min(advice.rows.size(), kAdviceRows); ++i) {
    const AdviceRow& row = advice.rows[i];
    const std::string gain =
        row.gain_ns > 0 ? percent_text(row.gain) : bytes_text(static_cast<double>(row.saved_bytes));
    pressed |= draw_part({fmt::format("step-card.advice.{}", i + 1), escaped(row.title), gain,
                          escaped(row.title) + "\nShows all advice", row.gain, palette().good},
                         false);
  }
  if (advice.rows.empty())
    pressed |= button("step-card.advice", "Ask for advice\u2026", ButtonKind::kGhost,
                      "Shows the tab that finds it out");
  if (pressed) ui.panes.show("Advice");
}

}  // namespace

void draw_step_card(Ui& ui) {
  const AppState& s = ui.state();
  const bool recorded = ui.shows_recorded();
  const std::shared_ptr<const void> source =
      recorded ? std::shared_ptr<const void>(s.run) : std::shared_ptr<const void>(s.plan);
  StepCard& card = ui.step_card;
  if (source != card.source)
    card = {source,
            step_sums(recorded ? s.run->record.kernels : untimed_rows(s.plan->graph(), s.plan->plan()))};
  const StepSums& sums = card.sums;
  title("One step");
  if (recorded) times_chip(ui, "step-card.times", ImGui::GetContentRegionAvail().x);
  std::string said = plural_text(sums.kernels, "kernel");
  said += sums.timed ? ", " + duration_text(sums.time_ns) + " together"
                     : fmt::format(". Times appear after a run ({}).", key_label("run.start"));
  muted(said);
  register_item("step-card.kernels", said, std::to_string(sums.kernels));
  spacer(4);
  const double longest_phase = largest_of(sums, sums.phases);
  for (const KernelLine& line : sums.phases)
    draw_group(ui, sums, "phase", line, longest_phase, phase_color(line.name));
  heading(sums.timed ? "Where the time goes" : "What moves most bytes");
  const double longest = largest_of(sums, sums.operators);
  for (std::size_t i = 0; i < std::min(sums.operators.size(), kOperatorRows); ++i)
    draw_group(ui, sums, "op", sums.operators[i], longest, palette().accent);
  if (sums.operators.size() > kOperatorRows)
    muted(plural_text(static_cast<std::int64_t>(sums.operators.size() - kOperatorRows), "other operator"));
  draw_longest(ui, sums);
  draw_advice_rows(ui);
  spacer(6);
  muted("Click a node of the graph, or a row of the kernel table, to see it here.");
}

}  // namespace gradloom
