// The passes tab: what the passes do to nodes, kernels and planned memory,
// the switches, and the memory planner.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include "app/desktop/proofs.h"
#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "passes/planners.h"

namespace gradloom {
namespace {

// How a number changed: the sign says it, the colour repeats it. Right-aligned at `right`.
void change_cell(float right, float y, std::optional<std::int64_t> before, std::int64_t after, Unit unit) {
  const Palette& p = palette();
  ImFont* font = theme().small;
  const std::int64_t change = before ? after - *before : 0;
  const std::string shown = !before       ? "\u2013"
                            : change == 0 ? "="
                                          : format_change(static_cast<double>(change), unit);
  const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, shown.c_str()).x;
  ImGui::GetWindowDrawList()->AddText(font, font->FontSize, {right - width, y},
                                      change == 0  ? p.text_faint
                                      : change < 0 ? p.good
                                                   : p.warn,
                                      shown.c_str());
}

void label_cell(float right, float y, const std::string& label, ImU32 color) {
  ImFont* font = theme().small;
  const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.c_str()).x;
  ImGui::GetWindowDrawList()->AddText(font, font->FontSize, {right - width, y}, color, label.c_str());
}

// Nodes, kernels and planned peak now, against all passes off and against the plan before the last change.
// The card has one height whatever it holds (nothing yet, a change, an error): the switches below it must not
// move under the hand that clicks them.
void draw_effect(Ui& ui) {
  const AppState& s = ui.state();
  const Palette& p = palette();
  ImFont* small = theme().small;
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, pad = px(10),
              line = std::round(small->FontSize + px(4));
  const ImVec2 max{min.x + width, min.y + 2 * px(8) + 5 * line};
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, max, p.raised, px(6));
  ImGui::Dummy({width, max.y - min.y});
  const float left = min.x + pad, right = max.x - pad;
  float y = min.y + px(8);
  list->PushClipRect(min, max, true);
  if (!s.plan_error.empty()) {
    const std::string error = "\u26a0 " + s.plan_error;
    list->AddText(small, small->FontSize, {left, y}, p.bad, error.c_str(), nullptr, right - left);
    register_item("passes.error", "plan error", s.plan_error);
    tip(s.plan_error);
  } else if (!s.plan) {
    list->AddText(small, small->FontSize, {left, y}, p.text_faint, "Planning\u2026");
  } else {
    const PlanTotals& now = s.plan->totals;
    const std::tuple<const char*, std::int64_t PlanTotals::*, Unit, float> columns[] = {
        {"nodes", &PlanTotals::nodes, Unit::kCount, 0.42f},
        {"kernels", &PlanTotals::kernels, Unit::kCount, 0.66f},
        {"peak", &PlanTotals::peak_bytes, Unit::kBytes, 1.f}};
    const bool tight = width < px(190);  // where the long words would reach the numbers; or none has room
    const std::array<const char*, 4> rows =
        tight ? std::array{"", "now", "off", "before"} : std::array{"", "now", "vs all off", "vs before"};
    for (int row = 1; row < 4 && width >= px(124); ++row)
      list->AddText(small, small->FontSize, {left, y + static_cast<float>(row) * line}, p.text_dim,
                    rows[row]);
    const float narrow[] = {210, 165, 0};  // points below which a column has no room
    for (std::size_t c = 0; c < std::size(columns); ++c) {
      if (width < px(narrow[c])) continue;
      const auto& [what, number, unit, share] = columns[c];
      const float x = left + (right - left) * share;
      const auto of = [number = number](const PlanTotals& t) { return std::optional(t.*number); };
      label_cell(x, y, what, p.text_faint);
      label_cell(x, y + line, format_value(static_cast<double>(now.*number), unit), p.text);
      change_cell(x, y + 2 * line, s.baseline ? of(s.baseline->totals) : std::nullopt, now.*number, unit);
      change_cell(x, y + 3 * line, s.change ? of(s.change->before) : std::nullopt, now.*number, unit);
    }
    y += 4 * line;
    const std::string last = s.change ? fmt::format("{}: {} new, {} gone, {:.0f} ms", s.change->what,
                                                    s.change->added, s.change->removed, s.change->replan_ms)
                                      : "Nothing was changed yet";
    list->AddText(small, small->FontSize, {left, y}, s.change ? p.text_dim : p.text_faint,
                  fit_text(small, small->FontSize, last, right - left).c_str());
    register_rect("passes.effect", min, max, "effect",
                  fmt::format("nodes {} kernels {} peak {}", now.nodes, now.kernels, now.peak_bytes));
    register_rect("passes.last-change", {left, y}, {right, y + line}, last, s.change ? s.change->what : "");
    tip(last);
  }
  list->PopClipRect();
  spacer(6);
}

// Whether the recipe as it stands is proved to compute what it computes without passes, and the way to find out.
void draw_proof(Ui& ui) {
  const AppState& s = ui.state();
  const bool proving = s.progress.running && s.progress.kind == RunKind::verify;
  if (proving) {
    if (button("passes.verify", s.progress.stopping ? "Kill" : "Stop", ButtonKind::kDanger))
      ui.app.stop_run();
  } else {
    ImGui::BeginDisabled(s.progress.running || !s.plan);
    if (button(
            "passes.verify", "Verify", ButtonKind::kPlain,
            "Loss, every gradient and the parameters after some steps, held against the job without passes in "
            "f64\n" +
                ui.app.verify_command()))
      ui.app.start_verify();
    ImGui::EndDisabled();
  }
  ImGui::SameLine(0, px(8));
  ImGui::AlignTextToFramePadding();
  const std::vector<Proof>& proofs = s.marks->proofs;
  const std::string& job = ui.app.recipe_hash();
  const Proof* const proof = proof_of(proofs, job);
  if (ui.proofs_of != s.marks || ui.proofs_job != job) {
    ui.passes.proofs = pass_proofs(proofs, job);
    ui.proofs_of = s.marks;
    ui.proofs_job = job;
  }
  const Palette& p = palette();
  std::string said = "not proved with these settings", help;
  ImU32 color = p.text_faint;
  if (proving) {
    said = s.progress.what.empty() ? "proving\u2026" : escaped(s.progress.what);
    color = p.text_dim;
    ui.host.animate();
  } else if (proof != nullptr) {
    said = proof->equal ? "\u2713 proved equal"
                        : "\u2717 " + escaped(proof->culprit) + " strays" +
                              (proof->site.empty() ? "" : " at " + escaped(proof->site));
    color = proof->equal ? p.good : p.bad;
    help = said + "\n" + proof_text(*proof);
  }
  text(fit_text(theme().small, theme().small->FontSize, said, ImGui::GetContentRegionAvail().x), color,
       theme().small);
  register_item("passes.proof", said, proof == nullptr ? "none" : proof->equal ? "equal" : "strays");
  tip(help.empty() ? said : help);
  spacer(2);
}

// The planner is no pass but belongs to the same question: what does the step cost before it runs.
void draw_planner(Ui& ui) {
  const Recipe& recipe = ui.state().recipe;
  heading("Memory planner");
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const PlannerDef& planner : all_planners()) all.emplace_back(planner.name);
    return all;
  }();
  int planner = static_cast<int>(std::find(names.begin(), names.end(), recipe.planner) - names.begin());
  if (segmented("planner", &planner, names)) {
    const std::string& name = names[static_cast<std::size_t>(planner)];
    ui.app.edit("planner " + name, [&](Recipe& r) { r.planner = name; });
  }
  spacer(2);
  bool in_place = recipe.in_place, pieces = recipe.pieces;
  if (toggle("in-place", &in_place))
    ui.app.edit(in_place ? "in-place on" : "in-place off", [&](Recipe& r) { r.in_place = in_place; });
  ImGui::SameLine(0, px(10));
  ImGui::AlignTextToFramePadding();
  text("results overwrite dead inputs", palette().text_dim);
  if (toggle("pieces", &pieces))
    ui.app.edit(pieces ? "pieces on" : "pieces off", [&](Recipe& r) { r.pieces = pieces; });
  ImGui::SameLine(0, px(10));
  ImGui::AlignTextToFramePadding();
  wrapped("slices and joins without a copy", palette().text_dim);
  spacer(6);
}

}  // namespace

void draw_pass_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model()) return empty_state("No model", "The passes of an opened model are switched here.");
  draw_effect(ui);
  const auto pipeline = recipe_pipeline(s.recipe);
  if (!pipeline) return wrapped(pipeline.error().message, palette().bad);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {px(8), px(3)});
  if (!s.rules_problem.empty()) {
    wrapped("\u26a0 " + s.rules_problem, palette().bad);
    register_item("problem.rules", "rules", s.rules_problem);
    spacer(4);
  }
  const std::string file = s.recipe.rules == s.rules_text ? s.rules_file : "";
  draw_proof(ui);
  draw_pass_panel(s.passes, *pipeline, file, ui.app.planning(), ui.passes, ui.asks);
  draw_planner(ui);
  ImGui::PopStyleVar();
}

}  // namespace gradloom
