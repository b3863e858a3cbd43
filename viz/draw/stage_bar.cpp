#include "viz/draw/stage_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "viz/draw/items.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

// Every run of a pass has as much of the slider, its rewrites share it: 0 at the start, 1 at the end.
float place_of(const StageModel& stages, int32_t step) {
  const int32_t r = stages.run_of(step);
  const StageRun& run = stages.runs[static_cast<size_t>(r)];
  const auto runs = static_cast<float>(std::max<size_t>(stages.runs.size() - 1, 1));
  const float inside =
      static_cast<float>(step - run.first + 1) / static_cast<float>(run.last - run.first + 1);
  return r == 0 ? 0 : (static_cast<float>(r) - 1 + inside) / runs;
}

// The end of a pass within `near` of the place, else the nearest rewrite.
int32_t step_at(const StageModel& stages, float place, float near) {
  int32_t best = 0;
  float least = 2;
  for (int32_t s = 0; s <= stages.last(); ++s) {
    float distance = std::abs(place_of(stages, s) - place);
    const bool end = stages.runs[static_cast<size_t>(stages.run_of(s))].last == s;
    if (end) distance = std::max(0.f, distance - near);
    if (distance < least || (distance == least && end)) least = distance, best = s;
  }
  return best;
}

void draw_track(const StageModel& stages, int32_t step, ImVec2 min, ImVec2 max, bool hot) {
  const Palette& c = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float y = std::round((min.y + max.y) / 2), wide = max.x - min.x;
  const float at = min.x + wide * place_of(stages, step);
  list->AddRectFilled({min.x, y - px(1.5f)}, {max.x, y + px(1.5f)}, c.border, px(1.5f));
  list->AddRectFilled({min.x, y - px(1.5f)}, {at, y + px(1.5f)}, c.accent, px(1.5f));
  const bool room = wide / static_cast<float>(stages.runs.size()) >= px(5);
  for (size_t r = 0; room && r < stages.runs.size(); ++r) {
    const float x = std::round(min.x + wide * place_of(stages, stages.runs[r].last));
    const bool autodiff = stages.runs[r].pass == kAutodiffStage;
    const float tall = autodiff ? px(7) : px(4);  // before it there is the forward graph alone
    list->AddRectFilled({x - px(0.75f), y - tall}, {x + px(0.75f), y + tall},
                        x <= at + 1 ? c.accent
                        : autodiff  ? c.text_dim
                                    : c.text_faint);
  }
  list->AddCircleFilled({at, y}, px(hot ? 7.f : 6.f), c.accent, 20);
  list->AddCircleFilled({at, y}, px(2.5f), c.window, 12);
}

bool draw_slider(const StageModel& stages, int32_t* step, float width) {
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const ImVec2 max{min.x + width, min.y + ImGui::GetFrameHeight()};
  ImGui::InvisibleButton("graph.stage.slider", {width, max.y - min.y});
  const bool hovered = ImGui::IsItemHovered(), active = ImGui::IsItemActive();
  const float inset = px(7), from = min.x + inset, wide = std::max(width - 2 * inset, 1.f);
  const int32_t pointed =
      step_at(stages, std::clamp((ImGui::GetIO().MousePos.x - from) / wide, 0.f, 1.f), px(4) / wide);
  const bool changed = active && pointed != *step;
  if (changed) *step = pointed;
  register_item("graph.stage.slider", "passes", fmt::format("{} / {}", *step, stages.last()));
  reached_by("graph.stage.next");
  draw_track(stages, *step, {from, min.y}, {max.x - inset, max.y}, hovered || active);
  if (hovered && !active) ImGui::SetTooltip("%s", stages.label(pointed).c_str());
  return changed;
}

}  // namespace

bool draw_stage_bar(const StageModel& stages, int32_t* step) {
  const int32_t before = *step;
  ImGui::BeginDisabled(*step == 0);
  if (button("graph.stage.previous", "\u25c0", ButtonKind::kPlain,
             "One rewrite back (" + key_label("graph.stage.previous") + "; Shift: a whole pass)"))
    *step = ImGui::GetIO().KeyShift ? stages.step_by_run(*step, -1) : *step - 1;
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(2));
  ImGui::BeginDisabled(*step == stages.last());
  if (button("graph.stage.next", "\u25b6", ButtonKind::kPlain,
             "One rewrite on (" + key_label("graph.stage.next") + "; Shift: a whole pass)"))
    *step = ImGui::GetIO().KeyShift ? stages.step_by_run(*step, 1) : *step + 1;
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(8));
  const float room = ImGui::GetContentRegionAvail().x;
  draw_slider(stages, step, std::clamp(room * 0.4f, px(80), px(420)));
  ImGui::SameLine(0, px(10));
  ImGui::AlignTextToFramePadding();
  const std::string label = stages.label(*step);
  const std::string& why = stages.steps[static_cast<size_t>(*step)].why;
  text(fit_text(theme().ui, theme().ui->FontSize, label, ImGui::GetContentRegionAvail().x), palette().text);
  register_item("graph.stage.label", label, label);
  tip(why.empty() ? label : label + "\n" + why);
  return *step != before;
}

bool stage_keys(const StageModel& stages, int32_t* step, bool listen) {
  if (!listen) return false;
  const int32_t before = *step;
  if (key_pressed("graph.stage.next")) *step = std::min(*step + 1, stages.last());
  if (key_pressed("graph.stage.previous")) *step = std::max(*step - 1, 0);
  if (key_pressed("graph.stage.next_pass")) *step = stages.step_by_run(*step, 1);
  if (key_pressed("graph.stage.previous_pass")) *step = stages.step_by_run(*step, -1);
  return *step != before;
}

}  // namespace gradloom
