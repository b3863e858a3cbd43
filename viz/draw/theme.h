// One table of colours by role for each theme, and the fonts; everything drawn takes its colours, sizes and fonts
// from here. Lengths in code are in points: px(8) is 8 points at the current scale (HiDPI and Ctrl +/-).
//
// What holds of every table (tests/viz/theme_test.cpp): text stands out from each surface it lies on by 4.5 to 1, in
// the theme of high contrast by 7 to 1 (WCAG 2.2, AA and AAA); colours that mean something are told apart by eyes
// without red or green cones too.
#pragma once

#include <imgui.h>

#include <cstdint>

#include "viz/model/theme_kind.h"

namespace gradloom {

struct Palette {
  ImU32 window, panel, raised, hover, border, grid;  // surfaces, back to front; lines
  ImU32 text, text_dim, text_faint;
  ImU32 accent, accent_soft, on_accent;
  ImU32 good, bad, warn;                     // always with a sign or a symbol, never colour alone
  ImU32 forward, loss, backward, optimizer;  // phases
  ImU32 shadow;
  ImU32 heat[6];  // magnitudes, from quiet near the surface to loud, their lightness rising or falling evenly
  ImU32 category[8];  // lines and kinds without an order, of near-equal lightness
};

// How much of a colour lies in the surface below text of that colour.
inline constexpr float kBadgeTint = 0.16f, kChipTint = 0.2f, kDangerTint = 0.12f, kDangerHoverTint = 0.18f;

struct Theme {
  ThemeKind kind = ThemeKind::dark;
  bool dark = true;    // light text on dark surfaces
  bool motion = true;  // what changes may glide or fade; else it is there at once
  float scale = 1;
  Palette palette{};
  ImFont *ui = nullptr, *bold = nullptr, *mono = nullptr, *small = nullptr, *title = nullptr;
  ImFont* canvas[6] = {};  // for zoomed text, ascending
};

const Theme& theme();
inline const Palette& palette() { return theme().palette; }
inline float px(float points) { return points * theme().scale; }

// Sets the palette and ImGui's style. Cheap; may be called between frames at any time.
void apply_theme(ThemeKind kind, float scale);
const Palette& palette_of(ThemeKind kind);
void set_motion(bool on);
// Fills the font atlas for `scale` (DejaVu through FreeType; ImGui's own font when the files are missing).
void load_fonts(float scale);

ImU32 with_alpha(ImU32 color, float alpha);
ImU32 mix(ImU32 a, ImU32 b, float t);
// Ramp for magnitudes, t in [0, 1].
ImU32 heat(float t);
// Of changes, t in [-1, 1]: less is good, nothing lies near the surface, more is bad.
ImU32 change_heat(float t);
// Black or white, whichever is read better on `background`: by at least 4.5 to 1.
ImU32 ink_on(ImU32 background);
// WCAG's contrast of two opaque colours, 1 to 21.
float contrast_of(ImU32 a, ImU32 b);
ImU32 category_color(uint32_t index);
// The canvas font nearest below `pixels` (at least the smallest).
// Drawn at its own size: scaled glyphs are blurred.
ImFont* canvas_font(float pixels);

}  // namespace gradloom
