// What the rules of advice look at: a job with its plan and the times of its kernels, and changes of it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "app/advice/advice.h"
#include "app/tune_space.h"

namespace gradloom {

struct RunFlags;

// The job with changes, compiled.
struct ChangedJob {
  Candidate candidate;
  Gain gain;
  bool timed = false;  // steps of it were made
};

// One node of the plan, with all its launches of a step.
struct NodeTime {
  const Node* node = nullptr;
  const KernelInfo* kernel = nullptr;
  double ns = 0;
};
bool is_product(const Node& node);  // a matrix product or convolution, or a gradient of one
bool is_cast(const Node& node);     // a region of casts alone is one too

// Nodes of the model, as Graph::sources numbers them: a kernel stands for some, a backward kernel for those that it differentiates.
using Sources = std::set<std::uint32_t>;
void add_sources(const Node& node, Sources& sources);
bool stands_for(const KernelInfo& kernel, const Sources& sources);  // for one of them

class Subject {
 public:
  // Errors: what makes the job impossible; Errc::usage: its kernels have no times, or the run was on another kind of device or
  // number of threads.
  static Result<std::unique_ptr<Subject>> of(const Recipe& job, const RunRecord* run,
                                             const AdviceOptions& options, std::stop_token stop);
  const Recipe& recipe() const { return job_.recipe; }
  const Prepared& prepared() const { return *prepared_; }
  const Graph& graph() const { return prepared_->compiled.train.graph; }
  const Candidate& job() const { return job_; }
  const RunRecord* run() const { return run_; }
  const TraceDocument* trace() const { return options_.trace.get(); }  // of the run; null: none
  const MachineFacts& machine() const { return options_.machine; }
  const Predictor& predictor() const { return predictor_; }
  const std::string& times() const { return times_; }
  std::int64_t threads() const { return threads_; }  // that compute a step of the job
  double step_ns() const { return predictor_.step_ns(); }
  double share(double ns) const { return step_ns() > 0 ? ns / step_ns() : 0; }
  bool matters(double ns) const { return share(ns) >= options_.least_share; }
  std::vector<NodeTime> node_times() const;  // of each node with a kernel, in the plan's order

  // Null: it is impossible, or the same work as the job. Compiled once. Errors: Errc::interrupted.
  Result<const ChangedJob*> changed(const std::string& changes);
  Result<const ChangedJob*> with_pipeline(const Pipeline& pipeline);
  // The same before it is judged, for rules that predict it themselves.
  Result<std::shared_ptr<const Prepared>> prepared_with(const std::string& changes) const;

  // A finding whose remedy is the change: its gain, command and what that should show.
  Finding of_change(const ChangedJob& changed, std::string title) const;
  // One whose remedy lies in the model; `gain` of a step.
  Finding of_model(const Gain& gain, std::string title, std::string remedy) const;
  // What a comparison with a step of the finding's gain should show, where its command makes one. `samples`: of that step, as a
  // multiple of the job's.
  void set_ratio(Finding& finding, double samples = 1) const;
  // "1.20 ms of a step, 12.0 %".
  std::string of_a_step(double ns) const;
  // That proves the change: of `compare`, which runs one rank; of a job on several, the training with it.
  std::string command(const std::string& change) const;
  std::string proof(const std::string& change) const;  // of `verify`, that it keeps what the job computes
  std::string job_flags() const;                       // of train: what makes the job

  // Whether the change was compiled, and has no kernel of the node that is as the job's.
  bool takes_away(const std::string& changes, const KernelInfo& kernel) const;

  // Steps of a change are made, and its kernels are known from then on. Errors: Errc::interrupted.
  Status time(const std::string& changes);
  bool is_compiled(const std::string& changes) const {
    const auto at = changed_.find(changes);
    return at != changed_.end() && at->second != nullptr && !at->second->timed;
  }
  bool can_time() const { return static_cast<bool>(options_.time); }

 private:
  Subject(const AdviceOptions& options, std::stop_token stop) : options_(options), stop_(std::move(stop)) {}
  void know_types();
  Status learn(const RunRecord* run);
  Status learn_by_timing();
  Gain gain_of(const ChangedJob& changed) const;
  RunFlags run_flags() const;
  std::string flags_of(const Recipe& recipe) const;

  const AdviceOptions options_;
  std::stop_token stop_;
  const RunRecord* run_ = nullptr;
  std::shared_ptr<const Prepared> prepared_;
  Candidate job_;
  Predictor predictor_;
  std::string times_;
  std::map<std::string, std::unique_ptr<ChangedJob>> changed_;
  std::map<std::string, double> timed_ns_;  // steps of changes on another number of threads
  std::int64_t threads_ = 1;
};

// A change as flags of `train`: "--dim batch=8 --passes none".
std::string train_flags(const std::string& change);

using Findings = std::vector<Finding>;

// A kind of cause, in rules.def.
struct AdviceRule {
  const char* name;
  Status (*find)(Subject& subject, Findings& found);
};
std::span<const AdviceRule> advice_rules();
std::vector<std::string> loop_rule_names();  // of advise_loop, as its findings have them

}  // namespace gradloom
