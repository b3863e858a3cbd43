// The terms that search languages are made of: `word`, `"two words"`, `key:text`, `key<number`, `key~regex` and `~regex`, each
// negated by a `-` before it. Terms one after another must all hold; `or` between them parts alternatives, and parentheses
// group: `op:Conv (phase:bwd or time>1ms) -scope~"layers\.[0-3]"`. A key with ':' takes * and ?, and without them matches anywhere,
// at the start or as a whole, as its row says. A regex is POSIX's extended one, found anywhere (^ and $ hold it), without counted
// repetition and back references, which take time without end. Case is ignored. A number that was not measured matches nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

struct CompiledRegex;

struct SearchTerm {
  enum class Compare : std::uint8_t { text, regex, less, less_equal, greater, greater_equal };
  int field = -1;
  SearchKind kind = SearchKind::anywhere;
  Compare compare = Compare::text;
  bool negated = false;
  std::string text;  // lower case; of a regex as it was typed
  double number = 0;
  std::shared_ptr<const CompiledRegex> regex{};
  bool matches(std::string_view value) const;
  bool matches(double value) const;
};

// A whole search: terms joined by and, or and parentheses.
class SearchTerms {
 public:
  // A key may be there twice, for text and for a number. An error says what is wrong, for the line under the search box.
  static Result<SearchTerms> parse(std::string_view text, std::span<const SearchKey> keys);
  bool empty() const { return terms_.empty(); }
  std::vector<SearchTerm>& terms() { return terms_; }
  // `holds`: whether a term, were it not negated, holds for what is searched. Without terms all is found.
  template <class Holds>
  bool match(const Holds& holds) const {
    if (alternatives_.empty()) return true;
    const auto one = [&](auto&& self, std::size_t group) -> bool {
      for (const Alternative& all : alternatives_) {
        if (all.group != group) continue;
        bool good = true;
        for (std::size_t i = 0; i < all.members.size() && good; ++i) {
          const Member& m = all.members[i];
          good = (m.is_group ? self(self, m.index) : holds(terms_[m.index])) !=
                 (m.is_group ? m.negated : terms_[m.index].negated);
        }
        if (good) return true;
      }
      return false;
    };
    return one(one, 0);
  }

 private:
  struct Member {
    std::size_t index = 0;  // of a term, or of a group
    bool is_group = false, negated = false;
  };
  struct Alternative {  // of a group, of which one must hold
    std::size_t group = 0;
    std::vector<Member> members;
  };
  friend class SearchParser;
  std::vector<SearchTerm> terms_;
  std::vector<Alternative> alternatives_;  // group 0 is the whole
};

// A round number below `value` (1, 2 or 5 times a power of ten of the unit), with the unit.
std::string round_below(double value, SearchKind kind, std::string_view unit);

}  // namespace gradloom
