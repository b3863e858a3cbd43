// Which key does what: search, press new keys, and back to the usual ones.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cctype>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

std::string lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string what_it_does(const Ui& ui, std::string_view action) {
  for (const KeyBinding& binding : key_map())
    if (action == binding.action && binding.help != nullptr &&
        std::isdigit(static_cast<unsigned char>(action.back())) == 0)
      return binding.help;
  for (const Command& command : ui.commands)
    if (action == command.id && command.label != nullptr) return command.label;
  return action.rfind("layout.", 0) == 0 ? fmt::format("Layout {} of the list", action.substr(7))
                                         : std::string(action);
}

std::string labels_of(const std::string& action) {
  std::vector<std::string> labels = chords_of(action);
  for (std::string& label : labels) label = chord_label(label);
  return labels.empty() ? "none" : joined(labels);
}

void keep(Ui& ui) {
  ui.app.edit_state().settings.keys = key_changes();
  ui.preferences.awaiting.clear();
  ui.preferences.taken.clear();
}

void give(Ui& ui, const std::string& chord) {
  Preferences& p = ui.preferences;
  std::vector<std::string> chords = p.adds ? chords_of(p.awaiting) : std::vector<std::string>();
  chords.push_back(chord);
  set_chords(p.awaiting, std::move(chords));
  keep(ui);
}

// Takes the chord from who has it.
void take_away(const std::string& action, const std::string& chord) {
  std::vector<std::string> chords = chords_of(action);
  std::erase_if(chords, [&](const std::string& own) { return parse_chord(own) == parse_chord(chord); });
  set_chords(action, std::move(chords));
}

// The line above the list while a key is awaited.
void await_key(Ui& ui) {
  Preferences& p = ui.preferences;
  const std::string what = what_it_does(ui, p.awaiting);
  if (p.taken.empty()) {
    text("Press the keys for: " + what, palette().accent);
    register_item("key-editor.awaiting", "awaiting", p.awaiting);
    muted("Escape leaves it as it is");
    const std::string chord = chord_going_down();
    if (chord.empty()) return;
    if (chord == "escape") return p.awaiting.clear();
    if (key_conflict(p.awaiting, chord).empty()) return give(ui, chord);
    p.taken = chord;
    return;
  }
  const std::string other = key_conflict(p.awaiting, p.taken);
  const std::string told = fmt::format("\u26a0 {} is for: {}", chord_label(p.taken), what_it_does(ui, other));
  text(told, palette().warn);
  register_item("key-editor.conflict", "conflict", told);
  if (button("key-editor.take", "Take it for: " + what, ButtonKind::kPrimary)) {
    take_away(other, p.taken);
    return give(ui, p.taken);
  }
  ImGui::SameLine(0, px(6));
  if (button("key-editor.leave", "Leave it", ButtonKind::kGhost) ||
      ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false)) {
    p.awaiting.clear();
    p.taken.clear();
  }
}

void row(Ui& ui, const KeyBinding& binding, const std::string& what) {
  Preferences& p = ui.preferences;
  const std::string action = binding.action, keys = labels_of(action);
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  ImGui::AlignTextToFramePadding();
  text(fit_text(theme().ui, theme().ui->FontSize, what, ImGui::GetContentRegionAvail().x));
  ImGui::TableNextColumn();
  ImGui::AlignTextToFramePadding();
  text(binding.where, palette().text_faint, theme().small);
  ImGui::TableNextColumn();
  ImGui::AlignTextToFramePadding();
  text(fit_text(theme().ui, theme().ui->FontSize, keys, ImGui::GetContentRegionAvail().x),
       keys_changed(action) ? palette().accent : palette().text);
  register_item("key-editor.keys." + action, what, keys);
  ImGui::TableNextColumn();
  const auto await = [&](bool adds) {
    p.awaiting = action;
    p.taken.clear();
    p.adds = adds;
  };
  if (button("key-editor.change." + action, "Change", ButtonKind::kGhost)) await(false);
  ImGui::SameLine(0, px(2));
  if (button("key-editor.add." + action, "+", ButtonKind::kGhost, "Another key beside these")) await(true);
  if (!keys_changed(action)) return;
  ImGui::SameLine(0, px(2));
  if (button("key-editor.reset." + action, "Reset", ButtonKind::kGhost, "The usual key again")) {
    reset_chords(action);
    keep(ui);
  }
}

}  // namespace

void draw_keys_dialog(Ui& ui) {
  Preferences& p = ui.preferences;
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  const float width = std::min(px(760), display.x * 0.9f - px(40));
  input_text("key-editor.search", "Search: undo, ctrl+s, timeline", &p.query, width);
  if (!p.awaiting.empty()) await_key(ui);
  const std::string query = lower(p.query);
  const float height = std::max(px(60), std::min(px(420), display.y * 0.9f - px(230)));
  if (ImGui::BeginTable("keys", 4, ImGuiTableFlags_ScrollY | ImGuiTableFlags_RowBg, {width, height})) {
    ImGui::TableSetupColumn("what", ImGuiTableColumnFlags_WidthStretch);
    ImGui::TableSetupColumn("where", ImGuiTableColumnFlags_WidthFixed, px(72));
    ImGui::TableSetupColumn("keys", ImGuiTableColumnFlags_WidthFixed, px(150));
    ImGui::TableSetupColumn("change", ImGuiTableColumnFlags_WidthFixed, px(150));
    std::string_view before;
    for (const KeyBinding& binding : key_map()) {
      if (binding.chord[0] == '\0' || before == binding.action) continue;
      before = binding.action;
      const std::string what = what_it_does(ui, binding.action);
      const std::string all =
          lower(what + " " + binding.where + " " + labels_of(binding.action) + " " + binding.action);
      if (all.find(query) != std::string::npos) row(ui, binding, what);
    }
    ImGui::EndTable();
  }
  if (ui.state().settings.keys.empty()) return;
  if (button("key-editor.reset_all", "All keys as usual", ButtonKind::kPlain)) {
    use_key_changes({});
    keep(ui);
  }
}

}  // namespace gradloom
