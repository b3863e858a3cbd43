// Immutable results of background work. The window reads them through shared pointers; nothing in them
// changes after publication, so no frame ever sees half a result or waits for one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "app/job.h"
#include "app/model_summary.h"
#include "sessions/store.h"
#include "viz/model/curves.h"
#include "viz/model/memory_model.h"
#include "viz/model/tune_table.h"
#include "viz/model/worth_table.h"

namespace gradloom {

struct ModelSnapshot : ModelSummary {
  ImportedModel model;
  std::vector<std::string> symbols;  // symbolic dims, before binding
  std::vector<std::string> losses;   // loss_choices()
  // Why it can be viewed but not planned; empty: it can.
  std::string unplannable() const;
};
// Opens for viewing: operators Gradloom lacks become opaque nodes. Dims of the model that `recipe`
// does not bind are bound as suggested, and the ones it binds but the model lacks are dropped; the
// dims used are written back.
Result<std::shared_ptr<const ModelSnapshot>> load_model_snapshot(Recipe& recipe, std::stop_token stop = {});

// The numbers that a pass is judged by before anything ran.
struct PlanTotals {
  std::int64_t nodes = 0, kernels = 0, peak_bytes = 0, arena_bytes = 0, lower_bound_bytes = 0;
  double flops = 0, bytes = 0;
};

struct PlanSnapshot {
  Recipe recipe;
  CompileOptions options;
  Compiled compiled;
  std::vector<KernelInfo> kernels;  // by plan step
  MemoryModel memory;
  std::vector<InputSpec> inputs;  // fed each step
  std::vector<ParameterRow> parameters;
  PlanTotals totals;
  const Graph& graph() const { return compiled.train.graph; }
  const Plan& plan() const { return compiled.plan; }
};
// `model` must come from the same model, dims and precision as `recipe`.
Result<std::shared_ptr<const PlanSnapshot>> make_plan_snapshot(const ImportedModel& model,
                                                               const Recipe& recipe,
                                                               std::stop_token stop = {});
// The recipe with every pass switched off.
Recipe without_passes(const Recipe& recipe);

// The problems with the data of a recipe, as the run would report them, by setting; none when first batches can be
// made.
std::map<std::string, std::string> data_problems(const PlanSnapshot& plan);

// A search of tune that the session holds.
struct KeptSearch {
  RecordedSearch search;
  Recipe job;       // whose search it is
  std::string key;  // job_hash of it
  WorthTable worth;
};

struct SessionSnapshot {
  std::string path, stamp;                    // session_stamp, as it was read
  std::vector<RunSummary> runs;               // newest first
  std::vector<StoredComparison> comparisons;  // newest first
  std::vector<KeptSearch> searches;           // newest first; those that tell their job
};
// Of recipes with one hash the measurements of tune can be compared, and the proofs of verify hold.
std::string job_hash(const Recipe& recipe);
Result<std::shared_ptr<const SessionSnapshot>> load_session_snapshot(const std::string& path);

struct RunSnapshot {
  std::string session_path;
  RunRecord record;
  TraceDocument trace;
  MemoryModel memory;
  RunCurves curves;
  std::map<std::string, std::size_t> kernel_of_node;  // node name -> index in record.kernels
};
// `stage` is told what is being read.
Result<std::shared_ptr<const RunSnapshot>> load_run_snapshot(
    const std::string& path, std::int64_t run, const std::function<void(const char*)>& stage = {});

}  // namespace gradloom
