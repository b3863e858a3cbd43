// What each pass of a job is worth, in time and in memory, and the same as a waterfall: from no passes to all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sessions/store.h"
#include "viz/model/tune_table.h"

namespace gradloom {

struct WorthSide {
  enum class State : std::uint8_t {
    unknown,
    same,
    measured
  };  // same: the step does the same work without it
  State state = State::unknown;
  Interval speed{1, 1, 1};            // time without it / time with it, with its 95 % interval
  std::int64_t peak_saved_bytes = 0;  // peak of the plan without it - with it
  bool measured() const { return state == State::measured; }
};

struct PassWorth {
  std::string pass;
  WorthSide among, alone;  // among the job's other passes; without any other
};

struct WorthTable {
  std::vector<PassWorth> passes;  // by what they gain among the others, the most first
  WorthSide all;                  // all passes of the job against none
  double step_ns = 0;             // of the job; 0: not measured
  std::int64_t peak_bytes = 0;    // of its plan
};

// The measurements of one search of a job, and by pass the changes that leave it out or that have it alone: those that
// do the same work as the job are "".
struct WorthTrials {
  std::vector<Trial> trials;
  std::map<std::string, std::string> without, alone;
  double step_ns = 0;  // of the job, with its peak
  std::int64_t peak_bytes = 0;
};

// Of a search of the job, and of one of the job without passes where there is one: without it what a pass does alone is
// told from two measurements against the job, with the ends of their intervals at their worst.
WorthTable worth_of(const WorthTrials& job, const WorthTrials* none = nullptr);

// The same from what a session holds; empty: nothing of passes was measured. Which pass a trial leaves out is told by its
// recipe; of several passes without which the work is the same one has the trial.
WorthTable recorded_worth(const RecordedSearch& search, const std::vector<RecordedSearch>& all);

// A bar from `from` to `to`, of a step's time in ns or of memory in bytes. The first and the last stand on 0; those between
// hang where the one before ends.
struct WaterfallBar {
  enum class Kind : std::uint8_t {
    none,
    pass,
    together,
    all
  };  // together: what passes do only with each other, or do twice over
  Kind kind = Kind::pass;
  std::string pass;
  double from = 0, to = 0;
  double low = 0, high = 0;  // 95 % of what it takes away (of none and all: of the whole); equal: it is exact
  double saved() const { return from - to; }
};
struct Waterfall {
  std::vector<WaterfallBar> bars;  // empty: nothing was measured
  double most = 0;                 // the largest end
};
// `alone`: what each pass does alone against none, instead of among the others. `memory`: of the plan's peak.
Waterfall waterfall(const WorthTable& table, bool alone, bool memory);

}  // namespace gradloom
