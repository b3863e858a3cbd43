// Everything the user can do by name: menus, command palette and keys are this list.
#include <imgui.h>

#include "app/desktop/ui.h"
#include "app/recipe_flags.h"

namespace gradloom {
namespace {

void add_file(Ui& ui, std::vector<Command>& list) {
  const auto has_model = [&ui] { return ui.state().has_model(); };
  const auto idle = [&ui] { return ui.state().has_model() && !ui.state().progress.running; };
  list.push_back(
      {"file.open", "Open\u2026", "File", false, nullptr, [&ui] { show_dialog(ui, DialogPurpose::open); }});
  list.push_back({"file.export", "Export recipe\u2026", "File", false, has_model,
                  [&ui] { show_dialog(ui, DialogPurpose::export_recipe); }});
  list.push_back({"file.session", "Session to record into\u2026", "File", false, has_model,
                  [&ui] { show_dialog(ui, DialogPurpose::session); }});
  list.push_back({"file.close", "Close model", "File", true, idle, [&ui] { ui.app.close_model(); }});
  list.push_back({"file.quit", "Quit", "File", true, nullptr, [&ui] { ui.host.close(); }});
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
  list.push_back({"graph.diff", "Select what the last change added", "View", false,
                  [&ui] { return ui.state().change && ui.graph.model; },
                  [&ui] {
                    const std::vector<std::string>& added = ui.state().change->added_nodes;
                    if (added.empty())
                      return ui.app.notice(NoticeKind::info, "The last change added no nodes");
                    ui.panes.show("Graph");
                    ui.stage = GraphStage::after;
                    ui.go_to(added.front());
                    for (const std::string& name : added)
                      if (const std::int32_t box = ui.graph.model->find(name);
                          box >= 0 && name != added.front())
                        ui.graph.selection.push_back(box);
                  }});
  const std::pair<const char*, const char*> tabs[] = {
      {"view.graph", "Graph"},       {"view.kernels", "Kernels"}, {"view.memory", "Memory"},
      {"view.timeline", "Timeline"}, {"view.compare", "Compare"}, {"view.loss", "Curve"},
      {"view.runs", "Runs"}};
  bool first = true;
  for (const auto& [id, tab] : tabs) {
    list.push_back({id, tab, "View", first, nullptr, [&ui, tab = tab] { ui.panes.show(tab); }});
    first = false;
  }
  list.push_back({"view.reset", "Reset layout", "View", true, nullptr, [&ui] { ui.reset_layout(); }});
  list.push_back({"app.theme", "Dark / light", "View", false, nullptr, [&ui] {
                    bool& dark = ui.app.edit_state().settings.dark;
                    dark = !dark;
                    ui.host.set_theme(dark);
                  }});
  list.push_back(
      {"app.larger", "Larger", "View", false, nullptr, [&ui, scale] { scale(ui.host.scale() * 1.1f); }});
  list.push_back(
      {"app.smaller", "Smaller", "View", false, nullptr, [&ui, scale] { scale(ui.host.scale() / 1.1f); }});
  list.push_back({"app.normal", "Normal size", "View", false, nullptr, [scale] { scale(1); }});
  list.push_back({"app.fullscreen", "Full screen", "View", false, [&ui] { return !ui.host.headless(); },
                  [&ui] { ui.host.toggle_fullscreen(); }});
}

void add_run(Ui& ui, std::vector<Command>& list) {
  const auto idle = [&ui] { return ui.state().has_model() && !ui.state().progress.running; };
  const auto pair = [&ui, idle] {
    return idle() && ui.state().run_a != 0 && ui.state().run_b != 0 && ui.state().run_a != ui.state().run_b;
  };
  list.push_back({"run.start", "Run training steps", "Run", false, idle, [&ui] {
                    ui.app.start_run();
                    ui.panes.show("Curve");
                  }});
  list.push_back({"run.stop", "Stop", "Run", false, [&ui] { return ui.state().progress.running; },
                  [&ui] { ui.app.stop_run(); }});
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
                    ImGui::SetClipboardText(ui.app.run_command().c_str());
                    ui.app.notice(NoticeKind::info, "Copied");
                  }});
}

}  // namespace

std::vector<Command> make_commands(Ui& ui) {
  std::vector<Command> list;
  add_file(ui, list);
  add_view(ui, list);
  add_run(ui, list);
  list.push_back({"app.keys", "Keys and gestures", "Help", false, nullptr, [&ui] { ui.key_sheet = true; }});
  list.push_back({"help.about", "About Gradloom", "Help", false, nullptr, [&ui] { ui.about = true; }});
  return list;
}

}  // namespace gradloom
