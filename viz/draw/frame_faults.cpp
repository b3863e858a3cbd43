#include "viz/draw/frame_faults.h"

#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>

#include "viz/draw/items.h"

namespace gradloom {
namespace {

constexpr float kSlack = 1.5f;  // clip rectangles are rounded to pixels
constexpr std::size_t kMost = 8;

std::string text_of(const ImRect& r) {
  return fmt::format("({:.0f}, {:.0f})-({:.0f}, {:.0f})", r.Min.x, r.Min.y, r.Max.x, r.Max.y);
}

bool lies_in(const ImRect& inner, const ImRect& outer) {
  return inner.Min.x >= outer.Min.x - kSlack && inner.Min.y >= outer.Min.y - kSlack &&
         inner.Max.x <= outer.Max.x + kSlack && inner.Max.y <= outer.Max.y + kSlack;
}

void add(std::vector<std::string>& faults, std::string fault) {
  if (faults.size() < kMost) faults.push_back(std::move(fault));
}

void check_list(const ImDrawList& list, const ImRect& room, std::vector<std::string>& faults) {
  for (const ImDrawCmd& command : list.CmdBuffer) {
    if (command.ElemCount == 0) continue;
    const ImRect clip(command.ClipRect);
    if (clip.Min.x >= clip.Max.x || clip.Min.y >= clip.Max.y) continue;  // nothing of it shows
    if (!lies_in(clip, room))
      add(faults, fmt::format("'{}' draws in {}, outside its room {}",
                              list._OwnerName ? list._OwnerName : "?", text_of(clip), text_of(room)));
  }
  for (const ImDrawVert& corner : list.VtxBuffer) {
    if (std::isfinite(corner.pos.x) && std::isfinite(corner.pos.y)) continue;
    add(faults,
        fmt::format("'{}' draws at a place that is no number", list._OwnerName ? list._OwnerName : "?"));
    return;
  }
}

}  // namespace

std::vector<std::string> frame_faults() {
  std::vector<std::string> faults;
  const ImDrawData* data = ImGui::GetDrawData();
  if (data == nullptr || !data->Valid) return faults;
  const ImRect display(data->DisplayPos,
                       {data->DisplayPos.x + data->DisplaySize.x, data->DisplayPos.y + data->DisplaySize.y});
  for (int i = 0; i < data->CmdListsCount; ++i) {
    const ImDrawList& list = *data->CmdLists[i];
    ImRect room = display;
    const ImGuiWindow* window = list._OwnerName ? ImGui::FindWindowByName(list._OwnerName) : nullptr;
    if (window != nullptr && (window->Flags & ImGuiWindowFlags_ChildWindow) != 0 &&
        (window->Flags & ImGuiWindowFlags_Popup) == 0)
      room = window->OuterRectClipped;
    check_list(list, room, faults);
  }
  for (const auto& [id, item] : items().all()) {
    if (id.rfind("pane.", 0) != 0) continue;
    const ImRect pane(item.min, item.max);
    if (!(pane.Min.x <= pane.Max.x && pane.Min.y <= pane.Max.y) || !lies_in(pane, display))
      add(faults, fmt::format("{} is at {}, the window is {}", id, text_of(pane), text_of(display)));
  }
  std::sort(faults.begin(), faults.end());
  return faults;
}

}  // namespace gradloom
