#include "viz/draw/widgets.h"

#include <fmt/format.h>
#include <imgui_internal.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>

#include "viz/draw/key_focus.h"

namespace gradloom {
namespace {

class Id {
 public:
  explicit Id(std::string_view id) { ImGui::PushID(id.data(), id.data() + id.size()); }
  ~Id() { ImGui::PopID(); }
};

void draw_centred(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 color, const std::string& s) {
  const ImVec2 size = ImGui::CalcTextSize(s.c_str(), s.c_str() + s.size());
  list->AddText({std::round((min.x + max.x - size.x) / 2), std::round((min.y + max.y - size.y) / 2)}, color,
                s.c_str(), s.c_str() + s.size());
}

bool grows() { return (GImGui->CurrentWindow->Flags & ImGuiWindowFlags_AlwaysAutoResize) != 0; }

// Begins a line where this one has no room left for something so wide. A window that grows with what lies in it has room.
void make_room(float width) {
  const bool within =
      GImGui->CurrentWindow->DC.CurrLineSize.y > 0;  // a line that something stands in already
  if (within && !grows() && ImGui::GetContentRegionAvail().x + 1 < width) ImGui::NewLine();
}

}  // namespace

bool button(std::string_view id, std::string_view label, ButtonKind kind, std::string_view tooltip,
            float width) {
  const Id scope(id);
  const Palette& p = palette();
  std::string s(label);
  const ImVec2 pad = ImGui::GetStyle().FramePadding;
  const ImVec2 size = ImGui::CalcTextSize(s.c_str());
  ImVec2 extent{width > 0 ? width : size.x + 2 * pad.x, size.y + 2 * pad.y};
  if (width >= 0) make_room(extent.x);
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float room = ImGui::GetContentRegionAvail().x;
  if (width < 0) extent.x = room;
  if (width == 0 && !grows() && extent.x > room && room > 2 * pad.x) {
    extent.x = room;
    s = fit_text(ImGui::GetFont(), ImGui::GetFontSize(), label, room - 2 * pad.x);
  }
  const bool pressed = ImGui::InvisibleButton("b", extent);
  const bool hovered = ImGui::IsItemHovered(), held = ImGui::IsItemActive();
  const ImVec2 max{min.x + extent.x, min.y + extent.y};
  const bool disabled = (GImGui->CurrentItemFlags & ImGuiItemFlags_Disabled) != 0;
  if (disabled && kind == ButtonKind::kPrimary)
    kind = ButtonKind::kPlain;  // faded ink cannot be read on the accent
  ImU32 fill = p.raised, ink = p.text;
  if (kind == ButtonKind::kPrimary) fill = p.accent, ink = p.on_accent;
  if (kind == ButtonKind::kDanger) fill = mix(p.panel, p.bad, kDangerTint), ink = p.bad;
  if (kind == ButtonKind::kGhost) fill = with_alpha(p.raised, 0), ink = p.text_dim;
  if (hovered)
    fill = kind == ButtonKind::kPrimary  ? mix(p.accent, p.text, 0.12f)
           : kind == ButtonKind::kDanger ? mix(p.panel, p.bad, kDangerHoverTint)
                                         : p.hover;
  if (held) fill = mix(fill, p.text, 0.08f);
  if (hovered && kind == ButtonKind::kGhost) ink = p.text;
  const float alpha = ImGui::GetStyle().Alpha;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float rounding = ImGui::GetStyle().FrameRounding;
  list->AddRectFilled(min, max, with_alpha(fill, alpha), rounding);
  if (kind == ButtonKind::kPlain) list->AddRect(min, max, with_alpha(p.border, alpha), rounding);
  draw_centred(list, min, max, with_alpha(ink, alpha), s);
  register_item(id, label, disabled ? "disabled" : "enabled");
  focus_stop(id);
  if (!tooltip.empty()) tip(tooltip);
  return pressed;
}

bool checkbox(std::string_view id, std::string_view label, bool* value) {
  const std::string s(label);
  make_room(ImGui::GetTextLineHeight() + px(4) + ImGui::GetStyle().ItemInnerSpacing.x +
            ImGui::CalcTextSize(s.c_str()).x);
  const Id scope(id);
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {px(2), px(2)});
  // The empty box is told from its ground by its edge alone.
  ImGui::PushStyleVar(ImGuiStyleVar_FrameBorderSize, px(1));
  ImGui::PushStyleColor(ImGuiCol_Border, palette().text_faint);
  const bool changed = ImGui::Checkbox(s.c_str(), value);
  ImGui::PopStyleColor();
  ImGui::PopStyleVar(2);
  register_item(id, label, *value ? "on" : "off");
  focus_stop(id);
  return changed;
}

bool toggle(std::string_view id, bool* value) {
  const Id scope(id);
  const Palette& p = palette();
  const float h = std::round(px(18)), w = std::round(px(32));
  const float line = ImGui::GetFrameHeight();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const bool pressed = ImGui::InvisibleButton("t", {w, line});
  if (pressed) *value = !*value;
  const bool hovered = ImGui::IsItemHovered();
  const ImVec2 min{at.x, at.y + std::round((line - h) / 2)}, max{min.x + w, min.y + h};
  const float alpha = ImGui::GetStyle().Alpha;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImU32 track = *value ? p.accent : mix(p.raised, p.text_faint, hovered ? 0.7f : 0.5f);
  list->AddRectFilled(min, max, with_alpha(track, alpha), h / 2);
  const float knob = h / 2 - px(2.5f);
  const ImVec2 centre{*value ? max.x - h / 2 : min.x + h / 2, (min.y + max.y) / 2};
  list->AddCircleFilled(centre, knob, with_alpha(*value ? p.on_accent : p.panel, alpha), 24);
  register_item(id, {}, *value ? "on" : "off");
  focus_stop(id);
  return pressed;
}

bool input_text(std::string_view id, std::string_view hint, std::string* value, float width, bool focus,
                ImGuiInputTextFlags flags) {
  const Id scope(id);
  if (width > 0) {
    make_room(width);
    if (!grows()) width = std::min(width, std::max(px(24), ImGui::GetContentRegionAvail().x));
  }
  ImGui::SetNextItemWidth(width);
  if (focus) ImGui::SetKeyboardFocusHere();
  // What is too long for the field ends in dots, until it is typed into.
  const float room = ImGui::CalcItemWidth() - 2 * ImGui::GetStyle().FramePadding.x;
  const auto fitted = [&](std::string_view s) {
    return fit_text(ImGui::GetFont(), ImGui::GetFontSize(), s, room);
  };
  const std::string shown = fitted(*value), h = fitted(hint);
  const bool dots = shown != *value && ImGui::GetActiveID() != ImGui::GetID("##i") && !focus;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImU32 ink = ImGui::GetColorU32(ImGuiCol_Text);
  if (dots) ImGui::PushStyleColor(ImGuiCol_Text, with_alpha(palette().text, 0));
  const bool changed = ImGui::InputTextWithHint("##i", h.c_str(), value, flags);
  if (dots) {
    ImGui::PopStyleColor();
    const ImVec2 pad = ImGui::GetStyle().FramePadding;
    ImGui::GetWindowDrawList()->AddText({at.x + pad.x, at.y + pad.y}, ink, shown.c_str());
    tip(*value);
  }
  register_item(id, hint, *value);
  focus_field(id);
  return changed;
}

bool input_lines(std::string_view id, std::string* value, ImVec2 size, bool focus) {
  const Id scope(id);
  if (focus) ImGui::SetKeyboardFocusHere();
  const bool entered = ImGui::InputTextMultiline(
      "##i", value, size, ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_CtrlEnterForNewLine);
  register_item(id, {}, *value);
  focus_field(id);
  return entered;
}

bool combo(std::string_view id, int* index, const std::vector<std::string>& choices, float width,
           const std::vector<ChoiceNote>& notes) {
  const Id scope(id);
  bool changed = false;
  float pixels = width < 0 ? width : px(width);
  if (width > 0) make_room(pixels);
  if (width > 0 && !grows()) pixels = std::min(pixels, std::max(px(40), ImGui::GetContentRegionAvail().x));
  ImGui::SetNextItemWidth(pixels);
  const bool valid = *index >= 0 && *index < static_cast<int>(choices.size());
  const std::string shown = valid ? choices[*index] : "";
  const float room = ImGui::CalcItemWidth() - ImGui::GetFrameHeight() - 2 * ImGui::GetStyle().FramePadding.x;
  const std::string preview = fit_text(ImGui::GetFont(), ImGui::GetFontSize(), shown, std::max(0.f, room));
  const bool open = ImGui::BeginCombo("##c", preview.c_str());
  register_item(id, {}, shown);
  if (!open) focus_stop(id);
  if (!open && preview != shown) tip(shown);
  if (!open) return false;
  for (int i = 0; i < static_cast<int>(choices.size()); ++i) {
    const Id row_id(std::to_string(i));
    const ChoiceNote note = static_cast<std::size_t>(i) < notes.size() ? notes[i] : ChoiceNote();
    const ImGuiSelectableFlags flags = note.disabled ? ImGuiSelectableFlags_Disabled : 0;
    if (ImGui::Selectable(choices[i].c_str(), i == *index, flags)) {
      *index = i;
      changed = true;
    }
    register_item(std::string(id) + "/" + choices[i], choices[i], note.disabled ? "disabled" : "");
    focus_stop(std::string(id) + "/" + choices[i]);
    if (!note.tip.empty()) tip(note.tip);
  }
  ImGui::EndCombo();
  return changed;
}

bool segmented(std::string_view id, int* index, const std::vector<std::string>& labels) {
  const Id scope(id);
  const Palette& p = palette();
  const float pad = px(10), height = ImGui::GetFrameHeight(), rounding = ImGui::GetStyle().FrameRounding;
  ImDrawList* list = ImGui::GetWindowDrawList();
  float total = 0;
  for (const std::string& label : labels) total += ImGui::CalcTextSize(label.c_str()).x + 2 * pad;
  const ImVec2 start = ImGui::GetCursorScreenPos();
  // Where it has no room it is a list; a dialog grows with it instead.
  if (const float room = ImGui::GetContentRegionAvail().x; !grows() && total > room + 1)
    return combo(id, index, labels, std::max(1.f, std::min(room / theme().scale, 160.f)));
  list->AddRectFilled(start, {start.x + total, start.y + height}, p.raised, rounding);
  bool changed = false;
  float x = start.x;
  for (int i = 0; i < static_cast<int>(labels.size()); ++i) {
    const float w = ImGui::CalcTextSize(labels[i].c_str()).x + 2 * pad;
    const Id segment(std::to_string(i));
    ImGui::SetCursorScreenPos({x, start.y});
    if (ImGui::InvisibleButton("s", {w, height}) && *index != i) {
      *index = i;
      changed = true;
    }
    const bool hovered = ImGui::IsItemHovered(), chosen = *index == i;
    const ImVec2 min{x + px(2), start.y + px(2)}, max{x + w - px(2), start.y + height - px(2)};
    if (chosen || hovered) list->AddRectFilled(min, max, chosen ? p.accent_soft : p.hover, rounding - px(2));
    draw_centred(list, min, max, chosen ? p.accent : p.text_dim, labels[i]);
    register_item(std::string(id) + "/" + labels[i], labels[i], chosen ? "on" : "off");
    focus_stop(std::string(id) + "/" + labels[i]);
    x += w;
  }
  return changed;
}

bool selectable_row(std::string_view id, std::string_view label, bool selected, float width) {
  const Id scope(id);
  const std::string s(label);
  const bool clicked = ImGui::Selectable(s.c_str(), selected, 0, {width, 0});
  register_item(id, label, selected ? "on" : "off");
  focus_stop(id);
  return clicked;
}

void text(std::string_view s, ImU32 color, ImFont* font) {
  if (font) ImGui::PushFont(font);
  ImGui::PushStyleColor(ImGuiCol_Text, color);
  ImGui::TextUnformatted(s.data(), s.data() + s.size());
  ImGui::PopStyleColor();
  if (font) ImGui::PopFont();
}

void wrapped(std::string_view s, ImU32 color, ImFont* font) {
  ImGui::PushTextWrapPos(0);
  text(s, color, font);
  ImGui::PopTextWrapPos();
}

void muted(std::string_view s) {
  if (grows()) return text(s, palette().text_dim, theme().small);
  wrapped(s, palette().text_dim, theme().small);
}

void right_text(std::string_view s, float room) {
  const bool fits = ImGui::CalcTextSize(s.data(), s.data() + s.size()).x <= room;
  ImFont* const font = fits ? ImGui::GetFont() : theme().small;
  const std::string shown = fits ? std::string(s) : fit_text(font, font->FontSize, s, room);
  const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, shown.c_str()).x;
  ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.f, room - width));
  text(shown, ImGui::GetColorU32(ImGuiCol_Text), font);
  if (shown != s) tip(s);
}

void heading(std::string_view s) {
  if (ImGui::GetCursorPosY() > px(20)) spacer(6);
  text(s, palette().text, theme().bold);
  spacer(1);
}

void key_value(std::string_view key, std::string_view value, float key_width) {
  const float x = ImGui::GetCursorPosX(), left = ImGui::GetContentRegionAvail().x - px(key_width);
  text(key, palette().text_dim);
  const bool narrow =
      left < px(72) && ImGui::CalcTextSize(value.data(), value.data() + value.size()).x > left;
  if (!narrow) {
    ImGui::SameLine();
    ImGui::SetCursorPosX(x + px(key_width));
  }
  wrapped(value, palette().text);
}

float badge_width(std::string_view s) {
  const ImFont* font = theme().small;
  return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, s.data(), s.data() + s.size()).x + px(14);
}

void badge(std::string_view s, ImU32 color) {
  const Palette& p = palette();
  ImFont* font = theme().small;
  const float height = font->FontSize + px(4), width = badge_width(s);
  // Centred on the line's text, also beside framed widgets.
  const float line =
      GImGui->CurrentWindow->DC.CurrLineTextBaseOffset + (ImGui::GetTextLineHeight() - height) / 2;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 min{at.x, std::round(at.y + line)};
  ImGui::Dummy({width, std::max(ImGui::GetTextLineHeight(), height + line)});
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, {min.x + width, min.y + height}, mix(p.panel, color, kBadgeTint), height / 2);
  list->AddText(font, font->FontSize, {min.x + px(7), min.y + px(2)}, color, s.data(), s.data() + s.size());
}

float chip_width(std::string_view label) {
  const ImFont* font = theme().small;
  return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.data(), label.data() + label.size()).x +
         px(36);
}

bool chip(std::string_view id, std::string_view label, ImU32 color, std::string_view tooltip) {
  const Id scope(id);
  const Palette& p = palette();
  ImFont* font = theme().small;
  const float height = std::round(px(22)), width = std::round(chip_width(label)), cross = height;
  const float line = std::max(height, ImGui::GetFrameHeight());
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 min{at.x, std::round(at.y + (line - height) / 2)}, max{min.x + width, min.y + height};
  ImGui::Dummy({width, line});
  register_item(id, label, label);
  if (!tooltip.empty()) tip(tooltip);
  const ImVec2 after = ImGui::GetCursorScreenPos();
  ImGui::SetCursorScreenPos({max.x - cross, min.y});
  const bool closed = ImGui::InvisibleButton("x", {cross, height});
  const bool hovered = ImGui::IsItemHovered();
  register_item(std::string(id) + ".close", "End", "enabled");
  focus_stop(std::string(id) + ".close");
  ImGui::SetCursorScreenPos(after);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, max, mix(p.panel, color, kChipTint), height / 2);
  list->AddRect(min, max, mix(p.panel, color, 0.55f), height / 2);
  list->AddText(font, font->FontSize, {min.x + px(11), min.y + (height - font->FontSize) / 2 - 0.5f}, p.text,
                label.data(), label.data() + label.size());
  const ImVec2 c{max.x - cross / 2 - px(1), (min.y + max.y) / 2};
  const float s = px(3.2f);
  const ImU32 ink = hovered ? p.text : p.text_dim;
  list->AddLine({c.x - s, c.y - s}, {c.x + s, c.y + s}, ink, px(1.4f));
  list->AddLine({c.x - s, c.y + s}, {c.x + s, c.y - s}, ink, px(1.4f));
  return closed;
}

bool offer_chip(std::string_view id, std::string_view label, std::string_view action, bool enabled,
                ImU32 color, std::string_view tooltip, float room) {
  const Id scope(id);
  const Palette& p = palette();
  ImFont* font = theme().small;
  const auto width_of = [&](std::string_view s) {
    return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, s.data(), s.data() + s.size()).x;
  };
  const float pad = px(9), height = std::round(px(20)), line = std::max(height, ImGui::GetFrameHeight());
  const float action_width = action.empty() ? 0 : std::ceil(width_of(action) + px(16));
  const float text_room = std::max(0.f, room - action_width - 2 * pad);
  const std::string shown = fit_text(font, font->FontSize, label, text_room);
  const float width = std::ceil(width_of(shown) + 2 * pad + action_width);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 min{at.x, std::round(at.y + (line - height) / 2)}, max{min.x + width, min.y + height};
  ImGui::Dummy({width, line});
  register_item(id, label, label);
  const std::string whole = std::string(shown == label ? "" : label) +
                            (shown == label || tooltip.empty() ? "" : "\n") + std::string(tooltip);
  if (!whole.empty()) tip(whole);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, max, mix(p.panel, color, kChipTint), height / 2);
  list->AddRect(min, max, mix(p.panel, color, 0.55f), height / 2);
  const float y = std::round(min.y + (height - font->FontSize) / 2 - 0.5f);
  list->AddText(font, font->FontSize, {min.x + pad, y}, p.text, shown.c_str());
  if (action.empty()) return false;
  const ImVec2 after = ImGui::GetCursorScreenPos();
  ImGui::SetCursorScreenPos({max.x - action_width, min.y});
  ImGui::BeginDisabled(!enabled);
  const bool pressed = ImGui::InvisibleButton("do", {action_width, height});
  ImGui::EndDisabled();
  const bool hovered = enabled && ImGui::IsItemHovered();
  const std::string name = std::string(id) + ".do";
  register_item(name, action, enabled ? "enabled" : "disabled");
  focus_stop(name);
  ImGui::SetCursorScreenPos(after);
  const ImVec2 inner{max.x - action_width, min.y + px(2)};
  if (hovered)
    list->AddRectFilled(inner, {max.x - px(2), max.y - px(2)}, mix(p.panel, color, 0.45f), height / 2);
  list->AddText(font, font->FontSize, {inner.x + px(7), y}, enabled ? color : p.text_faint, action.data(),
                action.data() + action.size());
  if (hovered) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  return pressed;
}

void tip(std::string_view s) {
  if (!ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled) || GImGui->HoveredIdTimer < 0.35f) return;
  ImGui::BeginTooltip();
  ImGui::PushTextWrapPos(px(360));
  ImGui::TextUnformatted(s.data(), s.data() + s.size());
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

void progress(std::string_view id, float fraction, std::string_view label) {
  const Palette& p = palette();
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, bar = px(6);
  ImGui::Dummy({width, bar});
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, {min.x + width, min.y + bar}, p.raised, bar / 2);
  const float filled = width * std::clamp(fraction, 0.f, 1.f);
  if (filled > bar) list->AddRectFilled(min, {min.x + filled, min.y + bar}, p.accent, bar / 2);
  register_item(id, label, std::to_string(static_cast<int>(std::lround(fraction * 100))));
  if (!label.empty()) muted(label);
}

// Wrapped, each line in the middle of `room`.
static void centred_lines(const std::string& s, ImFont* font, ImU32 color, ImVec2 at, float room,
                          float wrap) {
  for (const char *from = s.c_str(), *end = from + s.size(); from < end; at.y += font->FontSize) {
    const char* to = font->CalcWordWrapPositionA(1, from, end, wrap);
    if (to == from) ++to;  // not even a letter fits
    const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, from, to).x;
    ImGui::SetCursorPos({at.x + std::max(0.f, (room - width) / 2), at.y});
    text({from, static_cast<size_t>(to - from)}, color, font);
    for (from = to; from < end && (*from == ' ' || *from == '\n'); ++from) {
    }
  }
}

void empty_state(std::string_view title, std::string_view hint) {
  const ImVec2 region = ImGui::GetContentRegionAvail(), at = ImGui::GetCursorPos();
  const std::string t(title), h(hint);
  const float margin = region.x > px(180) ? px(24) : px(2),
              wrap = std::max(1.f, std::min(region.x - margin, px(420)));
  const auto size_of = [&](ImFont* font, const std::string& s) {
    return font->CalcTextSizeA(font->FontSize, FLT_MAX, wrap, s.c_str()).y;
  };
  const float title_height = size_of(theme().bold, t), hint_height = size_of(theme().ui, h);
  const float y = at.y + std::max(0.f, (region.y - title_height - hint_height - px(8)) * 0.42f);
  centred_lines(t, theme().bold, palette().text_dim, {at.x, y}, region.x, wrap);
  centred_lines(h, theme().ui, palette().text_faint, {at.x, y + title_height + px(8)}, region.x, wrap);
}

void flow(float width, float gap) {
  ImGui::SameLine(0, gap);
  if (ImGui::GetContentRegionAvail().x < width) ImGui::NewLine();
}

void figure(std::string_view id, std::string_view label, std::string_view value, ImU32 color, bool first) {
  const float gap = ImGui::GetContentRegionAvail().x < px(800) ? px(14) : px(26);
  const auto width = [](ImFont* font, std::string_view s) {
    return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, s.data(), s.data() + s.size()).x;
  };
  if (!first) flow(std::max(width(theme().small, label), width(theme().bold, value)), gap);
  ImGui::BeginGroup();
  muted(label);
  text(value, color, theme().bold);
  ImGui::EndGroup();
  register_item(id, label, value);
}

float button_width(std::string_view label) {
  return ImGui::CalcTextSize(label.data(), label.data() + label.size()).x +
         2 * ImGui::GetStyle().FramePadding.x;
}

void spacer(float points) { ImGui::Dummy({0, px(points) - ImGui::GetStyle().ItemSpacing.y * 0.5f}); }

bool begin_dialog(const char* id, bool* open, ImGuiWindowFlags flags) {
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({display.x / 2, display.y / 2}, ImGuiCond_Always, {0.5f, 0.5f});
  ImGui::SetNextWindowSizeConstraints({0, 0},
                                      {std::max(1.f, display.x - px(16)), std::max(1.f, display.y - px(16))});
  return ImGui::BeginPopupModal(id, open,
                                flags | ImGuiWindowFlags_AlwaysAutoResize | ImGuiWindowFlags_NoMove |
                                    ImGuiWindowFlags_HorizontalScrollbar | ImGuiWindowFlags_NoSavedSettings);
}

bool code_line(std::string_view id, std::string_view code) {
  const Palette& p = palette();
  const float width = ImGui::GetContentRegionAvail().x, pad = px(8);
  const float button_width = px(58);
  ImFont* mono = theme().mono;
  const float wrap = std::max(px(80), width - button_width - 3 * pad);
  const ImVec2 size =
      mono->CalcTextSizeA(mono->FontSize, FLT_MAX, wrap, code.data(), code.data() + code.size());
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const float height = std::max(size.y + 2 * pad, ImGui::GetFrameHeight() + pad);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, {min.x + width, min.y + height}, p.raised, px(6));
  list->AddText(mono, mono->FontSize, {min.x + pad, min.y + (height - size.y) / 2}, p.text, code.data(),
                code.data() + code.size(), wrap);
  register_rect(id, min, {min.x + width, min.y + height}, "command line", code);
  ImGui::SetCursorScreenPos(
      {min.x + width - button_width - pad / 2, min.y + (height - ImGui::GetFrameHeight()) / 2});
  const bool copied = button(std::string(id) + ".copy", "Copy", ButtonKind::kGhost, {}, button_width);
  if (copied) ImGui::SetClipboardText(std::string(code).c_str());
  ImGui::SetCursorScreenPos({min.x, min.y + height});
  spacer(4);
  return copied;
}

std::string fit_text(ImFont* font, float size, std::string_view s, float width) {
  const char* rest = nullptr;
  const ImVec2 full = font->CalcTextSizeA(size, FLT_MAX, 0, s.data(), s.data() + s.size());
  if (full.x <= width) return std::string(s);
  const float dots = font->CalcTextSizeA(size, FLT_MAX, 0, "\u2026").x;
  if (width <= dots) return {};
  font->CalcTextSizeA(size, width - dots, 0, s.data(), s.data() + s.size(), &rest);
  while (rest > s.data() && (static_cast<unsigned char>(*rest) & 0xc0) == 0x80) --rest;
  return std::string(s.data(), rest) + "\u2026";
}

std::string fit_hint(std::string_view lead, std::string_view example, float width) {
  const float room = width - 2 * ImGui::GetStyle().FramePadding.x;
  while (!example.empty()) {
    std::string hint = std::string(lead) + ": " + std::string(example);
    if (ImGui::CalcTextSize(hint.c_str()).x <= room) return hint;
    const size_t last = example.rfind(' ');
    example = last == std::string_view::npos ? std::string_view() : example.substr(0, last);
  }
  return std::string(lead);
}

namespace {

// "/layer.3" of "/bert/encoder/layer.3/attention": the last part that is a number or ends with ".NUMBER"; empty: there is none.
std::string_view last_numbered_part(std::string_view path) {
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    const std::string_view part = path.substr(slash == path.npos ? 0 : slash);
    const std::size_t digits = part.find_last_not_of("0123456789") + 1;
    const bool ends_so =
        digits < part.size() && digits > 0 && (part[digits - 1] == '.' || part[digits - 1] == '/');
    if (ends_so) return part;
    if (slash == path.npos) return {};
    path = path.substr(0, slash);
  }
  return {};
}

}  // namespace

std::string fit_name(ImFont* font, float size, std::string_view name, float width) {
  auto width_of = [&](std::string_view s) {
    return font->CalcTextSizeA(size, FLT_MAX, 0, s.data(), s.data() + s.size()).x;
  };
  if (width_of(name) <= width) return std::string(name);
  constexpr std::string_view kAnd = " + ", kDots = "\u2026";
  int more = 0;
  std::size_t end = name.size();
  for (std::size_t at = name.rfind(kAnd); at != name.npos; at = name.substr(0, at).rfind(kAnd)) {
    end = at;
    ++more;
  }
  const std::string tail = more > 0 ? fmt::format(" +{}", more) : std::string();
  const std::string_view first = name.substr(0, end);
  const float left = width - width_of(tail);
  if (width_of(first) <= left) return std::string(first) + tail;
  // What made a gradient tells more than which of its kernels it is.
  constexpr std::string_view kGrad = "/grad/";
  if (const std::size_t grad = first.find(kGrad); grad != first.npos && grad > 0) {
    const std::string grads = std::string(kGrad) + std::string(kDots);
    const std::string of = fit_name(font, size, first.substr(0, grad), left - width_of(grads));
    if (of.find('/') != of.npos) return of + grads + tail;
  }
  const float rest = left - width_of(kDots);
  std::size_t from = first.find('/', 1);
  while (from != first.npos && width_of(first.substr(from)) > rest) from = first.find('/', from + 1);
  if (from == first.npos) {  // not even the last part fits
    from = first.rfind('/') + 1;
    auto inside = [&](std::size_t at) {  // of a code point
      return at < first.size() && (static_cast<unsigned char>(first[at]) & 0xc0) == 0x80;
    };
    while (from < first.size() && (inside(from) || width_of(first.substr(from)) > rest)) ++from;
  }
  if (from == first.size()) return {};
  const std::string_view rest_of_name = first.substr(from);
  // The layer that was cut away is what tells it from names that end alike.
  const std::string_view layer = last_numbered_part(first.substr(0, from));
  if (!layer.empty() && rest_of_name.front() == '/') {
    const std::string_view before = layer.data() == first.data() ? std::string_view() : kDots;
    const std::size_t last = first.rfind('/');
    for (std::size_t at = from; at < last; at = first.find('/', at + 1)) {  // two parts of the end stay, too
      const bool whole = layer.data() + layer.size() == first.data() + at;
      const std::string shown =
          fmt::format("{}{}{}{}", before, layer, whole ? "" : "/\u2026", first.substr(at));
      if (width_of(shown) <= left) return shown + tail;
    }
  }
  return std::string(kDots).append(rest_of_name) + tail;
}

}  // namespace gradloom
