// The curve tab: the run that goes on or is shown, and those that are chosen beside it.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// Of the run that goes on, as its lines tell it. What they do not tell has the session, once it was read again.
RunCurves live_curves(const AppState& s) {
  const RunProgress& p = s.progress;
  RunCurves curves;
  const bool recorded = s.run && p.run_id > 0 && s.run->record.summary.id == p.run_id;
  if (recorded) curves = s.run->curves;
  curves.run = p.run_id;
  curves.name = p.run_id > 0 ? fmt::format("run {}", p.run_id) : "run";
  curves.steps = p.steps;
  curves.loss = p.losses;
  curves.step_ns = p.step_ns;
  curves.held_out_steps = p.held_out_steps;
  curves.held_out = p.held_out;
  curves.grad_norm = p.grad_norms;
  curves.lr.resize(p.steps.size(), std::nan(""));
  if (!recorded) curves.samples = samples_per_step(s.recipe);
  return curves;
}

// Whether the run that goes on, or has ended and is not shown, has the first curve.
bool draws_live(const AppState& s) {
  const RunProgress& p = s.progress;
  return (s.settings.follow_run || !s.run) && p.kind == RunKind::train && !p.steps.empty() &&
         (p.running || (p.run_id > 0 && (!s.run || s.run->record.summary.id != p.run_id)));
}

// The run that goes on or is shown; none: there is none.
std::optional<CurveRun> own_run(const AppState& s) {
  if (draws_live(s)) return CurveRun{s.session_path, s.progress.run_id};
  if (s.run) return CurveRun{s.session_path, s.run->record.summary.id};
  return std::nullopt;
}

// Made again when a line has come.
std::shared_ptr<const RunCurves> follow_live(Ui& ui) {
  const AppState& s = ui.state();
  const RunProgress& p = s.progress;
  CurvesShown& shown = ui.curves_shown;
  CurvesShown::LiveOf of{s.run, p.started_ns, p.run_id, p.steps.size(), p.held_out_steps.size()};
  if (!shown.live || shown.live_of != of) {
    shown.live = std::make_shared<const RunCurves>(live_curves(s));
    shown.live_of = std::move(of);
  }
  return shown.live;
}

struct FoundCurves {
  std::vector<KeptCurves::Run> all;
  const RunCurves* own = nullptr;  // of the run that goes on or is shown, the first of all
  bool live = false;
};

FoundCurves find_curves(Ui& ui) {
  const AppState& s = ui.state();
  FoundCurves found;
  found.live = draws_live(s);
  if (found.live)
    found.all.push_back({follow_live(ui), 0});
  else if (s.run && !s.run->curves.steps.empty())
    found.all.push_back({std::shared_ptr<const RunCurves>(s.run, &s.run->curves), 0});
  if (!found.all.empty()) found.own = found.all.front().curves.get();
  const std::optional<CurveRun> own = own_run(s);
  for (const OverlaidRun& overlaid : s.curves.runs)
    if (overlaid.curves && overlaid.of != own)
      found.all.push_back({overlaid.curves, static_cast<std::uint32_t>(curve_place(s, overlaid.of).place)});
  return found;
}

void run_choice(Ui& ui, const CurveRun& of, const RunSummary& run) {
  bool on = ui.state().curves.has(of);
  const bool own = of.session == ui.state().session_path;
  const std::string id = fmt::format("curve.run.{}{}", own ? "" : of.session + "#", run.id);
  std::string label = run_label(run);
  if (run.has_loss() && run.steps > 0) label += fmt::format("   loss {:.4g}", run.last_loss);
  if (run.pinned) label += "   pinned";
  if (checkbox(id, label, &on)) ui.app.overlay_curve(of, on);
}

constexpr float kSummaryRoom = 300;

std::vector<CurveRun> pinned_runs(const AppState& s) {
  std::vector<CurveRun> runs;
  for (const RunSummary& run : s.session->runs)
    if (run.pinned) runs.push_back({s.session_path, run.id});
  return runs;
}

void draw_choices(Ui& ui) {
  const AppState& s = ui.state();
  ImGui::SetNextWindowSizeConstraints({px(180), 0}, {px(420), ImGui::GetIO().DisplaySize.y * 0.6f});
  if (!ImGui::BeginPopup("curve-runs")) return;
  if (s.session) {
    const std::vector<CurveRun> pinned = pinned_runs(s);
    ImGui::BeginDisabled(pinned.empty());
    if (button("curve.runs.pinned", "Pinned", ButtonKind::kGhost,
               "Those that are pinned in the list of runs"))
      ui.app.overlay_curves(pinned);
    ImGui::EndDisabled();
    ImGui::SameLine(0, px(2));
    ImGui::BeginDisabled(s.run_a == 0 || s.run_b == 0);
    if (button("curve.runs.sides", "A and B", ButtonKind::kGhost, "Those that are compared"))
      ui.app.overlay_curves({{s.session_path, s.run_a}, {s.session_path, s.run_b}});
    ImGui::EndDisabled();
    ImGui::SameLine(0, px(2));
    if (button("curve.runs.none", "None", ButtonKind::kGhost)) ui.app.overlay_curves({});
    for (const RunSummary& run : s.session->runs) run_choice(ui, {s.session_path, run.id}, run);
  }
  for (const auto& session : s.curves.sessions) {
    heading(escaped(std::filesystem::path(session->path).filename().string()));
    for (const RunSummary& run : session->runs) run_choice(ui, {session->path, run.id}, run);
  }
  spacer(2);
  if (button("curve.session", "Another session\u2026", ButtonKind::kPlain)) {
    show_path_dialog(ui, {"A session with other runs", "Add", {".db"}, false, ""}, s.session_path,
                     [&ui](const std::string& path) { ui.app.add_curve_session(path); });
    ImGui::CloseCurrentPopup();
  }
  ImGui::EndPopup();
}

// What is drawn of which runs; each part goes to the next line where this one has no room for it.
void draw_controls(Ui& ui, std::size_t beside) {
  CurveViewState& view = ui.curves;
  std::vector<std::string> kinds, weights;
  for (const CurveKind& kind : kCurveKinds) kinds.emplace_back(kind.title);
  for (const double weight : kSmoothings)
    weights.push_back(weight == 0 ? "Not smoothed" : fmt::format("Smoothed {}", weight));
  combo("curve.of", &view.of, kinds, 128);
  flow(px(146), px(6));
  combo("curve.smoothing", &view.smoothing, weights, 146);
  tip("An exponential mean with this weight of what was before, as TensorBoard smooths; what was measured is "
      "faint behind it");
  const std::string runs = beside == 0 ? "Runs\u2026" : fmt::format("Runs +{}\u2026", beside);
  flow(button_width(runs), px(6));
  if (button("curve.runs", runs, ButtonKind::kPlain, "Curves of other runs in the same plot"))
    ImGui::OpenPopup("curve-runs");
  draw_choices(ui);
  flow(px(44), px(10));
  ImGui::SetCursorPosY(ImGui::GetCursorPosY() + px(3));  // boxes stand on the line's middle
  checkbox("curve.log", "Log", &view.log);
  ImGui::SameLine(0, px(10));
  if (ImGui::GetContentRegionAvail().x < px(70)) ImGui::NewLine();
  checkbox("run.follow", "Follow", &ui.app.edit_state().settings.follow_run);
  tip("Curve, kernels and timeline show the run that goes on, and it stays shown when it ends. Off: the run that "
      "was chosen stays");
}

// "run 3: 20 steps of 2.1 ms, loss 5.1 -> 4.2"
std::string summary_of(const AppState& s, const RunCurves& run, bool live) {
  if (!live) return run.name + ": " + steps_text(s.run->record.summary);
  return fmt::format("{}: {}, loss {:.4g} \u2192 {:.4g}", run.name,
                     plural_text(std::ssize(run.steps), "step"), run.loss.front(), run.loss.back());
}

}  // namespace

std::string steps_text(const RunSummary& run) {
  std::string said = plural_text(run.steps, "step");
  if (run.median_step_ns > 0) said += " of " + duration_text(static_cast<double>(run.median_step_ns));
  if (run.has_loss() && run.steps > 0)
    said += fmt::format(", loss {:.4g} \u2192 {:.4g}", run.first_loss, run.last_loss);
  return said;
}

CurvePlace curve_place(const AppState& s, const CurveRun& run) {
  const std::optional<CurveRun> own = own_run(s);
  if (own == run) return {0, true};
  int place = own ? 1 : 0;
  for (const OverlaidRun& overlaid : s.curves.runs) {
    if (overlaid.of == run) return {place, false};
    if (overlaid.of != own) ++place;
  }
  return {};
}

void draw_curve_panel(Ui& ui) {
  const AppState& s = ui.state();
  const FoundCurves found = find_curves(ui);
  if (found.all.empty() && s.curves.runs.empty())
    return empty_state("No run yet", "Run a few steps (F5): loss and step times appear here as they happen.");
  draw_controls(ui, found.all.size() - (found.own != nullptr ? 1 : 0));
  CurveViewState& view = ui.curves;
  const auto of = static_cast<CurveOf>(view.of);
  std::vector<const RunCurves*> runs;
  for (const KeptCurves::Run& run : found.all) runs.push_back(run.curves.get());
  const bool by_samples = know_samples(runs);
  const std::vector<Curve>& curves =
      ui.curves_shown.kept.of(found.all, of, kSmoothings[view.smoothing], by_samples);
  if (found.own != nullptr) {
    flow(px(kSummaryRoom), px(12));  // beside the boxes where they have a line of their own
    ImGui::AlignTextToFramePadding();
    const std::string summary = summary_of(s, *found.own, found.live);
    text(fit_text(theme().small, theme().small->FontSize, summary, ImGui::GetContentRegionAvail().x),
         palette().text_faint, theme().small);
    register_item("curve.summary", summary, summary);
  }
  const char* const unit = of != CurveOf::kThroughput ? "" : by_samples ? "samples/s" : "steps/s";
  const double planned = found.live ? static_cast<double>(s.progress.planned_steps) : 0;
  draw_curves(curves, of, unit, planned, view, std::max(px(70), ImGui::GetContentRegionAvail().y));
}

}  // namespace gradloom
