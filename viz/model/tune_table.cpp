#include "viz/model/tune_table.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

namespace gradloom {
namespace {

// What a change makes of the precision; empty: nothing, it is the job's.
std::string precision_of(const std::string& changes) {
  constexpr std::string_view kSays = "precision=";
  for (std::size_t at = 0; at < changes.size();) {
    const std::size_t end = std::min(changes.find(';', at), changes.size());
    if (changes.compare(at, kSays.size(), kSays) == 0)
      return changes.substr(at + kSays.size(), end - at - kSays.size());
    at = end + 1;
  }
  return "";
}

std::optional<double> number_of(const TuneTableRow& row, TuneColumn by) {
  const auto if_any = [](bool any, double value) { return any ? std::optional(value) : std::nullopt; };
  switch (by) {
    case TuneColumn::kSpeed: return if_any(row.measured(), row.ratio.value);
    case TuneColumn::kPredicted: return if_any(row.predicted > 0, row.predicted);
    case TuneColumn::kStep: return if_any(row.measured() && row.step_ns > 0, row.step_ns);
    case TuneColumn::kPeak: return static_cast<double>(row.peak_bytes);
    case TuneColumn::kError: return if_any(row.error >= 0, row.error);
    case TuneColumn::kRound: return static_cast<double>(row.round);
    case TuneColumn::kPin:
    case TuneColumn::kName: break;
  }
  return std::nullopt;
}

}  // namespace

std::vector<bool> pareto_front(const std::vector<FrontPoint>& points) {
  std::vector<bool> front(points.size(), true);
  for (std::size_t b = 0; b < points.size(); ++b)
    for (std::size_t a = 0; a < points.size() && front[b]; ++a) {
      const FrontPoint &other = points[a], &own = points[b];
      if (a == b || other.group != own.group) continue;
      const bool no_worse = other.speed >= own.speed && other.bytes <= own.bytes;
      const bool equal = other.speed == own.speed && other.bytes == own.bytes;
      front[b] = !no_worse || (equal && a > b);
    }
  return front;
}

std::optional<std::size_t> fastest_beyond_doubt(const std::vector<MeasuredSpeed>& measured) {
  double surest = 1;
  for (const MeasuredSpeed& m : measured)
    if (m.round > 0) surest = std::max(surest, m.ratio.low);
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const MeasuredSpeed& m = measured[i];
    if (m.round < 1 || m.ratio.low <= 1 || m.ratio.high < surest) continue;
    const bool as_often = best && m.round == measured[*best].round;
    if (!best || m.round > measured[*best].round || (as_often && m.ratio.value > measured[*best].ratio.value))
      best = i;
  }
  return best;
}

void TuneTable::place(TuneTableRow row) {
  const auto known = std::find_if(rows_.begin(), rows_.end(),
                                  [&](const TuneTableRow& r) { return r.changes == row.changes; });
  if (known == rows_.end()) {
    rows_.insert(row.is_job() ? rows_.begin() : rows_.end(), std::move(row));
    return;
  }
  const bool same_plan = known->plan_hash == row.plan_hash;
  if (row.label.empty()) row.label = known->label;
  if (same_plan && row.predicted <= 0) row.predicted = known->predicted;
  if (same_plan && row.error < 0) row.error = known->error;
  if (row.step_ns <= 0) row.step_ns = known->step_ns;
  *known = std::move(row);
}

void TuneTable::finish() {
  std::vector<FrontPoint> points;
  std::vector<std::size_t> of_point;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    rows_[i].on_front = false;
    rows_[i].precision = precision_of(rows_[i].changes);
    if (!rows_[i].measured()) continue;
    points.push_back({rows_[i].ratio.value, rows_[i].peak_bytes, rows_[i].precision});
    of_point.push_back(i);
  }
  const std::vector<bool> front = pareto_front(points);
  for (std::size_t p = 0; p < points.size(); ++p) rows_[of_point[p]].on_front = front[p];
  const TuneTableRow* const own = job();
  if (own == nullptr || own->step_ns <= 0) return;
  for (TuneTableRow& row : rows_)
    if (row.measured() && !row.is_job()) row.step_ns = own->step_ns / row.ratio.value;
}

void TuneTable::put(TuneTableRow row) {
  place(std::move(row));
  finish();
}

void TuneTable::put(const std::vector<TuneTableRow>& rows) {
  for (const TuneTableRow& row : rows) place(row);
  finish();
}

const TuneTableRow* TuneTable::find(const std::string& changes) const {
  const auto found =
      std::find_if(rows_.begin(), rows_.end(), [&](const TuneTableRow& r) { return r.changes == changes; });
  return found == rows_.end() ? nullptr : &*found;
}

const TuneTableRow* TuneTable::best() const {
  std::vector<MeasuredSpeed> measured;
  for (const TuneTableRow& row : rows_) measured.push_back({row.is_job() ? 0 : row.round, row.ratio});
  const auto best = fastest_beyond_doubt(measured);
  return best ? &rows_[*best] : nullptr;
}

std::int64_t TuneTable::measured() const {
  return std::count_if(rows_.begin(), rows_.end(),
                       [](const TuneTableRow& r) { return r.measured() && !r.is_job(); });
}

std::map<std::string, std::vector<std::int32_t>> TuneTable::front() const {
  std::map<std::string, std::vector<std::int32_t>> front;
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].on_front) front[rows_[i].precision].push_back(static_cast<std::int32_t>(i));
  for (auto& [_, rows] : front)
    std::stable_sort(rows.begin(), rows.end(), [&](std::int32_t a, std::int32_t b) {
      return rows_[static_cast<std::size_t>(a)].peak_bytes < rows_[static_cast<std::size_t>(b)].peak_bytes;
    });
  return front;
}

std::vector<std::int32_t> TuneTable::order(int column, bool descending,
                                           const std::set<std::string>& pinned) const {
  std::vector<std::int32_t> order(rows_.size());
  std::iota(order.begin(), order.end(), 0);
  const bool usual = column < 0 || column == static_cast<int>(TuneColumn::kPin);
  const TuneColumn by = usual ? TuneColumn::kSpeed : static_cast<TuneColumn>(column);
  const auto before = [&](const TuneTableRow& a, const TuneTableRow& b) {
    const bool pin_a = pinned.count(a.changes) != 0, pin_b = pinned.count(b.changes) != 0;
    if (pin_a != pin_b) return pin_a;
    if (by == TuneColumn::kName) return descending ? a.label > b.label : a.label < b.label;
    const auto p = number_of(a, by), q = number_of(b, by);
    if (p.has_value() != q.has_value()) return p.has_value();
    if (p) return descending || usual ? *p > *q : *p < *q;
    return usual && a.predicted > b.predicted;
  };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return before(rows_[static_cast<std::size_t>(a)], rows_[static_cast<std::size_t>(b)]);
  });
  return order;
}

std::vector<RecordedSearch> recorded_searches(const std::vector<Trial>& trials,
                                              const std::vector<TriedConfiguration>& configurations) {
  std::map<std::string, RecordedSearch> by_job;
  std::vector<std::string> newest;  // the last to be named is the newest
  const auto search_of = [&](const std::string& job) -> RecordedSearch& {
    std::erase(newest, job);
    newest.push_back(job);
    RecordedSearch& search = by_job[job];
    search.job = job;
    return search;
  };
  std::map<std::pair<std::string, std::string>, Trial> last;
  for (const Trial& trial : trials) {
    search_of(trial.job);
    last[{trial.job, trial.changes}] = trial;
  }
  std::map<std::string, std::vector<TuneTableRow>> rows;
  for (const auto& [key, trial] : last) {
    by_job[trial.job].trials.push_back(trial);
    rows[trial.job].push_back({.changes = trial.changes,
                               .label = trial.changes,
                               .plan_hash = trial.plan_hash,
                               .round = trial.round,
                               .ratio = trial.ratio,
                               .step_ns = trial.step_ns,
                               .peak_bytes = trial.peak_bytes});
  }
  for (const TriedConfiguration& c : configurations) {
    RecordedSearch& search = search_of(c.job);
    if (c.changes.empty()) search.recipe_json = c.recipe_json;
    TuneTableRow row{.changes = c.changes, .label = c.label, .plan_hash = c.plan_hash};
    row.peak_bytes = c.peak_bytes;
    row.predicted = c.predicted;
    row.error = c.error;
    if (c.changes.empty()) {
      row.round = 1;
      row.step_ns = c.step_ns;
    } else if (const auto measured = last.find({c.job, c.changes});
               measured != last.end() && measured->second.plan_hash == c.plan_hash) {
      row.round = measured->second.round;
      row.ratio = measured->second.ratio;
      row.step_ns = measured->second.step_ns;
    } else {
      continue;  // of another version of the program: its plan is another one
    }
    rows[c.job].push_back(std::move(row));
  }
  std::vector<RecordedSearch> searches;
  for (auto job = newest.rbegin(); job != newest.rend(); ++job) {
    by_job[*job].table.put(rows[*job]);
    searches.push_back(std::move(by_job[*job]));
  }
  return searches;
}

}  // namespace gradloom
