// The passes tab: what the passes do to nodes, kernels and planned memory, the switches, and the memory
// planner.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// "-12 nodes": the sign says it, the colour repeats it.
void delta_line(const char* what, std::int64_t before, std::int64_t after, Unit unit) {
  const Palette& p = palette();
  const float x = ImGui::GetCursorPosX();
  text(what, p.text_dim, theme().small);
  ImGui::SameLine();
  ImGui::SetCursorPosX(x + px(66));
  text(format_value(static_cast<double>(after), unit), p.text, theme().small);
  ImGui::SameLine(0, px(8));
  const std::int64_t change = after - before;
  text(change == 0 ? "=" : format_change(static_cast<double>(change), unit),
       change == 0  ? p.text_faint
       : change < 0 ? p.good
                    : p.warn,
       theme().small);
}

// Nodes, kernels and planned peak now, against the last change or against all passes off.
void draw_effect(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.plan || !s.plan_error.empty()) return;
  const bool changed = s.change.has_value();
  const PlanTotals& after = s.plan->totals;
  const PlanTotals* base = s.baseline ? &s.baseline->totals : nullptr;
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, pad = px(10);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->ChannelsSplit(2);
  list->ChannelsSetCurrent(1);
  ImGui::SetCursorScreenPos({min.x + pad, min.y + px(8)});
  ImGui::BeginGroup();
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {px(8), px(3)});
  static constexpr const char* kTitles[] = {"Against all passes off", "Last change: "};
  if (base) {
    text(kTitles[0], palette().text, theme().bold);
    delta_line("nodes", base->nodes, after.nodes, Unit::kCount);
    delta_line("kernels", base->kernels, after.kernels, Unit::kCount);
    delta_line("peak", base->peak_bytes, after.peak_bytes, Unit::kBytes);
  }
  if (changed) {
    const PlanChange& c = *s.change;
    ImGui::Dummy({0, px(2)});
    const std::string title =
        fit_text(theme().bold, theme().bold->FontSize, kTitles[1] + c.what, width - 2 * pad);
    text(title, palette().text, theme().bold);
    delta_line("nodes", c.before.nodes, c.after.nodes, Unit::kCount);
    delta_line("kernels", c.before.kernels, c.after.kernels, Unit::kCount);
    delta_line("peak", c.before.peak_bytes, c.after.peak_bytes, Unit::kBytes);
    text(fmt::format("{} new, {} gone, planned in {:.0f} ms", c.added, c.removed, c.replan_ms),
         palette().text_faint, theme().small);
  }
  ImGui::PopStyleVar();
  ImGui::EndGroup();
  const float bottom = ImGui::GetItemRectMax().y + px(8);
  list->ChannelsSetCurrent(0);
  list->AddRectFilled(min, {min.x + width, bottom}, palette().raised, px(6));
  list->ChannelsMerge();
  register_rect("passes.effect", min, {min.x + width, bottom}, "effect",
                fmt::format("nodes {} kernels {} peak {}", after.nodes, after.kernels, after.peak_bytes));
  ImGui::SetCursorScreenPos({min.x, bottom});
  spacer(6);
}

// The planner is no pass but belongs to the same question: what does the step cost before it runs.
void draw_planner(Ui& ui) {
  const Recipe& recipe = ui.state().recipe;
  heading("Memory planner");
  static const std::vector<std::string> kPlanners{"none", "reuse", "best-fit"};
  int planner =
      static_cast<int>(std::find(kPlanners.begin(), kPlanners.end(), recipe.planner) - kPlanners.begin());
  if (segmented("planner", &planner, kPlanners)) {
    const std::string& name = kPlanners[static_cast<std::size_t>(planner)];
    ui.app.edit("planner " + name, [&](Recipe& r) { r.planner = name; });
  }
  spacer(2);
  bool in_place = recipe.in_place;
  if (toggle("in-place", &in_place))
    ui.app.edit(in_place ? "in-place on" : "in-place off", [&](Recipe& r) { r.in_place = in_place; });
  ImGui::SameLine(0, px(10));
  ImGui::AlignTextToFramePadding();
  text("results overwrite dead inputs", palette().text_dim);
  spacer(6);
}

}  // namespace

void draw_pass_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model()) return empty_state("No model", "The passes of an opened model are switched here.");
  if (!s.plan_error.empty()) {
    wrapped("\u26a0 " + s.plan_error, palette().bad);
    register_item("passes.error", "plan error", s.plan_error);
    spacer(4);
  }
  draw_effect(ui);
  const auto pipeline = recipe_pipeline(s.recipe);
  if (!pipeline) return wrapped(pipeline.error().message, palette().bad);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {px(8), px(3)});
  draw_pass_panel(s.passes, *pipeline, ui.app.planning(), ui.passes, ui.asks);
  draw_planner(ui);
  ImGui::PopStyleVar();
}

}  // namespace gradloom
