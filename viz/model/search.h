// The search language of graph, kernel table and command palette (search_terms.h has its grammar):
//
//   attn "two words" op:Conv* phase:bwd scope:layers.0 pass:fuse-* kernel:brg type:f32 time>1ms bytes>=2MiB
//   flops>1G -scope:embed (op:Conv* or name~"head\.[0-9]+")
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
  SearchTerms terms_;
};

// A query that the user kept under a name.
struct SavedFilter {
  std::string name, query;
  bool operator==(const SavedFilter&) const = default;
};
constexpr size_t kMostFilters = 50, kMostFilterBytes = 1000;  // of a name or a query
// Keeps `query` as `name`, which may be another's: then that one is replaced. Empty name: the query itself is its name. Why it cannot
// be kept; empty: it is.
std::string keep_filter(std::vector<SavedFilter>& filters, const std::string& name, const std::string& query);

// A query to learn from, as an empty search field shows it: the operator and phase that cost most, and a
// number that some of them exceed. It finds something among `rows`; empty when there is nothing to find.
std::string example_query(const std::vector<SearchFields>& rows);

}  // namespace gradloom
