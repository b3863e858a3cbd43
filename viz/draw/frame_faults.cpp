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

// What shows of three corners.
ImRect shown_of(const ImDrawVert* corners, const ImDrawIdx* three, const ImRect& clip) {
  ImRect box(corners[three[0]].pos, corners[three[0]].pos);
  box.Add(corners[three[1]].pos);
  box.Add(corners[three[2]].pos);
  box.ClipWith(clip);
  return box;
}

void check_list(const ImDrawList& list, const ImRect& room, std::vector<std::string>& faults) {
  const char* const owner = list._OwnerName ? list._OwnerName : "?";
  for (const ImDrawVert& corner : list.VtxBuffer) {
    if (std::isfinite(corner.pos.x) && std::isfinite(corner.pos.y)) continue;
    return add(faults, fmt::format("'{}' draws at a place that is no number", owner));
  }
  for (const ImDrawCmd& command : list.CmdBuffer) {
    const ImRect clip(command.ClipRect);
    // ImGui clips a child's scroll bars by its parent: what counts is what shows.
    if (lies_in(clip, room) || clip.Min.x >= clip.Max.x || clip.Min.y >= clip.Max.y) continue;
    const ImDrawIdx* index = list.IdxBuffer.Data + command.IdxOffset;
    for (unsigned at = 0; at + 2 < command.ElemCount; at += 3) {
      const ImRect shown = shown_of(list.VtxBuffer.Data + command.VtxOffset, index + at, clip);
      if (shown.Min.x >= shown.Max.x || shown.Min.y >= shown.Max.y || lies_in(shown, room)) continue;
      add(faults, fmt::format("'{}' draws in {}, outside its room {}", owner, text_of(shown), text_of(room)));
      break;
    }
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
