#include "app/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "engine/base/hash.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kUnfinished = ".unfinished-", kRemoved = ".removed-";

Error io_error(const std::string& doing, const std::string& path, int code) {
  return Error{Errc::io, doing + " " + escaped(path) + ": " + std::strerror(code)};
}

std::string name_of(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
}

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = parse_number<std::int64_t>(std::string_view(name).substr(kPrefix.size()));
  return step && *step >= 0 && name == name_of(*step) ? step : std::nullopt;
}

// Of a moment and a process.
std::string nonce() {
  return hash_hex(std::to_string(monotonic_ns()) + " " + std::to_string(::getpid())).substr(0, 8);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    names.push_back(it->path().filename().string());
  return names;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool is_whole(const std::string& checkpoint) {
  const auto read = read_checkpoint(checkpoint);
  return read && (!read->shards || read->shards->check_all().ok());
}

// The newest before `step` that is whole; empty: none is.
std::string whole_before(const std::string& folder, std::int64_t step) {
  std::vector<std::int64_t> steps = checkpoint_steps(folder);
  std::erase_if(steps, [&](std::int64_t s) { return s >= step; });
  for (auto it = steps.rbegin(); it != steps.rend(); ++it)
    if (std::string path = checkpoint_path(folder, *it); is_whole(path)) return path;
  return "";
}

std::string without_end_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with("/")) path.pop_back();
  return path;
}

// The name passes from one folder to the other in one step. Without such a step (some network file systems) the old one has another
// name first.
Status put_in_place(const std::string& unfinished, const std::string& path) {
  if (::rename(unfinished.c_str(), path.c_str()) == 0) return {};
  if (errno != ENOTEMPTY && errno != EEXIST) return io_error("cannot make", path, errno);
  std::error_code ignored;
  if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(unfinished, ignored);
    return {};
  }
  const fs::path to = path;
  const std::string old = (to.parent_path() / (std::string(kRemoved) + to.filename().string())).string();
  fs::remove_all(old, ignored);
  if (::rename(path.c_str(), old.c_str()) != 0) return io_error("cannot replace", path, errno);
  if (::rename(unfinished.c_str(), path.c_str()) != 0) {
    const int code = errno;
    (void)::rename(old.c_str(), path.c_str());
    return io_error("cannot make", path, code);
  }
  fs::remove_all(old, ignored);
  return {};
}

// A folder with what `files` writes into it, which has its name once it is whole, where a folder of that name goes. After an error
// there is none, or that which was.
Status make_folder(const std::string& unfinished, const std::string& path,
                   const CheckpointFolder::WriteFiles& files) {
  if (::mkdir(unfinished.c_str(), 0777) != 0) return io_error("cannot make", unfinished, errno);
  Status done = files(unfinished);
  if (done.ok()) done = put_in_place(unfinished, path);
  std::error_code ignored;
  if (!done.ok()) fs::remove_all(unfinished, ignored);
  return done;
}

// What is wrong with a checkpoint, and which older one beside it is not.
Error with_newest_whole(Error error, const std::string& checkpoint) {
  const auto step = step_of(fs::path(checkpoint).filename().string());
  std::string folder = fs::path(checkpoint).parent_path().string();
  if (folder.empty()) folder = ".";
  const std::string older = step ? whole_before(folder, *step) : "";
  if (step)
    error.message += older.empty()
                         ? "; no older checkpoint there is whole"
                         : "; the newest that is whole is " + escaped(older) + " (--resume takes it)";
  return error;
}

// The model of a checkpoint, where it is another; empty too where nothing can be read.
std::string other_model(const std::string& checkpoint, const std::string& model_hash) {
  const auto recipe = read_recipe(checkpoint + "/" + kRecipeFile);
  return recipe && recipe->model_hash != model_hash ? recipe->model : "";
}

}  // namespace

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return folder + (folder.ends_with("/") ? "" : "/") + name_of(step);
}

std::vector<std::int64_t> checkpoint_steps(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder))
    if (const auto step = step_of(name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::unique_ptr<CheckpointFolder>> CheckpointFolder::open(const std::string& path, std::int64_t keep,
                                                                 std::int64_t begins_after,
                                                                 const std::string& model_hash) {
  std::error_code failed;
  fs::create_directories(path, failed);
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error("cannot make the folder of checkpoints", path, failed ? failed.value() : errno);
  std::unique_ptr<CheckpointFolder> folder(new CheckpointFolder(path, keep, fd));
  if (::access(path.c_str(), W_OK | X_OK) != 0) return io_error("cannot write into", path, errno);
  // Where a file system knows no locks there is none to wait for.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Error{Errc::usage, "another training writes its checkpoints into " + escaped(path)};
  const std::vector<std::int64_t> steps = checkpoint_steps(path);
  if (!steps.empty() && steps.back() > begins_after)
    return Error{Errc::usage, escaped(path) + " has a checkpoint of step " + std::to_string(steps.back()) +
                                  ", this training begins after step " + std::to_string(begins_after) +
                                  ": go on from it (--resume " + escaped(path) +
                                  "), name another folder, or remove it"};
  const std::string other = steps.empty() ? "" : other_model(checkpoint_path(path, steps.back()), model_hash);
  if (!other.empty())
    return Error{Errc::usage, escaped(path) + " has checkpoints of another model (" + escaped(other) +
                                  "): name another folder, or remove it"};
  folder->remove_unfinished();
  return folder;
}

CheckpointFolder::~CheckpointFolder() { ::close(fd_); }

// What a process that was killed has left, or a checkpoint for which memory did not last.
void CheckpointFolder::remove_unfinished() const {
  std::error_code ignored;
  for (const std::string& name : names_in(path_))
    if (name.starts_with(kUnfinished) || name.starts_with(kRemoved))
      fs::remove_all(path_ + "/" + name, ignored);
}

Result<std::string> CheckpointFolder::write(const Checkpoint& checkpoint) {
  return write(checkpoint.step,
               [&](const std::string& folder) { return write_checkpoint(folder, checkpoint); });
}

// The unfinished folder has a name that no other training has: a rank of one that has just ended may still write there.
Result<std::string> CheckpointFolder::write(std::int64_t step, const WriteFiles& files) {
  const std::string path = checkpoint_path(path_, step),
                    unfinished = path_ + "/" + std::string(kUnfinished) + name_of(step) + "-" + nonce();
  remove_unfinished();
  TRY(make_folder(unfinished, path, files));
  // The name, too, is on disk before an older one goes. Some file systems refuse it for folders.
  if (::fsync(fd_) != 0 && errno != EINVAL) return io_error("cannot flush", path_, errno);
  remove_oldest();
  return path;
}

// First the name goes, in one step, so that no half of a checkpoint bears one.
void CheckpointFolder::remove_oldest() const {
  std::vector<std::int64_t> steps = checkpoint_steps(path_);
  if (steps.back() != protected_) std::erase(steps, protected_);
  const std::size_t keep = keep_ == 0 ? steps.size() : static_cast<std::size_t>(keep_);
  for (std::size_t i = 0; i + keep < steps.size(); ++i) {
    const std::string removed = path_ + "/" + std::string(kRemoved) + name_of(steps[i]);
    std::error_code ignored;
    fs::remove_all(removed, ignored);
    if (::rename(checkpoint_path(path_, steps[i]).c_str(), removed.c_str()) == 0)
      fs::remove_all(removed, ignored);
  }
}

Result<Checkpoint> open_checkpoint(const std::string& path) {
  if (!exists(path)) return io_error("cannot open the checkpoint", path, errno);
  const std::string plain = without_end_slashes(path);
  std::string chosen = plain;
  if (!exists(plain + "/" + kStateFile) && !step_of(fs::path(plain).filename().string())) {
    const std::vector<std::int64_t> steps = checkpoint_steps(plain);
    if (steps.empty()) return Error{Errc::bad_input, escaped(path) + ": no checkpoint, and none in it"};
    chosen = checkpoint_path(plain, steps.back());
  }
  auto checkpoint = read_checkpoint(chosen);
  if (checkpoint) return checkpoint;
  return with_newest_whole(checkpoint.error(), chosen);
}

Error damage_or(const Error& error, const Checkpoint& checkpoint) {
  if (!checkpoint.shards) return error;
  const Status whole = checkpoint.shards->check_all();
  return whole.ok() ? error : with_newest_whole(whole.error(), checkpoint.path);
}

Status join_checkpoint(const Checkpoint& from, const std::string& folder) {
  if (from.shards) TRY(from.shards->check_all());
  const std::string plain = without_end_slashes(folder);
  if (exists(plain)) return Error{Errc::usage, escaped(plain) + " is there already: name another folder"};
  const fs::path parent = fs::path(plain).parent_path();
  const std::string unfinished =
      (parent / (std::string(kUnfinished) + fs::path(plain).filename().string() + "-" + nonce())).string();
  return make_folder(unfinished, plain,
                     [&](const std::string& into) { return write_checkpoint(into, from); });
}

}  // namespace gradloom
