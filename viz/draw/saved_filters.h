// The filters that the user kept, behind a button beside a search field.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "viz/model/search.h"

namespace gradloom {

struct SavedFiltersState {
  std::vector<SavedFilter>* filters = nullptr;  // the application's; null: there is no button
  std::string name, problem;                    // of the one that is being kept
};

// Draws the button. The query that was chosen; none: nothing was.
std::optional<std::string> draw_saved_filters(std::string_view id, const std::string& query,
                                              SavedFiltersState& state);
// What the button takes of a line, with the space before it.
float saved_filters_width(const SavedFiltersState& state);

}  // namespace gradloom
