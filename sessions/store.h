// Store: one SQLite file per session, WAL mode, format in schema.sql. Rows that a
// commit acknowledged survive kill -9; every run carries a digest over all its rows,
// so that damage SQLite does not notice is named on reading.
//
// Writing:  auto store = TRY(Store::open(path, StoreMode::write));
//           auto run = TRY(store->begin_run(start));                        // status "running"
//           TRY(run->write_plan(graph, plan, reports));
//           TRY(run->add_step(row, samples, activities)); ...               // committed at least every 0.5 s or 64 steps
//           TRY(run->finish(finish));                                       // without it readers see "interrupted"
// Errors: Errc::bad_input for files that are not (valid) sessions, Errc::io for disk full, read-only, locked
// for more than 5 s. A Store and its RunWriters belong to one thread. Several processes may have the file
// open; a second writer waits its turn.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/plan/plan.h"
#include "passes/pass.h"
#include "profiler/trace.h"
#include "sessions/compare.h"
#include "sessions/loop.h"
#include "sessions/predictions.h"
#include "sessions/rank_rows.h"
#include "sessions/stats.h"

namespace gradloom {

constexpr std::int32_t kApplicationId = 0x47724c6d;  // "GrLm"
constexpr int kSchemaVersion = 12;                   // older files are read; writing makes them this version
const char* schema_sql();                            // the format document, sessions/schema.sql

// RunStart::data of a recorded loop. Of a run that another profiler recorded it is the name of the profiler (ImportOrigin).
constexpr const char* kLoopData = "loop";
struct ImportedKernel;

struct RunStart {
  std::string name;  // optional label, e.g. "passes none"
  std::string model, model_hash, device, precision, optimizer, loss, data, command;
  std::string passes;  // Pipeline::text()
  std::string planner;
  std::string recipe_json;  // the run as a recipe
  std::uint64_t seed = 0;
  std::int64_t planned_steps = 0;
  std::string graph_hash, plan_hash;
  std::map<std::string, std::string> environment;  // environment_rows()
};

struct StepRow {
  std::int64_t step = 0;  // 1-based
  double loss = 0;        // NaN and Inf are kept
  std::int64_t step_ns = 0;
  double lr = 0;
  double grad_norm = -1;  // -1: not computed
  bool timed = false;     // kernel by kernel
  // With loss scaling: the next step's scale (else 0), and how many steps in a row were
  // skipped (0: this one was made).
  double loss_scale = 0;
  std::int64_t skipped = 0;
};

struct EvaluationRow {
  std::int64_t step = 0;  // after which it was made
  double loss = 0;        // mean over the batches; NaN and Inf are kept
  std::int64_t batches = 0, eval_ns = 0;
};

// Named numbers of a run's end: what the summary shows beside the losses.
struct RunFinish {
  std::string status = "done";  // done | stopped (Ctrl-C, cancel) | failed
  std::string message;          // why, when failed
  std::int64_t measured_peak_bytes = 0;
  double overhead = -1, overhead_low = 0, overhead_high = 0;  // of timing; -1: unknown
  std::map<std::string, std::string> environment;             // rows known only at the end (load_after)
  // The same of all ranks, where there are several
  std::vector<std::map<std::string, std::string>> rank_environments;
  std::vector<Implementations> implementations;  // by plan step
};

class Store;

class RunWriter {
 public:
  ~RunWriter();  // commits what is buffered; the run stays unfinished
  std::int64_t id() const;
  // Graph after all passes, its plan and the match log, in one transaction. A run may have several: their numbers go on
  // where those of the plan before ended, and names of nodes and ONNX nodes get `module` and a slash in front, where it is
  // given.
  Status write_plan(const Graph& graph, const Plan& plan, const std::vector<PassReport>& reports,
                    const std::string& module = "");
  // Of a run without a graph of ours: its kernels, whose numbers are those of the samples, and the operators that their
  // `sources` count, in one transaction.
  Status write_kernels(const std::vector<SourceNode>& operators, const std::vector<ImportedKernel>& kernels);
  Status add_step(const StepRow& row, const std::vector<KernelSample>& samples = {},
                  const std::vector<Activity>& activities = {});
  void add_evaluation(const EvaluationRow& row);  // committed with the steps
  // Of the step that is added next, as nested_spans gives them.
  void add_host_spans(std::vector<HostSpan> step);
  Status write_ranks(const std::vector<RankRow>& ranks);  // once, where there are several
  void add_rank_step(std::int64_t step, RankStep times);  // of the step that is added next
  Status flush();  // commits now; after an error the rows are kept and the next flush tries again
  Status finish(const RunFinish& finish);

 private:
  friend class Store;
  struct Impl;
  explicit RunWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct RunSummary {
  std::int64_t id = 0;
  std::string name, status, message;  // status: running | done | stopped | failed | interrupted
  std::string model, model_hash, device, precision, optimizer, loss, data, passes, planner, command,
      started_utc, finished_utc;
  std::uint64_t seed = 0;
  std::int64_t planned_steps = 0, steps = 0;
  std::int64_t steps_before = 0;  // of the training, when the run went on with it from a checkpoint
  double first_loss = 0, last_loss = 0;
  std::int64_t median_step_ns = 0;  // over untimed steps after the first three, else over all
  std::int64_t plan_peak_bytes = 0, arena_bytes = 0, measured_peak_bytes = 0, lower_bound_bytes = 0,
               kernels_per_step = 0;
  double overhead = -1, overhead_low = 0, overhead_high = 0;
  std::string graph_hash, plan_hash;
  std::vector<std::string> tags;  // in the order of the alphabet
  std::string note;
  bool pinned = false;
  bool is_loop() const { return data == kLoopData; }  // recorded from another program's training loop
  bool is_import() const;                             // from the trace of another profiler
  bool has_recipe() const { return !is_loop() && !is_import(); }
  bool has_loss() const;  // programs of others may tell none
  // The number of the last of the first steps, which tell nothing of the others; 0: another profiler chose them
  std::int64_t last_warmup_step() const;
  std::string kind_text() const;  // "a recorded loop", "PyTorch's profiler"; empty: a training of ours
};

// A plan step with its node, provenance and measured time: over the timed steps after the
// first three, else over all.
struct KernelRow {
  KernelInfo info;
  std::int64_t steps = 0;  // timed ones of the run
  std::int64_t samples = 0, median_ns = 0, min_ns = 0, total_ns = 0;
  // Per optimizer step: the median of what it takes of those in which it ran, times their part of the timed steps. A sample that
  // something else disturbed is not a kernel's time.
  std::int64_t step_ns = 0;
  double share = 0;           // of all kernels' step_ns
  double threads_busy = -1;   // part of the CPU's threads' time in it that they computed; -1: nothing tells
  double executions() const;  // of an optimizer step, with every micro-batch; 1 where nothing was timed
  std::int64_t launches() const;  // the same, rounded
  // Of all of them, as step_ns; `info` tells those of one.
  double step_flops() const { return info.flops * executions(); }
  double step_bytes() const { return (info.bytes_read + info.bytes_written) * executions(); }
};

// What one stream of a GPU, or the host, did of one kind: per timed step.
struct StreamRow {
  std::string kind;                   // kernel, copy, fill; launch: the host's
  std::int32_t stream = -1;           // -1: the host
  std::int64_t count = 0, bytes = 0;  // in all timed steps
  std::vector<double> ns;             // by timed step
};

struct PassRow {
  std::string name, phase;
  int matched = 0, rejected = 0;
  std::int64_t nodes_before = 0, nodes_after = 0;
  double ms = 0;
  std::vector<RewriteRecord> log;
};

struct BufferRow {
  std::vector<std::string> values;  // names of the values that share it
  std::string place;                // arena, state, input, constant
  std::int64_t offset = 0, bytes = 0, first_step = 0, last_step = 0;
};

struct RunRecord {
  RunSummary summary;
  std::string recipe_json;
  std::map<std::string, std::string> environment;
  std::vector<StepRow> steps;
  std::vector<EvaluationRow> evaluations;
  std::vector<KernelRow> kernels;       // by plan step
  std::vector<std::string> source_ops;  // operators of the ONNX nodes, by KernelInfo::sources
  std::vector<PassRow> passes;
  std::vector<BufferRow> buffers;
  std::vector<StreamRow> streams;  // GPU runs; from timed steps
  std::optional<LoopShares> loop;  // recorded loops
  std::vector<RankShares> ranks;   // of several
  bool has_times() const;          // of kernels
};

struct StoredComparison {
  std::int64_t id = 0, run_a = 0, run_b = 0;  // runs: 0 when not stored
  std::string created_utc;
  Comparison comparison;
};

struct TuningChoice {
  std::string choice;
  std::int64_t time_ns = 0;  // 0: not measured here
  bool operator==(const TuningChoice&) const = default;
};

// A configuration that `tune` measured: a row of table trial.
struct Trial {
  std::string job;      // what is tuned, where and how: equal for trials that can be compared
  std::string changes;  // from the job, as RecipeFlags::override_with takes them
  std::string plan_hash;
  std::int64_t round = 0;
  Interval ratio;  // time of the job / time of this
  double step_ns = 0, predicted_ns = 0;
  std::int64_t peak_bytes = 0;
  std::string recipe_json;
};

// What `tune` knows of a job and of each configuration that it measured, besides the measurements: a row of table
// configuration. Of several rows of one job, changes and plan the last one holds.
struct TriedConfiguration {
  std::string job, changes;  // as in Trial; no changes: the job itself
  std::string label;         // the changes for people
  std::string plan_hash;
  std::int64_t peak_bytes = 0;
  double step_ns = 0;    // of the job's step, as it was when this was measured
  double predicted = 0;  // time of the job / time of this, by the cost model; 0: it could not tell
  double error = -1;     // largest relative error of a gradient against f64; -1: not measured
  std::string recipe_json;
};

// A change of what a person says of a run.
struct RunEdit {
  enum class Kind : std::uint8_t { rename, tag, untag, note, pin, unpin, remove };
  Kind kind = Kind::rename;
  std::int64_t run = 0;
  std::string value;  // name, tags joined by commas, note; an empty name or note takes it away
};
struct RunChange {
  std::int64_t run = 0;
  std::string name, note;  // as they are now; of a deleted run, as they were
  std::vector<std::string> tags;
  bool pinned = false, deleted = false;
  std::int64_t rows = 0, comparisons = 0;  // deleted ones
};

constexpr std::size_t kMaxTracedExecutions = 2'000'000;  // some 64 B each in memory, 500 B in a trace file

enum class StoreMode : std::uint8_t { read, write };  // write creates the file

class Store {
 public:
  static Result<std::unique_ptr<Store>> open(const std::string& path, StoreMode mode);
  ~Store();
  const std::string& path() const;
  // Of the file's format: kSchemaVersion, or less in an older file that is only read.
  Result<std::int64_t> version();

  Result<std::unique_ptr<RunWriter>> begin_run(const RunStart& start);  // the Store must outlive the writer

  Result<std::vector<RunSummary>> list_runs();
  // "last", a number, or a run's name (the latest of that name)
  Result<std::int64_t> find_run(const std::string& text);
  Result<RunSummary> summary(std::int64_t run);
  // The machine record alone, unchecked.
  Result<std::map<std::string, std::string>> environment(std::int64_t run);
  Result<RunRecord> load_run(std::int64_t run);  // damaged runs: Errc::bad_input
  // Live reading while another process writes.
  Result<std::vector<StepRow>> steps_after(std::int64_t run, std::int64_t step);
  // The first timed steps with at most so many kernel executions in all.
  Result<TraceDocument> load_trace(std::int64_t run, std::size_t max_executions = kMaxTracedExecutions);
  // Recomputes the digest, tables and indices: Errc::bad_input "run 3 is damaged".
  Status check(std::int64_t run);

  // All edits or, after an error, none: Errc::usage for what may not be a name or a tag, Errc::bad_input for a run that is
  // damaged, or that is running or pinned and shall be deleted. With a run its comparisons go. In the order of `edits`.
  Result<std::vector<RunChange>> edit_runs(const std::vector<RunEdit>& edits);
  // The file as small as its rows allow: deleted ones leave room in it, which later runs fill otherwise.
  Status compact();

  // What was found by trying on this hardware (GPU libraries' algorithms: Algorithms in
  // engine/device/device.h), by key. A key that is there already gets the new choice.
  Status add_tuning(const std::string& hardware, const std::map<std::string, TuningChoice>& choices);
  Result<std::map<std::string, TuningChoice>> tuning(const std::string& hardware);

  Result<std::int64_t> add_comparison(const Comparison& comparison, std::int64_t run_a = 0,
                                      std::int64_t run_b = 0);
  Result<std::vector<StoredComparison>> list_comparisons();  // without rows that fail their digest

  Status add_prediction(const KeptPrediction& prediction);
  // The oldest first, without rows that fail their digest.
  Result<std::vector<KeptPrediction>> list_predictions();

  Status add_trial(const Trial& trial);
  // Of a job, or of all; in order, without rows that fail their digest.
  Result<std::vector<Trial>> list_trials(const std::string& job = {});
  Status add_configuration(const TriedConfiguration& configuration);
  Result<std::vector<TriedConfiguration>> list_configurations(const std::string& job = {});

 private:
  friend class RunWriter;
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradloom
