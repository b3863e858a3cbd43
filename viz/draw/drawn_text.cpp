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

  // `by_color`: another one begins another text.
  void glyph(const Known& known, const ImDrawVert& from, const ImDrawVert& to, const ImVec4& clip,
             bool by_color) {
    const ImFontGlyph& g = *known.glyph;
    const float natural = g.X1 - g.X0, scale = (to.pos.y - from.pos.y) / std::max(0.1f, g.Y1 - g.Y0);
    const float line = from.pos.y - g.Y0 * scale, size = known.font->FontSize * scale;
    if (to.pos.y <= clip.y || from.pos.y >= clip.w) return;  // scrolled out of sight
    if (to.pos.x <= clip.x || from.pos.x >= clip.z) return;
    const float gap = from.pos.x - end_;
    const bool other = by_color && !texts.empty() && texts.back().color != from.col;
    if (texts.empty() || other || std::abs(line - line_) > 0.5f || gap < -0.3f * size || gap > 0.9f * size)
      texts.push_back({{}, from.pos, to.pos, window_, false, false, known.font, line, size, from.col, clip});
    else if (from.pos.x - g.X0 * scale - pen_ > 0.15f * size)  // a space has no glyph
      texts.back().text += ' ';
    DrawnText& text = texts.back();
    char utf8[5];
    text.text += ImTextCharToUtf8(utf8, g.Codepoint);
    text.max = {std::max(text.max.x, to.pos.x), std::max(text.max.y, to.pos.y)};
    constexpr float kSlack = 1.2f;  // of anti-aliased edges
    const float left = clip.x - from.pos.x, right = to.pos.x - clip.z;
    text.cut |= left > kSlack || right > kSlack || to.pos.x - from.pos.x < natural * scale - kSlack;
    // ImGui leaves out glyphs beyond the edge: of a text that is cut between two words none shows in part.
    const ImFontGlyph* const space = known.font->FindGlyph(' ');
    text.at_edge = space != nullptr && clip.z - to.pos.x < space->AdvanceX * scale;
    line_ = line;
    end_ = to.pos.x;
    pen_ = from.pos.x + (g.AdvanceX - g.X0) * scale;
  }

  std::vector<DrawnText> texts;

 private:
  std::string window_;
  float line_ = 0, end_ = 0, pen_ = 0;  // end_: of the last glyph; pen_: where the next one would be
};

// Joins triangles that are a fan of one colour to the polygon that they fill.
class ShapeReader {
 public:
  explicit ShapeReader(const std::function<void(const DrawnShape&)>& tell) : tell_(tell) {}
  ~ShapeReader() { end(); }
  ShapeReader(const ShapeReader&) = delete;
  ShapeReader& operator=(const ShapeReader&) = delete;

  void triangle(const ImDrawVert* corners, const ImDrawIdx* index, const ImVec4& clip) {
    const ImDrawVert *a = corners + index[0], *b = corners + index[1], *c = corners + index[2];
    if (!shape_.corners.empty() && a == first_ && b == last_ && c->col == shape_.color) {
      shape_.corners.push_back(c->pos);
      last_ = c;
      return;
    }
    end();
    shape_ = {{a->pos, b->pos, c->pos}, a->col, clip};
    first_ = a;
    last_ = c;
  }
  void end() {
    if (!shape_.corners.empty() && (shape_.color & IM_COL32_A_MASK) != 0) tell_(shape_);
    shape_.corners.clear();
  }

 private:
  const std::function<void(const DrawnShape&)>& tell_;
  DrawnShape shape_;
  const ImDrawVert *first_ = nullptr, *last_ = nullptr;
};

// One list of the frame. Without `shape` the texts are read through what is drawn between them.
void walk_list(const ImDrawList& list, const std::unordered_map<std::uint64_t, Known>& known,
               const std::function<void(const DrawnText&)>& text,
               const std::function<void(const DrawnShape&)>& shape) {
  Reader reader(list._OwnerName ? list._OwnerName : "");
  ShapeReader shapes(shape);
  const auto end_texts = [&] {
    for (const DrawnText& drawn : reader.texts) text(drawn);
    reader.texts.clear();
  };
  for (const ImDrawCmd& command : list.CmdBuffer) {
    const ImDrawIdx* index = list.IdxBuffer.Data + command.IdxOffset;
    const ImDrawVert* corners = list.VtxBuffer.Data + command.VtxOffset;
    // A glyph is two triangles of four corners: 0 1 2, 0 2 3.
    for (unsigned at = 0; at + 2 < command.ElemCount;) {
      const ImDrawVert& from = corners[index[at]];
      const bool quad =
          at + 5 < command.ElemCount && index[at + 3] == index[at] && index[at + 4] == index[at + 2];
      const auto found = quad ? known.find(corner_of(from.uv.x, from.uv.y)) : known.end();
      if (found != known.end()) {
        if (shape) shapes.end();
        reader.glyph(found->second, from, corners[index[at + 2]], command.ClipRect, shape != nullptr);
        at += 6;
        continue;
      }
      if (shape) {
        end_texts();
        shapes.triangle(corners, index + at, command.ClipRect);
      }
      at += 3;
    }
    if (shape) shapes.end();
  }
  end_texts();
}

// What pans, and the field that is typed into, which scrolls: what lies elsewhere is looked at all the same.
bool moves(const DrawnText& text) {
  for (const auto& [id, item] : items().all()) {
    const bool canvas = id == "graph" || (id.size() > 7 && id.compare(id.size() - 7, 7, ".canvas") == 0);
    if (canvas && text.max.x > item.min.x && text.max.x <= item.max.x + 200 && text.min.y >= item.min.y &&
        text.min.y <= item.max.y)
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

void walk_frame(const std::function<void(const DrawnText&)>& text,
                const std::function<void(const DrawnShape&)>& shape) {
  const ImDrawData* data = ImGui::GetDrawData();
  if (data == nullptr || !data->Valid) return;
  const auto known = glyphs_of_fonts();
  for (int i = 0; i < data->CmdListsCount; ++i) walk_list(*data->CmdLists[i], known, text, shape);
}

std::vector<DrawnText> drawn_texts() {
  std::vector<DrawnText> all;
  walk_frame([&](const DrawnText& text) { all.push_back(text); }, nullptr);
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
