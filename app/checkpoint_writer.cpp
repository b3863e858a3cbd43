#include "app/checkpoint_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <new>
#include <string_view>
#include <vector>

#include "app/rank_message.h"
#include "app/ranks.h"
#include "app/training_state.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/ranks/world.h"

namespace gradloom {
namespace {

// ---- what ranks tell each other of shards ------------------------------------------------------------------

RankMessage told(const Result<WrittenFile>& shard) {
  RankMessage message;
  message.add(std::int64_t{shard ? 0 : static_cast<std::int64_t>(shard.error().code)});
  if (!shard) {
    message.add(shard.error().message);
    return message;
  }
  message.add(shard->bytes);
  message.add(shard->hash);
  return message;
}

Result<WrittenFile> heard(std::size_t rank, World::Bytes bytes) {
  RankMessage message(std::move(bytes));
  const std::int64_t code = message.number();
  if (code != 0)
    return Error{static_cast<Errc>(code), "rank " + std::to_string(rank) + ": " + message.text()};
  WrittenFile file;
  file.bytes = message.number();
  file.hash = message.text();
  return file;
}

// Rank 0's text, at every rank.
Result<std::string> text_of_rank_0(std::string_view mine) {
  std::vector<std::byte> bytes(mine.size());
  if (!mine.empty()) std::memcpy(bytes.data(), mine.data(), mine.size());
  bytes = TRY(bytes_of_rank(0, std::move(bytes)));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<WrittenFile> write_own_shard(const std::string& folder, const Job& job, const Checkpoint& checkpoint) {
  const World& world = *World::current();
  return write_shard(folder, world.rank(), world.size(), TRY(states_to_write(job, checkpoint.made_steps)),
                     states_metadata(checkpoint));
}

}  // namespace

constexpr std::int64_t kApartNs = 1'000'000'000;  // lines that tell of checkpoints

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::create(const CheckpointOptions& options,
                                                                   const Job& job, const Output& out) {
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter(options, job, out));
  writer->tried_step_ = job.steps_before();
  if (options.folder.empty()) return writer;
  writer->folder_ =
      TRY(CheckpointFolder::open(options.folder, options.keep, job.steps_before(), job.recipe().model_hash));
  return writer;
}

// On all ranks whose states it takes: they have no step under way then.
bool CheckpointWriter::due(std::int64_t step) const {
  return (folder_ != nullptr || helps_) && options_->every > 0 && step % options_->every == 0 &&
         step != tried_step_;
}

Status CheckpointWriter::meet_ranks(const Job& job) {
  if (!needs_all_ranks(job)) return {};
  helps_ = TRY(as_rank_0(writes()));
  if (!helps_ || has_parts(job)) return {};  // parts are made whole, at rank 0
  sharded_ = TRY(all_reach_folder());
  if (!sharded_ && writes())
    out_->note("rank 0 gathers and writes the states of all ranks: the folder " + escaped(options_->folder) +
               " is not there for each of them");
  return {};
}

// By a file that rank 0 makes there for a moment; a name like that of an unfinished checkpoint has it removed if it stays.
Result<bool> CheckpointWriter::all_reach_folder() {
  std::string made;
  if (writes()) {
    std::error_code ignored;
    const std::string path = std::filesystem::absolute(folder_->path(), ignored).string() +
                             "/.unfinished-met-" + std::to_string(monotonic_ns());
    if (atomic_write_file(path, "").ok()) made = path;
  }
  const std::string path = TRY(text_of_rank_0(made));
  const std::string folder = path.substr(0, path.rfind('/'));
  const bool reached =
      !path.empty() && ::access(path.c_str(), F_OK) == 0 && ::access(folder.c_str(), W_OK | X_OK) == 0;
  const auto all = on_all_ranks(reached);
  if (!made.empty()) ::unlink(made.c_str());
  return all;
}

Result<std::string> CheckpointWriter::put(const Job& job, std::int64_t step) {
  bool told_folder = false;
  const auto write = [&]() -> Result<std::string> {
    Checkpoint checkpoint = TRY(sharded_ ? checkpoint_without_states(job, step) : checkpoint_of(job, step));
    checkpoint.early_stop = early_stop_;
    checkpoint.recipe.threads = options_->threads.value_or(checkpoint.recipe.threads);
    if (!TRY(finite_.finite(checkpoint.model.tensors)))
      return Error{Errc::numeric, "the parameters after step " + std::to_string(step) +
                                      " are not finite: no checkpoint is written of them"};
    if (!sharded_) return folder_->write(checkpoint);
    return folder_->write(step, [&](const std::string& folder) -> Status {
      told_folder = true;
      return write_with_ranks(folder, job, checkpoint);
    });
  };
  try {
    auto path = write();
    if (!sharded_ || told_folder) return path;
    if (const auto told_none = text_of_rank_0(""); !told_none.ok()) lost_ = told_none.error();
    return path;
  } catch (const std::bad_alloc&) {
    if (helps_) throw;  // others may wait for this rank
    return Error{Errc::limit, "out of memory for a checkpoint after step " + std::to_string(step)};
  }
}

// Rank 0's part: the checkpoint is there once all have written.
Status CheckpointWriter::write_with_ranks(const std::string& folder, const Job& job,
                                          const Checkpoint& checkpoint) {
  std::error_code ignored;
  if (const auto told_folder = text_of_rank_0(std::filesystem::absolute(folder, ignored).string());
      !told_folder.ok())
    return lost_ = told_folder.error();
  const auto own = write_own_shard(folder, job, checkpoint);
  auto all = World::current()->gather(told(own).bytes());
  if (!all.ok()) return lost_ = all.error();
  TRY(own);
  std::vector<WrittenFile> shards{*own};
  for (std::size_t rank = 1; rank < all->size(); ++rank)
    shards.push_back(TRY(heard(rank, std::move((*all)[rank]))));
  return write_checkpoint(folder, checkpoint, shards);
}

// What another rank than the first does for a checkpoint.
Status CheckpointWriter::help_rank_0(const Job& job, std::int64_t step, bool sharded) {
  if (!sharded) {
    TRY(checkpoint_of(job, step));
    return {};
  }
  const auto checkpoint =
      checkpoint_without_states(job, step);  // rank 0 gathers parameters before it makes a folder
  const std::string folder = TRY(text_of_rank_0(""));
  if (folder.empty()) return {};
  const auto own = checkpoint ? write_own_shard(folder, job, *checkpoint) : checkpoint.error();
  TRY(World::current()->gather(told(own).bytes()));
  return {};
}

void CheckpointWriter::write(const Job& job, std::int64_t step) {
  if (folder_ == nullptr && !helps_) return;
  tried_step_ = step;
  if (folder_ == nullptr) {  // what fails is rank 0's to tell, or ends the next exchange
    (void)help_rank_0(job, step, sharded_);
    return;
  }
  const std::int64_t start_ns = monotonic_ns();
  const auto path = put(job, step);
  out_->progress_done();
  if (!lost_.ok()) return;
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

void CheckpointWriter::finish(const Job& job, std::int64_t step, bool stopped) {
  const bool lacks =
      folder_ != nullptr && (step != latest_step_ || !status_.ok()) && step != job.steps_before();
  const Result<bool> due = helps_ ? as_rank_0(lacks) : Result<bool>(lacks);
  if (due && *due) write(job, step);
  if (!lost_.ok() && !stopped) status_ = lost_;  // there is no next exchange
}

}  // namespace gradloom
