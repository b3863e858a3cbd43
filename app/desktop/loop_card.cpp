// What a recorded loop's step is made of, above its timeline: a line that says what a faster engine would gain, and a bar.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct KindColor {
  const char* kind;
  std::uint32_t category;  // category_color
};
constexpr KindColor kColors[] = {{"outside", 4}, {"module", 3},  {"backward", 7}, {"optimizer", 5},
                                 {"data", 6},    {"compile", 2}, {"python", 1}};

}  // namespace

// Of the time that belongs to nobody in particular grey.
ImU32 host_color(const std::string& kind) {
  const Palette& p = palette();
  if (kind == "engine") return p.forward;
  for (const KindColor& color : kColors)
    if (kind == color.kind) return category_color(color.category);
  return mix(p.panel, p.text_dim, kind == "step" ? 0.35f : 0.6f);
}

void draw_loop_card(const LoopShares& loop) {
  const Palette& p = palette();
  ImFont* font = theme().small;
  const float width = ImGui::GetContentRegionAvail().x;
  const std::string verdict = loop_verdict(loop);
  const std::string said = "T" + verdict.substr(1);
  text(fit_text(theme().ui, theme().ui->FontSize, said, width), p.text);
  std::string more = fmt::format("{}\nIn the mean of {}", said, plural_text(loop.steps, "step"));
  if (loop.has_engine())
    more += fmt::format("; without any time of the engine's it would be {:.2f}x",
                        1 / std::max(1e-9, 1 - loop.engine_share()));
  tip(more);
  register_item("loop.verdict", "loop", verdict);
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float tall = px(20);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  float x = at.x;
  for (const HostKind& kind : host_kinds()) {
    const double ns = loop.ns_of(kind.name);
    const float to = x + static_cast<float>(loop.share(ns)) * width;
    if (to - x < 0.5f) {
      x = to;
      continue;
    }
    const ImU32 fill = mix(p.panel, host_color(kind.name), 0.62f);
    list->AddRectFilled({x, at.y}, {std::max(to - 1, x + 1), at.y + tall}, fill, px(2));
    const std::string label = fmt::format("{} {}", loop.title_of(kind), percent_text(loop.share(ns)));
    if (font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.c_str()).x < to - x - px(10))
      list->AddText(font, font->FontSize, {x + px(5), at.y + (tall - font->FontSize) / 2}, ink_on(fill),
                    label.c_str());
    register_rect(std::string("loop.") + kind.name, {x, at.y}, {to, at.y + tall}, kind.title,
                  percent_text(loop.share(ns)));
    if (ImGui::IsWindowHovered() && mouse.x >= x && mouse.x < to && mouse.y >= at.y &&
        mouse.y < at.y + tall) {
      std::string lines = fmt::format("{}: {} of a step, {}", loop.title_of(kind), duration_text(ns),
                                      percent_text(loop.share(ns)));
      int named = 0;
      for (const LoopPart& part : loop.parts)
        if (part.kind == kind.name && !part.name.empty() && ++named <= 12)
          lines += fmt::format("\n  {}: {}", escaped(part.name), duration_text(part.ns));
      ImGui::SetTooltip("%s", lines.c_str());
    }
    x = to;
  }
  ImGui::Dummy({width, tall + px(4)});
}

}  // namespace gradloom
