// A folder of checkpoints, one folder for each: FOLDER/step-00000020. A checkpoint is written under a name that
// begins with a dot, flushed to disk, and renamed: whatever ends the process, a folder of that name is whole. One
// process writes into a folder at a time. Errors: Errc::io; Errc::usage for a folder in use or of another training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint.h"

namespace gradloom {

struct CheckpointOptions {
  std::string folder;      // --checkpoint; empty: none are written
  std::int64_t every = 0;  // steps; 0: only at the end
  std::int64_t keep = 2;   // 0: all
  // That their recipe says; none: those of the training. What one of several ranks of a machine computes on is no wish of the user.
  std::optional<std::int64_t> threads{};
};

class CheckpointFolder {
 public:
  // Creates the folder, with those above it. `keep`: how many checkpoints stay, 0: all. Checkpoints after step
  // `begins_after`, or of a model with another hash, are no past of this training: an error.
  static Result<std::unique_ptr<CheckpointFolder>> open(const std::string& path, std::int64_t keep,
                                                        std::int64_t begins_after,
                                                        const std::string& model_hash);
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;
  ~CheckpointFolder();
  // This one stays whatever `keep` says, until another is to; -1: none does.
  void protect(std::int64_t step) { protected_ = step; }
  // The path of what was written, in the place of one of the same step; then the oldest go. After an error the folder is as it was.
  Result<std::string> write(const Checkpoint& checkpoint);
  // The same of what `files` writes into an empty folder: a whole checkpoint after `step`.
  using WriteFiles = std::function<Status(const std::string& folder)>;
  Result<std::string> write(std::int64_t step, const WriteFiles& files);
  const std::string& path() const { return path_; }

 private:
  CheckpointFolder(std::string path, std::int64_t keep, int fd)
      : path_(std::move(path)), keep_(keep), fd_(fd) {}
  void remove_unfinished() const;
  void remove_oldest() const;
  std::string path_;
  std::int64_t keep_;
  int fd_;  // of the folder, which it locks
  std::int64_t protected_ = -1;
};

// Steps of the checkpoints in a folder, ascending.
std::vector<std::int64_t> checkpoint_steps(const std::string& folder);
std::string checkpoint_path(const std::string& folder, std::int64_t step);

// `path`: a checkpoint, or a folder of checkpoints, whose newest it is then. Where that is not whole the error
// names the newest that is: an older one is for the user to choose.
Result<Checkpoint> open_checkpoint(const std::string& path);
// An error that using the contents of a checkpoint has led to: where its shards turn out to be damaged, that, as open_checkpoint says it.
Error damage_or(const Error& error, const Checkpoint& checkpoint);
// One that ranks wrote together, as one rank writes it: into a folder that is not there yet. Contents go in pieces. Errors: those of the
// contents; Errc::usage: the folder is there; Errc::io.
Status join_checkpoint(const Checkpoint& from, const std::string& folder);

}  // namespace gradloom
