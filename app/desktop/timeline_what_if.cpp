// The timeline's predicted step: what the last question of what-if was answered, beside what was measured.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cfloat>

#include "app/desktop/timeline_lanes.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// Null: there is none of the shown run.
const WhatIfView* shown_prediction(const Ui& ui) {
  const AppState& s = ui.state();
  const bool shown = s.run && s.what_if.before_ns > 0 && s.what_if.run == s.run->record.summary.id &&
                     !ui.timeline.model.steps.empty();
  return shown ? &s.what_if : nullptr;
}

}  // namespace

double prediction_end_ns(const Ui& ui) {
  const WhatIfView* const w = shown_prediction(ui);
  return w == nullptr ? 0 : ui.timeline.model.steps.front().start_ns + std::max(w->after_ns, w->high_ns);
}

void draw_prediction(const Ui& ui, const TimelineView& view, float y,
                     std::vector<std::pair<float, std::string>>& names) {
  const WhatIfView* const w = shown_prediction(ui);
  if (w == nullptr) return;
  const float height = px(kLaneHeight);
  const double scale = (view.max.x - view.min.x) / view.shown.span();
  const float x = view.x(ui.timeline.model.steps.front().start_ns);
  y += px(4);
  const float end = draw_step_phases(*w, true, {x, y}, height, scale);
  draw_range_line(*w, x, y + height / 2, view.max.x, scale);
  ImDrawList* list = ImGui::GetWindowDrawList();
  const std::string said = fmt::format("{}: {}, {:.2f}\u00d7 [{:.2f}, {:.2f}]", w->question,
                                       duration_text(w->after_ns), w->ratio, w->low, w->high);
  const float from = std::max(end, x + static_cast<float>(w->high_ns * scale)) + px(10);
  ImFont* const font = theme().small;
  // Beside its bar where there is room, else in it.
  const bool beside = view.max.x - from > px(220);
  const float text_x = beside ? from : std::max(x, view.min.x) + px(6);
  const float room = (beside ? view.max.x : std::min(end, view.max.x)) - text_x - px(4);
  const std::string fits = fit_text(font, font->FontSize, said, room);
  const float middle = y + (height - font->FontSize) / 2;
  if (!beside)  // a ground of its own over the phases' colours
    list->AddRectFilled({text_x - px(3), middle - px(1)},
                        {text_x + font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, fits.c_str()).x + px(3),
                         middle + font->FontSize + px(1)},
                        (palette().panel & ~IM_COL32_A_MASK) | IM_COL32(0, 0, 0, 215), px(3));
  list->AddText(font, font->FontSize, {text_x, middle}, beside ? palette().text_dim : palette().text,
                fits.c_str());
  register_rect("timeline.prediction", {std::max(x, view.min.x), y}, {std::min(end, view.max.x), y + height},
                said, duration_text(w->after_ns));
  names.emplace_back(middle, "What if");
}

}  // namespace gradloom
