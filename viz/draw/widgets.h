// Widgets of the window's own look, each reporting itself to the item registry under an
// explicit id ("run.start"). The id names the item for scripts and doubles as the ImGui id,
// so it must be unique in the frame.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "viz/draw/items.h"
#include "viz/draw/theme.h"

namespace gradloom {

enum class ButtonKind : uint8_t { kPlain, kPrimary, kGhost, kDanger };

bool button(std::string_view id, std::string_view label, ButtonKind kind = ButtonKind::kPlain,
            std::string_view tip = {}, float width = 0);
bool checkbox(std::string_view id, std::string_view label, bool* value);
bool toggle(std::string_view id, bool* value);  // a switch without a label
bool input_text(std::string_view id, std::string_view hint, std::string* text, float width = -1,
                bool focus = false, ImGuiInputTextFlags flags = 0);
// Several lines; true when Enter was pressed (Ctrl+Enter begins a new line).
bool input_lines(std::string_view id, std::string* text, ImVec2 size, bool focus = false);
struct ChoiceNote {
  std::string tip;
  bool disabled = false;  // greyed: it cannot be chosen, and the tip says why
};
// `notes`: one per choice, or none.
bool combo(std::string_view id, int* index, const std::vector<std::string>& choices, float width = 160,
           const std::vector<ChoiceNote>& notes = {});
// A row of joined buttons of which one is chosen.
bool segmented(std::string_view id, int* index, const std::vector<std::string>& labels);
// `width` in pixels; 0: all there is.
bool selectable_row(std::string_view id, std::string_view label, bool selected, float width = 0);

void text(std::string_view s, ImU32 color, ImFont* font = nullptr);
inline void text(std::string_view s) { text(s, palette().text); }
// In lines as wide as there is room for.
void wrapped(std::string_view s, ImU32 color, ImFont* font = nullptr);
void muted(std::string_view s);  // small; in lines too, or in one where the window grows with what lies in it
inline void title(std::string_view s, ImU32 color) { wrapped(s, color, theme().title); }
inline void title(std::string_view s) { title(s, palette().text); }
// Text at the right end of `room` pixels, smaller where it is too long for them, then cut, with the whole as tooltip.
void right_text(std::string_view s, float room);
void heading(std::string_view s);  // a section title with air above it
void key_value(std::string_view key, std::string_view value, float key_width = 110);
void badge(std::string_view s, ImU32 color);  // a small pill; stays on the line
float badge_width(std::string_view s);
// A pill that says a filter or mode is on, with an x to end it (the item ID.close);
// true when that was clicked.
bool chip(std::string_view id, std::string_view label, ImU32 color, std::string_view tip = {});
float chip_width(std::string_view label);
// A pill that tells something and offers what to do about it (the item ID.do); true when that was pressed. An empty `action`
// offers nothing. As wide as its text, but never wider than `room`: then the text is cut, and stands in the tip.
bool offer_chip(std::string_view id, std::string_view label, std::string_view action, bool enabled,
                ImU32 color, std::string_view tip, float room);
// ImGui::SameLine before something so wide; the next line where this one has no room for it.
void flow(float width, float gap);
// A number below its label, beside what the line has already (`first`: nothing) where there is room for it.
void figure(std::string_view id, std::string_view label, std::string_view value, ImU32 color, bool first);
float button_width(std::string_view label);
void tip(std::string_view s);  // tooltip of the last item
void progress(std::string_view id, float fraction, std::string_view label);
void empty_state(std::string_view title, std::string_view hint);  // centred, for panes without data
void spacer(float points);

// A modal dialog in the window's middle, as large as what lies in it but never larger than the window: then it scrolls.
// `id`: as ImGui::OpenPopup had it; true: ImGui::EndPopup() ends it. `open`: as of BeginPopupModal.
bool begin_dialog(const char* id, bool* open = nullptr, ImGuiWindowFlags flags = ImGuiWindowFlags_NoTitleBar);

// A copyable line of code with a copy button; true when copied.
bool code_line(std::string_view id, std::string_view code);

// Short messages over the menu bar, where one line hides nothing: the newest, and how many more there are. A click
// dismisses it; errors stay until then.
enum class ToastKind : uint8_t { kInfo, kGood, kWarning, kError };
void toast(ToastKind kind, std::string_view message);
void draw_toasts(ImVec2 top);  // its upper edge's middle; call last in a frame

// A full-width strip at the bottom: segments from the left, the last one right-aligned.
struct StatusSegment {
  std::string id, label;
  ImU32 color = 0;     // 0 = the usual
  int goes_first = 0;  // where there is no room for all, those of the highest number go first; 0: it stays
};
void draw_status_bar(ImVec2 min, ImVec2 max, const std::vector<StatusSegment>& segments);

// Text cut with an ellipsis to `width` pixels.
std::string fit_text(ImFont* font, float size, std::string_view s, float width);

// What an empty field of `width` pixels says: "Search: op:MatMul phase:bwd", with as many terms of the example as there is
// room for; each alone finds something too.
std::string fit_hint(std::string_view lead, std::string_view example, float width);

// A node's name cut from the front, at a slash where one is left, as names of one model begin alike and end
// apart; the last layer of what is cut stays where it has room: "…/layer.3/…/dense/MatMul". Of "a + b + c", nodes that one kernel computes, a stays and "+2".
std::string fit_name(ImFont* font, float size, std::string_view name, float width);

}  // namespace gradloom
