// Form parts of the panels.
#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>

#include "app/desktop/ui.h"
#include "engine/base/parse_number.h"
#include "viz/draw/key_focus.h"

namespace gradloom {

bool committed_text(Ui& ui, const std::string& id, const std::string& hint, std::string* value, float width) {
  const auto typed = ui.editing.find(id);
  std::string shown = typed == ui.editing.end() ? *value : typed->second;
  const bool entered = input_text(id, hint, &shown, width, false,
                                  ImGuiInputTextFlags_AutoSelectAll | ImGuiInputTextFlags_EnterReturnsTrue);
  const bool finished = entered || ImGui::IsItemDeactivated();
  if (ImGui::IsItemActive() && !finished) {
    ui.editing[id] = shown;
    return false;
  }
  ui.editing.erase(id);
  if (!finished || shown == *value) return false;
  *value = shown;
  return true;
}

void path_field(Ui& ui, const std::string& id, const std::string& hint, const std::string& path,
                const FileDialog::Options& options, const std::function<void(const std::string&)>& set) {
  std::string typed = path;
  if (committed_text(ui, id, hint, &typed,
                     ImGui::GetContentRegionAvail().x - ImGui::GetFrameHeight() - px(4)))
    set(typed);
  if (!path.empty() && !ImGui::IsItemActive()) tip(path);
  ImGui::SameLine(0, px(4));
  if (button(id + ".browse", "\u2026", ButtonKind::kPlain, options.title, ImGui::GetFrameHeight()))
    show_path_dialog(ui, options, path, set);
}

void field_label(const std::string& label, const std::string& help) {
  // A table hands the baseline of framed widgets from cell to cell;
  // labels of one row stand at one height without it.
  ImGui::GetCurrentWindow()->DC.CurrLineTextBaseOffset = 0;
  text(label, palette().text_dim, theme().small);
  if (!help.empty()) tip(help);
}

void field_problem(const FieldProblems& problems, const std::string& key) {
  const auto it = problems.find(key);
  if (it == problems.end()) return;
  ImGui::PushTextWrapPos(0);
  text("\u26a0 " + it->second, palette().bad, theme().small);
  ImGui::PopTextWrapPos();
  register_item("problem." + key, key, it->second);
}

void labelled(const char* label, const char* help, float width, bool first,
              const std::function<void(float)>& control) {
  if (!first) flow(px(width), px(8));
  ImGui::BeginGroup();
  field_label(label, help);
  control(px(width));
  ImGui::EndGroup();
}

void cluster_fields(Ui& ui, const std::string& prefix, ScalingQuestion& question) {
  constexpr std::int64_t kMostOfMachine = 1024;
  labelled("Between machines", "what a machine's link to the others carries, and its latency", 130, true,
           [&](float width) { committed_text(ui, prefix + ".link", kUsualLink, &question.link, width); });
  labelled("Inside one", kLocalLinkHelp, 130, false, [&](float width) {
    committed_text(ui, prefix + ".local-link", "the processor's", &question.local_link, width);
  });
  labelled("Ranks of a machine", "0: all are on one", 110, false, [&](float width) {
    std::string local = std::to_string(question.ranks_per_machine);
    if (!committed_text(ui, prefix + ".local", "8", &local, width)) return;
    if (const auto number = parse_number<std::int64_t>(local); number && *number >= 0)
      question.ranks_per_machine = std::min(*number, kMostOfMachine);
  });
}

std::vector<std::string> processor_names(const char* own) {
  std::vector<std::string> names{own};
  for (const Hardware& h : known_hardware()) names.push_back(h.name);
  return names;
}

std::string processor_id(int chosen) {
  const auto known = known_hardware();
  return chosen > 0 && chosen <= static_cast<int>(known.size())
             ? known[static_cast<std::size_t>(chosen - 1)].id
             : std::string();
}

int suggestions(const std::string& id, const std::vector<std::string>& choices) {
  int chosen = -1;
  if (button(id, "\u25be", ButtonKind::kPlain, "Suggestions", ImGui::GetFrameHeight()))
    ImGui::OpenPopup(id.c_str());
  if (!ImGui::BeginPopup(id.c_str())) return chosen;
  for (int i = 0; i < static_cast<int>(choices.size()); ++i)
    if (selectable_row(id + "/" + choices[static_cast<std::size_t>(i)], choices[static_cast<std::size_t>(i)],
                       false))
      chosen = i;
  if (choices.empty()) muted("Nothing to suggest");
  ImGui::EndPopup();
  return chosen;
}

bool node_link(Ui& ui, const std::string& id, const std::string& node, float width) {
  const Palette& p = palette();
  const float available = width > 0 ? width : ImGui::GetContentRegionAvail().x;
  const std::string fitted = fit_text(theme().ui, theme().ui->FontSize, node, available);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 size = ImGui::CalcTextSize(fitted.c_str());
  ImGui::PushID(id.c_str());
  const bool clicked = ImGui::InvisibleButton("link", {std::max(1.f, size.x), std::max(1.f, size.y)});
  ImGui::PopID();
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddText(at, hovered ? mix(p.accent, p.text, 0.3f) : p.accent, fitted.c_str());
  if (hovered) {
    list->AddLine({at.x, at.y + size.y}, {at.x + size.x, at.y + size.y}, with_alpha(p.accent, 0.7f));
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    ui.asks.hover_node = node;
  }
  register_item(id, node, node);
  focus_stop(id);
  if (fitted != node) tip(node);
  if (clicked) ui.go_to(node);
  return clicked;
}

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

}  // namespace gradloom
