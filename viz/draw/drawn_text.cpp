#include "viz/draw/drawn_text.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <cmath>
#include <cstring>
#include <unordered_map>

#include "viz/draw/items.h"
#include "viz/draw/theme.h"

namespace gradloom {
namespace {

struct Known {
  const ImFont* font;
  const ImFontGlyph* glyph;
};

// By the upper left corner in the texture, which no two glyphs share.
std::uint64_t corner_of(float u, float v) {
  std::uint32_t bits[2];
  std::memcpy(&bits[0], &u, sizeof u);
  std::memcpy(&bits[1], &v, sizeof v);
  return std::uint64_t{bits[0]} << 32 | bits[1];
}

std::unordered_map<std::uint64_t, Known> glyphs_of_fonts() {
  std::unordered_map<std::uint64_t, Known> known;
  for (const ImFont* font : ImGui::GetIO().Fonts->Fonts)
    for (const ImFontGlyph& glyph : font->Glyphs)
      if (glyph.Visible) known.try_emplace(corner_of(glyph.U0, glyph.V0), Known{font, &glyph});
  return known;
}

// Joins glyphs to lines of text as they come.
class Reader {
 public:
  explicit Reader(std::string window) : window_(std::move(window)) {}

  void glyph(const Known& known, const ImDrawVert& from, const ImDrawVert& to, const ImRect& clip) {
    const ImFontGlyph& g = *known.glyph;
    const float natural = g.X1 - g.X0, scale = (to.pos.y - from.pos.y) / std::max(0.1f, g.Y1 - g.Y0);
    const float line = from.pos.y - g.Y0 * scale, size = known.font->FontSize * scale;
    if (to.pos.y <= clip.Min.y || from.pos.y >= clip.Max.y) return;  // scrolled out of sight
    if (to.pos.x <= clip.Min.x || from.pos.x >= clip.Max.x) return;
    const float gap = from.pos.x - end_;
    if (texts.empty() || std::abs(line - line_) > 0.5f || gap < -0.3f * size || gap > 0.9f * size)
      texts.push_back({{}, from.pos, to.pos, window_, false, false});
    else if (gap > 0.18f * size)
      texts.back().text += ' ';
    DrawnText& text = texts.back();
    char utf8[5];
    text.text += ImTextCharToUtf8(utf8, g.Codepoint);
    text.max = {std::max(text.max.x, to.pos.x), std::max(text.max.y, to.pos.y)};
    constexpr float kSlack = 1.2f;  // of anti-aliased edges
    const float left = clip.Min.x - from.pos.x, right = to.pos.x - clip.Max.x;
    text.cut |= left > kSlack || right > kSlack || to.pos.x - from.pos.x < natural * scale - kSlack;
    // ImGui leaves out glyphs beyond the edge: of a text that is cut between two words none shows in part.
    const ImFontGlyph* const space = known.font->FindGlyph(' ');
    text.at_edge = space != nullptr && clip.Max.x - to.pos.x < space->AdvanceX * scale;
    line_ = line;
    end_ = to.pos.x;
  }

  std::vector<DrawnText> texts;

 private:
  std::string window_;
  float line_ = 0, end_ = 0;
};

// What pans, and the field that is typed into, which scrolls: what lies elsewhere is looked at all the same.
bool moves(const DrawnText& text) {
  for (const auto& [id, item] : items().all()) {
    const bool canvas = id == "graph" || (id.size() > 7 && id.compare(id.size() - 7, 7, ".canvas") == 0);
    if (canvas && text.min.x >= item.min.x - 2 && text.max.x <= item.max.x + 200 &&
        text.min.y >= item.min.y && text.min.y <= item.max.y)
      return true;
  }
  const Item* const field = items().find("typing");
  return field != nullptr && text.min.y >= field->min.y - 2 && text.max.y <= field->max.y + 2 &&
         text.max.x >= field->min.x && text.min.x <= field->max.x;
}

// Its cells end at the edges of their columns.
bool in_table(const DrawnText& text) {
  ImPool<ImGuiTable>& tables = GImGui->Tables;
  for (int i = 0; i < tables.GetMapSize(); ++i) {
    const ImGuiTable* const table = tables.TryGetMapData(i);
    if (table == nullptr || table->LastFrameActive < ImGui::GetFrameCount() - 1) continue;
    const bool inside = text.min.x >= table->OuterRect.Min.x && text.max.x <= table->OuterRect.Max.x &&
                        text.min.y >= table->OuterRect.Min.y && text.max.y <= table->OuterRect.Max.y;
    if (inside) return true;
  }
  return false;
}

bool in_plot(const DrawnText& text) {
  for (const auto& [id, item] : items().all()) {
    const bool plot = id == "compare.live" || id.ends_with("plot");
    if (plot && text.min.x >= item.min.x - 2 && text.max.x <= item.max.x + 2 &&
        text.min.y >= item.min.y - 2 && text.max.y <= item.max.y + 2)
      return true;
  }
  return false;
}

}  // namespace

std::vector<DrawnText> drawn_texts() {
  std::vector<DrawnText> all;
  const ImDrawData* data = ImGui::GetDrawData();
  if (data == nullptr || !data->Valid) return all;
  const auto known = glyphs_of_fonts();
  for (int i = 0; i < data->CmdListsCount; ++i) {
    const ImDrawList& list = *data->CmdLists[i];
    Reader reader(list._OwnerName ? list._OwnerName : "");
    for (const ImDrawCmd& command : list.CmdBuffer) {
      const ImDrawIdx* index = list.IdxBuffer.Data + command.IdxOffset;
      const ImDrawVert* corners = list.VtxBuffer.Data + command.VtxOffset;
      const ImRect clip(command.ClipRect);
      // A glyph is two triangles of four corners: 0 1 2, 0 2 3.
      for (unsigned at = 0; at + 5 < command.ElemCount;) {
        const ImDrawVert& from = corners[index[at]];
        const bool quad = index[at + 3] == index[at] && index[at + 4] == index[at + 2];
        const auto found = quad ? known.find(corner_of(from.uv.x, from.uv.y)) : known.end();
        if (found == known.end()) {
          at += 3;
          continue;
        }
        reader.glyph(found->second, from, corners[index[at + 2]], clip);
        at += 6;
      }
    }
    all.insert(all.end(), reader.texts.begin(), reader.texts.end());
  }
  return all;
}

std::vector<std::string> overlapping_texts() {
  constexpr float kMostWide = 2, kMostTall = 0.3f;  // points; of the lower text's height
  std::vector<DrawnText> texts;
  for (DrawnText& text : drawn_texts())
    if (!moves(text) && !in_plot(text)) texts.push_back(std::move(text));
  std::vector<std::string> found;
  for (size_t i = 0; i < texts.size(); ++i)
    for (size_t j = i + 1; j < texts.size(); ++j) {
      const DrawnText &a = texts[i], &b = texts[j];
      if (a.window != b.window) continue;
      const float wide = std::min(a.max.x, b.max.x) - std::max(a.min.x, b.min.x),
                  tall = std::min(a.max.y, b.max.y) - std::max(a.min.y, b.min.y);
      if (wide > px(kMostWide) && tall > kMostTall * std::min(a.max.y - a.min.y, b.max.y - b.min.y))
        found.push_back(fmt::format("'{}' over '{}' at ({:.0f}, {:.0f}) of {}", a.text, b.text, b.min.x,
                                    b.min.y, b.window));
    }
  return found;
}

std::vector<std::string> cut_texts() {
  std::vector<std::string> cut;
  for (const DrawnText& text : drawn_texts())
    if ((text.cut || (text.at_edge && !in_table(text))) && !moves(text))
      cut.push_back(
          fmt::format("'{}' at ({:.0f}, {:.0f}) of {}", text.text, text.min.x, text.min.y, text.window));
  return cut;
}

}  // namespace gradloom
