#include "viz/model/fuzzy.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace gradloom {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool starts_word(std::string_view text, size_t i) {
  if (i == 0) return true;
  const auto before = static_cast<unsigned char>(text[i - 1]), here = static_cast<unsigned char>(text[i]);
  return !std::isalnum(before) || (std::islower(before) && std::isupper(here)) ||
         (!std::isdigit(before) && std::isdigit(here));
}

}  // namespace

std::optional<int> fuzzy_score(std::string_view pattern, std::string_view text) {
  int score = 0, run = 0;
  size_t at = 0;
  for (char wanted : pattern) {
    if (wanted == ' ') {  // a blank starts a new word anywhere later
      run = 0;
      continue;
    }
    size_t found = at;
    // Inside a run the next letter is taken; otherwise a word start is preferred to the first occurrence.
    if (run == 0 || at >= text.size() || lower(text[at]) != lower(wanted)) {
      size_t first = std::string_view::npos, word = std::string_view::npos;
      for (size_t i = at; i < text.size() && word == std::string_view::npos; ++i) {
        if (lower(text[i]) != lower(wanted)) continue;
        if (first == std::string_view::npos) first = i;
        if (starts_word(text, i)) word = i;
      }
      found = word != std::string_view::npos ? word : first;
      if (found == std::string_view::npos) return std::nullopt;
      run = 0;
    }
    score += 1 + (starts_word(text, found) ? 6 : 0) + std::min(run, 4) * 3;
    ++run;
    at = found + 1;
  }
  return score * 16 - static_cast<int>(std::min<size_t>(text.size(), 200)) / 8;
}

std::vector<int> fuzzy_rank(std::string_view pattern, const std::vector<std::string_view>& texts,
                            size_t most) {
  std::vector<std::pair<int, int>> scored;
  for (int i = 0; i < static_cast<int>(texts.size()); ++i) {
    if (pattern.empty()) {
      scored.emplace_back(0, i);
      continue;
    }
    std::optional<int> score = fuzzy_score(pattern, texts[i]);
    // The greedy walk can miss a plain substring by taking a word start too early.
    const auto same = [](char a, char b) { return lower(a) == lower(b); };
    const auto plain = std::search(texts[i].begin(), texts[i].end(), pattern.begin(), pattern.end(), same);
    if (plain != texts[i].end())
      score = std::max(score.value_or(0), static_cast<int>(pattern.size()) * 10 * 16);
    if (score) scored.emplace_back(-*score, i);
  }
  std::sort(scored.begin(), scored.end());
  std::vector<int> out;
  for (size_t i = 0; i < std::min(most, scored.size()); ++i) out.push_back(scored[i].second);
  return out;
}

}  // namespace gradloom
