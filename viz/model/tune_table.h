// A search of `tune` as rows and as a front: what was tried, what it gained, in how much memory. Rows come one by
// one while it goes on, or all at once from a session's tables trial and configuration.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sessions/store.h"

namespace gradloom {

// One point of a front: a configuration that was measured.
struct FrontPoint {
  double speed = 0;  // time of the job / time of this
  std::int64_t bytes = 0;
  std::string group;  // only points of one group, the precision, are held against each other
};
// Of which no other of their group is faster and not larger; of equal ones the first.
std::vector<bool> pareto_front(const std::vector<FrontPoint>& points);

// What was measured of a configuration.
struct MeasuredSpeed {
  std::int64_t round = 0;   // below 1: nothing
  Interval ratio{1, 1, 1};  // time of the job / time of this
};
// The fastest beyond doubt: of those that are faster than the job, and that none of the others beats beyond doubt, the one
// that was measured most often, then the fastest. How often tells nothing of another search, whose configurations may
// all have been slower. None: nothing is faster.
std::optional<std::size_t> fastest_beyond_doubt(const std::vector<MeasuredSpeed>& measured);

struct TuneTableRow {
  std::string changes, label;  // from the job, and the same for people; both empty: the job
  std::string plan_hash;
  std::string precision;    // that it changes to; empty: the job's
  std::int64_t round = 0;   // 0: not measured, its prediction alone; -1: it cannot run
  Interval ratio{1, 1, 1};  // time of the job / time of this
  double predicted = 0;     // the same by the cost model; 0: it could not tell
  double step_ns = 0;       // of as many samples as the job's step takes; 0: not measured
  std::int64_t peak_bytes = 0;
  double error = -1;  // largest relative error of a gradient against f64; -1: not measured
  bool on_front = false;
  bool is_job() const { return changes.empty(); }
  bool measured() const { return round > 0; }
};

enum class TuneColumn : std::uint8_t { kPin, kName, kSpeed, kPredicted, kStep, kPeak, kError, kRound };

class TuneTable {
 public:
  // Adds the row, or replaces the one with its changes, of which it keeps what it does not know itself. The front and
  // the times of steps are made anew: those of all rows are of the job's step as it was measured last.
  void put(TuneTableRow row);
  void put(const std::vector<TuneTableRow>& rows);
  const std::vector<TuneTableRow>& rows() const { return rows_; }  // the job first, else as they came
  const TuneTableRow* find(const std::string& changes) const;      // null: there is none
  const TuneTableRow* job() const { return rows_.empty() || !rows_.front().is_job() ? nullptr : &rows_[0]; }
  const TuneTableRow* best() const;  // the fastest beyond doubt; null: nothing is
  std::int64_t measured() const;     // without the job
  // Rows on the front by precision, the smallest first: of each a line.
  std::map<std::string, std::vector<std::int32_t>> front() const;
  // Rows as they are listed: pinned ones first, then by the column; what has no such number comes last in either
  // direction. Column below 0: the fastest first, unmeasured ones behind by their prediction.
  std::vector<std::int32_t> order(int column, bool descending, const std::set<std::string>& pinned) const;

 private:
  void place(TuneTableRow row);
  void finish();
  std::vector<TuneTableRow> rows_;
};

// A search that a session holds.
struct RecordedSearch {
  std::string job;          // key of its trials
  std::string recipe_json;  // of the job; empty: an older program kept it, which told nothing of it
  TuneTable table;
  std::vector<Trial> trials;  // the last of each configuration
};
// The newest first.
std::vector<RecordedSearch> recorded_searches(const std::vector<Trial>& trials,
                                              const std::vector<TriedConfiguration>& configurations);

}  // namespace gradloom
