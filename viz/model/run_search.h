// The search language of a session's runs (search_terms.h has its grammar):
//
//   tag:base device:cpu loss<2.5 step<10ms -status:failed "two words"
//
// Free text matches anywhere in name, note, tags, model or passes; tag:, status:, precision: and is: match whole words.
#pragma once

#include <string_view>
#include <vector>

#include "sessions/store.h"
#include "viz/model/search_terms.h"

namespace gradloom {

class RunQuery {
 public:
  // An error says what is wrong, for the line under the search box.
  static Result<RunQuery> parse(std::string_view text);
  bool empty() const { return terms_.empty(); }
  bool matches(const RunSummary& run) const;

 private:
  SearchTerms terms_;
};

// The keys of the language, for completion and help: "tag", "loss", ..
std::vector<std::string_view> run_query_keys();

// The places of the runs that match, pinned ones first, else in their order.
std::vector<std::size_t> found_runs(const std::vector<RunSummary>& runs, const RunQuery& query);

}  // namespace gradloom
