// The configurations that `tune` chooses among: a job, and changes of it by passes, their instances, threads,
// precision, the size of its batches and micro-batches, memory budgets and the search among a GPU library's
// algorithms. Each is compiled here, none is run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "app/job.h"
#include "profiler/cost_model.h"

namespace gradloom {

// What may change. Passes, instances, threads, budgets and algorithms keep every result within rounding; the
// precision does not. Batches and micro-batches are only for data that can be cut (synthetic, tokens); another batch
// makes another training, and its times are those of as many samples as the job's step takes.
enum class TuneAxis : std::uint8_t {
  passes,
  instances,
  threads,
  precision,
  accumulate,
  batch,
  budget,
  algorithms,
  without  // passes off, one at a time, and nothing else of `passes`; has no name
};
struct TuneAxisName {
  const char* name;
  TuneAxis axis;
  const char* help;
};
std::span<const TuneAxisName> tune_axes();  // those that have a name
// "passes,threads"; usage error: unknown ones
Result<std::set<TuneAxis>> parse_tune_axes(const std::string& text);

struct Candidate {
  std::string changes;  // from the job, as RecipeFlags::override_with takes them; empty: the job
  std::string label;    // the same for people: instances by what their sites have in common
  Recipe recipe;
  std::string plan_hash;
  std::string work;  // equal for configurations whose steps launch the same kernels in as much memory
  std::vector<KernelInfo> kernels;  // one per launch of an optimizer step
  std::int64_t peak_bytes = 0;
  double samples = 1;          // of a step, as a multiple of the job's
  double predicted_ns = 0;     // of as many samples as the job's step takes; 0: not yet
  std::string without, alone;  // the pass that it switches off, or has alone; empty: neither
  std::vector<PassReport> reports;
};

// A compiled configuration of the recipe.
Candidate candidate_of(const Prepared& prepared, const Recipe& recipe, const std::string& changes);
// The job with changes, compiled. Errors: what makes it impossible.
Result<Candidate> changed_job(const Recipe& job, const std::string& changes, std::stop_token stop);
// These passes as a change of the job: "passes=default,-fuse-gelu".
Result<std::string> pipeline_change(const Recipe& job, const Pipeline& pipeline);
// Numbers of threads to try on so many processors that this process may use, of a machine with so many cores (0: unknown): each
// of few; of many the powers of two, what lies between them, one per core, and all.
std::vector<std::int64_t> thread_counts(std::int64_t usable, std::int64_t physical);
// "/blocks.11/mlp/Mul_1" and "/blocks.3/mlp/Mul_1" are one role: "/blocks.#/mlp/Mul_#".
std::string role_of(const std::string& site);

class TuneSpace {
 public:
  // Errors: what makes the job itself impossible.
  static Result<TuneSpace> of(const Recipe& job, std::set<TuneAxis> axes, std::stop_token stop);
  const Candidate& job() const { return job_; }
  // One change each: every pass off, every pass alone, no passes, the default ones, other numbers of threads, budgets
  // on the memory curve, ...
  // Without those that do the work of one before. Configurations that are impossible (an operator without
  // gradient in bf16) are left out.
  Result<std::vector<Candidate>> single_changes();
  // The passes of the job without these, or none but these; `also`: other changes, as Candidate::changes has them.
  Result<std::optional<Candidate>> with_passes(const std::set<std::string>& off,
                                               const std::string& also = {});
  Result<std::optional<Candidate>> with_only(const std::set<std::string>& passes,
                                             const std::string& also = {});
  // Instances of one pass in the job that differ in numbers alone ("/blocks.#/mlp/Mul"), switched off together.
  Result<std::vector<Candidate>> without_instances();
  // By pass, the changes of the configuration that does the work of the job without it, and of it alone; empty: the
  // job, for which it does nothing. What is impossible is not there.
  const std::map<std::string, std::string>& without() const { return without_; }
  const std::map<std::string, std::string>& alone() const { return alone_; }

 private:
  TuneSpace() = default;
  // Empty: the work was there before (twin_), or the configuration is impossible (no twin_).
  Result<std::optional<Candidate>> changed(const std::string& changes);
  Result<std::optional<Candidate>> with_pipeline(const Pipeline& pipeline, const std::string& also = {});
  using Candidates = std::vector<Candidate>;
  Status add_without(Candidates& all);
  Status add_alone(Candidates& all);
  void note(std::map<std::string, std::string>& by_pass, const std::string& pass,
            const std::optional<Candidate>& candidate) const;
  Status add_sizes(Candidates& all);
  Status add_budgets(Candidates& all);

  std::set<TuneAxis> axes_;
  std::stop_token stop_;
  Candidate job_;
  std::map<std::string, std::string> works_;  // changes by the work that they make
  std::optional<std::string> twin_;           // changes whose work the last change repeated
  std::map<std::string, std::string> without_, alone_;
};

}  // namespace gradloom
