// The steps of a run as a file of events that TensorBoard shows: records of TFRecord's framing (length, data, both with a masked CRC-32C),
// each an Event message (tensorflow/core/util/event.proto) with the scalars of one step.
//
// Scalars, where the run has them: loss/train, loss/held_out, optimizer/learning_rate, optimizer/gradient_norm, optimizer/loss_scale,
// optimizer/skipped_steps, time/step_ms, time/steps_per_second, time/evaluation_ms. A step's wall time is the run's start and all steps so far.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "sessions/store.h"

namespace gradloom {

std::uint32_t crc32c(std::string_view bytes);
std::string tensorboard_events(const RunRecord& run);
// "run-3/events.out.tfevents.1732800000.gradloom": TensorBoard shows each folder as a run.
std::string tensorboard_file(const RunSummary& run);

}  // namespace gradloom
