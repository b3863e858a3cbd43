// Arrangements of panes by name: those of the window and the user's own.
#include <imgui.h>

#include <algorithm>
#include <utility>

#include "app/desktop/panels.h"
#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostNameBytes = 60;

// Why a layout cannot have this name; empty: it can.
std::string problem_of(const std::string& name) {
  if (name.find_first_not_of(' ') == std::string::npos) return "A layout needs a name";
  if (name.size() > kMostNameBytes) return "The name is too long";
  for (const NamedLayout& own : built_in_layouts())
    if (own.name == name) return "'" + name + "' is the window's own";
  return {};
}

void rename(Ui& ui, NamedLayout& layout) {
  Preferences& p = ui.preferences;
  const bool entered = input_text("layouts.renamed", "name", &p.renamed, px(220),
                                  std::exchange(p.focus, false), ImGuiInputTextFlags_EnterReturnsTrue);
  const bool escape = ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false);
  if (escape) return p.renaming.clear();
  if (!entered) return;
  const auto& all = ui.state().settings.layouts;
  const bool taken =
      p.renamed != layout.name &&
      std::any_of(all.begin(), all.end(), [&](const NamedLayout& other) { return other.name == p.renamed; });
  p.problem = taken ? "There is a layout '" + p.renamed + "' already" : problem_of(p.renamed);
  if (!p.problem.empty()) return;
  layout.name = p.renamed;
  p.renaming.clear();
}

void keep_present(Ui& ui) {
  Preferences& p = ui.preferences;
  p.problem = problem_of(p.layout_name);
  if (!p.problem.empty()) return;
  auto& all = ui.app.edit_state().settings.layouts;
  const NamedLayout layout{p.layout_name, ui.panes.to_text()};
  const auto known = std::find_if(all.begin(), all.end(),
                                  [&](const NamedLayout& other) { return other.name == layout.name; });
  if (known == all.end() && all.size() >= kMostLayouts) {
    p.problem = "There are too many layouts";
    return;
  }
  if (known == all.end())
    all.push_back(layout);
  else
    *known = layout;
  p.layout_name.clear();
}

}  // namespace

std::vector<NamedLayout> all_layouts(const Settings& settings) {
  std::vector<NamedLayout> all(built_in_layouts().begin(), built_in_layouts().end());
  all.insert(all.end(), settings.layouts.begin(), settings.layouts.end());
  return all;
}

void Ui::use_layout(std::size_t index) {
  const std::vector<NamedLayout> all = all_layouts(state().settings);
  if (index < all.size()) panes = panes_from(all[index].panes);
}

void draw_layouts_dialog(Ui& ui) {
  Preferences& p = ui.preferences;
  const std::size_t own = built_in_layouts().size();
  const std::vector<NamedLayout> all = all_layouts(ui.state().settings);
  std::string gone;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& name = all[i].name;
    ImGui::PushID(static_cast<int>(i));
    if (i >= own && p.renaming == name) {
      rename(ui, ui.app.edit_state().settings.layouts[i - own]);
    } else {
      if (button("layouts.use." + name, escaped(name), ButtonKind::kPlain, "Arrange the panes so", px(220)))
        ui.use_layout(i);
      ImGui::SameLine(0, px(10));
      const std::string key = i < kLayoutKeys ? key_label("layout." + std::to_string(i + 1)) : std::string();
      ImGui::AlignTextToFramePadding();
      const float x = ImGui::GetCursorPosX();
      text(key, palette().text_faint, theme().small);
      if (i >= own) {
        ImGui::SameLine(x + px(60));
        if (button("layouts.rename." + name, "Rename", ButtonKind::kGhost)) {
          p.renaming = p.renamed = name;
          p.focus = true;
        }
        ImGui::SameLine(0, px(4));
        if (button("layouts.delete." + name, "Delete", ButtonKind::kGhost)) gone = name;
      }
    }
    ImGui::PopID();
  }
  if (!gone.empty())
    std::erase_if(ui.app.edit_state().settings.layouts,
                  [&](const NamedLayout& layout) { return layout.name == gone; });
  spacer(6);
  const bool entered = input_text("layouts.name", "Name for the panes as they are now", &p.layout_name,
                                  px(300), false, ImGuiInputTextFlags_EnterReturnsTrue);
  ImGui::SameLine(0, px(6));
  if (button("layouts.keep", "Keep") || entered) keep_present(ui);
  if (p.problem.empty()) return;
  text("\u26a0 " + p.problem, palette().warn);
  register_item("layouts.problem", "problem", p.problem);
}

}  // namespace gradloom
