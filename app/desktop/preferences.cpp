#include "app/desktop/preferences.h"

#include <fmt/format.h>
#include <imgui.h>

#include <cmath>

#include "app/desktop/ui.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

using Dialog = Preferences::Dialog;

void size_of_text(Ui& ui) {
  static constexpr float kScales[] = {1, 1.25f, 1.5f, 2, 2.5f, 3};
  std::vector<std::string> labels;
  int chosen = -1;
  for (const float scale : kScales) {
    if (std::abs(ui.host.scale() - scale) < 0.01f) chosen = static_cast<int>(labels.size());
    labels.push_back(fmt::format("{:.0f} %", scale * 100));
  }
  field_label("Size of text and controls");
  if (segmented("settings.scale", &chosen, labels)) {
    ui.host.set_scale(kScales[chosen]);
    ui.app.edit_state().settings.scale = ui.host.scale();
  }
  const std::string now = chosen < 0 ? fmt::format("{:.0f} % now. ", ui.host.scale() * 100) : std::string();
  muted(now + key_label("app.larger") + " and " + key_label("app.smaller") + " change it by a tenth");
}

void draw_settings(Ui& ui) {
  Settings& settings = ui.app.edit_state().settings;
  field_label("Theme");
  int theme = static_cast<int>(settings.theme);
  std::vector<std::string> names;
  for (const ThemeName& name : kThemes) names.emplace_back(name.label);
  if (segmented("settings.theme", &theme, names)) {
    settings.theme = kThemes[static_cast<std::size_t>(theme)].kind;
    ui.host.set_theme(settings.theme);
  }
  spacer(4);
  size_of_text(ui);
  spacer(4);
  bool still = !settings.motion;
  if (checkbox("settings.still", "Reduced motion: what changes is there at once", &still))
    settings.motion = !still;
  checkbox("settings.follow_run", "Follow the running run in curve, kernels and timeline",
           &settings.follow_run);
  spacer(4);
  if (button("settings.keys", "Keys\u2026")) ui.preferences.show(Dialog::keys);
  ImGui::SameLine(0, px(6));
  if (button("settings.layouts", "Layouts\u2026")) ui.preferences.show(Dialog::layouts);
}

}  // namespace

void Preferences::show(Dialog dialog) {
  *this = {};
  open = dialog;
  just_opened = true;
}

void draw_preferences(Ui& ui) {
  Preferences& p = ui.preferences;
  if (p.open == Dialog::none) return;
  const Dialog shown = p.open;
  const char* const titles[] = {"", "Settings", "Keys", "Layouts"};
  const char* const title = titles[static_cast<int>(shown)];
  const std::string id = std::string("###preferences-") + title;
  if (std::exchange(p.just_opened, false)) ImGui::OpenPopup(id.c_str());
  if (!begin_dialog(id.c_str())) {
    p.open = Dialog::none;
    return;
  }
  text(title, palette().text, theme().title);
  spacer(2);
  const bool typing = !p.awaiting.empty() || !p.renaming.empty();  // Escape belongs to it
  if (shown == Dialog::settings) draw_settings(ui);
  if (shown == Dialog::keys) draw_keys_dialog(ui);
  if (shown == Dialog::layouts) draw_layouts_dialog(ui);
  spacer(6);
  const bool escape = !typing && ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false);
  if (button("preferences.close", "Close", ButtonKind::kPrimary) || escape) p.open = Dialog::none;
  if (p.open != shown) ImGui::CloseCurrentPopup();  // another one opens in the next frame
  ImGui::EndPopup();
}

}  // namespace gradloom
