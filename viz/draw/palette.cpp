#include "viz/draw/palette.h"

#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "viz/draw/keys.h"
#include "viz/draw/widgets.h"
#include "viz/model/fuzzy.h"

namespace gradloom {
namespace {

constexpr size_t kMostRows = 200;

bool nav_key(ImGuiKey key) { return ImGui::IsKeyPressed(ImGui::GetKeyIndex(key), true); }

int draw_rows(std::string_view id, const std::vector<PaletteEntry>& entries, const std::vector<int>& shown,
              PaletteState& state, bool moved) {
  int chosen = -1;
  for (int i = 0; i < static_cast<int>(shown.size()); ++i) {
    const PaletteEntry& entry = entries[shown[i]];
    ImGui::PushID(i);
    const float width = ImGui::GetContentRegionAvail().x;
    if (ImGui::Selectable("##row", i == state.highlighted, 0, {0, ImGui::GetTextLineHeight() + px(6)}))
      chosen = shown[i];
    register_item(std::string(id) + ".row." + std::to_string(i), entry.label, entry.label);
    if (i == state.highlighted && moved) ImGui::SetScrollHereY(0.5f);
    const ImVec2 min = ImGui::GetItemRectMin();
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float y = std::round((min.y + ImGui::GetItemRectMax().y - ImGui::GetTextLineHeight()) / 2);
    const float detail_width = ImGui::CalcTextSize(entry.detail.c_str()).x;
    const std::string label =
        fit_text(theme().ui, theme().ui->FontSize, entry.label, width - detail_width - px(28));
    list->AddText({min.x + px(8), y}, palette().text, label.c_str());
    list->AddText({min.x + width - detail_width - px(8), y}, palette().text_faint, entry.detail.c_str());
    ImGui::PopID();
  }
  return chosen;
}

// What belongs to one view has the second column of the sheet.
bool of_a_view(std::string_view where) { return where != "Everywhere" && where != "Runs"; }

// Pixels from the keys to what they do, in a column of the sheet: what its longest keys take.
float keys_width(bool second) {
  ImFont* font = theme().small;
  float widest = 0;
  for (const KeyBinding& binding : key_map())
    if (binding.help != nullptr && of_a_view(binding.where) == second)
      widest =
          std::max(widest, font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, keys_text(binding).c_str()).x);
  return std::ceil(widest) + px(16);
}

// Keys, and behind `width` pixels what they do. `room`: pixels for both, where they go to the next lines; 0: as wide as they are.
void draw_binding(const KeyBinding& binding, float width, float room) {
  const float x = ImGui::GetCursorPosX();
  text(keys_text(binding), palette().accent, theme().small);
  const bool below = room > 0 && room < width + px(200);
  if (!below) ImGui::SameLine();
  ImGui::SetCursorPosX(x + (below ? px(12) : width));
  if (room > 0) ImGui::PushTextWrapPos(x + room);
  text(binding.help, palette().text, theme().small);
  if (room > 0) return ImGui::PopTextWrapPos();
  ImGui::SameLine(0, px(30));
  ImGui::Dummy({1, 1});
}

}  // namespace

int draw_palette(std::string_view id, std::string_view hint, const std::vector<PaletteEntry>& entries,
                 PaletteState& state) {
  const std::string name = std::string("##palette-") + std::string(id);
  if (state.open && state.just_opened) ImGui::OpenPopup(name.c_str());
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  const float width = std::min(px(620), display.x * 0.8f);
  ImGui::SetNextWindowPos({display.x / 2, display.y * 0.14f}, ImGuiCond_Always, {0.5f, 0});
  ImGui::SetNextWindowSize({width, 0});
  if (!ImGui::BeginPopup(name.c_str(), ImGuiWindowFlags_NoMove)) {
    state.open = state.open && state.just_opened;
    return -1;
  }
  int chosen = -1;
  if (input_text(std::string(id) + ".input", hint, &state.query, -1, state.just_opened))
    state.highlighted = 0;
  state.just_opened = false;
  std::vector<std::string_view> labels(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) labels[i] = entries[i].label;
  const std::vector<int> shown = fuzzy_rank(state.query, labels, kMostRows);
  const int before = state.highlighted;
  if (nav_key(ImGuiKey_DownArrow)) ++state.highlighted;
  if (nav_key(ImGuiKey_UpArrow)) --state.highlighted;
  state.highlighted = std::clamp(state.highlighted, 0, std::max(0, static_cast<int>(shown.size()) - 1));
  if (shown.empty()) {
    spacer(4);
    muted("Nothing matches");
  } else {
    const float row = ImGui::GetTextLineHeight() + px(6) + ImGui::GetStyle().ItemSpacing.y;
    const float height = std::min(row * static_cast<float>(shown.size()), display.y * 0.5f) + px(4);
    ImGui::BeginChild("rows", {0, height});
    chosen = draw_rows(id, entries, shown, state, before != state.highlighted);
    ImGui::EndChild();
    if (ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Enter), false)) chosen = shown[state.highlighted];
  }
  if (chosen >= 0 || ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false)) {
    state.open = false;
    ImGui::CloseCurrentPopup();
  }
  ImGui::EndPopup();
  return chosen;
}

void draw_key_sheet(bool* open) {
  const char* name = "Keys";
  if (*open && !ImGui::IsPopupOpen(name)) ImGui::OpenPopup(name);
  if (!begin_dialog(name, open)) return;
  text("Keys and gestures", palette().text, theme().title);
  spacer(4);
  const float display = ImGui::GetIO().DisplaySize.x;
  const bool narrow = display < px(1200);
  const float first = keys_width(false), second = keys_width(true);
  std::string_view where;
  if (ImGui::BeginTable("places", narrow ? 1 : 2, ImGuiTableFlags_SizingFixedFit)) {
    ImGui::TableNextColumn();
    for (const KeyBinding& binding : key_map()) {
      if (binding.help == nullptr) continue;
      if (where != binding.where) {
        where = binding.where;
        if (where == "Graph") ImGui::TableNextColumn();
        heading(where);
      }
      draw_binding(binding, of_a_view(where) ? second : first, narrow ? display - px(60) : 0);
    }
    ImGui::EndTable();
  }
  spacer(6);
  if (button("keys.close", "Close", ButtonKind::kPrimary) ||
      ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false)) {
    *open = false;
    ImGui::CloseCurrentPopup();
  }
  register_rect("keys.sheet", ImGui::GetWindowPos(), ImGui::GetWindowPos(), "keys", "open");
  ImGui::EndPopup();
}

}  // namespace gradloom
