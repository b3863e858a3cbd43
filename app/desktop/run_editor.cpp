// What is said of a run in the list of runs: its name in place, tags and note in a dialog, and its end, which asks.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

using What = RunEditor::What;

// Words between commas or spaces.
std::set<std::string> words_of(std::string text) {
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  std::set<std::string> all;
  for (std::string word; words >> word;) all.insert(word);
  return all;
}

std::string without(const std::set<std::string>& all, const std::set<std::string>& taken) {
  std::string text;
  for (const std::string& word : all)
    if (!taken.contains(word)) text += (text.empty() ? "" : ",") + word;
  return text;
}

// The flags that make of the run what the editor says; none when it says nothing new.
std::vector<std::string> flags_of(const RunEditor& editor, const RunSummary& r) {
  const std::string id = std::to_string(r.id);
  switch (editor.what) {
    case What::nothing: return {};
    case What::name:
      if (editor.text == r.name) return {};
      return {"--rename", id + "=" + editor.text};
    case What::note:
      if (editor.text == r.note) return {};
      return {"--note", id + "=" + editor.text};
    case What::end: return {"--delete", id};
    case What::tags: break;
  }
  const std::set<std::string> before(r.tags.begin(), r.tags.end()), after = words_of(editor.text);
  const std::string added = without(after, before), removed = without(before, after);
  std::vector<std::string> flags;
  if (!added.empty()) flags.insert(flags.end(), {"--tag", id + "=" + added});
  if (!removed.empty()) flags.insert(flags.end(), {"--untag", id + "=" + removed});
  return flags;
}

void finish(Ui& ui, bool keep) {
  if (const RunSummary* r = find_run(ui.state(), ui.run_editor.run); keep && r != nullptr)
    if (const std::vector<std::string> flags = flags_of(ui.run_editor, *r); !flags.empty())
      ui.app.change_runs(flags);
  ui.run_editor = {};
}

bool escape_pressed() { return ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false); }

// What is asked for above the buttons; true: Enter was pressed.
bool dialog_body(RunEditor& editor, const RunSummary& r, float width) {
  const bool focus = std::exchange(editor.just_opened, false);
  if (editor.what == What::tags)
    return input_text("run-editor.text", "words between commas", &editor.text, width, focus,
                      ImGuiInputTextFlags_EnterReturnsTrue);
  if (editor.what == What::note) return input_lines("run-editor.text", &editor.text, {width, px(92)}, focus);
  ImGui::PushTextWrapPos(width);
  text(fmt::format("{} of {}, its kernels, timings and comparisons are deleted for good.",
                   plural_text(r.steps, "step"), run_label(r)),
       palette().text);
  ImGui::PopTextWrapPos();
  return false;
}

}  // namespace

void Ui::edit_run(RunEditor::What what, std::int64_t run) {
  const RunSummary* r = find_run(state(), run);
  if (r == nullptr) return;
  run_editor = {what, true, run,
                what == What::name   ? r->name
                : what == What::note ? r->note
                                     : joined(r->tags)};
  if (what == What::name) panes.show("Runs");
}

void Ui::choose_side(std::int64_t run, bool a) {
  const AppState& s = state();
  if (s.progress.running && s.progress.kind == RunKind::compare)
    return;  // what is compared stays chosen until it is
  const std::int64_t chosen = (a ? s.run_a : s.run_b) == run ? 0 : run;
  app.choose_sides(a ? chosen : s.run_a, a ? s.run_b : chosen);
}

void Ui::toggle_curve(std::int64_t run) {
  const CurveRun curve{state().session_path, run};
  app.overlay_curve(curve, !state().curves.has(curve));
}

void Ui::toggle_pin(std::int64_t run) {
  if (const RunSummary* const r = find_run(state(), run))
    app.change_runs({r->pinned ? "--unpin" : "--pin", std::to_string(run)});
}

void draw_run_menu(Ui& ui) {
  if (!ImGui::BeginPopup("runs-menu")) return;
  const RunSummary* r = find_run(ui.state(), ui.menu_run);
  if (r == nullptr) {
    ImGui::CloseCurrentPopup();
    return ImGui::EndPopup();
  }
  muted(run_label(*r));
  if (selectable_row("runs.menu.rename", "Rename", false)) ui.edit_run(What::name, r->id);
  if (selectable_row("runs.menu.tags", "Tags\u2026", false)) ui.edit_run(What::tags, r->id);
  if (selectable_row("runs.menu.note", "Note\u2026", false)) ui.edit_run(What::note, r->id);
  if (selectable_row("runs.menu.pin", r->pinned ? "Unpin" : "Pin", false)) ui.toggle_pin(r->id);
  const AppState& s = ui.state();
  const bool overlaid = s.curves.has({s.session_path, r->id});
  if (selectable_row("runs.menu.curve", overlaid ? "Without its curve" : "Add its curve", false))
    ui.toggle_curve(r->id);
  if (selectable_row("runs.menu.a", s.run_a == r->id ? "Not as A" : "Compare as A", false))
    ui.choose_side(r->id, true);
  if (selectable_row("runs.menu.b", s.run_b == r->id ? "Not as B" : "Compare as B", false))
    ui.choose_side(r->id, false);
  ImGui::BeginDisabled(r->pinned || r->status == "running");
  if (selectable_row("runs.menu.delete", "Delete\u2026", false)) ui.edit_run(What::end, r->id);
  ImGui::EndDisabled();
  ImGui::EndPopup();
}

void draw_run_name(Ui& ui) {
  RunEditor& editor = ui.run_editor;
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {px(3), 0});
  const bool entered =
      input_text("runs.name", "name", &editor.text, -1, std::exchange(editor.just_opened, false),
                 ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_AutoSelectAll);
  ImGui::PopStyleVar();
  if (escape_pressed()) return finish(ui, false);  // ImGui has put the old text back
  if (entered || ImGui::IsItemDeactivated()) finish(ui, true);
}

void draw_run_editor(Ui& ui) {
  RunEditor& editor = ui.run_editor;
  if (editor.what == What::nothing || editor.what == What::name) return;
  const RunSummary* r = find_run(ui.state(), editor.run);
  if (editor.just_opened) ImGui::OpenPopup("Run");
  if (r == nullptr || !begin_dialog("Run")) {
    editor = {};
    return;
  }
  const bool end = editor.what == What::end;
  const float width = std::min(px(460), ImGui::GetIO().DisplaySize.x * 0.8f);
  text(end ? "Delete" : editor.what == What::tags ? "Tags" : "Note", palette().text, theme().title);
  if (!end) muted("of " + run_label(*r));
  spacer(2);
  const bool entered = dialog_body(editor, *r, width);
  spacer(2);
  const std::vector<std::string> flags = flags_of(editor, *r);
  const std::string command = flags.empty() ? "as it is" : escaped(ui.app.runs_command(flags));
  muted(fit_text(theme().small, theme().small->FontSize, command, width));
  register_item("run-editor.command", "command", command);
  spacer(4);
  const bool keep = button(end ? "run-editor.delete" : "run-editor.keep", end ? "Delete" : "Keep",
                           end ? ButtonKind::kDanger : ButtonKind::kPrimary);
  ImGui::SameLine(0, px(6));
  const bool cancel = button("run-editor.cancel", "Cancel", ButtonKind::kGhost) || escape_pressed();
  if (keep || entered || cancel) {
    ImGui::CloseCurrentPopup();
    finish(ui, !cancel);
  }
  ImGui::EndPopup();
}

}  // namespace gradloom
