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
#include "viz/model/worth_table.h"

namespace gradloom {

// Of a search of the job, and of one of the job without passes where there is one (worth_of).
WorthTable pass_worth(const Tuned& job, const Tuned* none = nullptr);

struct MeasuredWorth {
  WorthTable table;
  std::int64_t known = 0;  // trials of earlier searches that were taken over
  bool stopped = false;    // before its end, by the user
};
// Errors: as tune.
Result<MeasuredWorth> measure_worth(const Recipe& job, double seconds, Store& store, std::stop_token stop,
                                    const std::function<void(const TuneProgress&)>& progress,
                                    const TuneListener& on_row);

std::string worth_text(const WorthTable& table);  // empty: nothing was measured
Json worth_json(const WorthTable& table);
std::string ratio_text(const Interval& ratio);  // "1.234x [1.201, 1.260]"

}  // namespace gradloom
