// Comparing two configurations A and B.
//
// Interleaved: both are resident; blocks of steps run in the order ABBA BAAB ..., each side seeing the same
// steps, batches and seed. A group of four blocks gives one ratio time(A) / time(B) of block medians; the
// result is the median of these ratios with its bootstrap 95 % interval. The noise is the same statistic of A
// against A and B against B within the groups. Groups are added until the interval decides or the time is up.
// Looking repeatedly would raise the rate of false alarms, so an early FASTER or SLOWER must hold at 99.5 %.
// Two stored runs are compared with the same rules, but unpaired: their result says so.
//
// Kernels are matched by provenance: kernels of one phase that share an ONNX node form a row, so a fused
// kernel of B stands beside all the kernels of A that it replaces. A run of another profiler has no ONNX nodes:
// kernels of one phase and module form a row then, the module being the innermost that both runs know.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/run/executor.h"
#include "profiler/sampler.h"
#include "profiler/trace.h"
#include "sessions/stats.h"

namespace gradloom {

struct RunRecord;

// One group of four blocks: the median step of each block, the blocks of a side in the order in which they ran.
struct ComparedGroup {
  double at_s = 0;  // seconds since the comparison began, at the end of the group
  double a_ns[2] = {0, 0}, b_ns[2] = {0, 0};
  double ratio() const { return (a_ns[0] + a_ns[1]) / (b_ns[0] + b_ns[1]); }
};

// What one block of steps measured. `samples` only when timed kernel by kernel: all steps of the block, one
// after the other.
struct Block {
  std::vector<std::int64_t> step_ns;
  std::vector<double> losses;
  std::vector<KernelSample> samples;
  std::vector<std::vector<Activity>> activities;  // by step, when timed on a GPU
};

// A configuration kept ready to run. `run` continues with steps first_step ..
// first_step + steps - 1 (1-based).
struct Resident {
  std::string name;
  std::vector<KernelInfo> kernels;
  std::function<Result<Block>(std::int64_t first_step, std::int64_t steps, bool timed)> run;
};

struct CompareOptions {
  std::int64_t block_steps = 0;              // 0: so many that a block lasts about 50 ms
  std::int64_t warmup_steps = kWarmupSteps;  // per side, not measured (their losses are compared)
  std::int64_t min_groups = 12;              // also at least 0.5 s of measured time per side
  double max_seconds = 60;                   // then the verdict is what the data say, often UNSURE
  std::int64_t timed_steps = 16;             // per side, at the end, kernel by kernel, for the tables
};

struct ComparedRow {
  std::string name, phase;  // name: a label (ONNX nodes of the kernel table, phase, or scope), cut when long
  std::int64_t a_kernels = 0, b_kernels = 0;  // launches per step
  double a_ns = 0, b_ns = 0;                  // per optimizer step, median over timed steps
  double p = 1;  // Holm-adjusted over the table; 1 when one side has no kernels, and for stored runs
  // Whose kernels these are, all of them: ONNX nodes, and kernels' own names where there are none. Of kernel
  // and scope rows; a phase is its name.
  std::vector<std::string> nodes;
  // Whether the kernels of both sides were timed; a side without kernels takes no time.
  bool measured() const { return (a_ns > 0 || a_kernels == 0) && (b_ns > 0 || b_kernels == 0); }
};

struct Comparison {
  std::string a, b;  // names of the sides
  bool interleaved = true;
  Interval ratio;    // time A / time B: above 1, B is faster
  double noise = 0;  // what A against A shows, as a fraction
  Verdict verdict = Verdict::unsure;
  double a_step_ns = 0, b_step_ns = 0;                  // medians
  std::int64_t groups = 0, block_steps = 0, steps = 0;  // steps: compared per side
  double seconds = 0;
  std::vector<ComparedGroup> measured;  // each group; empty: stored runs, or a comparison of an older version
  bool by_scope = false;                // kernel rows are modules, not ONNX nodes
  // |loss A - loss B|, largest over the common steps; NaN when only one side is NaN. Where no step
  // has a loss in both, of none: has_losses().
  double max_loss_difference = 0;
  double max_relative_loss_difference = 0;  // ... / max(|loss A|, 1e-12)
  std::int64_t first_different_step = 0;    // losses not bit-equal; 0: none
  bool has_losses() const { return steps > 0; }
  std::vector<ComparedRow> kernels, phases, scopes;  // by |a_ns - b_ns|, largest first
  std::vector<ComparedRow> streams;  // GPUs: kernels, copies and fills by stream, and the CPU's launches
  std::string note;                  // e.g. "runs were not interleaved"
};

struct CompareProgress {
  double seconds = 0, fraction = 0;
  ComparedGroup group;            // the newest
  std::optional<Interval> ratio;  // of the last time that it was asked whether more are needed
};

Result<Comparison> compare_interleaved(Resident& a, Resident& b, const CompareOptions& options,
                                       std::stop_token stop = {},
                                       const std::function<void(const CompareProgress&)>& progress = {});
Result<Comparison> compare_runs(const RunRecord& a, const RunRecord& b);

std::string comparison_json(const Comparison& comparison);
Result<Comparison> parse_comparison(const std::string& json);
// For people: one line of verdict, then the tables.
std::string comparison_text(const Comparison& comparison);

}  // namespace gradloom
