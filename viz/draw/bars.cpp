// The edges of the window: short messages above, its state below.
#include <imgui_internal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

struct Toast {
  ToastKind kind;
  std::string message;
  std::chrono::steady_clock::time_point since;
};

std::vector<Toast>& toasts() {
  static std::vector<Toast> list;
  return list;
}

constexpr float kSegmentGap = 20, kStatusMargin = 12;  // points

// The segments that find room, as wide as they are.
std::vector<std::pair<const StatusSegment*, float>> segments_that_fit(
    const std::vector<StatusSegment>& segments, float room) {
  const ImFont* const font = theme().small;
  std::vector<std::pair<const StatusSegment*, float>> shown;
  float needed = -px(kSegmentGap);
  for (const StatusSegment& s : segments) {
    shown.emplace_back(&s, font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, s.label.c_str()).x);
    needed += shown.back().second + px(kSegmentGap);
  }
  while (needed > room && !shown.empty()) {
    const auto least = std::max_element(shown.begin(), shown.end(), [](const auto& a, const auto& b) {
      return a.first->goes_first < b.first->goes_first;
    });
    if (least->first->goes_first == 0) break;
    needed -= least->second + px(kSegmentGap);
    shown.erase(least);
  }
  return shown;
}

}  // namespace

void toast(ToastKind kind, std::string_view message) {
  auto& list = toasts();
  const auto now = std::chrono::steady_clock::now();
  if (!list.empty() && list.back().message == message) {
    list.back().since = now;
    return;
  }
  list.push_back({kind, std::string(message), now});
  if (list.size() > 5) list.erase(list.begin());
}

void draw_toasts(ImVec2 top) {
  const Palette& p = palette();
  auto& list = toasts();
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(list, [&](const Toast& t) {
    return t.kind != ToastKind::kError && now - t.since > std::chrono::seconds(5);
  });
  if (list.empty()) return;
  const Toast& newest = list.back();
  const ImU32 colors[] = {p.accent, p.good, p.warn, p.bad};
  const char* symbols[] = {"\u2022", "\u2713", "\u26a0", "\u2717"};
  const auto kind = static_cast<int>(newest.kind);
  ImGui::SetNextWindowPos(top, ImGuiCond_Always, {0.5f, 0});
  ImGui::PushStyleColor(ImGuiCol_WindowBg, mix(p.raised, colors[kind], 0.14f));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {px(12), px(3)});
  ImGui::PushStyleVar(ImGuiStyleVar_WindowMinSize, {px(16), px(16)});
  bool dismissed = false;
  if (ImGui::Begin("##toast", nullptr,
                   ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_AlwaysAutoResize |
                       ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoFocusOnAppearing |
                       ImGuiWindowFlags_NoNav | ImGuiWindowFlags_NoSavedSettings)) {
    ImGui::BringWindowToDisplayFront(ImGui::GetCurrentWindow());
    text(symbols[kind], colors[kind]);
    ImGui::SameLine();
    const std::string more = list.size() > 1 ? "   +" + std::to_string(list.size() - 1) + " more" : "";
    const float most = std::min(px(720), ImGui::GetIO().DisplaySize.x - ImGui::GetCursorPosX() - px(20));
    const float width = std::min(most, ImGui::CalcTextSize((newest.message + more).c_str()).x);
    ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + width + 1);
    text(newest.message + more);
    ImGui::PopTextWrapPos();
    dismissed = ImGui::IsWindowHovered() && ImGui::IsMouseClicked(0);
    const ImVec2 min = ImGui::GetWindowPos(), size = ImGui::GetWindowSize();
    ImGui::GetWindowDrawList()->AddRectFilled(min, {min.x + px(3), min.y + size.y}, colors[kind], px(3));
    register_rect("toast.0", min, {min.x + size.x, min.y + size.y}, "toast", newest.message);
  }
  ImGui::End();
  ImGui::PopStyleVar(2);
  ImGui::PopStyleColor();
  if (dismissed) list.pop_back();
}

void draw_status_bar(ImVec2 min, ImVec2 max, const std::vector<StatusSegment>& segments) {
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, max, p.panel);
  list->AddLine(min, {max.x, min.y}, p.border);
  ImFont* font = theme().small;
  const float y = std::round((min.y + max.y - font->FontSize) / 2);
  float x = min.x + px(kStatusMargin);
  const auto shown = segments_that_fit(segments, max.x - min.x - 2 * px(kStatusMargin));
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto& [segment, width] = shown[i];
    const StatusSegment& s = *segment;
    if (i + 1 == shown.size()) {
      x = std::max(x, max.x - width - px(kStatusMargin));
    } else if (i > 0) {
      list->AddLine({x - px(kSegmentGap) / 2, y}, {x - px(kSegmentGap) / 2, y + font->FontSize}, p.border);
    }
    const std::string fitted = fit_text(font, font->FontSize, s.label, max.x - x);
    list->AddText(font, font->FontSize, {x, y}, s.color != 0 ? s.color : p.text_dim, fitted.c_str());
    register_rect(s.id, {x, min.y}, {x + width, max.y}, s.label, s.label);
    x += width + px(kSegmentGap);
  }
}

}  // namespace gradloom
