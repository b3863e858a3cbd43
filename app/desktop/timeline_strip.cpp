// The strip above the timeline: every step of the run as a bar as high as its time, cut where steps stand out by far.
// Timed steps have a foot, those before which an evaluation was made a diamond, slow ones a triangle at the top.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/desktop/timeline_lanes.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostColumns = 400;  // columns reported to the item registry
constexpr float kStripHeight = 40;         // points

struct Strip {
  ImVec2 min, max;
  float wide = 1;      // of a column
  double most_ns = 1;  // at the top
};

// What most steps take lies at half of the height, so that a little more can be seen, and much more is cut.
double top_of(const RunSteps& steps) {
  double most = 0, usual = 0;
  for (const RunStep& s : steps.steps) most = std::max(most, s.ns);
  for (const RunStepKind* kind : {&steps.untimed, &steps.timed})
    if (kind->steps > 0) usual = std::max({usual, kind->slow_ns(), 1.6 * kind->median_ns});
  return std::max(1.0, std::min(most * 1.05, usual * 1.15));
}

void follow_run(StepStripState& strip, const std::shared_ptr<const RunSnapshot>& run, std::size_t columns) {
  if (strip.source == run && strip.columns.size() == std::min(columns, strip.steps.steps.size())) return;
  if (strip.source != run) {
    strip.steps = run_steps(run->record);
    strip.top_ns = top_of(strip.steps);
    strip.outliers = outliers_text(strip.steps);
  }
  strip.source = run;
  strip.columns = step_columns(strip.steps, columns);
}

// Index in timed_steps of the one that is nearest to a step.
int nearest_timed(const std::vector<std::int64_t>& timed, std::int64_t step) {
  int best = -1;
  for (std::size_t i = 0; i < timed.size(); ++i)
    if (best < 0 || std::abs(timed[i] - step) < std::abs(timed[static_cast<std::size_t>(best)] - step))
      best = static_cast<int>(i);
  return best;
}

void draw_column(const Strip& strip, const RunSteps& steps, const StepColumn& column, float x, bool over) {
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const RunStep& s = steps.steps[column.longest];
  const float foot = px(3), base = strip.max.y - foot - px(1), room = base - strip.min.y;
  const float tall = std::max(px(1), static_cast<float>(std::min(1.0, s.ns / strip.most_ns)) * room);
  const float right = x + strip.wide - (strip.wide >= px(3) ? 1.f : 0.f);
  const ImU32 usual = mix(p.panel, column.timed ? p.accent : p.text_dim, column.timed ? 0.7f : 0.45f);
  const ImU32 fill = s.stands_out > 0 ? p.warn : s.stands_out < 0 ? p.good : usual;
  list->AddRectFilled({x, base - tall}, {right, base}, over ? mix(fill, p.text, 0.25f) : fill);
  if (column.timed) list->AddRectFilled({x, strip.max.y - foot}, {right, strip.max.y}, p.accent);
  const float middle = (x + right) / 2, size = px(3);
  if (s.stands_out > 0)
    list->AddTriangleFilled({middle - size, base - tall + 2 * size - px(1)},
                            {middle + size, base - tall + 2 * size - px(1)}, {middle, base - tall - px(1)},
                            p.bad);
  if (column.evaluation)
    list->AddQuadFilled({middle, base - 2 * size}, {middle + size, base - size}, {middle, base},
                        {middle - size, base - size}, p.optimizer);
}

// "timed slow evaluation"
std::string column_words(const RunSteps& steps, const StepColumn& column) {
  const RunStep& s = steps.steps[column.longest];
  std::string words;
  const auto add = [&](bool yes, const char* word) {
    if (yes) words += (words.empty() ? "" : " ") + std::string(word);
  };
  add(column.timed, "timed");
  add(s.stands_out > 0, "slow");
  add(s.stands_out < 0, "fast");
  add(column.evaluation, "evaluation");
  return words;
}

void column_tooltip(const RunSteps& steps, const StepColumn& column, bool has_loss) {
  const RunStep& s = steps.steps[column.longest];
  std::string tip = fmt::format("step {}{}\n{}, {:.2f}x the median of {}", s.step, s.timed ? ", timed" : "",
                                duration_text(s.ns), s.ratio, s.timed ? "timed steps" : "steps");
  if (has_loss) tip += fmt::format("\nloss {}", short_text(s.loss));
  for (const std::string& cause : known_causes(s)) tip += "\n" + cause;
  if (s.stands_out != 0) tip += s.stands_out > 0 ? "\nstands out: slow" : "\nstands out: fast";
  if (column.last > column.first)
    tip += fmt::format("\nthe longest of steps {} to {}", steps.steps[column.first].step,
                       steps.steps[column.last].step);
  ImGui::SetTooltip("%s", tip.c_str());
}

// A frame around the columns of the shown steps.
void draw_shown(const Strip& strip, const StepStripState& state, const TimelineModel& model) {
  if (model.steps.empty()) return;
  const std::int64_t first = model.steps.front().step, last = model.steps.back().step;
  float left = -1, right = -1;
  for (std::size_t c = 0; c < state.columns.size(); ++c) {
    const StepColumn& column = state.columns[c];
    if (state.steps.steps[column.last].step < first || state.steps.steps[column.first].step > last) continue;
    const float x = strip.min.x + strip.wide * static_cast<float>(c);
    if (left < 0) left = x;
    right = x + strip.wide;
  }
  if (left < 0) return;
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled({left - 1, strip.min.y}, {right, strip.max.y}, with_alpha(palette().accent, 0.14f));
  list->AddRect({left - px(1.5f), strip.min.y - px(1)}, {right + px(0.5f), strip.max.y + px(1)},
                palette().text, px(2), 0, px(1.5f));
  register_rect("timeline.strip.shown", {left, strip.min.y}, {right, strip.max.y}, "shown steps",
                shown_numbers_text(model));
}

void choose_at(Ui& ui, std::int64_t step) {
  const std::vector<std::int64_t> timed = timed_steps(ui.state().run->trace);
  const int at = nearest_timed(timed, step);
  if (at < 0) return ui.app.notice(NoticeKind::info, "No step of this run was timed kernel by kernel");
  TimelineState& state = ui.timeline;
  const auto count = static_cast<int>(timed.size());
  if (ImGui::GetIO().KeyShift)
    choose_steps(state, std::min(state.first_index, at), std::max(state.first_index, at), count);
  else
    choose_steps(state, at, at, count);
}

}  // namespace

void draw_step_strip(Ui& ui) {
  const RunSnapshot& run = *ui.state().run;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float label = px(kLaneNames), width = std::max(px(40), ImGui::GetContentRegionAvail().x - label);
  follow_run(ui.strip, ui.state().run, static_cast<std::size_t>(width / px(3)));
  const StepStripState& state = ui.strip;
  Strip strip{{at.x + label, at.y + px(3)}, {at.x + label + width, at.y + px(3 + kStripHeight)}};
  strip.wide = std::min(px(40), width / static_cast<float>(std::max<std::size_t>(state.columns.size(), 1)));
  strip.most_ns = state.top_ns;
  ImGui::InvisibleButton("steps", {label + width, px(kStripHeight + 8)});
  const bool hovered = ImGui::IsItemHovered();
  const std::string& said = state.outliers;
  register_rect("timeline.strip", strip.min, strip.max, said,
                plural_text(static_cast<std::int64_t>(state.steps.steps.size()), "step"));
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImFont* font = theme().small;
  list->AddText(font, font->FontSize, {at.x, (strip.min.y + strip.max.y - font->FontSize) / 2}, p.text_faint,
                "All steps");
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const int under =
      hovered && mouse.x >= strip.min.x ? static_cast<int>((mouse.x - strip.min.x) / strip.wide) : -1;
  if (hovered && under < 0) ImGui::SetTooltip("%s", said.c_str());
  for (std::size_t c = 0; c < state.columns.size(); ++c) {
    const float x = strip.min.x + strip.wide * static_cast<float>(c);
    draw_column(strip, state.steps, state.columns[c], x, static_cast<int>(c) == under);
    if (c < kMostColumns)
      register_rect(fmt::format("strip.{}", state.steps.steps[state.columns[c].longest].step),
                    {x, strip.min.y}, {x + strip.wide, strip.max.y}, "step",
                    column_words(state.steps, state.columns[c]));
  }
  draw_shown(strip, state, ui.timeline.model);
  if (under < 0 || under >= static_cast<int>(state.columns.size())) return;
  const StepColumn& column = state.columns[static_cast<std::size_t>(under)];
  column_tooltip(state.steps, column, run.record.summary.has_loss());
  if (ImGui::IsMouseClicked(0)) choose_at(ui, state.steps.steps[column.longest].step);
}

}  // namespace gradloom
