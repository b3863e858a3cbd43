// Everything the user can do by name: menus, command palette and keys are this list.
#include <imgui.h>

#include <tuple>

#include "app/desktop/panels.h"
#include "app/desktop/ui.h"
#include "app/recipe_flags.h"

namespace gradloom {
namespace {

void add_file(Ui& ui, std::vector<Command>& list) {
  const auto has_model = [&ui] { return ui.state().has_model(); };
  const auto idle = [&ui] { return ui.state().has_model() && !ui.state().progress.running; };
  list.push_back(
      {"file.open", "Open\u2026", "File", false, nullptr, [&ui] { show_dialog(ui, DialogPurpose::open); }});
  list.push_back({"file.locate", "Locate the session's model\u2026", "File", false,
                  [&ui] { return ui.state().without_model.has_value(); },
                  [&ui] { show_dialog(ui, DialogPurpose::locate); }});
  list.push_back({"file.save", "Save recipe", "File", true, has_model, [&ui] {
                    const std::string path = ui.state().recipe_path;
                    if (path.empty()) return show_dialog(ui, DialogPurpose::save_recipe);
                    ui.app.save_recipe(path);
                  }});
  list.push_back({"file.save_as", "Save recipe as\u2026", "File", false, has_model,
                  [&ui] { show_dialog(ui, DialogPurpose::save_recipe); }});
  list.push_back({"file.export", "Recipe of the shown run\u2026", "File", false,
                  [&ui] { return ui.app.can_export(); },
                  [&ui] { show_dialog(ui, DialogPurpose::export_run); }});
  list.push_back({"file.report", "Report of the shown run\u2026", "File", false,
                  [&ui] { return ui.state().run != nullptr; },
                  [&ui] { show_dialog(ui, DialogPurpose::report_run); }});
  list.push_back({"file.session", "Session to record into\u2026", "File", true, has_model,
                  [&ui] { show_dialog(ui, DialogPurpose::session); }});
  list.push_back({"file.close", "Close model", "File", true, idle, [&ui] { ui.app.close_model(); }});
  list.push_back({"file.quit", "Quit", "File", true, nullptr, [&ui] { ui.host.ask_to_close(); }});
}

void add_exports(Ui& ui, std::vector<Command>& list) {
  const auto open = [&ui] { return ui.state().has_model() || ui.state().session != nullptr; };
  list.push_back({"file.export_view", "This view\u2026", "Export", false,
                  [&ui] { return !ui.view_in_front().empty(); },
                  [&ui] { ui.ask_where_to_export(ui.view_in_front()); }});
  static const std::vector<const ViewDef*> kNamed = views_by_name();
  static const std::vector<std::string> kIds = [] {
    std::vector<std::string> ids;
    for (const ViewDef* const view : kNamed) ids.push_back(std::string("export.") + view->name);
    return ids;
  }();
  for (std::size_t i = 0; i < kNamed.size(); ++i)
    list.push_back({kIds[i].c_str(), kNamed[i]->label, "Export", i == 0, open,
                    [&ui, name = std::string(kNamed[i]->name)] { ui.ask_where_to_export(name); }});
}

void add_marks(Ui& ui, std::vector<Command>& list) {
  const auto has_model = [&ui] { return ui.state().has_model(); };
  list.push_back({"note.add", "Note\u2026", "View", false, has_model, [&ui] { ui.note_here(); }});
  static constexpr std::pair<const char*, const char*> kGo[kBookmarks] = {
      {"bookmark.go.1", "Go to bookmark 1"}, {"bookmark.go.2", "Go to bookmark 2"},
      {"bookmark.go.3", "Go to bookmark 3"}, {"bookmark.go.4", "Go to bookmark 4"},
      {"bookmark.go.5", "Go to bookmark 5"}, {"bookmark.go.6", "Go to bookmark 6"},
      {"bookmark.go.7", "Go to bookmark 7"}, {"bookmark.go.8", "Go to bookmark 8"},
      {"bookmark.go.9", "Go to bookmark 9"}};
  static constexpr std::pair<const char*, const char*> kSet[kBookmarks] = {
      {"bookmark.set.1", "Set bookmark 1"}, {"bookmark.set.2", "Set bookmark 2"},
      {"bookmark.set.3", "Set bookmark 3"}, {"bookmark.set.4", "Set bookmark 4"},
      {"bookmark.set.5", "Set bookmark 5"}, {"bookmark.set.6", "Set bookmark 6"},
      {"bookmark.set.7", "Set bookmark 7"}, {"bookmark.set.8", "Set bookmark 8"},
      {"bookmark.set.9", "Set bookmark 9"}};
  for (int slot = 1; slot <= kBookmarks; ++slot) {
    const auto& [go, go_label] = kGo[slot - 1];
    const auto& [set, set_label] = kSet[slot - 1];
    list.push_back({go, go_label, nullptr, false, has_model, [&ui, slot] { ui.go_to_bookmark(slot); }});
    list.push_back({set, set_label, nullptr, false, has_model, [&ui, slot] { ui.set_bookmark(slot); }});
  }
}

// By their place in the list, which palette and menu show by name.
void add_layouts(Ui& ui, std::vector<Command>& list) {
  static constexpr const char* kIds[kLayoutKeys] = {"layout.1", "layout.2", "layout.3",
                                                    "layout.4", "layout.5", "layout.6",
                                                    "layout.7", "layout.8", "layout.9"};
  for (std::size_t i = 0; i < kLayoutKeys; ++i)
    list.push_back({kIds[i], nullptr, nullptr, false, nullptr, [&ui, i] { ui.use_layout(i); }});
}

void add_pane_room(Ui& ui, std::vector<Command>& list) {
  list.push_back({"pane.maximize", "Maximize the pane", "View", true, nullptr,
                  [&ui] {
                    const bool is = ui.panes.maximized() != nullptr;
                    ui.panes.maximize(is ? std::string() : ui.pane_with_keys());
                  },
                  [&ui] { return ui.panes.maximized() != nullptr; }});
  list.push_back({"pane.fold", "Fold the pane away", "View", false, nullptr,
                  [&ui] { ui.panes.fold_away(ui.pane_with_keys()); }});
  list.push_back({"pane.unfold", "Panes that were folded away", "View", false,
                  [&ui] { return ui.panes.any_away(); }, [&ui] { ui.panes.fold_none_away(); }});
}

void add_view(Ui& ui, std::vector<Command>& list) {
  const auto scale = [&ui](float to) {
    ui.host.set_scale(to);
    ui.app.edit_state().settings.scale = ui.host.scale();
  };
  list.push_back(
      {"app.palette", "Command palette\u2026", "View", false, nullptr, [&ui] { ui.command_palette.show(); }});
  list.push_back({"app.goto", "Go to node\u2026", "View", false,
                  [&ui] { return ui.shown_graph() != nullptr; }, [&ui] { ui.node_palette.show(); }});
  list.push_back({"app.find", "Find in the graph", "View", false,
                  [&ui] { return ui.shown_graph() != nullptr; },
                  [&ui] {
                    ui.panes.show("Graph");
                    ui.graph.focus_search = true;
                  }});
  list.push_back(
      {"graph.diff", "Mark what the last change did", "View", false, [&ui] { return ui.state().has_model(); },
       [&ui] {
         if (!ui.state().change)
           return ui.app.notice(NoticeKind::info, "Nothing has changed since the model was opened");
         ui.show_diff = !ui.show_diff;
         if (!ui.show_diff) return;
         ui.panes.show("Graph");
         const std::vector<std::string>& added = ui.state().change->added_nodes;
         if (!added.empty()) ui.go_to(added.front());
       },
       [&ui] { return ui.show_diff; }});
  list.push_back({"view.by_pass", "Pass by pass", "View", false,
                  [&ui] { return ui.state().graphs.after != nullptr; },
                  [&ui] {
                    ui.stage = ui.stage == GraphStage::passes ? GraphStage::after : GraphStage::passes;
                    ui.panes.show("Graph");
                  },
                  [&ui] { return ui.stage == GraphStage::passes; }});
  add_marks(ui, list);
  bool first = true;
  for (const Panel& panel : panels()) {
    if (panel.command == nullptr) continue;
    list.push_back({panel.command, panel.name, "View", first, nullptr,
                    [&ui, name = panel.name] { ui.panes.show(name); }});
    first = false;
  }
  static constexpr std::tuple<const char*, const char*, bool, int> kSteps[] = {
      {"pane.next", "Next pane", true, 1},
      {"pane.previous", "Previous pane", true, -1},
      {"pane.next_tab", "Next tab of the pane", false, 1},
      {"pane.previous_tab", "Previous tab of the pane", false, -1}};
  for (const auto& [id, label, pane, by] : kSteps)
    list.push_back({id, label, nullptr, false, nullptr,
                    [&ui, pane = pane, by = by] { pane ? ui.step_pane(by) : ui.step_tab(by); }});
  add_pane_room(ui, list);
  list.push_back({"view.reset", "Reset layout", "View", true, nullptr, [&ui] { ui.reset_layout(); }});
  list.push_back({"app.layouts", "Layouts\u2026", "View", false, nullptr,
                  [&ui] { ui.preferences.show(Preferences::Dialog::layouts); }});
  list.push_back({"app.theme", "Next theme", "View", true, nullptr, [&ui] {
                    ThemeKind& theme = ui.app.edit_state().settings.theme;
                    ui.host.set_theme(theme = next_theme(theme));
                  }});
  list.push_back(
      {"app.larger", "Larger", "View", false, nullptr, [&ui, scale] { scale(ui.host.scale() * 1.1f); }});
  list.push_back(
      {"app.smaller", "Smaller", "View", false, nullptr, [&ui, scale] { scale(ui.host.scale() / 1.1f); }});
  list.push_back({"app.normal", "Normal size", "View", false, nullptr, [scale] { scale(1); }});
  list.push_back({"app.fullscreen", "Full screen", "View", false, [&ui] { return !ui.host.headless(); },
                  [&ui] { ui.host.toggle_fullscreen(); }});
}

// Of the run that is shown.
void add_run_edits(Ui& ui, std::vector<Command>& list) {
  using What = RunEditor::What;
  const auto shown = [&ui]() -> const RunSummary* {
    return ui.state().run && ui.state().session ? &ui.state().run->record.summary : nullptr;
  };
  static constexpr std::tuple<const char*, const char*, What> kEdits[] = {
      {"runs.rename", "Rename the shown run", What::name},
      {"runs.tags", "Tags of the shown run\u2026", What::tags},
      {"runs.note", "Note on the shown run\u2026", What::note},
      {"runs.delete", "Delete the shown run\u2026", What::end}};
  bool first = true;
  for (const auto& [id, label, what] : kEdits)
    list.push_back({id, label, "Run", std::exchange(first, false), [shown] { return shown() != nullptr; },
                    [&ui, shown, what = what] { ui.edit_run(what, shown()->id); }});
  static constexpr std::tuple<const char*, const char*, void (*)(Ui&, std::int64_t)> kMarks[] = {
      {"runs.as_a", "Compare: the shown run as A", [](Ui& u, std::int64_t run) { u.choose_side(run, true); }},
      {"runs.as_b", "Compare: the shown run as B",
       [](Ui& u, std::int64_t run) { u.choose_side(run, false); }},
      {"runs.curve", "Keep the curve of the shown run", [](Ui& u, std::int64_t run) { u.toggle_curve(run); }},
      {"runs.pin", "Pin the shown run", [](Ui& u, std::int64_t run) { u.toggle_pin(run); }}};
  for (const auto& [id, label, mark] : kMarks)
    list.push_back({id, label, "Run", false, [shown] { return shown() != nullptr; },
                    [&ui, shown, mark = mark] { mark(ui, shown()->id); }});
}

void add_run(Ui& ui, std::vector<Command>& list) {
  const auto idle = [&ui] { return ui.state().has_model() && !ui.state().progress.running; };
  const auto pair = [&ui, idle] {
    return idle() && ui.state().run_a != 0 && ui.state().run_b != 0 && ui.state().run_a != ui.state().run_b;
  };
  list.push_back({"run.start", "Run training steps", "Run", false, idle, [&ui] {
                    ui.app.start_run();
                    if (ui.state().settings.follow_run) ui.panes.show("Curve");
                  }});
  list.push_back({"run.stop", "Stop", "Run", false, [&ui] { return ui.state().progress.running; },
                  [&ui] { ui.app.stop_run(); }});
  list.push_back({"run.follow", "Follow the running run", "Run", false, nullptr,
                  [&ui] {
                    bool& follow = ui.app.edit_state().settings.follow_run;
                    follow = !follow;
                  },
                  [&ui] { return ui.state().settings.follow_run; }});
  list.push_back({"run.compare", "A/B: passes off vs now", "Run", true, idle, [&ui] {
                    ui.app.start_compare(ui.app.compare_passes_command());
                    ui.panes.show("Compare");
                  }});
  list.push_back({"run.compare_runs", "Compare runs A and B, interleaved", "Run", false, pair, [&ui] {
                    ui.app.start_compare(ui.app.compare_command(false));
                    ui.panes.show("Compare");
                  }});
  list.push_back({"run.compare_stored", "Compare runs A and B as recorded", "Run", false, pair, [&ui] {
                    ui.app.start_compare(ui.app.compare_command(true));
                    ui.panes.show("Compare");
                  }});
  list.push_back({"run.advise", "Find what would make it faster", "Run", false, idle, [&ui] {
                    ui.app.start_advice(false);
                    ui.panes.show("Advice");
                  }});
  list.push_back({"run.faster", "What if the selection were twice as fast?", "Run", false,
                  [&ui] { return !ui.state().progress.running && !ui.selected_to_speed().empty(); },
                  [&ui] { ui.ask_twice_as_fast(ui.selected_to_speed()); }});
  list.push_back({"run.tune", "Search for the fastest passes, threads and batch", "Run", false,
                  [&ui] { return can_search(ui); },
                  [&ui] {
                    ui.app.start_tune(tune_command(ui));
                    ui.panes.show("Tune");
                  }});
  list.push_back({"run.verify", "Prove that the passes change nothing", "Run", false,
                  [&ui, idle] { return idle() && ui.state().plan != nullptr; },
                  [&ui] {
                    ui.app.start_verify();
                    ui.panes.show("Passes");
                  }});
  list.push_back(
      {"passes.all_on", "All passes on", "Run", true, idle, [&ui] { ui.app.set_all_passes(true); }});
  list.push_back(
      {"passes.all_off", "All passes off", "Run", false, idle, [&ui] { ui.app.set_all_passes(false); }});
  list.push_back(
      {"app.undo", "Undo", "Run", true, [&ui] { return ui.app.can_undo(); }, [&ui] { ui.app.undo(); }});
  list.push_back(
      {"app.redo", "Redo", "Run", false, [&ui] { return ui.app.can_redo(); }, [&ui] { ui.app.redo(); }});
  list.push_back({"app.copy", "Copy the selected node's name", nullptr, false,
                  [&ui] { return !ui.selected().empty(); },
                  [&ui] {
                    ImGui::SetClipboardText(ui.selected().c_str());
                    ui.app.notice(NoticeKind::info, "Copied " + ui.selected());
                  }});
  list.push_back({"run.copy_command", "Copy the command line", "Run", false, idle, [&ui] {
                    ImGui::SetClipboardText(ui.app.as_typed(ui.app.run_command()).c_str());
                    ui.app.notice(NoticeKind::info, "Copied");
                  }});
}

}  // namespace

std::vector<Command> make_commands(Ui& ui) {
  std::vector<Command> list;
  add_file(ui, list);
  add_exports(ui, list);
  add_view(ui, list);
  add_run(ui, list);
  add_run_edits(ui, list);
  add_layouts(ui, list);
  list.push_back({"app.settings", "Settings\u2026", "View", true, nullptr,
                  [&ui] { ui.preferences.show(Preferences::Dialog::settings); }});
  list.push_back({"app.change_keys", "Change keys\u2026", "Help", false, nullptr,
                  [&ui] { ui.preferences.show(Preferences::Dialog::keys); }});
  list.push_back({"app.keys", "Keys and gestures", "Help", false, nullptr, [&ui] { ui.key_sheet = true; }});
  list.push_back({"help.tour", "Tour of the window", "Help", false, nullptr, [&ui] { ui.start_tour(); }});
  list.push_back({"help.about", "About Gradloom", "Help", false, nullptr, [&ui] { ui.about = true; }});
  return list;
}

}  // namespace gradloom
