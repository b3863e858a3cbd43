// What the colours of every theme promise: text that is read, and meanings that are told apart.
#include "viz/draw/theme.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace gradloom {
namespace {

struct Named {
  const char* name;
  ImU32 Palette::*color;
};

constexpr Named kInks[] = {
    {"text", &Palette::text},         {"text_dim", &Palette::text_dim},  {"text_faint", &Palette::text_faint},
    {"accent", &Palette::accent},     {"good", &Palette::good},          {"bad", &Palette::bad},
    {"warn", &Palette::warn},         {"forward", &Palette::forward},    {"loss", &Palette::loss},
    {"backward", &Palette::backward}, {"optimizer", &Palette::optimizer}};
constexpr Named kSurfaces[] = {{"window", &Palette::window},
                               {"panel", &Palette::panel},
                               {"raised", &Palette::raised},
                               {"hover", &Palette::hover}};
constexpr Named kPhases[] = {{"forward", &Palette::forward},
                             {"loss", &Palette::loss},
                             {"backward", &Palette::backward},
                             {"optimizer", &Palette::optimizer}};
constexpr Named kVerdicts[] = {{"good", &Palette::good}, {"bad", &Palette::bad}, {"warn", &Palette::warn}};

float needed(ThemeKind kind) { return kind == ThemeKind::contrast ? 7.f : 4.5f; }

// Linear light of an eye: as it is, and without red or green cones (Machado, Oliveira, Fernandes 2009, severity 1).
using Matrix = std::array<std::array<double, 3>, 3>;
struct Eye {
  const char* name;
  Matrix of;
};
constexpr Eye kEyes[] = {
    {"all cones", {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}},
    {"protanopia",
     {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}}},
    {"deuteranopia",
     {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}}}};

// CIE L*a*b* of what the eye sees, white D65.
std::array<double, 3> lab(ImU32 color, const Eye& eye) {
  const ImVec4 c = ImGui::ColorConvertU32ToFloat4(color);
  const double srgb[] = {c.x, c.y, c.z};
  double light[3], seen[3];
  for (int i = 0; i < 3; ++i)
    light[i] = srgb[i] <= 0.04045 ? srgb[i] / 12.92 : std::pow((srgb[i] + 0.055) / 1.055, 2.4);
  for (int i = 0; i < 3; ++i)
    seen[i] = std::clamp(eye.of[i][0] * light[0] + eye.of[i][1] * light[1] + eye.of[i][2] * light[2], 0., 1.);
  const auto f = [](double t) { return t > 216. / 24389 ? std::cbrt(t) : (24389. / 27 * t + 16) / 116; };
  const double x = f((0.4124564 * seen[0] + 0.3575761 * seen[1] + 0.1804375 * seen[2]) / 0.95047),
               y = f(0.2126729 * seen[0] + 0.7151522 * seen[1] + 0.0721750 * seen[2]),
               z = f((0.0193339 * seen[0] + 0.1191920 * seen[1] + 0.9503041 * seen[2]) / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

double distance(ImU32 a, ImU32 b, const Eye& eye) {
  const auto p = lab(a, eye), q = lab(b, eye);
  return std::sqrt((p[0] - q[0]) * (p[0] - q[0]) + (p[1] - q[1]) * (p[1] - q[1]) +
                   (p[2] - q[2]) * (p[2] - q[2]));
}

// Two of these that lie beside each other must not be taken for one another. 2.3 is what is just seen (CIE76), side by side;
// these are small and apart.
constexpr double kToldApart = 12;

class EveryTheme : public testing::TestWithParam<ThemeName> {
 protected:
  void SetUp() override { ImGui::CreateContext(); }  // whose style a theme sets
  void TearDown() override { ImGui::DestroyContext(); }
  ThemeKind kind() const { return GetParam().kind; }
  const Palette& colors() const { return palette_of(kind()); }
};

TEST_P(EveryTheme, TextStandsOutFromEverySurfaceItLiesOn) {
  for (const Named& ink : kInks)
    for (const Named& surface : kSurfaces)
      EXPECT_GE(contrast_of(colors().*ink.color, colors().*surface.color), needed(kind()))
          << ink.name << " on " << surface.name;
  for (const ImU32 ink : {colors().text, colors().text_dim, colors().accent})
    EXPECT_GE(contrast_of(ink, colors().accent_soft), needed(kind())) << "a chosen row or segment";
}

TEST_P(EveryTheme, TextOfWidgetsStandsOut) {
  const Palette& p = colors();
  for (const Named& ink : kInks) {
    const ImU32 color = p.*ink.color;
    EXPECT_GE(contrast_of(color, mix(p.panel, color, kBadgeTint)), needed(kind())) << "badge " << ink.name;
    EXPECT_GE(contrast_of(p.text, mix(p.panel, color, kChipTint)), needed(kind())) << "chip " << ink.name;
  }
  for (const ImU32 color : p.category) {
    EXPECT_GE(contrast_of(color, p.panel), needed(kind()));
    EXPECT_GE(contrast_of(color, mix(p.panel, color, kBadgeTint)), needed(kind()));
  }
  for (const float tint : {kDangerTint, kDangerHoverTint})
    EXPECT_GE(contrast_of(p.bad, mix(p.panel, p.bad, tint)), needed(kind())) << "danger " << tint;
  const ImU32 hovered = mix(p.accent, p.text, 0.12f);
  for (const ImU32 fill : {p.accent, hovered, mix(hovered, p.text, 0.08f)})
    EXPECT_GE(contrast_of(p.on_accent, fill), needed(kind())) << "the chief button";
}

// Bars of the timeline and boxes of the graph carry their names in ink_on(fill).
TEST_P(EveryTheme, WhatIsWrittenOnAFillIsRead) {
  apply_theme(kind(), 1);
  for (int i = 0; i <= 100; ++i) {
    const ImU32 fill = heat(static_cast<float>(i) / 100);
    EXPECT_GE(contrast_of(ink_on(fill), fill), needed(kind())) << "heat at " << i << " %";
  }
  for (const Named& phase : kPhases)
    EXPECT_GE(contrast_of(ink_on(colors().*phase.color), colors().*phase.color), needed(kind()))
        << phase.name;
  for (const ImU32 fill : colors().category) EXPECT_GE(contrast_of(ink_on(fill), fill), needed(kind()));
}

TEST_P(EveryTheme, MeaningsAreToldApartByEveryEye) {
  for (const Eye& eye : kEyes) {
    for (const auto* group : {kPhases, kVerdicts}) {
      const int count = group == kPhases ? 4 : 3;
      for (int a = 0; a < count; ++a)
        for (int b = a + 1; b < count; ++b)
          EXPECT_GE(distance(colors().*group[a].color, colors().*group[b].color, eye), kToldApart)
              << group[a].name << " and " << group[b].name << ", " << eye.name;
    }
  }
}

// More is louder: lightness goes one way, and each step is seen.
TEST_P(EveryTheme, TheRampOfMagnitudesGoesOneWayForEveryEye) {
  const auto& ramp = colors().heat;
  for (const Eye& eye : kEyes) {
    const double whole = lab(ramp[5], eye)[0] - lab(ramp[0], eye)[0];
    EXPECT_GT(std::abs(whole), 20) << eye.name;
    for (int i = 0; i + 1 < 6; ++i) {
      EXPECT_GE((lab(ramp[i + 1], eye)[0] - lab(ramp[i], eye)[0]) * whole, 0)
          << "step " << i << ", " << eye.name;
      EXPECT_GE(distance(ramp[i], ramp[i + 1], eye), 8) << "step " << i << ", " << eye.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Themes, EveryTheme, testing::ValuesIn(kThemes),
                         [](const auto& theme) { return std::string(theme.param.name); });

TEST(Theme, ContrastIsThatOfWcag) {
  EXPECT_NEAR(contrast_of(IM_COL32_WHITE, IM_COL32_BLACK), 21, 1e-3);
  EXPECT_NEAR(contrast_of(IM_COL32(119, 119, 119, 255), IM_COL32_WHITE), 4.478, 1e-3);
  EXPECT_EQ(contrast_of(IM_COL32(1, 2, 3, 255), IM_COL32(1, 2, 3, 255)), 1);
}

// Black on yellow is told apart from nothing by a test that always passes: the two reds of a bad palette are found.
TEST(Theme, ColoursThatOnlyDifferInRedAndGreenAreFound) {
  const ImU32 red = IM_COL32(200, 80, 60, 255), green = IM_COL32(110, 125, 40, 255);
  EXPECT_GT(distance(red, green, kEyes[0]), 40);
  EXPECT_LT(distance(red, green, kEyes[2]), kToldApart);
}

}  // namespace
}  // namespace gradloom
