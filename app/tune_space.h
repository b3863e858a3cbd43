// The configurations that `tune` chooses among: a job, and changes of it by passes, their instances, threads,
// precision and the size of its micro-batches. Each is compiled here, none is run.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "app/job.h"
#include "profiler/cost_model.h"

namespace gradloom {

// What may change. Passes, instances and threads keep every result within rounding; the precision does not,
// and micro-batches are only for data that can be cut (synthetic, tokens).
enum class TuneAxis : std::uint8_t { passes, instances, threads, precision, accumulate };
Result<std::set<TuneAxis>> parse_tune_axes(
    const std::string& text);  // "passes,threads"; usage error: unknown ones

struct Candidate {
  std::string changes;  // from the job, as RecipeFlags::override_with takes them; empty: the job
  std::string label;    // the same for people: instances by what their sites have in common
  Recipe recipe;
  std::string plan_hash;
  std::string work;  // equal for configurations whose steps launch the same kernels in as much memory
  std::vector<KernelInfo> kernels;  // one per launch of an optimizer step
  std::int64_t peak_bytes = 0;
  double predicted_ns = 0;     // 0: not yet
  std::string without, alone;  // the pass that it switches off, or has alone; empty: neither
  std::vector<PassReport> reports;
};

class TuneSpace {
 public:
  // Errors: what makes the job itself impossible.
  static Result<TuneSpace> of(const Recipe& job, std::set<TuneAxis> axes, std::stop_token stop);
  const Candidate& job() const { return job_; }
  // One change each: every pass off, every pass alone, no passes, the default ones, other numbers of threads, ...
  // Without those that do the work of one before. Configurations that are impossible (an operator without
  // gradient in bf16) are left out.
  Result<std::vector<Candidate>> single_changes();
  // The passes of the job without these, or none but these; threads: 0 as the job has.
  Result<std::optional<Candidate>> with_passes(const std::set<std::string>& off, std::int64_t threads = 0);
  Result<std::optional<Candidate>> with_only(const std::set<std::string>& passes, std::int64_t threads = 0);
  // Instances of one pass in the job that differ in numbers alone ("/blocks.#/mlp/Mul"), switched off together.
  Result<std::vector<Candidate>> without_instances();
  // Passes of the job without which its steps do the same work.
  const std::set<std::string>& idle() const { return idle_; }

 private:
  TuneSpace() = default;
  // Empty: the work was there before, or the configuration is impossible.
  Result<std::optional<Candidate>> changed(const std::string& changes);
  Result<std::optional<Candidate>> with_pipeline(const Pipeline& pipeline, std::int64_t threads);

  std::set<TuneAxis> axes_;
  std::stop_token stop_;
  Candidate job_;
  std::set<std::string> works_, idle_;
};

}  // namespace gradloom
