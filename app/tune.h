// The search for the fastest configuration of a job (`gradloom tune`).
//
// 1. The job's kernels are timed; a cost model (profiler/cost_model.h) predicts every configuration from its
//    plan. Configurations that launch the same kernels as one before are not tried.
// 2. Every single change (tune_space.h) is measured against the job, interleaved (sessions/compare.h), the ones
//    that promise most first. This is also what says what each pass is worth (pass_worth.h).
// 3. Changes that are faster are combined, and instances of passes without which the plan is predicted to be
//    faster are switched off.
// 4. Successive halving (Karnin, Koren and Somekh, 2013): what may still be the fastest is measured again for
//    twice the time, the better half stays, until one is left or the time is used up.
//
// Every measurement is a row of the session's table trial, what else is known of a configuration one of table
// configuration. A search of the same job on the same hardware goes on from the rows that are there.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "app/tune_space.h"
#include "sessions/compare.h"
#include "sessions/store.h"

namespace gradloom {

struct TuneOptions {
  double seconds = 60;  // of the search, without its preparation
  std::set<TuneAxis> axes{TuneAxis::passes, TuneAxis::instances, TuneAxis::threads};
  bool only_single_changes = false;  // they get all the time; nothing is combined
};

struct TuneRow {
  Trial trial;            // its last measurement; round 0: none, the prediction alone; -1: it cannot run
  std::string label;      // as in Candidate
  double predicted = 0;   // time of the job / time of this, by the cost model
  bool on_front = false;  // of those with its precision no other is faster and not larger
  double error = -1;      // largest relative error of a gradient against f64; -1: not measured
};

// What is heard of a search while it goes on: the job, once its kernels are timed; each configuration when it joins,
// with what an earlier search measured of it; each measurement.
enum class TuneEvent : std::uint8_t { job, candidate, trial };
using TuneListener = std::function<void(TuneEvent, const TuneRow&)>;

struct Tuned {
  std::vector<TuneRow> rows;  // the job first, then by ratio, the fastest first; unmeasured ones last
  std::size_t best = 0;       // of rows: 0 when nothing is faster than the job beyond doubt
  std::map<std::string, std::string> without, alone;  // as in TuneSpace
  double prediction_error = 0;  // median of |predicted / measured - 1| of the ratios to the job
  std::int64_t known = 0;       // trials of earlier searches that were taken over
  bool stopped = false;         // before its end, by the user
};

struct TuneProgress {
  double fraction = 0;
  std::string what;
  double seconds_left = 0;  // of the search; what comes before and behind it is not counted
};

// The job without what says nothing of its step: what it promises of its replay, how many steps there are. Of two
// recipes with one text the measurements can be compared.
std::string job_text(const Recipe& job);

// How many times as fast a trial is by the sample, with its interval: `samples` of its step, as a multiple of the job's. Fewer groups (ABBA) than kTrialGroups, where time was up before, spread by chance less
// than the machine does: what a side shows against itself is added.
constexpr std::int64_t kTrialGroups = 4;
Interval trial_ratio(const Comparison& compared, double samples);

// Errors: what makes the job impossible, and what the session refuses. A stop is none: what was found is told.
Result<Tuned> tune(const Recipe& job, const TuneOptions& options, Store& store, std::stop_token stop,
                   const std::function<void(const TuneProgress&)>& progress, const TuneListener& on_row);

}  // namespace gradloom
