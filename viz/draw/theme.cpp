#include "viz/draw/theme.h"

#include <imgui_freetype.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

namespace gradloom {
namespace {

Theme g_theme;  // ImGui's context is one per process as well

constexpr ImU32 rgb(uint32_t hex) { return IM_COL32(hex >> 16 & 255, hex >> 8 & 255, hex & 255, 255); }

constexpr Palette kDark{
    .window = rgb(0x12151b),
    .panel = rgb(0x191d25),
    .raised = rgb(0x222732),
    .hover = rgb(0x2b3140),
    .border = rgb(0x2a303d),
    .grid = rgb(0x20252f),
    .text = rgb(0xe4e7ee),
    .text_dim = rgb(0xa5aebe),
    .text_faint = rgb(0x959fb1),
    .accent = rgb(0x6ca6ff),
    .accent_soft = rgb(0x24344f),
    .on_accent = rgb(0x0d1420),
    .good = rgb(0x48d6b0),
    .bad = rgb(0xf97d73),
    .warn = rgb(0xeec772),
    .forward = rgb(0x5cafff),
    .loss = rgb(0xf6a8d8),
    .backward = rgb(0xf0964a),
    .optimizer = rgb(0x55bd98),
    .shadow = IM_COL32(0, 0, 0, 110),
    .heat = {rgb(0x2a3040), rgb(0x55376e), rgb(0x933c79), rgb(0xcf4f62), rgb(0xf08a3e), rgb(0xfcd66a)},
    .category = {rgb(0x6ea8ff), rgb(0x58c4ad), rgb(0xeda15c), rgb(0xb795f2), rgb(0xe68aae), rgb(0xd3be62),
                 rgb(0x7cc4e0), rgb(0x9aa6b8)}};

constexpr Palette kLight{
    .window = rgb(0xeef0f4),
    .panel = rgb(0xffffff),
    .raised = rgb(0xf2f4f8),
    .hover = rgb(0xe6eaf2),
    .border = rgb(0xd9dee8),
    .grid = rgb(0xebeef3),
    .text = rgb(0x1b2130),
    .text_dim = rgb(0x4c5567),
    .text_faint = rgb(0x5c6678),
    .accent = rgb(0x1f5cd0),
    .accent_soft = rgb(0xdfe9fd),
    .on_accent = rgb(0xffffff),
    .good = rgb(0x007360),
    .bad = rgb(0xa01c24),
    .warn = rgb(0x855a00),
    .forward = rgb(0x1f5cd0),
    .loss = rgb(0xb0287f),
    .backward = rgb(0x9a5208),
    .optimizer = rgb(0x00513f),
    .shadow = IM_COL32(20, 30, 60, 40),
    .heat = {rgb(0xf3f5f9), rgb(0xfde5bd), rgb(0xfbc07c), rgb(0xf08c4e), rgb(0xd35339), rgb(0x96222e)},
    .category = {rgb(0x1f5cd0), rgb(0x0b6b52), rgb(0x9c4f06), rgb(0x7446c9), rgb(0xa82c6e), rgb(0x6f5a00),
                 rgb(0x0f6a8c), rgb(0x525d70)}};

// Surfaces are black, lines stand out, and every step of the ramp bears black text by 7 to 1.
constexpr Palette kContrast{
    .window = rgb(0x000000),
    .panel = rgb(0x000000),
    .raised = rgb(0x16181d),
    .hover = rgb(0x2a2e38),
    .border = rgb(0x8a93a8),
    .grid = rgb(0x3a404c),
    .text = rgb(0xffffff),
    .text_dim = rgb(0xe3e7ee),
    .text_faint = rgb(0xc8cdd8),
    .accent = rgb(0x9cc8ff),
    .accent_soft = rgb(0x10305c),
    .on_accent = rgb(0x000000),
    .good = rgb(0x55f5dc),
    .bad = rgb(0xffa6a0),
    .warn = rgb(0xffe07a),
    .forward = rgb(0x8fc0ff),
    .loss = rgb(0xffc4ee),
    .backward = rgb(0xffad45),
    .optimizer = rgb(0x4fe0b0),
    .shadow = IM_COL32(0, 0, 0, 0),
    .heat = {rgb(0x7696ee), rgb(0xc393d8), rgb(0xf595a4), rgb(0xffab66), rgb(0xffcf55), rgb(0xfff3b0)},
    .category = {rgb(0x8fc0ff), rgb(0x5ff0c8), rgb(0xffb04d), rgb(0xd0b0ff), rgb(0xff9fda), rgb(0xffe37a),
                 rgb(0x8fe4ff), rgb(0xc4ccda)}};

ImVec4 vec(ImU32 color, float alpha = 1) {
  ImVec4 v = ImGui::ColorConvertU32ToFloat4(color);
  v.w *= alpha;
  return v;
}

void set_colors(ImGuiStyle& style, const Palette& p) {
  auto set = [&](ImGuiCol which, ImU32 color, float alpha = 1) { style.Colors[which] = vec(color, alpha); };
  set(ImGuiCol_Text, p.text);
  set(ImGuiCol_TextDisabled, p.text_faint);
  set(ImGuiCol_WindowBg, p.window);
  set(ImGuiCol_ChildBg, p.panel, 0);
  set(ImGuiCol_PopupBg, p.panel);
  set(ImGuiCol_Border, p.border);
  set(ImGuiCol_BorderShadow, p.border, 0);
  for (ImGuiCol c :
       {ImGuiCol_FrameBg, ImGuiCol_Button, ImGuiCol_TitleBg, ImGuiCol_TitleBgCollapsed, ImGuiCol_Tab})
    set(c, p.raised);
  for (ImGuiCol c :
       {ImGuiCol_FrameBgHovered, ImGuiCol_ButtonHovered, ImGuiCol_TabHovered, ImGuiCol_TitleBgActive})
    set(c, p.hover);
  for (ImGuiCol c : {ImGuiCol_FrameBgActive, ImGuiCol_ButtonActive}) set(c, p.border);
  set(ImGuiCol_TabActive, p.hover);
  set(ImGuiCol_MenuBarBg, p.panel);
  set(ImGuiCol_ScrollbarBg, p.panel, 0);
  set(ImGuiCol_ScrollbarGrab, p.text_faint, 0.35f);
  set(ImGuiCol_ScrollbarGrabHovered, p.text_faint, 0.6f);
  set(ImGuiCol_ScrollbarGrabActive, p.text_faint, 0.8f);
  for (ImGuiCol c : {ImGuiCol_CheckMark, ImGuiCol_SliderGrab, ImGuiCol_SliderGrabActive,
                     ImGuiCol_NavHighlight, ImGuiCol_DragDropTarget})
    set(c, p.accent);
  set(ImGuiCol_Header, p.accent_soft);
  set(ImGuiCol_HeaderHovered, p.hover);
  set(ImGuiCol_HeaderActive, p.accent_soft);
  set(ImGuiCol_Separator, p.border);
  set(ImGuiCol_SeparatorHovered, p.accent, 0.6f);
  set(ImGuiCol_SeparatorActive, p.accent);
  set(ImGuiCol_ResizeGrip, p.border);
  set(ImGuiCol_TableHeaderBg, p.panel);
  set(ImGuiCol_TableBorderStrong, p.border);
  set(ImGuiCol_TableBorderLight, p.grid);
  set(ImGuiCol_TableRowBg, p.panel, 0);
  set(ImGuiCol_TableRowBgAlt, p.raised, 0.35f);
  set(ImGuiCol_TextSelectedBg, p.accent, 0.35f);
  set(ImGuiCol_ModalWindowDimBg, rgb(0), p.window == kLight.window ? 0.25f : 0.5f);
}

// Of sRGB, as WCAG has it.
float luminance(ImU32 color) {
  const ImVec4 c = ImGui::ColorConvertU32ToFloat4(color);
  const auto linear = [](float v) {
    return v <= 0.04045f ? v / 12.92f : std::pow((v + 0.055f) / 1.055f, 2.4f);
  };
  return 0.2126f * linear(c.x) + 0.7152f * linear(c.y) + 0.0722f * linear(c.z);
}

}  // namespace

const Theme& theme() { return g_theme; }

const Palette& palette_of(ThemeKind kind) {
  return kind == ThemeKind::light ? kLight : kind == ThemeKind::contrast ? kContrast : kDark;
}

void set_motion(bool on) { g_theme.motion = on; }

void apply_theme(ThemeKind kind, float scale) {
  g_theme.kind = kind;
  g_theme.dark = kind != ThemeKind::light;
  g_theme.scale = scale;
  g_theme.palette = palette_of(kind);
  ImGuiStyle style;
  style.WindowPadding = {12, 10};
  style.FramePadding = {10, 5};
  style.ItemSpacing = {8, 7};
  style.ItemInnerSpacing = {7, 5};
  style.CellPadding = {8, 4};
  style.IndentSpacing = 18;
  style.ScrollbarSize = 11;
  style.GrabMinSize = 12;
  style.WindowRounding = 8;
  style.ChildRounding = 6;
  style.FrameRounding = 6;
  style.PopupRounding = 8;
  style.ScrollbarRounding = 6;
  style.GrabRounding = 6;
  style.TabRounding = 6;
  style.WindowBorderSize = 1;
  style.PopupBorderSize = 1;
  style.ChildBorderSize = 0;
  style.FrameBorderSize = 0;
  style.WindowTitleAlign = {0, 0.5f};
  style.DisabledAlpha = 0.45f;
  style.ScaleAllSizes(scale);
  style.WindowBorderSize = style.PopupBorderSize = std::max(1.f, std::floor(scale));
  set_colors(style, g_theme.palette);
  ImGui::GetStyle() = style;
}

void load_fonts(float scale) {
  static const ImWchar kRanges[] = {0x20,   0xff,   0x370,  0x3ff,  0x2000, 0x209f, 0x2190,
                                    0x23ff, 0x25a0, 0x27bf, 0x2b00, 0x2b1f, 0};
  static const ImWchar kPlainRanges[] = {0x20,   0xff,   0x3b1,  0x3c9,  0x2010, 0x2026, 0x2190, 0x2193,
                                         0x2202, 0x2202, 0x2212, 0x2212, 0x25b2, 0x25be, 0};
  ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  atlas.Clear();
  atlas.FontBuilderIO = ImGuiFreeType::GetBuilderForFreeType();
  atlas.FontBuilderFlags = ImGuiFreeTypeBuilderFlags_LightHinting;
  const std::filesystem::path folder = "/usr/share/fonts/truetype/dejavu";
  auto load = [&](const char* file, float points, const ImWchar* ranges) -> ImFont* {
    const std::filesystem::path path = folder / file;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) {
      return atlas.AddFontFromFileTTF(path.c_str(), std::round(points * scale), nullptr, ranges);
    }
    ImFontConfig config;
    config.SizePixels = std::round(points * scale);
    return atlas.AddFontDefault(&config);
  };
  g_theme.ui = load("DejaVuSans.ttf", 14, kRanges);
  g_theme.bold = load("DejaVuSans-Bold.ttf", 13.5f, kPlainRanges);
  g_theme.mono = load("DejaVuSansMono.ttf", 13, kPlainRanges);
  g_theme.small = load("DejaVuSans.ttf", 12, kRanges);
  g_theme.title = load("DejaVuSans-Bold.ttf", 19, kPlainRanges);
  constexpr float kCanvasPoints[] = {10, 12, 14, 17, 21, 26};
  for (size_t i = 0; i < std::size(kCanvasPoints); ++i) {
    g_theme.canvas[i] = load("DejaVuSans.ttf", kCanvasPoints[i], kPlainRanges);
  }
  atlas.Build();
}

ImU32 with_alpha(ImU32 color, float alpha) {
  const auto a =
      static_cast<ImU32>(static_cast<float>(color >> IM_COL32_A_SHIFT) * std::clamp(alpha, 0.f, 1.f));
  return (color & ~IM_COL32_A_MASK) | a << IM_COL32_A_SHIFT;
}

ImU32 mix(ImU32 a, ImU32 b, float t) {
  t = std::clamp(t, 0.f, 1.f);
  ImU32 out = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const float x = static_cast<float>(a >> shift & 255), y = static_cast<float>(b >> shift & 255);
    out |= static_cast<ImU32>(std::lround(x + (y - x) * t)) << shift;
  }
  return out;
}

ImU32 heat(float t) {
  const auto& ramp = palette().heat;
  const float at = std::clamp(t, 0.f, 1.f) * static_cast<float>(std::size(ramp) - 1);
  const auto i = std::min(static_cast<size_t>(at), std::size(ramp) - 2);
  return mix(ramp[i], ramp[i + 1], at - static_cast<float>(i));
}

float contrast_of(ImU32 a, ImU32 b) {
  const float x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05f) / (std::min(x, y) + 0.05f);
}

ImU32 change_heat(float t) {
  const Palette& p = palette();
  return mix(p.raised, t < 0 ? p.good : p.bad, std::pow(std::clamp(std::abs(t), 0.f, 1.f), 0.7f));
}

ImU32 ink_on(ImU32 background) {
  constexpr ImU32 kBlack = rgb(0x000000), kWhite = rgb(0xffffff);
  return contrast_of(kBlack, background) >= contrast_of(kWhite, background) ? kBlack : kWhite;
}

ImU32 category_color(uint32_t index) { return palette().category[index % std::size(palette().category)]; }

ImFont* canvas_font(float pixels) {
  ImFont* best = g_theme.canvas[0];
  for (ImFont* font : g_theme.canvas) {
    if (font->FontSize <= pixels * 1.08f) best = font;
  }
  return best;
}

}  // namespace gradloom
