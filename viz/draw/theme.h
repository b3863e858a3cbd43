// One palette struct, dark and light, and the fonts; everything drawn takes its colours, sizes and fonts from
// here. Lengths in code are in points: px(8) is 8 points at the current scale (HiDPI and Ctrl +/-).
#pragma once

#include <imgui.h>

#include <cstdint>

namespace gradloom {

struct Palette {
  ImU32 window, panel, raised, hover, border, grid;  // surfaces, back to front; lines
  ImU32 text, text_dim, text_faint;
  ImU32 accent, accent_soft, on_accent;
  ImU32 good, bad, warn;                     // always with a sign or a symbol, never colour alone
  ImU32 forward, loss, backward, optimizer;  // phases
  ImU32 shadow;
};

struct Theme {
  bool dark = true;
  float scale = 1;
  Palette palette{};
  ImFont *ui = nullptr, *bold = nullptr, *mono = nullptr, *small = nullptr, *title = nullptr;
  ImFont* canvas[6] = {};  // for zoomed text, ascending
};

const Theme& theme();
inline const Palette& palette() { return theme().palette; }
inline float px(float points) { return points * theme().scale; }

// Sets the palette and ImGui's style. Cheap; may be called between frames at any time.
void apply_theme(bool dark, float scale);
// Fills the font atlas for `scale` (DejaVu through FreeType; ImGui's own font when the files are missing).
void load_fonts(float scale);

ImU32 with_alpha(ImU32 color, float alpha);
ImU32 mix(ImU32 a, ImU32 b, float t);
// Perceptual ramp for magnitudes, t in [0, 1]: quiet near the surface colour, loud at 1, lightness monotonic.
ImU32 heat(float t);
// A text colour readable on `background`.
ImU32 ink_on(ImU32 background);
// Categorical colours with near-equal lightness.
ImU32 category_color(uint32_t index);
// The canvas font nearest below `pixels` (at least the smallest).
// Drawn at its own size: scaled glyphs are blurred.
ImFont* canvas_font(float pixels);

}  // namespace gradloom
