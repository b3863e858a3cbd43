#include "viz/draw/panes.h"

#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "viz/draw/key_focus.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

struct Rect {
  ImVec2 min, max;
  float width() const { return max.x - min.x; }
  float height() const { return max.y - min.y; }
};

struct Drop {
  std::string tab;
  Pane* target;
  PaneEdge edge;
};

struct Painter {
  PaneTree& tree;
  const std::function<void(std::string_view)>& draw_tab;
  const LeastRoom& least;  // pixels, with the line of tabs
  ImVec2 window;           // all panes share it
  int splits = 0;
  std::optional<Drop> drop;
  PaneFocus* focus = nullptr;

  void pane(Pane& p, Rect r) {
    if (p.kind == Pane::Kind::kTabs) return leaf(p, r, false);
    const int id = splits++;
    const bool horizontal = p.kind == Pane::Kind::kLeftRight;
    const float gap = std::round(px(p.away == Pane::Away::kNeither ? 6.f : 12.f));
    const PaneCut shared = cut_of(p, {r.width(), r.height()}, gap, least);
    if (shared.folds) {
      Pane all = folded(p);
      return leaf(all, r, true);
    }
    const float span = (horizontal ? r.width() : r.height()) - gap, cut = std::round(shared.first);
    Rect a = r, b = r, bar = r;
    if (horizontal) {
      a.max.x = bar.min.x = r.min.x + cut;
      b.min.x = bar.max.x = r.min.x + cut + gap;
    } else {
      a.max.y = bar.min.y = r.min.y + cut;
      b.min.y = bar.max.y = r.min.y + cut + gap;
    }
    split_bar(p, id, horizontal, bar, r, span);
    const Pane::Away away = p.away;
    if (away != Pane::Away::kFirst) pane(*p.first, a);
    if (away != Pane::Away::kSecond) pane(*p.second, b);
  }

  // The sign in the middle of a bar: a press folds the smaller side away, or brings it back. True: it is dragged, as the bar is.
  static bool fold_sign(Pane& p, int id, bool horizontal, Rect bar) {
    const Palette& colors = palette();
    const bool away = p.away != Pane::Away::kNeither;
    const float half = std::min(px(18), (horizontal ? bar.height() : bar.width()) / 2);
    const ImVec2 middle{(bar.min.x + bar.max.x) / 2, (bar.min.y + bar.max.y) / 2};
    Rect r = bar;
    if (horizontal)
      r.min.y = middle.y - half, r.max.y = middle.y + half;
    else
      r.min.x = middle.x - half, r.max.x = middle.x + half;
    ImGui::SetCursorScreenPos(r.min);
    const bool pressed =
        ImGui::InvisibleButton("fold", {std::max(1.f, r.width()), std::max(1.f, r.height())});
    const std::string name = "split." + std::to_string(id) + ".fold";
    focus_stop(name);
    register_rect(name, r.min, r.max, "fold", away ? "away" : "open");
    const bool moved = ImGui::IsItemActive() && ImGui::IsMouseDragPastThreshold(0, px(4));
    tip(away ? "Bring the panes back" : "Fold these panes away");
    // It points to where the bar would go.
    const bool first = away ? p.away == Pane::Away::kSecond : p.ratio < 0.5f;
    const float to = first ? -1.f : 1.f, along = px(4), across = px(1.5f);
    const ImU32 color = ImGui::IsItemHovered() ? colors.accent : colors.text_faint;
    if (horizontal)
      ImGui::GetWindowDrawList()->AddTriangleFilled({middle.x - to * across, middle.y - along},
                                                    {middle.x - to * across, middle.y + along},
                                                    {middle.x + to * across, middle.y}, color);
    else
      ImGui::GetWindowDrawList()->AddTriangleFilled({middle.x - along, middle.y - to * across},
                                                    {middle.x + along, middle.y - to * across},
                                                    {middle.x, middle.y + to * across}, color);
    if (pressed && !ImGui::IsMouseDragPastThreshold(0, px(4)))
      p.away = away ? Pane::Away::kNeither : p.ratio < 0.5f ? Pane::Away::kFirst : Pane::Away::kSecond;
    return moved && !away;
  }

  void split_bar(Pane& p, int id, bool horizontal, Rect bar, Rect whole, float span) {
    ImGui::PushID(id);
    const bool by_sign = fold_sign(p, id, horizontal, bar);
    ImGui::SetCursorScreenPos(bar.min);
    const bool away = p.away != Pane::Away::kNeither;
    const bool pressed =
        ImGui::InvisibleButton("split", {std::max(1.f, bar.width()), std::max(1.f, bar.height())});
    const bool active = (ImGui::IsItemActive() || by_sign) && !away, hovered = ImGui::IsItemHovered();
    if (away && pressed) p.away = Pane::Away::kNeither;
    if (active || hovered) {
      if (!away) ImGui::SetMouseCursor(horizontal ? ImGuiMouseCursor_ResizeEW : ImGuiMouseCursor_ResizeNS);
      const float inset = px(2);
      const ImVec2 min =
          horizontal ? ImVec2{bar.min.x + inset, bar.min.y} : ImVec2{bar.min.x, bar.min.y + inset};
      const ImVec2 max =
          horizontal ? ImVec2{bar.max.x - inset, bar.max.y} : ImVec2{bar.max.x, bar.max.y - inset};
      ImGui::GetWindowDrawList()->AddRectFilled(min, max, with_alpha(palette().accent, active ? 1.f : 0.6f),
                                                px(2));
    }
    if (active && span > 1) {
      const ImVec2 mouse = ImGui::GetIO().MousePos;
      const float at = horizontal ? mouse.x - whole.min.x : mouse.y - whole.min.y;
      p.ratio = std::clamp(at / span, 0.05f, 0.95f);
    }
    if (hovered && !away && ImGui::IsMouseDoubleClicked(0)) p.ratio = 0.5f;
    register_rect("split." + std::to_string(id), bar.min, bar.max, "split", std::to_string(p.ratio));
    ImGui::PopID();
  }

  // `is_folded`: it stands for a split that there is no room for.
  void leaf(Pane& p, Rect r, bool is_folded) {
    const Palette& colors = palette();
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float strip = pane_strip(), rounding = px(8);
    list->AddRectFilled(r.min, r.max, colors.panel, rounding);
    list->AddRect(r.min, r.max, colors.border, rounding);
    const std::string shown =
        p.tabs.empty() ? std::string() : p.tabs[std::clamp(p.active, 0, static_cast<int>(p.tabs.size()) - 1)];
    const bool has_keys = focus != nullptr && !shown.empty() && focus->has == shown;
    if (has_keys && focus->by_keys) list->AddRect(r.min, r.max, colors.accent, rounding, 0, px(1.5f));
    register_rect("pane." + shown, r.min, r.max, "pane", has_keys ? "keys" : "");
    Rect tabs = r;
    if (is_whole(r) ? tree.maximized() != nullptr : r.width() > px(220)) {
      tabs.max.x -= px(26);
      maximize_sign(shown, {{tabs.max.x, r.min.y}, {r.max.x, r.min.y + strip}});
    }
    tab_strip(p, tabs, strip);
    list->AddLine({r.min.x + 1, r.min.y + strip}, {r.max.x - 1, r.min.y + strip}, colors.border);
    if (p.tabs.empty()) return;
    p.active = std::clamp(p.active, 0, static_cast<int>(p.tabs.size()) - 1);
    const std::string& name = p.tabs[p.active];
    ImGui::SetCursorScreenPos({r.min.x + 1, r.min.y + strip + 1});
    const ImVec2 size{r.width() - 2, r.height() - strip - 2};
    if (size.x > px(20) && size.y > px(20)) {
      ImGui::PushID(name.c_str());
      ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {px(14), px(10)});
      if (focus != nullptr && focus->wanted == name) {
        ImGui::SetNextWindowFocus();
        focus->wanted.clear();
      }
      if (ImGui::BeginChild("pane", size, false, ImGuiWindowFlags_AlwaysUseWindowPadding)) {
        ImGui::PopStyleVar();
        draw_tab(name);
      } else {
        ImGui::PopStyleVar();
      }
      if (focus != nullptr) {
        focus->order.push_back(name);
        focus->strips.push_back(p.tabs);
        if (ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows)) focus->has = name;
      }
      ImGui::EndChild();
      ImGui::PopID();
    }
    drop_target(p, r, strip, is_folded);
  }

  bool is_whole(const Rect& r) const { return r.width() >= window.x && r.height() >= window.y; }

  void toggle_maximized(const std::string& tab) {
    const bool is = tree.maximized() != nullptr;
    tree.maximize(is ? std::string() : tab);
  }

  // At the right of a pane's tabs: it gets all the room, and gives it back.
  void maximize_sign(const std::string& tab, Rect r) {
    const Palette& colors = palette();
    const bool is = tree.maximized() != nullptr;
    ImGui::PushID(tab.c_str());
    ImGui::SetCursorScreenPos(r.min);
    if (ImGui::InvisibleButton("maximize", {std::max(1.f, r.width()), std::max(1.f, r.height())}))
      toggle_maximized(tab);
    focus_stop("maximize." + tab);
    register_rect("maximize." + tab, r.min, r.max, "maximize", is ? "on" : "off");
    tip(is ? "All panes again" : "This pane alone, in the whole window");
    const ImU32 color = ImGui::IsItemHovered() ? colors.text : colors.text_faint;
    const ImVec2 at{std::round((r.min.x + r.max.x) / 2 - px(2)), std::round((r.min.y + r.max.y) / 2)};
    const float half = px(5), corner = px(4);
    ImDrawList* const list = ImGui::GetWindowDrawList();
    for (const float x : {-1.f, 1.f})
      for (const float y : {-1.f, 1.f}) {
        // Corners of a frame: outward where it may grow, inward where it may shrink.
        const ImVec2 tip_at = is ? ImVec2{at.x + x * (half - corner), at.y + y * (half - corner)}
                                 : ImVec2{at.x + x * half, at.y + y * half};
        const float back = is ? 1.f : -1.f;
        list->AddLine(tip_at, {tip_at.x + back * x * corner, tip_at.y}, color, px(1.2f));
        list->AddLine(tip_at, {tip_at.x, tip_at.y + back * y * corner}, color, px(1.2f));
      }
    ImGui::PopID();
  }

  void bring_to_front(Pane& p, int index) {
    p.active = index;
    tree.show(p.tabs[index]);
  }

  static float tab_width(const std::string& name) { return ImGui::CalcTextSize(name.c_str()).x + px(20); }

  // Where there is no room for all tabs, a part of them with the active one, and a menu of all. One that a script looks
  // for is in that part.
  void tab_strip(Pane& p, Rect r, float strip) {
    const int count = static_cast<int>(p.tabs.size());
    float total = 0;
    for (const std::string& name : p.tabs) total += tab_width(name);
    const float menu = px(30);
    float room = r.width() - px(12);
    const bool all = total <= room;
    if (!all) room -= menu;
    int must = p.active, first = 0;
    for (int i = 0; i < count; ++i)
      if (items().wanted() == "tab." + p.tabs[i]) must = i;
    const auto needs = [&](int from) {
      float width = 0;
      for (int i = from; i <= must && i < count; ++i) width += tab_width(p.tabs[i]);
      return width;
    };
    while (first < must && needs(first) > room) ++first;
    float x = r.min.x + px(6);
    const float end = x + room;
    ImGui::GetWindowDrawList()->PushClipRect(r.min, {r.max.x - px(4), r.max.y}, true);
    for (int i = first; i < count; ++i) {
      const float width = std::min(tab_width(p.tabs[i]), std::max(px(16), room));
      if (i > first && x + width > end) break;
      tab(p, i, {{x, r.min.y}, {x + width, r.min.y + strip}});
      x += width;
    }
    ImGui::GetWindowDrawList()->PopClipRect();
    if (!all && r.width() > 2 * menu) tab_menu(p, {{r.max.x - menu, r.min.y}, {r.max.x, r.min.y + strip}});
  }

  void tab(Pane& p, int index, Rect r) {
    const Palette& colors = palette();
    ImDrawList* list = ImGui::GetWindowDrawList();
    const std::string name = p.tabs[index];
    ImGui::PushID(name.c_str());
    ImGui::SetCursorScreenPos(r.min);
    const bool pressed = ImGui::InvisibleButton("tab", {r.width(), r.height()});
    if (pressed || ImGui::IsItemClicked(0)) {
      bring_to_front(p, index);
      if (focus != nullptr) focus->has = focus->wanted = name;  // its pane has the keys
    }
    if (ImGui::IsItemHovered() && ImGui::IsMouseDoubleClicked(0)) toggle_maximized(name);
    // One stop for Tab in each strip: the keys of pane.next_tab go on from it, and the menu has them all.
    if (index == p.active) focus_stop("tab." + name);
    const bool hovered = ImGui::IsItemHovered(), active = index == p.active;
    if (ImGui::BeginDragDropSource(ImGuiDragDropFlags_SourceNoPreviewTooltip)) {
      ImGui::SetDragDropPayload("gradloom-tab", name.c_str(), name.size() + 1);
      ImGui::EndDragDropSource();
    }
    if (hovered && !active) {
      list->AddRectFilled({r.min.x + px(2), r.min.y + px(5)}, {r.max.x - px(2), r.max.y - px(5)},
                          colors.hover, px(5));
    }
    const std::string shown = fit_text(ImGui::GetFont(), ImGui::GetFontSize(), name, r.width() - px(19));
    list->AddText({r.min.x + px(10), std::round(r.min.y + (r.height() - ImGui::GetFontSize()) / 2)},
                  active || hovered ? colors.text : colors.text_dim, shown.c_str());
    if (active) {
      list->AddRectFilled({r.min.x + px(8), r.max.y - px(2)}, {r.max.x - px(8), r.max.y}, colors.accent,
                          px(1));
    }
    register_rect("tab." + name, r.min, r.max, name, active ? "on" : "off");
    ImGui::PopID();
  }

  void tab_menu(Pane& p, Rect r) {
    const Palette& colors = palette();
    ImGui::PushID(p.tabs.front().c_str());
    ImGui::SetCursorScreenPos(r.min);
    if (ImGui::InvisibleButton("tabs", {r.width(), r.height()})) ImGui::OpenPopup("tabs-menu");
    focus_stop("tabs." + p.tabs.front());
    const ImVec2 at{(r.min.x + r.max.x) / 2, (r.min.y + r.max.y) / 2};
    ImGui::GetWindowDrawList()->AddTriangleFilled({at.x - px(4.5f), at.y - px(2)},
                                                  {at.x + px(4.5f), at.y - px(2)}, {at.x, at.y + px(3)},
                                                  ImGui::IsItemHovered() ? colors.text : colors.text_dim);
    register_rect("tabs." + p.tabs.front(), r.min, r.max, "all tabs", std::to_string(p.tabs.size()));
    if (ImGui::BeginPopup("tabs-menu")) {
      for (int i = 0; i < static_cast<int>(p.tabs.size()); ++i) {
        if (ImGui::MenuItem(p.tabs[i].c_str(), nullptr, i == p.active)) bring_to_front(p, i);
        register_item("tabs.menu." + p.tabs[i], p.tabs[i], i == p.active ? "on" : "off");
      }
      ImGui::EndPopup();
    }
    ImGui::PopID();
  }

  // While a tab is dragged over a pane: the edge zones split, the middle joins. A pane that stands for several takes those of
  // other panes, beside what it shows.
  void drop_target(Pane& p, Rect r, float strip, bool is_folded) {
    const ImGuiPayload* payload = ImGui::GetDragDropPayload();
    if (!payload || !payload->IsDataType("gradloom-tab")) return;
    const char* const dragged = static_cast<const char*>(payload->Data);
    if (is_folded && std::find(p.tabs.begin(), p.tabs.end(), dragged) != p.tabs.end()) return;
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    if (mouse.x < r.min.x || mouse.x >= r.max.x || mouse.y < r.min.y || mouse.y >= r.max.y) return;
    const float fx = (mouse.x - r.min.x) / r.width(), fy = (mouse.y - r.min.y) / r.height();
    PaneEdge edge = PaneEdge::kCentre;
    Rect shown = r;
    if (mouse.y > r.min.y + strip && !is_folded) {
      const float nearest = std::min({fx, 1 - fx, fy, 1 - fy});
      if (nearest < 0.25f) {
        if (nearest == fx)
          edge = PaneEdge::kLeft, shown.max.x = r.min.x + r.width() / 2;
        else if (nearest == 1 - fx)
          edge = PaneEdge::kRight, shown.min.x = r.min.x + r.width() / 2;
        else if (nearest == fy)
          edge = PaneEdge::kTop, shown.max.y = r.min.y + r.height() / 2;
        else
          edge = PaneEdge::kBottom, shown.min.y = r.min.y + r.height() / 2;
      }
    }
    ImGui::GetForegroundDrawList()->AddRectFilled(shown.min, shown.max, with_alpha(palette().accent, 0.22f),
                                                  px(8));
    if (ImGui::IsMouseReleased(0)) drop = Drop{dragged, tree.find(p.tabs[p.active]), edge};
  }
};

}  // namespace

void pane_step(PaneFocus& focus, int by) {
  const int count = static_cast<int>(focus.order.size());
  if (count == 0) return;
  const auto at = std::find(focus.order.begin(), focus.order.end(), focus.has);
  const int from = at == focus.order.end() ? (by > 0 ? -1 : 0) : static_cast<int>(at - focus.order.begin());
  focus.has = focus.wanted = focus.order[static_cast<size_t>((from + by + count) % count)];
  focus.by_keys = true;
}

void tab_step(PaneTree& tree, PaneFocus& focus, int by) {
  if (focus.has.empty() && !focus.order.empty()) focus.has = focus.order.front();
  for (const std::vector<std::string>& tabs : focus.strips) {
    const auto at = std::find(tabs.begin(), tabs.end(), focus.has);
    if (at == tabs.end() || tabs.size() < 2) continue;
    const int count = static_cast<int>(tabs.size());
    const int next = (static_cast<int>(at - tabs.begin()) + by + count) % count;
    focus.has = focus.wanted = tabs[static_cast<size_t>(next)];
    focus.by_keys = true;
    tree.show(focus.has);
    return;
  }
}

float pane_strip() { return std::round(px(34)); }

void draw_panes(PaneTree& tree, ImVec2 min, ImVec2 max,
                const std::function<void(std::string_view tab)>& draw_tab, const TabRoom& least,
                PaneFocus* focus) {
  if (focus != nullptr) {
    focus->order.clear();
    focus->strips.clear();
    if (ImGui::IsMouseClicked(0) || ImGui::IsMouseClicked(1)) focus->by_keys = false;
  }
  const LeastRoom least_of_pane = [&](std::string_view tab) {
    const ImVec2 room = least(tab);
    return PaneRoom{px(room.x), px(room.y) + pane_strip()};
  };
  Painter painter{tree, draw_tab, least_of_pane, {max.x - min.x, max.y - min.y}, 0, std::nullopt, focus};
  Pane* const whole = tree.maximized();
  painter.pane(whole != nullptr ? *whole : tree.root(), {min, max});
  if (painter.drop) tree.move(painter.drop->tab, *painter.drop->target, painter.drop->edge);
}

}  // namespace gradloom
