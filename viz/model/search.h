// The search language of graph, kernel table and command palette (search_terms.h has its grammar):
//
//   attn "two words" op:Conv* phase:bwd scope:layers.0 pass:fuse-* kernel:brg type:f32 time>1ms bytes>=2MiB
//   flops>1G -scope:embed
//
// Text matches anywhere in name, operator or scope; op: and phase: match from the start.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "viz/model/search_terms.h"

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
  std::vector<SearchTerm> terms_;
};

// A query to learn from, as an empty search field shows it: the operator and phase that cost most, and a
// number that some of them exceed. It finds something among `rows`; empty when there is nothing to find.
std::string example_query(const std::vector<SearchFields>& rows);

}  // namespace gradloom
