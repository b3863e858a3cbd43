// Job: a recipe made ready to run: model imported, compiled, memory taken, batches open. Train, compare and
// check use it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/onnx/import.h"
#include "engine/run/executor.h"
#include "engine/train/schedules.h"
#include "passes/compile.h"
#include "profiler/trace.h"
#include "sessions/data.h"
#include "sessions/recipe.h"

namespace gradloom {

struct CallerMemory;  // app/caller_memory.h
struct Checkpoint;    // app/checkpoint.h

// Model and plan of a recipe, without memory or data: what `plan` prints and the window shows.
struct Prepared {
  Recipe recipe;  // model_hash filled in
  // Where training begins: steps that were made before, and the batch that follows theirs.
  std::int64_t steps_before = 0, next_batch = 0;
  ImportedModel model;
  CompileOptions options;
  Compiled compiled;
};
Result<ImportedModel> load_model(const Recipe& recipe, bool for_viewing = false);
// `from`: training goes on from there. The recipe says how: it may differ from the checkpoint's in whatever leaves
// parameters and optimizer states what they are (device, passes, precision, learning rate, data).
Result<std::unique_ptr<Prepared>> prepare(const Recipe& recipe, std::stop_token stop = {},
                                          const Checkpoint* from = nullptr);
// The same before it is compiled.
Result<std::unique_ptr<Prepared>> prepare_model(const Recipe& recipe, const Checkpoint* from = nullptr);

struct StepResult {
  std::int64_t step = 0;
  double loss = 0, lr = 0, grad_norm = -1;
  double loss_scale = 0, skipped = 0;  // StepOutcome
  std::int64_t step_ns = 0;  // launch of the first kernel to the end of the last, without making batches
  std::int64_t end_ns = 0;   // monotonic
  std::vector<KernelSample> samples;  // when timed
  std::string times_from;             // StepOutcome
  std::vector<Activity> activities;   // when timed on a GPU: copies and launches
};

// A plan of a job in memory, and what it reads of each batch.
struct JobPlan {
  std::shared_ptr<const Prepared> prepared;
  std::unique_ptr<Executor> executor;
  std::vector<InputSpec> inputs;
  std::vector<ValueId> fed;  // the same in the plan's graph
};

class Job {
 public:
  // known: algorithms of earlier runs on this hardware, for a recipe that searches; its own go before. `batches`: null:
  // the recipe's data. `memory`: where parameters and statistics lie, which must stay there as long as the job is; null: with it.
  static Result<std::unique_ptr<Job>> create(std::shared_ptr<const Prepared> prepared,
                                             const Algorithms& known = {},
                                             std::unique_ptr<BatchSource> batches = nullptr,
                                             const CallerMemory* memory = nullptr);
  bool uses_callers_memory() const { return uses_callers_memory_; }
  const Recipe& asked() const { return own_->prepared->recipe; }
  const Recipe& recipe() const { return recipe_; }  // with the steps that its epochs leave
  const Compiled& compiled() const { return own_->prepared->compiled; }
  const CompileOptions& options() const { return own_->prepared->options; }
  const ImportedModel& model() const { return own_->prepared->model; }
  const std::vector<KernelInfo>& kernels() const { return kernels_; }
  // Steps that were made before this job: its first is the one after them.
  std::int64_t steps_before() const { return own_->prepared->steps_before; }
  // The first of the batches of a step, K for each rank: (step - 1) K in a training of one rank from its start.
  std::int64_t first_batch(std::int64_t step) const;
  std::int64_t batches_per_step() const {  // of all ranks
    return options().train.accumulate * data_ranks_;
  }
  std::int64_t data_batches() const { return batches_->count(); }  // distinct ones; 0: unlimited
  // The last batches of the epochs, which fill no step and are not read; negative: so many are read again, by the only step. 0 where
  // steps end before the epochs do.
  std::int64_t batches_left_over() const;
  // Of the steps that are submitted from now on, instead of what optimizer and schedule say.
  void set_learning_rate(double lr) { own_lr_ = lr; }
  // The same of an option of the numbered group: "lr", or one of the optimizer's that optimizer_inputs.h lists. Errc::usage: there is no such
  // group or option, an option has no such value or begins what the optimizer keeps nothing for; a GPU follows lr alone.
  Status set_option(std::int64_t group, const std::string& option, double value);
  const std::vector<InputSpec>& inputs() const { return own_->inputs; }
  // A plan of the same training for batches of other sizes, or in another precision, which works in the memory of the job's own: parameters
  // and states are the same bytes, but 16-bit copies of weights that the job's own has not. Errc::usage: it trains other parameters, keeps
  // other states, or some have another type. Errors of Executor::create.
  Result<std::shared_ptr<const JobPlan>> plan_for(std::shared_ptr<const Prepared> other_sizes);
  // What the steps that are submitted from now on run; null: the job's own plan. REQUIRES nothing pending.
  void use(std::shared_ptr<const JobPlan> plan);
  bool uses_own_plan() const { return used_ == own_; }
  // Submits optimizer step `step` (1-based). `timed` REQUIRES the job's own plan, whose kernels are known.
  Status submit(std::int64_t step, bool timed = false);
  // The step kernel by kernel (Executor::observe), instead of submit and collect. REQUIRES nothing pending.
  Status observe(std::int64_t step, const Observer& observer);
  // What a step reads: tokens where the data are tokens, else samples.
  struct Items {
    std::int64_t count = 0;
    const char* name = "samples";
  };
  Items items_per_step() const;
  Result<StepResult> collect();  // of the oldest submitted step; waits for it
  std::size_t pending() const { return used_->executor->pending(); }
  std::size_t depth() const { return own_->executor->depth(); }    // steps to keep pending
  Result<StepResult> step(std::int64_t step, bool timed = false);  // submit and collect
  // Current contents of trained and frozen ones, by name.
  Result<std::map<std::string, Tensor>> parameters() const;
  // The same without copies on the CPU: valid until the next step is submitted, and as long as the job is.
  Result<std::map<std::string, Tensor>> parameter_views() const;
  // What training is for: as parameter_views, with the averages of parameters in their place where they are kept.
  Result<std::map<std::string, Tensor>> result_views() const;
  // The same of one state.
  Result<Tensor> state_view(ValueId state) const { return own_->executor->view(state); }
  std::int64_t measured_peak_bytes() const { return own_->executor->measured_peak_bytes(); }
  // What the device's libraries compute with: found by the recipe's search or confirmed by
  // it. Empty without search.
  const Algorithms& algorithms() const { return algorithms_; }
  // Of its own plan, by plan step.
  std::vector<Implementations> implementations() const { return own_->executor->implementations(); }
  Executor& executor() { return *own_->executor; }  // of its own plan
  DeviceInfo device() const { return device_->info(); }
  Status meet_ranks() { return device_->meet_ranks(); }  // Device::meet_ranks
  Device& processor() { return *device_; }

 private:
  Job() = default;
  Status choose_algorithms(Algorithms known);
  using ReadValue = Result<Tensor> (Executor::*)(ValueId) const;
  Result<std::map<std::string, Tensor>> parameters_by(ReadValue read) const;
  StepOptions step_options(std::int64_t step) const;
  double learning_rate(std::int64_t step) const;
  double common_rate(std::int64_t step) const;
  // Of an option that may become `value`, in a row of own_options_.
  Result<std::size_t> option_column(const std::string& name, double value) const;
  Status feed(const std::map<std::string, Tensor>& batch);
  void count_steps();
  std::int64_t batches_of_epochs() const;
  std::int64_t own_batch(std::int64_t step, std::int64_t k) const;
  Recipe recipe_;
  Status begin_averages(const LentMemory& lent);
  std::int64_t rank_ = 0, data_ranks_ = 1;  // among those that have batches of their own
  std::unique_ptr<Device> device_;
  std::shared_ptr<const JobPlan> own_, used_;
  std::unique_ptr<BatchSource> batches_;
  std::deque<std::int64_t> made_ns_;  // of pending steps: time within them that went into making batches
  std::vector<KernelInfo> kernels_;
  Algorithms algorithms_;
  OptimizerSpec optimizer_;
  ScheduleSpec schedule_;
  std::optional<double> own_lr_;
  std::vector<double> own_options_;  // rows of numbered groups; NaN: not set
  bool uses_callers_memory_ = false;
};

// Errc::bad_input: among the trained parameters is one that the exporter computed from others and that trains apart from
// them; not where the recipe says so by name.
Status check_apart(const ImportedModel& model, const std::vector<std::string>& trained);
// Inputs that the step reads, with what is known of integer inputs: class counts from the loss, vocabulary
// from the embedding. Passes may hide that: `before_passes` tells it.
std::vector<InputSpec> input_specs(const Graph& graph, const Graph& before_passes);
inline std::vector<InputSpec> input_specs(const Graph& graph) { return input_specs(graph, graph); }
// 0: as OMP_NUM_THREADS says, which must be a number from 1 to 1024 then; without it, all usable processors.
Status apply_threads(std::int64_t threads);

}  // namespace gradloom
