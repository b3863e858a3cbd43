#include "viz/draw/theme.h"

#include <imgui_freetype.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>

namespace gradloom {
namespace {

Theme g_theme;  // ImGui's context is one per process as well

constexpr ImU32 rgb(uint32_t hex) { return IM_COL32(hex >> 16 & 255, hex >> 8 & 255, hex & 255, 255); }

constexpr Palette kDark{.window = rgb(0x12151b),
                        .panel = rgb(0x191d25),
                        .raised = rgb(0x222732),
                        .hover = rgb(0x2b3140),
                        .border = rgb(0x2a303d),
                        .grid = rgb(0x20252f),
                        .text = rgb(0xe4e7ee),
                        .text_dim = rgb(0x9ba4b5),
                        .text_faint = rgb(0x6b7486),
                        .accent = rgb(0x5c9dff),
                        .accent_soft = rgb(0x24344f),
                        .on_accent = rgb(0x0d1420),
                        .good = rgb(0x4fc78e),
                        .bad = rgb(0xf27a7d),
                        .warn = rgb(0xe6b65c),
                        .forward = rgb(0x5c9dff),
                        .loss = rgb(0xe07bb0),
                        .backward = rgb(0xeda15c),
                        .optimizer = rgb(0x5cc5a5),
                        .shadow = IM_COL32(0, 0, 0, 110)};

constexpr Palette kLight{.window = rgb(0xeef0f4),
                         .panel = rgb(0xffffff),
                         .raised = rgb(0xf2f4f8),
                         .hover = rgb(0xe6eaf2),
                         .border = rgb(0xd9dee8),
                         .grid = rgb(0xebeef3),
                         .text = rgb(0x1b2130),
                         .text_dim = rgb(0x566072),
                         .text_faint = rgb(0x8a93a5),
                         .accent = rgb(0x2b6be4),
                         .accent_soft = rgb(0xdfe9fd),
                         .on_accent = rgb(0xffffff),
                         .good = rgb(0x148a58),
                         .bad = rgb(0xca3a40),
                         .warn = rgb(0xa86f00),
                         .forward = rgb(0x2b6be4),
                         .loss = rgb(0xbb3a7f),
                         .backward = rgb(0xc4680f),
                         .optimizer = rgb(0x128467),
                         .shadow = IM_COL32(20, 30, 60, 40)};

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
  set(ImGuiCol_ModalWindowDimBg, rgb(0), p.window == kDark.window ? 0.5f : 0.25f);
}

// Control points of two ramps whose lightness changes evenly (inferno-like on dark, orange-red on light).
constexpr std::array<ImU32, 6> kHeatDark{rgb(0x2a3040), rgb(0x55376e), rgb(0x933c79),
                                         rgb(0xcf4f62), rgb(0xf08a3e), rgb(0xfcd66a)};
constexpr std::array<ImU32, 6> kHeatLight{rgb(0xf3f5f9), rgb(0xfde5bd), rgb(0xfbc07c),
                                          rgb(0xf08c4e), rgb(0xd35339), rgb(0x96222e)};

}  // namespace

const Theme& theme() { return g_theme; }

void apply_theme(bool dark, float scale) {
  g_theme.dark = dark;
  g_theme.scale = scale;
  g_theme.palette = dark ? kDark : kLight;
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
  const auto& ramp = g_theme.dark ? kHeatDark : kHeatLight;
  const float at = std::clamp(t, 0.f, 1.f) * static_cast<float>(ramp.size() - 1);
  const auto i = std::min(static_cast<size_t>(at), ramp.size() - 2);
  return mix(ramp[i], ramp[i + 1], at - static_cast<float>(i));
}

ImU32 ink_on(ImU32 background) {
  const ImVec4 c = ImGui::ColorConvertU32ToFloat4(background);
  return 0.299f * c.x + 0.587f * c.y + 0.114f * c.z > 0.55f ? rgb(0x141924) : rgb(0xf4f6fa);
}

ImU32 category_color(uint32_t index) {
  static constexpr std::array<ImU32, 8> dark{rgb(0x6ea8ff), rgb(0x58c4ad), rgb(0xeda15c), rgb(0xb795f2),
                                             rgb(0xe68aae), rgb(0xd3be62), rgb(0x7cc4e0), rgb(0x9aa6b8)};
  static constexpr std::array<ImU32, 8> light{rgb(0x2b6be4), rgb(0x128467), rgb(0xc4680f), rgb(0x7446c9),
                                              rgb(0xbb3a7f), rgb(0x8f7300), rgb(0x1a7fa6), rgb(0x626e82)};
  return g_theme.dark ? dark[index % dark.size()] : light[index % light.size()];
}

ImFont* canvas_font(float pixels) {
  ImFont* best = g_theme.canvas[0];
  for (ImFont* font : g_theme.canvas) {
    if (font->FontSize <= pixels * 1.08f) best = font;
  }
  return best;
}

}  // namespace gradloom
