// A second run below the shown one: the line that chooses it and lists the largest differences, and its lanes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/desktop/timeline_lanes.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostChanges = 4;
constexpr float kLowPane = 440;  // points

std::string change_text(double ns) { return format_change(ns, Unit::kNs); }

// REQUIRES shown_beside.
void make_lanes(Ui& ui) {
  BesideState& state = ui.beside;
  const RunBeside& beside = *ui.state().beside;
  if (state.source == ui.state().beside && state.made == ui.timeline.made && state.aligned == state.align)
    return;
  if (state.source != ui.state().beside) {
    state.lit = state.kept = -1;
    ui.timeline.view = {};  // both whole: the longer one has the width
  }
  state.source = ui.state().beside;
  state.made = ui.timeline.made;
  const auto [first, last] = steps_beside(ui.timeline.model, beside.run->trace);
  state.model = build_timeline(beside.run->trace, first, last);
  state.alignments = alignments(ui.timeline.model, state.model);
  state.align = std::clamp(state.align, 0, static_cast<int>(state.alignments.size()) - 1);
  state.aligned = state.align;
  align(state.model, ui.timeline.model, state.alignments[static_cast<std::size_t>(state.align)]);
  ++state.models;
}

// REQUIRES shown_beside.
void follow(Ui& ui) {
  make_lanes(ui);
  follow_idle(ui.beside.idle, ui.state().beside->run, ui.beside.model, ui.beside.models,
              ui.timeline.show_path);
}

// The timeline is of one run again.
void leave_beside(Ui& ui) {
  if (ui.beside.source == nullptr) return;
  ui.beside = {};
  ui.timeline.view = {};
}

void go_to_pair(Ui& ui, const TimelinePair& pair, std::int32_t index) {
  TimeRange to = bars_of_pair(ui.timeline.model, pair.of_a, index);
  const TimeRange theirs = bars_of_pair(ui.beside.model, pair.of_b, index);
  if (to.empty())
    to = theirs;
  else if (!theirs.empty())
    to = {std::min(to.from_ns, theirs.from_ns), std::max(to.to_ns, theirs.to_ns)};
  if (to.empty()) return;
  ui.timeline.view = {to.from_ns - to.span(), to.to_ns + to.span()};
  ui.beside.lit = ui.beside.kept = index;
}

// The largest differences; a click shows where they are. In a low pane only those for which the line has room.
void draw_changes(Ui& ui, const RunBeside& beside) {
  const bool low = ImGui::GetWindowHeight() < px(kLowPane);
  const std::vector<KernelPair>& pairs = beside.pair.pairs;
  for (std::size_t i = 0; i < std::min(kMostChanges, pairs.size()); ++i) {
    const KernelPair& pair = pairs[i];
    if (pair.change_ns() == 0) break;
    const std::string label = fit_name(theme().ui, theme().ui->FontSize, escaped(pair.name), px(170)) + " " +
                              change_text(pair.change_ns());
    const float line =
        ImGui::GetCursorStartPos().x + ImGui::GetWindowPos().x + ImGui::GetWindowContentRegionWidth();
    if (low && ImGui::GetItemRectMax().x + px(6) + button_width(label) > line) break;
    flow(button_width(label), px(6));
    if (button(
            fmt::format("timeline.change.{}", i), label, ButtonKind::kGhost,
            fmt::format("{}, {}\n{} here, {} in run {}", escaped(pair.name), pair.phase,
                        duration_text(pair.a_ns), duration_text(pair.b_ns), beside.run->record.summary.id)))
      go_to_pair(ui, beside.pair, static_cast<std::int32_t>(i));
  }
}

}  // namespace

const RunBeside* shown_beside(const AppState& s) {
  const bool of_shown = s.beside && s.run && s.beside->of_run == s.run->record.summary.id &&
                        s.beside->run->session_path == s.run->session_path;
  return of_shown ? s.beside.get() : nullptr;
}

const RunBeside* drawn_beside(const Ui& ui) {
  return ui.beside.source == ui.state().beside ? shown_beside(ui.state()) : nullptr;
}

void draw_beside_line(Ui& ui) {
  const AppState& s = ui.state();
  const RunBeside* beside = shown_beside(s);
  if (!beside) leave_beside(ui);
  if (!s.session) return;
  std::vector<std::string> names{"no other run"};
  std::vector<std::int64_t> ids{0};
  int chosen = 0;
  for (const RunSummary& run : s.session->runs) {
    if (run.id == s.run->record.summary.id || run.kernels_per_step == 0) continue;
    if (beside && beside->run->record.summary.id == run.id) chosen = static_cast<int>(ids.size());
    names.push_back(run_label(run));
    ids.push_back(run.id);
  }
  if (ids.size() == 1) return;
  flow(px(220), px(14));
  ImGui::AlignTextToFramePadding();
  text("Below it", palette().text_dim);
  ImGui::SameLine(0, px(8));
  if (combo("timeline.beside", &chosen, names, 150))
    return ui.app.show_beside(ids[static_cast<std::size_t>(chosen)]);  // what was below is gone
  if (!beside) return;
  follow(ui);
  BesideState& state = ui.beside;
  if (state.model.steps.empty()) {
    flow(px(200), px(10));
    return muted("no step of it is timed kernel by kernel");
  }
  std::vector<std::string> labels;
  for (const std::string& to : state.alignments) labels.push_back((to == "step" ? "Step" : to) + " starts");
  flow(px(150), px(10));
  combo("timeline.align", &state.align, labels, 150);
  tip("What begins at the same place in both");
  draw_changes(ui, *beside);
}

void draw_beside_head(Ui& ui, const TimelineView& view, float y) {
  const RunBeside& beside = *ui.state().beside;
  BesideState& state = ui.beside;
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImFont* font = theme().small;
  std::string label = fmt::format("{}, {}: {} in the step{} ({})", run_label(beside.run->record.summary),
                                  shown_steps_text(state.model), duration_text(state.model.step_ns),
                                  state.model.steps.size() > 1 ? "s" : "",
                                  change_text(state.model.step_ns - ui.timeline.model.step_ns));
  if (const std::string idle = idle_words(state.idle, state.model, ui.timeline.filter); !idle.empty())
    label += "; " + idle;
  y += px(3);
  list->AddLine({view.min.x, y}, {view.max.x, y}, palette().border, px(1));
  const std::string shown = fit_text(font, font->FontSize, label, view.max.x - view.min.x - px(8));
  list->AddText(font, font->FontSize, {view.min.x + px(4), y + px(3)}, palette().text_dim, shown.c_str());
  register_rect("timeline.beside.head", {view.min.x, y}, {view.max.x, y + font->FontSize}, "beside", label);
}

std::string pair_text(const Ui& ui, bool of_b, const TimelineBar& bar) {
  const RunBeside* beside = shown_beside(ui.state());
  if (!beside) return {};
  const std::int32_t index = pair_of(of_b ? beside->pair.of_b : beside->pair.of_a, bar);
  if (index < 0) return {};
  const KernelPair& pair = beside->pair.pairs[static_cast<std::size_t>(index)];
  return fmt::format("\nwhat computes this: {} a step here, {} in run {} ({})", duration_text(pair.a_ns),
                     duration_text(pair.b_ns), beside->run->record.summary.id, change_text(pair.change_ns()));
}

void light_pair(Ui& ui, const TimelineBar* a, const TimelineBar* b) {
  const RunBeside* beside = shown_beside(ui.state());
  if (!beside) return;
  const TimelineBar* bar = a != nullptr ? a : b;
  const std::vector<std::int32_t>& of = a != nullptr ? beside->pair.of_a : beside->pair.of_b;
  const bool known = bar != nullptr && bar->kernel >= 0 && static_cast<std::size_t>(bar->kernel) < of.size();
  ui.beside.lit = known ? of[static_cast<std::size_t>(bar->kernel)] : ui.beside.kept;
}

}  // namespace gradloom
