#include "viz/model/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace gradloom {
namespace {

enum NodeField { kText = -1, kName, kOp, kPhase, kScope, kPass, kKernel, kType, kTime, kBytes, kFlops };

constexpr SearchKey kKeys[] = {{"name", kName, SearchKind::anywhere, false},
                               {"op", kOp, SearchKind::start},
                               {"phase", kPhase, SearchKind::start},
                               {"scope", kScope, SearchKind::anywhere},
                               {"pass", kPass, SearchKind::anywhere},
                               {"kernel", kKernel, SearchKind::anywhere},
                               {"type", kType, SearchKind::anywhere},
                               {"shape", kType, SearchKind::anywhere, false},
                               {"time", kTime, SearchKind::ns},
                               {"bytes", kBytes, SearchKind::bytes},
                               {"flops", kFlops, SearchKind::flops}};

// One of the passes in the list, which are joined by commas.
bool any_pass_matches(const SearchTerm& term, std::string_view passes) {
  for (size_t begin = 0; begin <= passes.size();) {
    const size_t end = std::min(passes.find(',', begin), passes.size());
    if (term.matches(passes.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

// "bwd" and "backward" are the same phase.
std::string phase_name_of(const std::string& s) {
  if (s == "fwd") return "forward";
  if (s == "bwd") return "backward";
  if (s == "opt") return "optimizer";
  return s;
}

bool term_matches(const SearchTerm& term, const SearchFields& f) {
  switch (static_cast<NodeField>(term.field)) {
    case kText: return term.matches(f.name) || term.matches(f.op) || term.matches(f.scope);
    case kName: return term.matches(f.name);
    case kOp: return term.matches(f.op);
    case kPhase: return term.matches(f.phase);
    case kScope: return term.matches(f.scope);
    case kPass: return any_pass_matches(term, f.passes);
    case kKernel: return term.matches(f.kernel);
    case kType: return term.matches(f.type);
    case kTime: return term.matches(f.time_ns);
    case kBytes: return term.matches(f.bytes);
    case kFlops: return term.matches(f.flops);
  }
  return false;
}

}  // namespace

Result<Query> Query::parse(std::string_view text) {
  Query query;
  query.terms_ = TRY(SearchTerms::parse(text, kKeys));
  for (SearchTerm& term : query.terms_.terms())
    if (term.field == kPhase && !term.regex) term.text = phase_name_of(term.text);
  return query;
}

std::string keep_filter(std::vector<SavedFilter>& filters, const std::string& name,
                        const std::string& query) {
  const auto blank = [](const std::string& s) { return s.find_first_not_of(' ') == std::string::npos; };
  if (blank(query)) return "There is no search to keep";
  if (const auto parsed = Query::parse(query); !parsed) return parsed.error().message;
  const std::string& called = blank(name) ? query : name;
  if (called.size() > kMostFilterBytes || query.size() > kMostFilterBytes) return "That is too long to keep";
  const auto known = std::find_if(filters.begin(), filters.end(),
                                  [&](const SavedFilter& other) { return other.name == called; });
  if (known != filters.end()) {
    known->query = query;
    return {};
  }
  if (filters.size() >= kMostFilters) return "There are too many filters";
  filters.push_back({called, query});
  return {};
}

std::string example_query(const std::vector<SearchFields>& rows) {
  const auto cost = [timed = std::any_of(rows.begin(), rows.end(), [](const SearchFields& f) {
                       return f.time_ns > 0;
                     })](const SearchFields& f) {
    const double value = timed ? f.time_ns : f.bytes;
    return std::isnan(value) ? 0.0 : value;
  };
  std::map<std::pair<std::string_view, std::string_view>, double> sums;
  for (const SearchFields& f : rows)
    if (!f.op.empty() && !f.phase.empty()) sums[{f.op, f.phase}] += cost(f);
  if (sums.empty()) return {};
  const auto most = std::max_element(sums.begin(), sums.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto& [op, phase] = most->first;
  double time = 0, bytes = 0;
  for (const SearchFields& f : rows) {
    if (f.op != op || f.phase != phase) continue;
    time = std::max(time, f.time_ns);  // the first argument stays when the second is not a number
    bytes = std::max(bytes, f.bytes);
  }
  const std::string short_phase = phase == "forward"     ? "fwd"
                                  : phase == "backward"  ? "bwd"
                                  : phase == "optimizer" ? "opt"
                                                         : std::string(phase);
  std::string text = fmt::format("op:{} phase:{}", op, short_phase);
  if (time > 0) return fmt::format("{} time>{}", text, round_below(time, SearchKind::ns, "us"));
  if (bytes > 0) return fmt::format("{} bytes>{}", text, round_below(bytes, SearchKind::bytes, "kib"));
  return text;
}

bool Query::matches(const SearchFields& fields) const {
  return terms_.match([&](const SearchTerm& term) { return term_matches(term, fields); });
}

}  // namespace gradloom
