#include "viz/draw/saved_filters.h"

#include <imgui.h>

#include <algorithm>

#include "engine/base/text.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

constexpr const char* kSign = "\u25be";

std::optional<std::string> draw_rows(const std::string& id, SavedFiltersState& state) {
  std::optional<std::string> chosen;
  std::size_t gone = state.filters->size();
  for (std::size_t i = 0; i < state.filters->size(); ++i) {
    const SavedFilter& filter = (*state.filters)[i];
    ImGui::PushID(static_cast<int>(i));
    if (selectable_row(id + ".use." + filter.name, escaped(filter.name), false, px(210)))
      chosen = filter.query;
    ImGui::SameLine(0, px(10));
    if (filter.name != filter.query) {
      muted(fit_text(theme().small, theme().small->FontSize, escaped(filter.query), px(230)));
      tip(escaped(filter.query));
      ImGui::SameLine(0, px(10));
    }
    if (button(id + ".forget." + filter.name, "Forget", ButtonKind::kGhost)) gone = i;
    ImGui::PopID();
  }
  if (gone < state.filters->size())
    state.filters->erase(state.filters->begin() + static_cast<std::ptrdiff_t>(gone));
  return chosen;
}

void draw_keep(const std::string& id, const std::string& query, SavedFiltersState& state) {
  const bool entered = input_text(id + ".name", "Name for this search", &state.name, px(210), false,
                                  ImGuiInputTextFlags_EnterReturnsTrue);
  ImGui::SameLine(0, px(6));
  if (button(id + ".keep", "Keep", ButtonKind::kPrimary) || entered) {
    state.problem = keep_filter(*state.filters, state.name, query);
    if (state.problem.empty()) state.name.clear();
  }
  if (!state.problem.empty()) {
    text("\u26a0 " + state.problem, palette().warn);
    register_item(id + ".problem", "problem", state.problem);
  }
}

}  // namespace

float saved_filters_width(const SavedFiltersState& state) {
  if (state.filters == nullptr) return 0;
  return ImGui::CalcTextSize(kSign).x + 2 * ImGui::GetStyle().FramePadding.x + px(2);
}

std::optional<std::string> draw_saved_filters(std::string_view name, const std::string& query,
                                              SavedFiltersState& state) {
  if (state.filters == nullptr) return {};
  const std::string id(name), popup = "##" + id;
  ImGui::SameLine(0, px(2));
  if (button(id, kSign, ButtonKind::kGhost, "Kept searches")) {
    state.problem.clear();
    ImGui::OpenPopup(popup.c_str());
  }
  std::optional<std::string> chosen;
  if (!ImGui::BeginPopup(popup.c_str())) return chosen;
  const bool known = std::any_of(state.filters->begin(), state.filters->end(),
                                 [&](const SavedFilter& f) { return f.query == query; });
  chosen = draw_rows(id, state);
  if (state.filters->empty()) muted("No search is kept yet.");
  if (query.empty() && state.filters->empty())
    muted("Type one, as in  op:MatMul phase:bwd (time>1ms or bytes>2MiB) -scope~\"layers\\.[0-3]\"");
  if (!query.empty() && !known) {
    spacer(2);
    draw_keep(id, query, state);
  }
  if (chosen) ImGui::CloseCurrentPopup();
  ImGui::EndPopup();
  return chosen;
}

}  // namespace gradloom
