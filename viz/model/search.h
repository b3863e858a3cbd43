// The search language of graph, kernel table and command palette:
//
//   attn "two words" op:Conv* phase:bwd scope:layers.0 pass:fuse-* kernel:brg type:f32 time>1ms bytes>=2MiB
//   flops>1G -scope:embed
//
// Terms are joined by "and"; '-' negates a term. Text matches anywhere in name, operator or scope; a key with
// ':' takes * and ?, and without them matches anywhere (op: and phase: from the start). Case is ignored. A
// number that was not measured matches nothing.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

struct SearchFields {
  std::string_view name, op, phase, scope, passes, kernel, type;
  double time_ns = std::nan(""), bytes = std::nan(""), flops = std::nan("");
};

class Query {
 public:
  Query() = default;
  // An error says what is wrong, for the line under the search box.
  static Result<Query> parse(std::string_view text);
  bool empty() const { return terms_.empty(); }
  bool matches(const SearchFields& fields) const;

 private:
  enum class Field : uint8_t {
    kText,
    kName,
    kOp,
    kPhase,
    kScope,
    kPass,
    kKernel,
    kType,
    kTime,
    kBytes,
    kFlops
  };
  enum class Compare : uint8_t { kText, kLess, kLessEqual, kGreater, kGreaterEqual };
  struct Term {
    Field field = Field::kText;
    Compare compare = Compare::kText;
    bool negated = false;
    std::string text;  // lower case
    double number = 0;
  };
  static Result<Term> parse_term(std::string_view word);
  static bool term_matches(const Term& term, const SearchFields& fields);
  std::vector<Term> terms_;
};

// A query to learn from, as an empty search field shows it: the operator and phase that cost most, and a
// number that some of them exceed. It finds something among `rows`; empty when there is nothing to find.
std::string example_query(const std::vector<SearchFields>& rows);

}  // namespace gradloom
