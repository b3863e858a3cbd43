// What training remembers from step to step, out of a job into a checkpoint and back. In a checkpoint it has names that
// no pass or device changes, PyTorch's where PyTorch has one; new kinds of state that the training graph gets are
// kept without anything being said here.
#pragma once

#include <cstdint>

#include "app/checkpoint.h"
#include "app/job.h"

namespace gradloom {

// The job's state after `step`, which is its last; nothing is pending. Valid until the next step is submitted.
Result<Checkpoint> checkpoint_of(const Job& job, std::int64_t step);

// Makes the checkpoint's state of the optimizer the initial contents of the compiled step; that of the parameters is
// there already (set_parameters). Errc::bad_input: state that the step needs is missing or the checkpoint has state
// for which the step has no use: another optimizer, or other parameters are trained.
Status set_states(const Checkpoint& from, const ImportedModel& model, Compiled& compiled);

}  // namespace gradloom
