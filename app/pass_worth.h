// What each pass is worth on a job, in time and in memory: how much slower and larger the job is without it (leave one
// out), and how much faster and smaller no passes become with it alone (add one in). Measured by the same search as
// `tune` (tune.h), of which every trial is kept in the session: the job against itself without each pass, and the job
// without passes against each pass alone, interleaved.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "app/output.h"
#include "app/tune.h"

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
};

struct PassWorth {
  std::string pass;
  WorthSide among, alone;  // among the job's other passes; without any other
};

struct WorthTable {
  std::vector<PassWorth> passes;  // by what they gain among the others, the most first
  WorthSide all;                  // all passes of the job against none
};

// Of a search of the job, and of one of the job without passes where there is one: without it what a pass does alone is
// told from two measurements against the job, with the ends of their intervals at their worst.
WorthTable pass_worth(const Tuned& job, const Tuned* none = nullptr);

struct MeasuredWorth {
  WorthTable table;
  std::int64_t known = 0;  // trials of earlier searches that were taken over
  bool stopped = false;    // before its end, by the user
};
// Errors: as tune.
Result<MeasuredWorth> measure_worth(const Recipe& job, double seconds, Store& store, std::stop_token stop,
                                    const std::function<void(const TuneProgress&)>& progress,
                                    const std::function<void(const Trial&)>& on_trial);

std::string worth_text(const WorthTable& table);  // empty: nothing was measured
Json worth_json(const WorthTable& table);
std::string ratio_text(const Interval& ratio);  // "1.234x [1.201, 1.260]"

}  // namespace gradloom
