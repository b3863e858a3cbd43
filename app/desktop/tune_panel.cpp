// The tune tab: a search for the fastest configuration, what it found as a front and a table, what is done with a row of it;
// and what each pass is worth.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "app/desktop/run_events.h"
#include "app/desktop/ui.h"
#include "app/train_report.h"
#include "app/tune_space.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

std::int64_t seconds_of(const TuneForm& form) {
  const auto seconds = parse_number<std::int64_t>(form.seconds);
  return seconds && *seconds >= 1 && *seconds <= 604800 ? *seconds : 0;
}

std::string over_of(const TuneForm& form) {
  std::vector<std::string> over;
  for (const TuneAxisName& axis : tune_axes())
    if (form.over.count(axis.name)) over.emplace_back(axis.name);
  return joined(over, ",");
}

bool searching(const AppState& s, RunKind kind) { return s.progress.running && s.progress.kind == kind; }

void draw_axes(Ui& ui) {
  TuneForm& form = ui.tune;
  ImGui::AlignTextToFramePadding();
  muted("Over");
  const float box = ImGui::GetFrameHeight() + px(14);
  for (const auto& [axis, _, help] : tune_axes()) {
    flow(box + ImGui::CalcTextSize(axis).x, px(10));
    bool on = form.over.count(axis) != 0;
    if (checkbox(std::string("tune.over.") + axis, axis, &on)) {
      if (on)
        form.over.insert(axis);
      else
        form.over.erase(axis);
    }
    tip(help);
  }
}

// Begins a search, or goes on with one that was paused.
void draw_start(Ui& ui) {
  const AppState& s = ui.state();
  TuneForm& form = ui.tune;
  const bool idle = s.has_model() && !s.progress.running;
  const std::int64_t left = std::lround(s.tune.seconds_left);
  const bool paused = left > 0 && ui.app.tunes_recipe();
  if (paused) {
    ImGui::BeginDisabled(!idle);
    const std::string command = ui.app.tune_command(left, over_of(form));
    if (button("tune.resume", fmt::format("Resume, {} s left", left), ButtonKind::kPrimary,
               "Goes on from the trials that the session holds\n" + command))
      ui.app.start_tune(command);
    ImGui::EndDisabled();
    ImGui::SameLine(0, px(6));
  }
  ImGui::BeginDisabled(!can_search(ui));
  const bool more = s.tune.table.measured() > 0 && ui.app.tunes_recipe();
  if (button("tune.start", more ? "Search on" : "Search", paused ? ButtonKind::kPlain : ButtonKind::kPrimary,
             tune_command(ui)))
    ui.app.start_tune(tune_command(ui));
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(8));
  ImGui::AlignTextToFramePadding();
  muted("for");
  ImGui::SameLine(0, px(6));
  committed_text(ui, "tune.seconds", "60", &form.seconds, px(60));
  ImGui::SameLine(0, px(6));
  ImGui::AlignTextToFramePadding();
  text("s", seconds_of(form) == 0 ? palette().bad : palette().text_dim, theme().small);
  if (seconds_of(form) == 0) tip("A number of seconds from 1 to 604800");
  const char* const worth = "What each pass is worth";
  flow(button_width(worth), px(10));
  ImGui::BeginDisabled(!idle || seconds_of(form) == 0);
  const std::string command = ui.app.worth_command(std::max<std::int64_t>(1, seconds_of(form)));
  if (button("tune.worth", worth, ButtonKind::kPlain, command)) {
    ui.app.start_tune(command);
    form.view = 1;
  }
  ImGui::EndDisabled();
}

// The recipe's: every configuration keeps within it.
void draw_budget(Ui& ui) {
  const RecipeSetting& setting = *find_setting("memory_budget");
  const char* const label = "Memory budget";
  flow(ImGui::CalcTextSize(label).x + px(100), px(14));
  ImGui::AlignTextToFramePadding();
  muted(label);
  tip("Every configuration keeps within it: what does not fit is computed again");
  ImGui::SameLine(0, px(6));
  std::string shown = setting_text(ui.state().recipe, setting);
  if (committed_text(ui, "tune.budget", "none", &shown, px(90))) commit_setting(ui, setting, shown);
}

void draw_search_form(Ui& ui) {
  draw_start(ui);
  draw_axes(ui);
  draw_budget(ui);
}

void draw_search_progress(Ui& ui) {
  const RunProgress& r = ui.state().progress;
  const bool tune = r.kind == RunKind::tune;
  const char* const stop = r.stopping ? "Kill" : tune ? "Pause" : "Stop";
  if (button("tune.pause", stop, r.stopping ? ButtonKind::kDanger : ButtonKind::kPlain,
             r.stopping ? "End the process at once"
                        : "Ends this measurement; every trial is kept, and the search goes on from them"))
    ui.app.stop_run();
  ImGui::SameLine(0, px(10));
  ImGui::BeginGroup();
  std::string said = r.what.empty() ? "planning what there is to try\u2026" : escaped(r.what);
  if (const double left = seconds_left(r, monotonic_ns()); left >= 0)
    said = remaining_text(left * 1e9) + " left   " + said;
  said = fit_text(theme().small, theme().small->FontSize, said, ImGui::GetContentRegionAvail().x);
  progress("tune.progress", static_cast<float>(r.fraction), said);
  ImGui::EndGroup();
  ui.host.animate();
}

std::string short_passes(const Recipe& job) {
  const std::size_t n = job.passes.size();
  return n == 0                                  ? "no passes"
         : n == default_pipeline().passes.size() ? "default passes"
                                                 : fmt::format("{} passes", n);
}

// "batch=8, f32, default passes: 14 trials"
std::string label_of(const KeptSearch& kept) {
  std::string dims;
  for (const auto& [name, size] : kept.job.dims) dims += fmt::format("{}={}, ", name, size);
  return fmt::format("{}{}, {}, {}: {} trials", dims, kept.job.precision, kept.job.device,
                     short_passes(kept.job), kept.search.table.measured());
}

// Which of the session's searches is shown, where there are several; and that it is of another recipe.
void draw_which(Ui& ui) {
  const AppState& s = ui.state();
  std::vector<std::string> labels, keys;
  int shown = -1;
  if (s.session)
    for (const KeptSearch& kept : s.session->searches) {
      if (kept.job.model != s.recipe.model || kept.search.table.measured() == 0) continue;
      if (kept.key == s.tune.key) shown = static_cast<int>(keys.size());
      labels.push_back(label_of(kept));
      keys.push_back(kept.key);
    }
  const bool several = keys.size() > 1;
  if (several && combo("tune.search", &shown, labels,
                       std::min(px(420), ImGui::GetContentRegionAvail().x) / theme().scale))
    ui.app.show_search(keys[static_cast<std::size_t>(shown)]);
  if (!s.tune.job || ui.app.tunes_recipe()) return;
  const std::string said = "of other settings than the recipe has now";
  if (several) flow(ImGui::CalcTextSize(said.c_str()).x, px(10));
  ImGui::AlignTextToFramePadding();
  text(said, palette().warn, theme().small);
  register_item("tune.other", said, "other");
  tip("Applying the job's row takes the recipe back to it");
}

void draw_verdict(Ui& ui) {
  const TuneTable& table = ui.state().tune.table;
  const TuneTableRow* const best = table.best();
  const std::string said = best == nullptr ? "Nothing faster yet"
                                           : fmt::format("{:.2f}\u00d7 [{:.2f}, {:.2f}]", best->ratio.value,
                                                         best->ratio.low, best->ratio.high);
  title(said, best == nullptr ? palette().text : palette().good);
  register_item("tune.best", said, best == nullptr ? "" : best->changes);
  if (best != nullptr) tip(escaped(best->label));
  ImGui::SameLine(0, px(14));
  ImGui::AlignTextToFramePadding();
  const auto rows = static_cast<std::int64_t>(table.rows().size());
  muted(
      fmt::format("{} of {} configurations measured", table.measured(), std::max<std::int64_t>(0, rows - 1)));
}

// What is done with the selected row.
void draw_row_actions(Ui& ui) {
  const AppState& s = ui.state();
  TuneViewState& front = ui.tune.front;
  const TuneTableRow* row = front.selected ? s.tune.table.find(*front.selected) : nullptr;
  if (row == nullptr) row = s.tune.table.best();
  const bool any = row != nullptr && s.tune.job.has_value();
  const std::string changes = any ? row->changes : std::string();
  const bool pinned = front.pinned.count(changes) != 0;
  ImGui::BeginDisabled(!any);
  if (button("tune.apply", "Apply", ButtonKind::kPrimary,
             "This becomes the recipe that stands; undo takes it back"))
    ui.app.apply_tried(changes);
  ImGui::SameLine(0, px(6));
  ImGui::BeginDisabled(s.progress.running || !any || row->is_job());
  if (button("tune.compare", "Compare", ButtonKind::kPlain, any ? ui.app.tried_command(changes) : "")) {
    ui.app.start_compare(ui.app.tried_command(changes));
    ui.panes.show("Compare");
  }
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(6));
  if (button("tune.export", "Export recipe\u2026", ButtonKind::kPlain,
             "This configuration as a recipe file")) {
    FileDialog::Options options{"Recipe of this configuration",
                                "Export",
                                {".json"},
                                true,
                                model_label(s.recipe.model) + ".tuned.json"};
    show_path_dialog(ui, options, "",
                     [&ui, changes](const std::string& path) { ui.app.save_tried(changes, path); });
  }
  ImGui::SameLine(0, px(6));
  if (button("tune.pin", pinned ? "Unpin" : "Pin", ButtonKind::kGhost, "Pinned rows stay at the top")) {
    ui.app.pin_tried(changes, !pinned);
    ui.tune.front.table.scroll_to = -2;  // to where the row goes
  }
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(10));
  ImGui::AlignTextToFramePadding();
  const std::string name = !any ? "Select a row" : row->is_job() ? "the job" : escaped(row->label);
  text(fit_text(theme().ui, theme().ui->FontSize, name, ImGui::GetContentRegionAvail().x),
       palette().text_dim);
  register_item("tune.selected", name, changes);
}

void draw_front(Ui& ui) {
  const AppState& s = ui.state();
  TuneViewState& front = ui.tune.front;
  if (s.tune.table.job() == nullptr) {
    const bool runs = searching(s, RunKind::tune);
    return empty_state(
        runs ? "The job's kernels are timed first" : "Nothing was searched yet",
        runs ? "Then each configuration is measured against the job."
             : "Search predicts every configuration from the kernels' times, measures those that "
               "promise most against the job, and keeps each measurement in the session.");
  }
  front.pinned = ui.app.pinned_tried();
  const ImVec2 space = ImGui::GetContentRegionAvail();
  draw_tune_front(s.tune.table, front, {space.x, std::max(px(120), space.y * 0.46f)});
  draw_row_actions(ui);
  draw_tune_rows(s.tune.table, front, std::max(px(110), ImGui::GetContentRegionAvail().y));
  if (front.pin) ui.app.pin_tried(*front.pin, front.pinned.count(*front.pin) == 0);
  front.pin.reset();
}

void draw_worth(Ui& ui) {
  const AppState& s = ui.state();
  WaterfallViewState& state = ui.tune.waterfall;
  if (!s.tune.worth.all.measured() || s.tune.worth.step_ns <= 0) {
    const bool runs = s.progress.running && s.progress.kind == RunKind::worth;
    return empty_state(
        runs ? "Passes are measured" : "The passes were not measured yet",
        runs ? "The job without each pass, then each pass alone against none."
             : "\u201cWhat each pass is worth\u201d measures the job without each pass, and each pass "
               "alone: from no passes to all of them, in time and in memory.");
  }
  draw_waterfall(s.tune.worth, state);
  if (state.open_pass.empty()) return;
  ui.panes.show("Passes");
  ui.passes.open = std::exchange(state.open_pass, {});
  ui.passes.scroll_to = ui.passes.open;
}

}  // namespace

bool can_search(const Ui& ui) {
  const AppState& s = ui.state();
  return s.has_model() && !s.progress.running && seconds_of(ui.tune) > 0 && !ui.tune.over.empty();
}

std::string tune_command(const Ui& ui) {
  return ui.app.tune_command(std::max<std::int64_t>(1, seconds_of(ui.tune)), over_of(ui.tune));
}

void draw_tune_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model()) return empty_state("Nothing to tune", "Open a model first.");
  if (searching(s, RunKind::tune) || searching(s, RunKind::worth))
    draw_search_progress(ui);
  else
    draw_search_form(ui);
  segmented("tune.view", &ui.tune.view, {"Front", "Waterfall"});
  if (s.tune.table.measured() > 0) {
    ImGui::SameLine(0, px(12));
    draw_verdict(ui);
  }
  draw_which(ui);
  if (ui.tune.view == 0)
    draw_front(ui);
  else
    draw_worth(ui);
}

}  // namespace gradloom
