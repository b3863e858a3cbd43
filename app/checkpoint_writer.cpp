#include "app/checkpoint_writer.h"

#include <new>

#include "app/ranks.h"
#include "app/training_state.h"
#include "engine/base/text.h"

namespace gradloom {

constexpr std::int64_t kApartNs = 1'000'000'000;  // lines that tell of checkpoints

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::create(const CheckpointOptions& options,
                                                                   const Job& job, const Output& out) {
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter(options, job, out));
  if (options.folder.empty()) return writer;
  writer->tried_step_ = job.steps_before();
  writer->folder_ =
      TRY(CheckpointFolder::open(options.folder, options.keep, job.steps_before(), job.recipe().model_hash));
  return writer;
}

bool CheckpointWriter::due(std::int64_t step) const {
  return folder_ != nullptr && options_->every > 0 && step % options_->every == 0 && step != tried_step_;
}

Result<std::string> CheckpointWriter::put(const Job& job, std::int64_t step) {
  try {
    Checkpoint checkpoint = TRY(checkpoint_of(job, step));
    checkpoint.early_stop = early_stop_;
    if (TRY(finite_.finite(checkpoint.model.tensors))) return folder_->write(checkpoint);
    return Error{Errc::numeric, "the parameters after step " + std::to_string(step) +
                                    " are not finite: no checkpoint is written of them"};
  } catch (const std::bad_alloc&) {
    if (helps_) throw;  // others may wait for this rank
    return Error{Errc::limit, "out of memory for a checkpoint after step " + std::to_string(step)};
  }
}

void CheckpointWriter::write(const Job& job, std::int64_t step) {
  if (folder_ == nullptr && !helps_) return;
  if (folder_ == nullptr) {  // rank 0 writes what this one gives
    if (const auto given = checkpoint_of(job, step); !given) status_ = given.error();
    return;
  }
  const std::int64_t start_ns = monotonic_ns();
  tried_step_ = step;
  const auto path = put(job, step);
  out_->progress_done();
  if (!path) {
    status_ = path.error();
    out_->error(path.error().message);
    return;
  }
  status_ = {};
  latest_ = *path;
  latest_step_ = step;
  ++written_;
  const std::int64_t took_ns = monotonic_ns() - start_ns;
  out_->object({{"checkpoint", {{"step", step}, {"path", latest_}, {"write_ns", took_ns}}}});
  if (told_ns_ != 0 && start_ns - told_ns_ < kApartNs) return;  // one of many
  told_ns_ = start_ns;
  out_->text("saved     " + escaped(latest_) + " in " + duration_text(static_cast<double>(took_ns)));
}

void CheckpointWriter::resumed(const std::optional<EarlyStop::State>& state) {
  early_stop_ = state;
  if (folder_ != nullptr && state) folder_->protect(state->best_step);
}

void CheckpointWriter::evaluated(const Job& job, std::int64_t step, const EarlyStop::State& state,
                                 bool best) {
  const std::int64_t before = early_stop_ ? early_stop_->best_step : -1;
  early_stop_ = state;
  if (!best || (folder_ == nullptr && !helps_)) return;
  if (folder_ != nullptr) folder_->protect(step);
  write(job, step);
  if (folder_ != nullptr && !status_.ok()) folder_->protect(before);
}

void CheckpointWriter::finish(const Job& job, std::int64_t step) {
  const bool lacks =
      folder_ != nullptr && (step != latest_step_ || !status_.ok()) && step != job.steps_before();
  const Result<bool> due = helps_ ? as_rank_0(lacks) : Result<bool>(lacks);
  if (due && *due) write(job, step);
}

}  // namespace gradloom
