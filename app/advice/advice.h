// What would make a job faster, by how much, and how to prove it (`gradloom advise`).
//
// The job's kernels have times: those of a recorded run, of the run that --costs names, or of a few steps that are made for it.
// Each rule (rules.def) looks for one kind of cause. Where the remedy is a setting, the changed job is compiled and its kernels
// are predicted (prediction.h); where steps may be made, the changes that promise most are then timed for a few steps too, so
// that what is told of them rests on kernels that were measured.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "app/advice/prediction.h"
#include "app/job_source.h"
#include "app/output.h"
#include "app/timed_kernels.h"
#include "sessions/store.h"

namespace gradloom {

// The change of findings whose remedy lies in the model: `compare` takes it once the file is there.
constexpr const char* kEditedModel = "model=EDITED.onnx";

struct Finding {
  std::string rule;                  // that found it
  std::string title;                 // the concrete thing: node, scope, number of kernels
  std::vector<std::string> numbers;  // behind it, each a sentence
  std::string node;                  // of the plan, that stands for it; empty: none
  Gain gain;                         // of a step of the job
  std::int64_t saved_bytes = 0;      // of the planned peak
  std::string change;                // as --b of `compare` takes it; empty: it is none of the job's settings
  std::string remedy;                // what to do, where the change does not say it
  std::string command;               // proves it
  double ratio = 0, ratio_low = 0, ratio_high = 0;  // that this command should show; 0: it compares nothing
  std::set<std::string> nodes{};                    // of the plan: turns that are alike, all; empty: not told
  bool once = false;  // the gain is spread over the run's steps, whose number is no property of the job
};

// What the rules know of the machine.
struct MachineFacts {
  int cores = 1;  // that this process may use
  std::int64_t memory_bytes = 0;
  bool fast_bf16 = false;
  std::string disturbed{};        // what makes times doubtful now; empty: nothing
  std::vector<TypeTime> types{};  // kernels in each type on the job's device; none: they were not measured
};
MachineFacts machine_of(const Recipe& job);  // this one

struct AdviceOptions {
  double least_share = 0.01;  // of a step: what promises less is left out
  double seconds = 20;        // for steps that are timed beside the job's own
  MachineFacts machine;
  // Of the job, which commands then name; none: they name its model and settings
  std::optional<JobSource> source{};
  std::shared_ptr<const TraceDocument> trace{};  // of the run; null: its timed steps are not looked at
  // Times the kernels of a recipe; null: no step may be made.
  std::function<Result<TimedKernels>(const Recipe&)> time;
};

struct Advice {
  double step_ns = 0, kernels_ns = 0;
  std::string times;              // where they come from
  std::vector<Finding> findings;  // by gain, the largest first; behind them what a run pays once
  std::size_t left_out = 0;       // below the least share
  std::vector<std::string> notes;
};

struct AdviceProgress {
  double fraction = 0;
  std::string what;
};
using TellAdvice = std::function<void(const AdviceProgress&)>;

// `run`: the recorded run whose kernels' times hold, of the job itself or of much the same one; null: the job's --costs, else
// the job is timed. Errors: what makes the job impossible; Errc::usage: no times, and none may be made.
Result<Advice> advise(const Recipe& job, const RunRecord* run, const AdviceOptions& options,
                      std::stop_token stop, const TellAdvice& tell);
// What a command is asked about: the run of a session, or none where `subject` is no session.
Result<std::optional<RunRecord>> asked_run(const std::string& subject, const std::string& run);
Result<std::shared_ptr<const TraceDocument>> trace_of_run(const std::string& session, std::int64_t run);
// Some steps of a job, in ten seconds at most: AdviceOptions::time where steps may be made.
std::function<Result<TimedKernels>(const Recipe&)> time_some_steps(std::stop_token stop);
// Of a run of a session, a recorded loop or not, on this machine; no step is made.
Result<Advice> advise_run(const RunRecord& run, const std::string& session, AdviceOptions options,
                          std::stop_token stop);
// Of a recorded loop, whose model and data are its program's.
Advice advise_loop(const RunRecord& run, const std::string& session, const AdviceOptions& options);

Json finding_json(const Finding& finding, double step_ns);
Json summary_json(const Advice& advice, double least_share);  // the last line
std::string advice_text(const Advice& advice, double least_share);

}  // namespace gradloom
