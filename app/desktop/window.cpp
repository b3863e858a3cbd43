#include "app/desktop/window.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "app/build_info.h"
#include "app/desktop/panels.h"
#include "app/desktop/run_events.h"
#include "app/desktop/suggest.h"
#include "engine/base/text.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "sessions/find_model.h"

namespace gradloom {
namespace {

constexpr float kLowWindow = 300;  // points; a window that is less tall has no line of state
constexpr int kQuietFrameMs = 40;  // headless: leave the cores to the run that is timed

std::string layout_key(std::size_t index) {
  return index < kLayoutKeys ? key_label("layout." + std::to_string(index + 1)) : std::string();
}

}  // namespace

void Ui::reset_layout() { panes = default_panes(); }

void Ui::do_command(const std::string& id) {
  for (const Command& action : commands)
    if (id == action.id && (!action.enabled || action.enabled())) return action.run();
}

std::string Ui::selected() const {
  const std::int32_t box = graph.selected();
  return graph.model && box >= 0 ? graph.model->boxes[static_cast<std::size_t>(box)].name : std::string();
}

void Ui::go_to_stage(GraphStage at, const std::vector<std::string>& nodes) {
  const auto& snapshot = state().graphs.at(at);
  if (!snapshot) return;
  stage = at;
  graph_set_model(graph, {snapshot, &snapshot->model});
  graph_go_to(graph, nodes);
}

void Ui::go_to(const std::string& node) {
  if (node.empty()) return;
  for (GraphStage at : {stage, GraphStage::after, GraphStage::before, GraphStage::model}) {
    const auto& snapshot = state().graphs.at(at);
    if (snapshot && snapshot->model.find(node) >= 0) return go_to_stage(at, {node});
  }
  app.notice(NoticeKind::info, "'" + node + "' is in none of the graphs any more");
}

bool Ui::select_first(const std::function<std::vector<std::string>(const GraphModel&)>& nodes_of) {
  for (const GraphStage at : {stage, GraphStage::after, GraphStage::before, GraphStage::model}) {
    const auto& snapshot = state().graphs.at(at);
    if (!snapshot) continue;
    const std::vector<std::string> names = nodes_of(snapshot->model);
    if (names.empty()) continue;
    go_to_stage(at, names);
    return true;
  }
  return false;
}

void Ui::select_row(const ComparedRow& row, bool show) {
  const bool any = select_first([&](const GraphModel& model) {
    std::vector<std::string> names;
    for (const std::int32_t box : boxes_of_row(model, row))
      names.push_back(model.boxes[static_cast<std::size_t>(box)].name);
    return names;
  });
  if (any && show) return panes.show("Graph");
  if (any) return show_node_panel();
  app.notice(NoticeKind::info, "No node of the open model is in this row");
}

void Ui::show_node_panel() {
  if (!panes.in_sight("Node")) return;
  const Pane* const pane = panes.find("Node");
  for (const std::vector<std::string>& tabs : pane_focus.strips) {
    const bool has = std::find(tabs.begin(), tabs.end(), "Node") != tabs.end();
    if (has && pane != nullptr && tabs.size() > pane->tabs.size()) return;
  }
  panes.show("Node");
}

Window::Window(Controller& controller, Host& host, std::string settings_file, std::string views_folder)
    : app_(controller),
      host_(host),
      settings_file_(std::move(settings_file)),
      views_folder_(std::move(views_folder)),
      saved_(controller.state().settings),
      ui_(controller, host) {
  ui_.panes = panes_from(saved_.layout);
  ui_.commands = make_commands(ui_);
  set_motion(saved_.motion);
  for (const std::string& problem : use_key_changes(saved_.keys))
    controller.notice(NoticeKind::warning, problem);
}

Window::~Window() {
  keep_view();
  if (settings_file_.empty()) return;
  app_.edit_state().settings.layout = ui_.panes.to_text();
  const Status saved = save_settings(app_.state().settings, settings_file_);
  if (!saved) std::fprintf(stderr, "gradloom: %s\n", saved.error().message.c_str());
}

void Window::keep_view() {
  const std::string path = view_file(views_folder_, view_);
  if (path.empty()) return;
  app_.forget_kept("view");
  const Status saved = save_view(view_of(ui_), path);
  if (!saved) std::fprintf(stderr, "gradloom: %s\n", saved.error().message.c_str());
}

void Window::keep_view_now_and_then() {
  constexpr auto kEvery = std::chrono::seconds(20);
  const std::string path = view_file(views_folder_, view_);
  const auto now = std::chrono::steady_clock::now();
  if (path.empty() || now - view_kept_at_ < kEvery) return;
  view_kept_at_ = now;
  ViewState view = view_of(ui_);
  if (view == kept_view_) return;
  kept_view_ = std::move(view);
  app_.keep("view", [view = kept_view_, path] { return save_view(view, path); });
}

// Before anything of another model or session is drawn: what the views hold is still of the one before.
void Window::follow_view() {
  const std::string now = view_key(app_.state());
  if (now == view_) return;
  keep_view();
  view_ = now;
  const auto kept = load_view(view_file(views_folder_, view_));
  view_restored_ = kept.has_value();
  if (kept) return show_view(ui_, *kept);
  ui_.place_after.reset();
  ui_.query_after.clear();
}

bool Window::may_close() { return ui_.may_close(); }

bool Window::busy() const { return app_.busy() || ui_.graph.builder.busy() || ui_.note_after; }

void Window::take_input() {
  app_.tick();
  follow_view();
  for (const std::string& path : host_.take_dropped()) app_.open(path);
  AppState& s = app_.edit_state();
  for (const Notice& n : s.notices) {
    const ToastKind kinds[] = {ToastKind::kInfo, ToastKind::kGood, ToastKind::kWarning, ToastKind::kError};
    toast(kinds[static_cast<int>(n.kind)], n.text);
  }
  if (!s.notices.empty()) host_.animate();
  s.notices.clear();
  host_.set_quiet(s.progress.running);
  // Of another program's run without a model the timeline has the most to say.
  const RunSummary* const run = s.run ? &s.run->record.summary : nullptr;
  if (run != nullptr && !run->has_recipe() && !s.has_model() && loop_shown_ != run->id) {
    if (!view_restored_) ui_.panes.show("Timeline");
    loop_shown_ = run->id;
  }
  if (s.progress.running && host_.headless())
    std::this_thread::sleep_for(std::chrono::milliseconds(kQuietFrameMs));
  const std::string title =
      s.has_model() ? (s.unsaved() ? "\u2022 " : "") + model_label(s.recipe.model) + " \u2013 Gradloom"
                    : "Gradloom";
  if (title != title_) host_.set_title(title_ = title);
}

// What the views asked for while the last frame was drawn.
void Window::answer_asks() {
  Actions asks = std::exchange(ui_.asks, {});
  ui_.outline = asks.hover_node.empty() ? ui_.graph.outline : asks.hover_node;
  ui_.graph.outline = ui_.outline;
  if (!asks.go_to_node.empty()) {
    ui_.panes.show("Graph");
    ui_.go_to(asks.go_to_node);
  }
  if (asks.select_row) ui_.select_row(*asks.select_row, asks.show_graph);
  if (!asks.go_to_kernel.empty() || !asks.filter_kernels.empty()) ui_.panes.show("Kernels");
  if (!asks.go_to_kernel.empty()) ui_.kernel_table.wanted = asks.go_to_kernel;
  if (!asks.filter_kernels.empty())
    kernel_table_set_query(ui_.kernels, ui_.kernel_table, asks.filter_kernels);
  if (!asks.show_operator.empty()) {
    app_.find_operators();
    ui_.operator_shown = asks.show_operator;
    ui_.open_operator = true;
  }
  if (!asks.note_node.empty()) ui_.note_on_node(asks.note_node);
  if (asks.show_node_panel) ui_.show_node_panel();
  if (!asks.copied.empty()) app_.notice(NoticeKind::info, "Copied");
  if (asks.times_offer) ui_.take_times_offer();
  if (!asks.twice_as_fast.empty()) ui_.ask_twice_as_fast(asks.twice_as_fast);
  if (asks.times_against != 0) app_.time_against(asks.times_against);
  if (asks.no_path) app_.notice(NoticeKind::info, "Neither of the two nodes leads to the other");
  if (asks.verify) app_.start_verify();
  if (asks.pipeline) app_.set_passes(*asks.pipeline);
  if (asks.rules == Actions::RulesAsk::choose)
    show_path_dialog(ui_, {"A file of rules", "Choose", {}, false, ""}, app_.state().rules_file,
                     [this](const std::string& path) { app_.read_rules(path); });
  if (asks.rules == Actions::RulesAsk::read_again) app_.read_rules(app_.state().rules_file);
  if (asks.rules == Actions::RulesAsk::remove) app_.remove_rules();
}

void Window::handle_keys() {
  if (tour_keys(ui_)) return;
  const bool own = ui_.command_palette.open || ui_.node_palette.open || !ui_.preferences.awaiting.empty();
  if (!own && focus_keys()) return;
  if (ui_.dialog.is_open() || ui_.command_palette.open || ui_.node_palette.open || ui_.note_editor.open ||
      ui_.run_editor.what != RunEditor::What::nothing || ui_.preferences.open != Preferences::Dialog::none ||
      ui_.closing)
    return;
  const bool typing = ImGui::GetIO().WantTextInput;  // Ctrl+C, Ctrl+Z then belong to the text
  for (const Command& command : ui_.commands) {
    const std::string_view action = command.id;
    if (typing && (action == "app.copy" || action == "app.undo" || action == "app.redo")) continue;
    if (key_pressed(action) && (!command.enabled || command.enabled())) command.run();
  }
}

// Menus, lists and context menus close by Escape, the innermost first; dialogs do so themselves. At the end
// of the frame: what a popup covers has seen it open, and does not take the key for itself.
void Window::close_popup_by_escape() {
  if (!ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false)) return;
  const auto& open = ImGui::GetCurrentContext()->OpenPopupStack;
  if (open.empty() || open.back().Window == nullptr) return;
  if ((open.back().Window->Flags & ImGuiWindowFlags_Modal) != 0) return;
  ImGui::ClosePopupToLevel(open.Size - 1, true);
}

void Window::draw_layout_menu() {
  const bool open = ImGui::BeginMenu("Layout");
  register_item("menu.layouts", "Layout", open ? "open" : "closed");
  if (!open) return;
  const std::vector<NamedLayout> all = all_layouts(app_.state().settings);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == built_in_layouts().size()) ImGui::Separator();
    ImGui::PushID(static_cast<int>(i));
    if (ImGui::MenuItem(escaped(all[i].name).c_str(), layout_key(i).c_str())) ui_.use_layout(i);
    ImGui::PopID();
    register_item("menu.layout." + all[i].name, all[i].name, "enabled");
  }
  ImGui::EndMenu();
}

void Window::draw_menus() {
  if (!ImGui::BeginMenuBar()) return;
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {px(10), px(7)});
  for (const char* menu : {"File", "View", "Run", "Export", "Help"}) {
    const bool open = ImGui::BeginMenu(menu);
    register_item(std::string("menu.") + menu, menu, open ? "open" : "closed");
    if (!open) focus_stop(std::string("menu.") + menu);
    if (!open) continue;
    for (const Command& action : ui_.commands) {
      if (action.menu == nullptr || std::strcmp(action.menu, menu) != 0) continue;
      if (action.separator) ImGui::Separator();
      const bool enabled = !action.enabled || action.enabled();
      const bool checked = action.checked && action.checked();
      if (ImGui::MenuItem(action.label, key_label(action.id).c_str(), checked, enabled)) action.run();
      register_item(std::string("menu.") + action.id, action.label, enabled ? "enabled" : "disabled");
      focus_stop(std::string("menu.") + action.id);
    }
    if (std::strcmp(menu, "File") == 0 && !app_.state().settings.recents.empty() &&
        ImGui::BeginMenu("Recent")) {
      const std::vector<std::string> recents = app_.state().settings.recents;
      for (const std::string& path : recents)
        if (ImGui::MenuItem(path.c_str())) app_.open(path);
      ImGui::EndMenu();
    }
    if (std::strcmp(menu, "View") == 0) draw_layout_menu();
    ImGui::EndMenu();
  }
  ImGui::PopStyleVar();
  const AppState& s = app_.state();
  if (s.has_model()) {
    const bool can = app_.can_export();
    const std::string label =
        can ? fmt::format("Recipe of run {}\u2026", s.run->record.summary.id) : "Recipe of a run\u2026";
    const float width = px(136), at = ImGui::GetContentRegionMax().x - width;
    if (at > ImGui::GetCursorPosX()) {  // else the menu has it
      ImGui::SetCursorPosX(at);         // of the window, not of the bar, whose group begins further right
      ImGui::BeginDisabled(!can);
      if (button("export", label, ButtonKind::kGhost,
                 "Its recipe as a file that replays anywhere and says what must come out (" +
                     key_label("file.export") + ")",
                 width))
        ui_.do_command("file.export");
      ImGui::EndDisabled();
    }
  }
  ImGui::EndMenuBar();
}

void Window::draw_status() {
  const Palette& p = palette();
  const AppState& s = app_.state();
  const ImVec2 size = ImGui::GetIO().DisplaySize;
  std::vector<StatusSegment> segments;
  if (s.has_model()) {
    segments.push_back({"status.model", model_label(s.recipe.model), 0, 1});
    if (s.plan && s.plan_error.empty()) {
      const PlanTotals& t = s.plan->totals;
      segments.push_back({"status.kernels", fmt::format("{} kernels per step", t.kernels), 0, 5});
      segments.push_back({"status.peak",
                          fmt::format("peak {}, at least {}", bytes_text(static_cast<double>(t.peak_bytes)),
                                      bytes_text(static_cast<double>(t.lower_bound_bytes))),
                          0, 6});
    } else if (!s.plan_error.empty()) {
      segments.push_back({"status.error",
                          "\u26a0 no plan: " + fit_text(theme().small, theme().small->FontSize, s.plan_error,
                                                        std::min(px(520), size.x * 0.4f)),
                          p.bad});
    }
    segments.push_back({"status.device", s.recipe.device + " " + s.recipe.precision, 0, 4});
    if (s.run) {
      const RunSummary& r = s.run->record.summary;
      segments.push_back(
          {"status.run",
           fmt::format(
               "run {}: {} per step", r.id,
               r.median_step_ns > 0 ? duration_text(static_cast<double>(r.median_step_ns)) : "not measured"),
           0, 3});
    }
  } else if (s.session) {
    const std::string name = std::filesystem::path(s.session->path).filename().string();
    segments.push_back({"status.model", "no model"});
    segments.push_back({"status.session", "session " + escaped(name)});
  } else {
    segments.push_back({"status.model", "nothing open"});
  }
  if (s.remote)
    segments.push_back({"status.remote",
                        s.remote->problem.empty() ? s.remote->address : s.remote->address + ", not connected",
                        s.remote->problem.empty() ? p.accent : p.bad});
  if (!s.background.empty())
    segments.push_back({"status.background", fmt::format("{} in the background", s.background.size()), 0, 2});
  if (!ui_.asks.selection_sum.empty())
    segments.push_back({"status.selection", ui_.asks.selection_sum, p.text});
  const RunProgress& r = s.progress;
  StatusSegment last{"status.busy", "Ready", p.text_faint};
  if (r.running)
    last = {"status.busy",
            r.kind == RunKind::train ? fmt::format("running, step {} of {}", r.step, r.planned_steps)
                                     : std::string(words_of(r.kind).doing) + "\u2026",
            p.accent};
  else if (s.remote && s.remote->awaited)
    last = {"status.busy", "waiting for a session at the far end\u2026", p.accent};
  else if (s.remote && !s.remote->arrived && s.remote->problem.empty())
    last = {"status.busy", fmt::format("reading the far end, {}\u2026", percent_text(s.remote->fraction)),
            p.accent};
  else if (busy())
    last = {"status.busy", app_.running_job().empty() ? "laying out\u2026" : app_.running_job() + "\u2026",
            p.accent};
  segments.push_back(last);
  ImGui::PushClipRect({0, 0}, size, false);  // the bar reaches the window's edges
  draw_status_bar({0, size.y - px(26)}, size, segments);
  ImGui::PopClipRect();
}

// What the palette lists: commands, then what has names of its own.
void Window::draw_command_palette() {
  std::vector<PaletteEntry> entries;
  std::vector<std::function<void()>> runs;
  for (const Command& command : ui_.commands) {
    if (command.label == nullptr || (command.enabled && !command.enabled())) continue;
    // In their menu they have the names of the views that they write.
    const bool writes = command.menu != nullptr && std::string_view(command.menu) == "Export";
    entries.push_back({std::string(writes ? "Export: " : "") + command.label, key_label(command.id)});
    runs.push_back(command.run);
  }
  const std::vector<NamedLayout> layouts = all_layouts(app_.state().settings);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    entries.push_back({"Layout: " + escaped(layouts[i].name), layout_key(i)});
    runs.push_back([this, i] { ui_.use_layout(i); });
  }
  for (const ThemeName& theme : kThemes) {
    entries.push_back({std::string("Theme: ") + theme.label, ""});
    runs.push_back([this, kind = theme.kind] { host_.set_theme(app_.edit_state().settings.theme = kind); });
  }
  for (const PassView& pass : app_.state().passes.passes) {
    if (!app_.state().has_model() || pass.def->by_precision) continue;
    entries.push_back({std::string(pass.enabled ? "Switch off " : "Switch on ") + pass.def->name, "pass"});
    runs.push_back(
        [this, name = std::string(pass.def->name), on = !pass.enabled] { app_.set_pass(name, on); });
  }
  const int chosen = draw_palette("commands", "Type a command", entries, ui_.command_palette);
  if (chosen >= 0) runs[static_cast<std::size_t>(chosen)]();
}

void Window::draw_palettes() {
  if (ui_.command_palette.open) draw_command_palette();
  if (ui_.node_palette.open) {
    std::vector<PaletteEntry> entries;
    const GraphSnapshot* graph = ui_.shown_graph();
    if (graph != nullptr)
      for (const GraphBox& box : graph->model.boxes) entries.push_back({box.name, box.op});
    const int chosen = draw_palette("nodes", "Go to node", entries, ui_.node_palette);
    if (chosen >= 0) {
      ui_.panes.show("Graph");
      ui_.go_to(entries[static_cast<std::size_t>(chosen)].label);
    }
  }
  draw_key_sheet(&ui_.key_sheet);
  draw_preferences(ui_);
  draw_about();
  draw_operator();
}

void Window::draw_operator() {
  if (std::exchange(ui_.open_operator, false)) ImGui::OpenPopup("operator");
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({display.x / 2, display.y * 0.4f}, ImGuiCond_Appearing, {0.5f, 0.5f});
  ImGui::SetNextWindowSize({std::min(px(620), display.x * 0.8f), 0});
  if (!ImGui::BeginPopup("operator")) return;
  const AppState& s = app_.state();
  if (s.operators)
    draw_operator_page(operator_page(ui_.operator_shown, *s.operators));
  else
    text("Reading\u2026", palette().text_dim);
  ImGui::EndPopup();
}

void Window::draw_about() {
  if (ui_.about && !ImGui::IsPopupOpen("About")) ImGui::OpenPopup("About");
  if (!begin_dialog("About", &ui_.about)) return;
  text("Gradloom", palette().text, theme().title);
  ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + ImGui::GetIO().DisplaySize.x - px(60));
  text("Profiler and optimization workbench for neural-network training graphs", palette().text_dim);
  ImGui::PopTextWrapPos();
  spacer(4);
  const BuildInfo& build = build_info();
  const auto line = [](const char* id, const char* name, const std::string& value) {
    key_value(name, value, 110);
    register_item(std::string("about.") + id, name, value);
  };
  line("version", "Version", build.version);
  if (!build.commit.empty()) line("commit", "Commit", build.commit + " of " + build.commit_date);
  line("build", "Built with",
       fmt::format("{}, kernels for {} ({} runs here)", build.compiler, build.isas, build.isa));
  std::vector<std::string> libraries;
  for (const auto& [name, version] : build.libraries) libraries.push_back(name + " " + version);
  line("libraries", "Libraries", joined(libraries));
  line("license", "License", build.license);
  key_value("Operators", std::to_string(all_ops().size()), 110);
  key_value("Passes", std::to_string(all_passes().size()), 110);
  key_value("Settings", settings_file_.empty() ? "not kept" : settings_file_, 110);
  spacer(6);
  if (button("about.close", "Close", ButtonKind::kPrimary) ||
      ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false)) {
    ui_.about = false;
    ImGui::CloseCurrentPopup();
  }
  ImGui::EndPopup();
}

// Settings that changed are written in the background; the layout when the window closes.
void Window::remember() {
  set_motion(app_.state().settings.motion);
  keep_view_now_and_then();
  if (settings_file_.empty() || app_.state().settings == saved_) return;
  saved_ = app_.state().settings;
  app_.save(saved_, settings_file_);
}

void Window::draw() {
  take_input();
  handle_keys();
  answer_asks();
  ui_.follow_run_shown();
  ui_.share_marks();
  const ImVec2 size = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(size);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, 0);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 0);
  ImGui::Begin("main", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoBringToFrontOnFocus |
                   ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_MenuBar);
  ImGui::PopStyleVar(2);
  draw_menus();
  const float top = std::min(ImGui::GetFrameHeight() + px(8), size.y);
  const bool low = size.y < px(kLowWindow);
  const float bottom = std::max(top, size.y - (low ? 0 : px(26)) - px(6));
  const AppState& s = app_.state();
  if (!s.has_model() && !s.session) {
    ImGui::SetCursorScreenPos({0, top});
    ImGui::BeginChild("welcome", {size.x, std::max(1.f, bottom - top)});
    draw_welcome(ui_);
    ImGui::EndChild();
  } else {
    draw_panes(
        ui_.panes, {px(8), top}, {std::max(px(8), size.x - px(8)), bottom},
        [&](std::string_view tab) {
          if (const Panel* panel = find_panel(tab)) panel->draw(ui_);
        },
        least_room_of, &ui_.pane_focus);
  }
  if (!low) draw_status();
  draw_palettes();
  draw_dialogs(ui_);
  draw_note_editor(ui_);
  draw_run_editor(ui_);
  draw_closing(ui_);
  draw_tour(ui_);
  close_popup_by_escape();
  ImGui::End();
  draw_toasts({size.x / 2, px(2)});
  remember();
}

}  // namespace gradloom
