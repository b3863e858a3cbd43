// The scaling tab: what the step as it stands is predicted to do on 1 to 1,024 ranks of a described cluster: how long it takes, how
// much of the exchanges the backward pass hides, what a rank holds.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <vector>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

enum Curve { kEfficiency, kStep, kPeak };
constexpr double kWorthIt = 0.9, kPoor = 0.7;  // efficiencies that are told apart by colour

ImU32 efficiency_color(double efficiency) {
  return efficiency >= kWorthIt ? palette().good : efficiency >= kPoor ? palette().warn : palette().bad;
}

void draw_summary(const ScalingView& view) {
  const RankScaling& s = *view.scaling;
  figure("scaling.sent", fmt::format("A rank of {} sends a step", view.ranks), bytes_text(s.sent_bytes),
         palette().text, true);
  figure("scaling.exchanges", "Exchanges", std::to_string(s.exchanges), palette().text, false);
  std::int64_t good = 1;
  for (const ScalingRow& row : s.rows)
    if (row.efficiency >= kWorthIt) good = std::max(good, row.ranks);
  figure("scaling.good", "Above 90 % up to", plural_text(good, "rank"),
         good > 1 ? palette().good : palette().warn, false);
  figure("scaling.last", fmt::format("Samples per second of {} ranks", s.rows.back().ranks),
         fmt::format("{:.3g}\u00d7", s.rows.back().efficiency * static_cast<double>(s.rows.back().ranks)),
         palette().text, false);
  const std::string said = s.bend.empty() ? "Efficiency stays above 90 %." : "Efficiency is " + s.bend + ".";
  wrapped(said, s.bend.empty() ? palette().good : palette().warn);
  register_item("scaling.bend", said, s.bend);
  muted("Times of kernels are " + view.times + ".");
  tip(s.figures);
  register_item("scaling.figures", s.figures, s.figures);
  register_item("scaling.times", view.times, view.times);
}

struct Line {
  std::string name;
  ImU32 color;
  std::vector<double> y;
};

std::vector<Line> lines_of(const RankScaling& s, int curve) {
  const auto line = [&](const char* name, ImU32 color, auto value) {
    Line made{name, color, {}};
    for (const ScalingRow& row : s.rows) made.y.push_back(static_cast<double>(value(row)));
    return made;
  };
  if (curve == kEfficiency)
    return {line("Efficiency", palette().accent, [](const ScalingRow& r) { return 100 * r.efficiency; })};
  if (curve == kStep)
    return {line("Step", palette().accent, [](const ScalingRow& r) { return r.step_ns; }),
            line("Exchange time", palette().text_dim, [](const ScalingRow& r) { return r.exchange_ns; }),
            line("Not hidden", palette().bad, [](const ScalingRow& r) { return r.exposed_ns; })};
  if (s.sharing > 1)
    return {line("Peak", palette().accent, [](const ScalingRow& r) { return r.peaks.whole.bytes; })};
  return {line("Without zero", palette().accent, [](const ScalingRow& r) { return r.peaks.whole.bytes; }),
          line("zero", category_color(1), [](const ScalingRow& r) { return r.peaks.zero.bytes; }),
          line("zero{stage=2}", category_color(2), [](const ScalingRow& r) { return r.peaks.zero2.bytes; })};
}

void draw_legend(const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    ImGui::SameLine(0, px(12));
    ImGui::AlignTextToFramePadding();
    text("\u25cf", line.color, theme().small);
    ImGui::SameLine(0, px(4));
    muted(line.name);
  }
}

void draw_curve(Ui& ui, const RankScaling& s, float height) {
  constexpr Unit kUnits[] = {Unit::kPercent, Unit::kNs, Unit::kBytes};
  const int curve = ui.scaling.curve;
  const std::vector<Line> lines = lines_of(s, curve);
  segmented("scaling.curve", &ui.scaling.curve, {"Efficiency", "Step", "Peak of a rank"});
  if (lines.size() > 1) draw_legend(lines);
  std::vector<double> ranks;
  for (const ScalingRow& row : s.rows) ranks.push_back(static_cast<double>(row.ranks));
  double most = 0;
  for (const Line& line : lines) most = std::max(most, *std::max_element(line.y.begin(), line.y.end()));
  const Plot plot =
      begin_plot("scaling.plot", {ImGui::GetContentRegionAvail().x, height},
                 {0.9, ranks.back() * 1.15, true, Unit::kCount},
                 Axis::fit(0, curve == kEfficiency ? 100 : most, kUnits[curve], false, true), "ranks");
  if (curve == kEfficiency) plot_rule(plot, 100 * kWorthIt, palette().text_faint, "90 %");
  std::string said;
  int at = -1;
  for (const Line& line : lines) {
    plot_line(plot, ranks, line.y, line.color);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      plot.list->AddCircleFilled({plot.to_x(ranks[i]), plot.to_y(line.y[i])}, px(3), line.color);
    if (const int hovered = plot_hover(plot, ranks, line.y, line.color); hovered >= 0) {
      at = hovered;
      said += fmt::format("\n{}  {}", line.name,
                          format_value(line.y[static_cast<std::size_t>(hovered)], kUnits[curve]));
    }
  }
  end_plot(plot);
  if (at >= 0)
    ImGui::SetTooltip("%s%s", plural_text(s.rows[static_cast<std::size_t>(at)].ranks, "rank").c_str(),
                      said.c_str());
}

void draw_rows(Ui& ui, const ScalingView& view) {
  const std::vector<ScalingRow>& all = view.scaling->rows;
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(all.size());
  rows.id = [&](int r) { return std::to_string(all[static_cast<std::size_t>(r)].ranks); };
  rows.value = [&](int r) { return duration_text(all[static_cast<std::size_t>(r)].step_ns); };
  const auto time_cell = [](double ns) { number_cell(ns > 0 ? duration_text(ns) : "\u2013"); };
  rows.cell = [&](int r, int c) {
    const ScalingRow& row = all[static_cast<std::size_t>(r)];
    const std::int64_t peaks[] = {row.peaks.whole.bytes, row.peaks.zero.bytes, row.peaks.zero2.bytes};
    if (c == 0) number_cell(std::to_string(row.ranks));
    if (c == 1) time_cell(row.step_ns);
    if (c == 2) time_cell(row.exchange_ns);
    if (c == 3) time_cell(row.exposed_ns);
    if (c == 4)
      cell_bar(std::min(1.0, row.efficiency), efficiency_color(row.efficiency), percent_text(row.efficiency));
    if (c > 5 && view.scaling->sharing > 1)
      number_cell("\u2013");  // refused together
    else if (c >= 5)
      number_cell(bytes_text(static_cast<double>(peaks[c - 5])));
  };
  draw_table("scaling.rows",
             {{"Ranks", 70, true},
              {"Step", 100, true},
              {"Exchange time", 100, true, false, "of all exchanges of a step, hidden or not", 1},
              {"Not hidden", 100, true, false, "what kernels wait for exchanges", 2},
              {"Efficiency", 0, true, false, "samples per second against the first row's, as often"},
              {"Peak of a rank", 110, true, false, "memory of the rank that has most"},
              {"With zero", 100, true, false, "optimizer states shared out", 3},
              {"Stage 2", 100, true, false, "and gradients", 4}},
             rows, ui.scaling.table, std::max(px(110), ImGui::GetContentRegionAvail().y - px(70)));
}

// What a rank holds when it needs most, in one stage of zero.
void draw_memory(Ui& ui, const RankScaling& s) {
  if (s.sharing == 1)
    segmented("scaling.stage", &ui.scaling.stage, {"Without zero", "zero", "zero{stage=2}"});
  const int stage = s.sharing == 1 ? ui.scaling.stage : 0;
  const auto peak = [&](int r) -> const RankPeak& {
    const RankPeaks& peaks = s.rows[static_cast<std::size_t>(r)].peaks;
    return stage == 0 ? peaks.whole : stage == 1 ? peaks.zero : peaks.zero2;
  };
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(s.rows.size());
  rows.id = [&](int r) { return std::to_string(s.rows[static_cast<std::size_t>(r)].ranks); };
  rows.value = [&](int r) { return bytes_text(static_cast<double>(peak(r).state)); };
  rows.cell = [&](int r, int c) {
    const RankPeak& p = peak(r);
    const std::int64_t bytes[] = {p.parameters, p.gradients, p.state, p.activations, p.buckets, p.bytes};
    number_cell(c == 0 ? rows.id(r) : bytes_text(static_cast<double>(bytes[c - 1])));
  };
  draw_table("scaling.memory",
             {{"Ranks", 70, true},
              {"Parameters", 110, true, false, "and what else every rank keeps from step to step"},
              {"Gradients", 110, true, false, "that are there at that moment"},
              {"Optimizer state", 130, true},
              {"Activations", 110, true, false, "and all other results, inputs and constants"},
              {"Buckets", 100, true, false, "what exchanges need beside the tensors"},
              {"Peak of a rank", 0, true, false, "memory of the rank that has most"}},
             rows, ui.scaling.memory_table, std::max(px(110), ImGui::GetContentRegionAvail().y - px(70)));
}

}  // namespace

void draw_scaling_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.plan)
    return empty_state("Nothing to predict", s.plan_error.empty() ? "Open a model (Ctrl+O)." : s.plan_error);
  cluster_fields(ui, "scaling", ui.scaling.question);
  labelled("Processor", "whose kernels and links are predicted", 230, false,
           [&](float) { combo("scaling.on", &ui.scaling.on, processor_names("The job's processor"), 230); });
  ui.scaling.question.on = processor_id(ui.scaling.on);
  ui.app.find_scaling(ui.scaling.question);
  const ScalingView& view = s.scaling;
  spacer(4);
  if (!view.problem.empty()) return empty_state("No prediction", view.problem);
  if (!view.scaling) return empty_state("Planning for more ranks", "The step is compiled for several.");
  draw_summary(view);
  spacer(4);
  const float left = ImGui::GetContentRegionAvail().y;
  draw_curve(ui, *view.scaling, std::clamp(left * 0.4f, px(90), px(280)));
  if (ui.scaling.curve == kPeak)
    draw_memory(ui, *view.scaling);
  else
    draw_rows(ui, view);
  code_line("scaling.command", ui.app.as_typed(ui.app.scaling_command(ui.scaling.question)));
}

}  // namespace gradloom
