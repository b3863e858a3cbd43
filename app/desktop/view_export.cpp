// The window's menu Export: which view is meant, what of it was chosen, and where its file goes.
#include <algorithm>

#include "app/desktop/ui.h"
#include "app/graph_diff_report.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"
#include "viz/model/curves.h"

namespace gradloom {
namespace {

// Views that share a tab with another, behind a choice in it.
struct ViewOfChoice {
  const char *panel, *view;
  int chosen;
  int& (*choice)(Ui& ui);
};
int& tune_choice(Ui& ui) { return ui.tune.view; }
int& what_if_choice(Ui& ui) { return ui.what_if.tab; }
constexpr ViewOfChoice kChoicesOfViews[] = {{"Tune", "tune", 0, tune_choice},
                                            {"Tune", "waterfall", 1, tune_choice},
                                            {"What if", "prediction", 0, what_if_choice},
                                            {"What if", "scores", 1, what_if_choice}};

// What the view shows besides what its command says by itself.
std::vector<std::string> more_of(const Ui& ui, const std::string& name) {
  const AppState& s = ui.state();
  if (name == "trends") return s.trends.added;
  if (name == "icicle") return {"--tree", kTreeByNames[static_cast<std::size_t>(ui.icicle.by)]};
  if (const std::string on = processor_id(ui.roofline.on); name == "roofline" && !on.empty())
    return {"--on", on};
  if (name == "scaling") return cluster_words(ui.scaling.question);
  if (name == "timeline" && !ui.timeline.model.steps.empty())
    return {"--step", std::to_string(ui.timeline.model.steps.front().step)};
  if (name == "curves") {
    std::vector<std::string> words{"--curves", curve_kind(static_cast<CurveOf>(ui.curves.of)).name,
                                   "--smooth", number_text(kSmoothings[ui.curves.smoothing])};
    for (const OverlaidRun& run : s.curves.runs)
      words.insert(words.end(), {"--with", run.of.session + "#" + std::to_string(run.of.run)});
    return words;
  }
  return {};
}

// What is shown of an answer or a comparison, as the command says it. Empty: nothing is, or the view has a command that says the same
// whenever it is asked.
std::function<std::vector<std::string>()> said_of(const AppState& s, const std::string& name) {
  if (name == "advice" && s.advice.step_ns > 0) return [lines = s.advice.said] { return lines; };
  if (name == "prediction" && s.what_if.before_ns > 0)
    return [line = s.what_if.said] { return std::vector{line}; };
  if (name == "compare" && s.comparison)
    return [line = comparison_json(s.comparison->comparison)] { return std::vector{line}; };
  if (name == "difference" && s.difference.difference)
    return [difference = s.difference.difference] {
      return std::vector{Json{{"graph_diff", graph_difference_json(*difference)}}.dump()};
    };
  return {};
}

// Of the run that is open these views show another plan's than the run's.
bool shows_plan(const Ui& ui, const std::string& name) {
  if (name == "memory") return !ui.shows_recorded() || run_fits_plan(ui.state());
  if (name == "graph") return !run_fits_plan(ui.state());
  return name == "kernels" && !ui.shows_recorded();
}

}  // namespace

std::string Ui::view_in_front() {
  const auto of_panel = [&](const std::string& panel) -> std::string {
    if (panel == "Compare" && !state().difference.against.empty()) return "difference";
    for (const ViewOfChoice& of : kChoicesOfViews)
      if (panel == of.panel && of.choice(*this) == of.chosen) return of.view;
    for (const ViewDef* const view : views_by_name())
      if (panel == view->panel) return view->name;
    return {};
  };
  const auto& front = pane_focus.order;  // a tab that had the keys may lie behind another by now
  if (std::find(front.begin(), front.end(), pane_focus.has) != front.end())
    if (const std::string view = of_panel(pane_focus.has); !view.empty()) return view;
  for (const std::string& panel : front)
    if (const std::string view = of_panel(panel); !view.empty()) return view;
  return {};
}

Result<std::pair<const ViewDef*, ViewSource>> Ui::view_to_export(const std::string& name) const {
  ViewSource source = app.view_source(more_of(*this, name));
  const AppState& s = state();
  source.said = said_of(s, name);
  if (name == "compare") {
    source.other = s.run_a;
    source.run = s.run_b;
  }
  if (name == "graph") source.other = s.other_run;
  if (shows_plan(*this, name)) source.run = 0;
  if (name == "advice" && !source.said) return Error{Errc::usage, "no advice was asked for"};
  const ViewDef* const view = TRY(find_view(name, source));
  return std::pair(view, std::move(source));
}

void Ui::ask_where_to_export(const std::string& name) {
  if (view_in_front() != name) panes.show(view_named(name).panel);
  const bool of_graphs = !state().difference.against.empty();
  if (const auto sides = app.diff_sides(); name == "difference" && !of_graphs && !sides.empty())
    app.diff_against(sides.front());
  if (name == "compare" && of_graphs) app.diff_against("");
  const auto found = view_to_export(name);
  std::string of = state().has_model() ? model_label(state().recipe.model) : "session";
  const bool of_run = found && (found->first->of == ViewOf::run || found->first->of == ViewOf::run_beside);
  if (of_run && !found->second.said) of += ".run" + std::to_string(found->second.run);
  for (const ViewOfChoice& choice : kChoicesOfViews)
    if (name == choice.view) choice.choice(*this) = choice.chosen;
  show_path_dialog(*this,
                   {found ? "What the view shows (.csv, .json) or its picture (.svg, .png)"
                          : "The view's picture; it has no rows now: " + found.error().message,
                    "Export",
                    {".csv", ".json", ".svg", ".png"},
                    true,
                    of + "." + name + (found ? ".csv" : ".svg")},
                   state().settings.last_folder,
                   [this, name](const std::string& path) { export_view(name, path); });
}

void Ui::export_view(const std::string& name, const std::string& path) {
  const auto form = view_form(path);
  if (!form) return app.notice(NoticeKind::error, form.error().message);
  if (*form != ViewForm::picture) {
    const auto found = view_to_export(name);
    if (!found) return app.notice(NoticeKind::error, found.error().message);
    if (name == "difference" && !found->second.said)
      return app.notice(NoticeKind::error, "No difference of graphs is shown: choose one in Compare, Graph");
    return app.export_view(*found->first, found->second, path);
  }
  if (name == "difference" && state().difference.against.empty())
    return app.notice(NoticeKind::error, "No difference of graphs is shown: choose one in Compare, Graph");
  host.ask_picture(path, "pane." + std::string(view_named(name).panel), [this, path](const Status& made) {
    app.notice(made ? NoticeKind::good : NoticeKind::error,
               made ? "Written to " + path : made.error().message);
  });
}

}  // namespace gradloom
