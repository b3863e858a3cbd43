// The themes of the window, by the names that flags, scripts and settings have for them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gradloom {

enum class ThemeKind : std::uint8_t { dark, light, contrast };

struct ThemeName {
  ThemeKind kind;
  const char* name;   // "contrast"
  const char* label;  // "High contrast"
};
inline constexpr std::array<ThemeName, 3> kThemes{{{ThemeKind::dark, "dark", "Dark"},
                                                   {ThemeKind::light, "light", "Light"},
                                                   {ThemeKind::contrast, "contrast", "High contrast"}}};

inline const char* theme_name(ThemeKind kind) { return kThemes[static_cast<std::size_t>(kind)].name; }

inline std::optional<ThemeKind> find_theme(std::string_view name) {
  for (const ThemeName& theme : kThemes)
    if (name == theme.name) return theme.kind;
  return std::nullopt;
}

inline ThemeKind next_theme(ThemeKind kind) {
  return kThemes[(static_cast<std::size_t>(kind) + 1) % kThemes.size()].kind;
}

}  // namespace gradloom
