// The terms that search languages are made of: `word`, `"two words"`, `key:text`, `key<number`, each negated by a `-`
// before it and all joined by "and". A key with ':' takes * and ?, and without them matches anywhere, at the start
// or as a whole, as its row says. Case is ignored. A number that was not measured matches nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

enum class SearchKind : std::uint8_t { anywhere, start, whole, ns, bytes, flops, number };

struct SearchKey {
  std::string_view name;
  int field;  // what the language calls it; -1 is free text
  SearchKind kind;
  bool listed = true;  // in the error about unknown keys
};

struct SearchTerm {
  enum class Compare : std::uint8_t { text, less, less_equal, greater, greater_equal };
  int field = -1;
  SearchKind kind = SearchKind::anywhere;
  Compare compare = Compare::text;
  bool negated = false;
  std::string text;  // lower case
  double number = 0;
  bool matches(std::string_view value) const;
  bool matches(double value) const;
};

// A key may be there twice, for text and for a number. An error says what is wrong, for the line under the search box.
Result<std::vector<SearchTerm>> parse_terms(std::string_view text, std::span<const SearchKey> keys);

// A round number below `value` (1, 2 or 5 times a power of ten of the unit), with the unit.
std::string round_below(double value, SearchKind kind, std::string_view unit);

}  // namespace gradloom
