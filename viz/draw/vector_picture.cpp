#include "viz/draw/vector_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "viz/draw/drawn_text.h"
#include "viz/draw/theme.h"

namespace gradloom {
namespace {

std::string color_text(ImU32 color, const char* what) {
  const ImU32 alpha = color >> IM_COL32_A_SHIFT & 0xff;
  std::string text = fmt::format("{}=\"#{:02x}{:02x}{:02x}\"", what, color >> IM_COL32_R_SHIFT & 0xff,
                                 color >> IM_COL32_G_SHIFT & 0xff, color >> IM_COL32_B_SHIFT & 0xff);
  if (alpha < 255) text += fmt::format(" {}-opacity=\"{:.3g}\"", what, alpha / 255.0);
  return text;
}

// As XML has it; what no document may hold is left out.
std::string xml_text(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      safe += c;
  }
  return safe;
}

class SvgWriter {
 public:
  SvgWriter(ImVec2 min, ImVec2 max) : min_(min), max_(max) {}

  void shape(const DrawnShape& shape) {
    ImVec2 low = shape.corners[0], high = low;
    for (const ImVec2& c : shape.corners) {
      low = {std::min(low.x, c.x), std::min(low.y, c.y)};
      high = {std::max(high.x, c.x), std::max(high.y, c.y)};
    }
    if (!within(shape.clip, low, high)) return;
    // Opaque shapes of one colour are one path; others would show where they overlap.
    if (!open_ || shape.color != color_ || (shape.color & IM_COL32_A_MASK) != IM_COL32_A_MASK) {
      end_path();
      body_ += "<path d=\"";
      open_ = true;
      color_ = shape.color;
    }
    for (std::size_t i = 0; i < shape.corners.size(); ++i)
      fmt::format_to(std::back_inserter(body_), "{}{:.5g} {:.5g}", i == 0 ? "M" : "L",
                     shape.corners[i].x - min_.x, shape.corners[i].y - min_.y);
    body_ += 'Z';
  }

  void text(const DrawnText& text) {
    if (!within(text.clip, text.min, text.max)) return;
    end_path();
    const float baseline = text.top + text.font->Ascent * text.size / text.font->FontSize;
    const bool bold = text.font == theme().bold || text.font == theme().title;
    fmt::format_to(
        std::back_inserter(body_),
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" textLength=\"{:.1f}\"{}{} {}>{}</text>\n",
        text.min.x - min_.x, baseline - min_.y, text.size * kOfLine, text.max.x - text.min.x,
        bold ? " font-weight=\"bold\"" : "",
        text.font == theme().mono ? " font-family=\"DejaVu Sans Mono, monospace\"" : "",
        color_text(text.color, "fill"), xml_text(text.text));
  }

  std::string finish() {
    end_path();
    if (grouped_) body_ += "</g>\n";
    const float width = max_.x - min_.x, height = max_.y - min_.y;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
               "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" "
               "xml:space=\"preserve\">\n<defs>\n{2}</defs>\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" {3}/>\n",
               width, height, clips_, color_text(palette().window, "fill")) +
           body_ + "</svg>\n";
  }

 private:
  // Of ImGui's size of a font, which is that of its line, the part that others call its size.
  static constexpr float kOfLine = 0.859f;

  void end_path() {
    if (open_) body_ += "\" " + color_text(color_, "fill") + "/>\n";
    open_ = false;
  }

  // Whether any of it is seen in the picture; its clip is the group's from here on.
  bool within(const ImVec4& clip, ImVec2 low, ImVec2 high) {
    const ImVec4 seen{std::max(clip.x, min_.x), std::max(clip.y, min_.y), std::min(clip.z, max_.x),
                      std::min(clip.w, max_.y)};
    if (seen.x >= seen.z || seen.y >= seen.w) return false;
    if (high.x <= seen.x || low.x >= seen.z || high.y <= seen.y || low.y >= seen.w) return false;
    if (grouped_ && seen.x == group_.x && seen.y == group_.y && seen.z == group_.z && seen.w == group_.w)
      return true;
    end_path();
    if (grouped_) body_ += "</g>\n";
    grouped_ = true;
    group_ = seen;
    fmt::format_to(std::back_inserter(clips_),
                   "<clipPath id=\"c{}\"><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
                   "height=\"{:.1f}\"/></clipPath>\n",
                   groups_, seen.x - min_.x, seen.y - min_.y, seen.z - seen.x, seen.w - seen.y);
    fmt::format_to(std::back_inserter(body_), "<g clip-path=\"url(#c{})\">\n", groups_++);
    return true;
  }

  ImVec2 min_, max_;
  std::string body_, clips_;
  bool open_ = false, grouped_ = false;
  ImU32 color_ = 0;
  ImVec4 group_;
  int groups_ = 0;
};

}  // namespace

void set_hard_edges(bool on) {
  ImGuiStyle& style = ImGui::GetStyle();
  style.AntiAliasedLines = style.AntiAliasedFill = style.AntiAliasedLinesUseTex = !on;
}

std::string svg_of_frame(ImVec2 min, ImVec2 max) {
  SvgWriter writer(min, max);
  walk_frame([&](const DrawnText& text) { writer.text(text); },
             [&](const DrawnShape& shape) { writer.shape(shape); });
  return writer.finish();
}

}  // namespace gradloom
