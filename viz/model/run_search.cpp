#include "viz/model/run_search.h"

#include <algorithm>
#include <cmath>

namespace gradloom {
namespace {

enum RunField {
  kText = -1,
  kName,
  kTag,
  kNote,
  kStatus,
  kModel,
  kDevice,
  kPrecision,
  kOptimizer,
  kLossName,
  kData,
  kPass,
  kPlanner,
  kFrom,
  kIs,
  kRun,
  kSteps,
  kLoss,
  kStep,
  kPeak
};

constexpr SearchKey kKeys[] = {{"tag", kTag, SearchKind::whole},
                               {"name", kName, SearchKind::anywhere},
                               {"note", kNote, SearchKind::anywhere},
                               {"status", kStatus, SearchKind::whole},
                               {"model", kModel, SearchKind::anywhere},
                               {"device", kDevice, SearchKind::start},
                               {"precision", kPrecision, SearchKind::whole},
                               {"optimizer", kOptimizer, SearchKind::start},
                               {"loss", kLossName, SearchKind::anywhere},
                               {"data", kData, SearchKind::anywhere},
                               {"pass", kPass, SearchKind::anywhere},
                               {"planner", kPlanner, SearchKind::start},
                               {"from", kFrom, SearchKind::anywhere},
                               {"is", kIs, SearchKind::whole},
                               {"loss", kLoss, SearchKind::number},
                               {"step", kStep, SearchKind::ns},
                               {"peak", kPeak, SearchKind::bytes},
                               {"steps", kSteps, SearchKind::number},
                               {"run", kRun, SearchKind::number}};

bool any_tag_matches(const SearchTerm& term, const RunSummary& run) {
  return std::any_of(run.tags.begin(), run.tags.end(),
                     [&](const std::string& tag) { return term.matches(tag); });
}

// 0 is "not measured" of times and sizes.
double measured(std::int64_t value) { return value > 0 ? static_cast<double>(value) : std::nan(""); }

bool term_matches(const SearchTerm& term, const RunSummary& r) {
  switch (static_cast<RunField>(term.field)) {
    case kText:
      return term.matches(r.name) || term.matches(r.note) || any_tag_matches(term, r) ||
             term.matches(r.model) || term.matches(r.passes);
    case kName: return term.matches(r.name);
    case kTag: return any_tag_matches(term, r);
    case kNote: return term.matches(r.note);
    case kStatus: return term.matches(r.status);
    case kModel: return term.matches(r.model);
    case kDevice: return term.matches(r.device);
    case kPrecision: return term.matches(r.precision);
    case kOptimizer: return term.matches(r.optimizer);
    case kLossName: return term.matches(r.loss);
    case kData: return term.matches(r.data);
    case kPass: return term.matches(r.passes);
    case kPlanner: return term.matches(r.planner);
    case kFrom: return term.matches(r.has_recipe() ? "gradloom" : r.kind_text());
    case kIs: return r.pinned && term.matches(std::string_view("pinned"));
    case kRun: return term.matches(static_cast<double>(r.id));
    case kSteps: return term.matches(static_cast<double>(r.steps));
    case kLoss: return r.steps > 0 && r.has_loss() && term.matches(r.last_loss);
    case kStep: return term.matches(measured(r.median_step_ns));
    case kPeak: return term.matches(measured(r.measured_peak_bytes));
  }
  return false;
}

}  // namespace

Result<RunQuery> RunQuery::parse(std::string_view text) {
  RunQuery query;
  query.terms_ = TRY(SearchTerms::parse(text, kKeys));
  for (const SearchTerm& term : query.terms_.terms())
    if (term.field == kIs && term.text != "pinned") return Error{Errc::usage, "is: takes pinned"};
  return query;
}

bool RunQuery::matches(const RunSummary& run) const {
  return terms_.match([&](const SearchTerm& term) { return term_matches(term, run); });
}

std::vector<std::string_view> run_query_keys() {
  std::vector<std::string_view> names;
  for (const SearchKey& key : kKeys)
    if (std::find(names.begin(), names.end(), key.name) == names.end()) names.push_back(key.name);
  return names;
}

std::vector<std::size_t> found_runs(const std::vector<RunSummary>& runs, const RunQuery& query) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (query.matches(runs[i])) found.push_back(i);
  std::stable_partition(found.begin(), found.end(), [&](std::size_t i) { return runs[i].pinned; });
  return found;
}

}  // namespace gradloom
