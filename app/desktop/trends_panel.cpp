// The trends tab: the time per step from run to run of the open session, and of other sessions that are added to it.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <filesystem>

#include "app/desktop/ui.h"
#include "app/recipe_flags.h"
#include "app/trends.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::size_t kFewestRuns = 10;  // of a series whose order can tell a change from chance

std::string label_of(const Trend& trend) {
  return fmt::format("{} on {}, {}", escaped(trend.model), escaped(trend.hardware),
                     plural_text(static_cast<std::int64_t>(trend.runs.size()), "run"));
}

// The one that was shown before, else that of the open model, else the one with the newest run.
int series_of(const TrendsState& before, const AppState& s, const std::vector<Trend>& trends) {
  const auto shown = static_cast<std::size_t>(before.series);
  for (std::size_t i = 0; before.of && shown < before.of->size() && i < trends.size(); ++i) {
    const Trend& old = (*before.of)[shown];
    if (trends[i].model_hash == old.model_hash && trends[i].hardware == old.hardware)
      return static_cast<int>(i);
  }
  for (std::size_t i = 0; s.model && i < trends.size(); ++i)
    if (trends[i].model_hash == s.model->model.content_hash) return static_cast<int>(i);
  return 0;
}

void add_session(Ui& ui) {
  show_path_dialog(ui, {"A session with other runs of the model", "Add", {".db"}, false, ""},
                   ui.state().session_path,
                   [&ui](const std::string& path) { ui.app.add_trend_session(path); });
}

// Which series, and of which sessions.
void draw_sources(Ui& ui) {
  const AppState& s = ui.state();
  const TrendsView& view = s.trends;
  if (view.trends && !view.trends->empty()) {
    std::vector<std::string> labels;
    for (const Trend& trend : *view.trends) labels.push_back(label_of(trend));
    const float room = ImGui::GetContentRegionAvail().x - button_width("Add a session\u2026") - px(8);
    combo("trends.series", &ui.trends.series, labels, std::min(420.f, room / theme().scale));
    ImGui::SameLine(0, px(8));
  }
  std::string command = "gradloom trends";
  if (s.session) command += " " + shell_quoted(s.session->path);
  for (const std::string& path : view.added) command += " " + shell_quoted(path);
  if (button("trends.add", "Add a session\u2026", ButtonKind::kPlain, command)) add_session(ui);
  const std::vector<std::string> added = view.added;
  for (std::size_t i = 0; i < added.size(); ++i) {
    const std::string name = escaped(std::filesystem::path(added[i]).filename().string());
    flow(chip_width(name), px(6));
    if (chip("trends.added." + std::to_string(i + 1), name, palette().accent, added[i]))
      ui.app.remove_trend_session(added[i]);
  }
}

}  // namespace

void draw_trends_panel(Ui& ui) {
  ui.app.read_trends();
  const AppState& s = ui.state();
  const TrendsView& view = s.trends;
  draw_sources(ui);
  spacer(2);
  if (!view.problem.empty()) return empty_state("The runs cannot be read", view.problem);
  if (!view.trends && (s.session || !view.added.empty()))
    return empty_state("Reading\u2026", ui.app.running_job());
  if (view.trends && ui.trends.of != view.trends) {
    ui.trends.series = series_of(ui.trends, s, *view.trends);
    ui.trends.of = view.trends;
    ui.trends.view.of = nullptr;
  }
  const auto series = static_cast<std::size_t>(ui.trends.series);
  if (!view.trends || series >= view.trends->size() || (*view.trends)[series].runs.size() < 2)
    return empty_state("No trend yet",
                       "It takes two finished runs of one model on one processor: run it again, or add the "
                       "sessions of other days. From ten runs on, changes of level are told.");
  const Trend& trend = (*view.trends)[series];
  if (trend.runs.size() < kFewestRuns && trend.changes.empty())
    muted("Changes of level are told from ten runs on: of fewer, any order may be chance.");
  const std::int64_t shown = s.run ? s.run->record.summary.id : 0;
  const int clicked = draw_trend_view(trend, s.session_path, shown, ui.trends.view, ui.asks);
  if (clicked >= 0) {
    const TrendRun run = trend.runs[static_cast<std::size_t>(clicked)];
    ui.app.show_run_of(run.session, run.run.id);
  }
  if (!ui.asks.go_to_node.empty()) ui.go_to(std::exchange(ui.asks.go_to_node, {}));  // stays in the tab
}

}  // namespace gradloom
