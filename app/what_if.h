// gradloom what-if: how long a step would take with other settings, with kernels that were faster, on another processor, on
// several ranks. Another number of threads cannot be told. Nothing of it is run: the job's kernels have times (app/advice/subject.h), and what would be different is
// predicted from them.
//
// Settings: the changed job is compiled, and its kernels are told by app/advice/prediction.h with their range. Kernels that are
// sped up take their part off what is left (Amdahl, 1967). Another processor of a data sheet is told by profiler/roofline.h
// alone; one that was measured by what each kernel took here, times how much lower its roof is there. Ranks add what kernels
// then wait for exchanges there (app/rank_scaling.h).
#pragma once

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "app/advice/advice.h"
#include "app/rank_scaling.h"
#include "profiler/hardware.h"
#include "sessions/predictions.h"

namespace gradloom {

// Kernels that take 1/factor of their time.
struct SpeedUp {
  enum class Of : std::uint8_t { op, kernel, node, scope, phase, launch, link };
  Of of = Of::op;
  std::string pattern;  // glob; launch and link have none
  double factor = 1;
};
// "op:MatMul=2", "scope:blocks.0/*=1.5", "phase:backward=2", "launch=4", "link=2"; a factor below 1 slows down. Errc::usage.
Result<SpeedUp> parse_speed_up(const std::string& text);
struct SpeedUpKind {
  const char* name;   // as --speed spells it
  const char* label;  // as the window does
  SpeedUp::Of of;
  bool pattern;
};
std::span<const SpeedUpKind> speed_up_kinds();

struct WhatIf {
  std::string changes;  // settings as --b of compare takes them; may be empty
  std::vector<SpeedUp> speed_ups;
  std::optional<Hardware> on;
  ClusterQuestion cluster;   // where the change has ranks
  std::string text() const;  // "precision=bf16; op:MatMul 2x; on NVIDIA H200 SXM"
};

struct WhatIfPart {
  std::string name;
  double before_ns = 0, after_ns = 0;
  std::int64_t before = 0, after = 0;  // launches
};
struct WhatIfAnswer {
  std::string times;  // where those of the job come from
  double before_ns = 0;
  double after_ns = 0, low_ns = 0, high_ns = 0;  // of a step of the changed job
  double samples = 1;                            // of it, as a multiple of the job's
  double known = 1;                              // the part of what differs that was measured
  double exposed_ns = 0;                         // of the changed step: kernels wait for exchanges
  std::string figures;                           // of these, whose they are (cluster.h); empty: one rank
  std::vector<WhatIfPart> phases, ops;           // by how much they change
  std::int64_t before_peak_bytes = 0, after_peak_bytes = 0;
  Recipe recipe;          // the changed job
  std::string plan_hash;  // its plan
  std::string note;       // what the range does not say; empty: nothing
  double ratio(double step_ns) const { return before_ns * samples / step_ns; }
};

// `run` and `options`: as `advise` takes them. Errors: what makes the job or the change impossible; Errc::usage: a pattern that no
// kernel fits, a job without times.
Result<WhatIfAnswer> what_if(const Recipe& job, const RunRecord* run, const WhatIf& question,
                             const AdviceOptions& options, std::stop_token stop);

// As sessions keep it. What speeds kernels up, or is on another processor, no run can measure: it has no plan hash.
KeptPrediction kept_prediction(const WhatIf& question, const WhatIfAnswer& answer);

// A kept prediction and the first run after it that had its plan on its hardware.
struct PredictionScore {
  KeptPrediction prediction;
  std::int64_t run = 0;  // 0: none yet
  double measured_ns = 0;
  double error() const { return run > 0 ? prediction.predicted_ns / measured_ns - 1 : 0; }
  bool in_range() const { return measured_ns >= prediction.low_ns && measured_ns <= prediction.high_ns; }
};
Result<std::vector<PredictionScore>> score_predictions(Store& store);

// Of those measured, without sign; NaN: none was
double median_error(const std::vector<PredictionScore>& scores);
// The command line of a run that measures it, into `session`; empty: none can.
std::string measuring_command(const KeptPrediction& prediction, const std::string& session);

Json answer_json(const WhatIf& question, const WhatIfAnswer& answer);
std::string answer_text(const WhatIf& question, const WhatIfAnswer& answer);
Json scores_json(const std::vector<PredictionScore>& scores, const std::string& session);
std::string scores_text(const std::vector<PredictionScore>& scores);

}  // namespace gradloom
