// What training remembers from step to step, out of a job into a checkpoint and back. In a checkpoint it has names that
// no pass or device changes, PyTorch's where PyTorch has one; new kinds of state that the training graph gets are
// kept without anything being said here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "app/checkpoint.h"
#include "app/job.h"

namespace gradloom {

// The job's state after `step`, which is its last; nothing is pending. Valid until the next step is submitted. Where ranks keep states
// apart all call it, and rank 0 gets those of all.
Result<Checkpoint> checkpoint_of(const Job& job, std::int64_t step);
// The same in two: without the states of the optimizer; and those that are this rank's to write, which all ranks together have once.
Result<Checkpoint> checkpoint_without_states(const Job& job, std::int64_t step);
// What Job::result_views has, whole, out of a checkpoint of the job's model. Errc::bad_input: the checkpoint lacks some of it.
Result<std::map<std::string, Tensor>> results_in(const Checkpoint& checkpoint, const Job& job);
Result<StateParts> states_to_write(const Job& job, std::int64_t made_steps);
std::map<std::string, std::string> states_metadata(const Checkpoint& checkpoint);

// What an optimizer has kept, in the names of a checkpoint's optimizer.safetensors.
struct OptimizerFile {
  std::string path;           // as errors call it
  std::string without, hint;  // ends of errors: why a state may be missing; what to do about it
  std::map<std::string, Tensor> tensors;
  std::int64_t made_steps = 0;
  std::optional<LossScaleState> loss_scale;
  bool foreign = false;                   // no checkpoint's
  std::shared_ptr<ShardedStates> shards;  // Checkpoint::shards
};
OptimizerFile optimizer_file(const Checkpoint& checkpoint);
// One that another program wrote, .safetensors or .npz; the updates that were made stand in "<parameter>.step" or, once for all, in
// "step". Errc::bad_input: they do not or differ; errors of the formats.
Result<OptimizerFile> read_optimizer_file(const std::string& path);

// Makes the file's state of the optimizer the initial contents of the compiled step; that of the parameters is
// there already (set_parameters). A moving average that the file lacks begins at the parameter. Errc::bad_input: state that
// the step needs is missing or the file has state for which the step has no use: another optimizer, or other parameters are trained.
Status set_states(const OptimizerFile& from, const ImportedModel& model, const OptimizerSpec& optimizer,
                  Compiled& compiled);

}  // namespace gradloom
