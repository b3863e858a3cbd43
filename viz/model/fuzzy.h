// Fuzzy matching for the command palette and "go to node": letters in order,
// better at word starts and in runs.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace gradloom {

// Higher is better; empty: no match. Case is ignored.
std::optional<int> fuzzy_score(std::string_view pattern, std::string_view text);

// Indices of the best `most` of `texts`, best first, ties by position.
std::vector<int> fuzzy_rank(std::string_view pattern, const std::vector<std::string_view>& texts,
                            size_t most);

}  // namespace gradloom
