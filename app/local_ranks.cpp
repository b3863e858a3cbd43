#include "app/local_ranks.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "app/mpirun.h"
#include "app/rank_processes.h"
#include "engine/base/plugins.h"
#include "engine/base/scratch_folder.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// This process's command line.
std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const std::string path = program_path(), program = path.empty() ? "gradloom" : path;
  words.resize(std::max<std::size_t>(words.size(), 1));
  words[0] = program;
  return words;
}

bool is_on_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

// Whether mpirun starts local ranks, where both it and its plugin are there: Open MPI's shared memory carries two to three times what
// the sockets of one machine do. GRADLOOM_TRANSPORT says it, "mpi" or "tcp".
Result<bool> by_mpirun() {
  const char* const said = std::getenv("GRADLOOM_TRANSPORT");
  const std::string name = said == nullptr ? "" : said;
  if (name == "mpi" || name == "tcp") return name == "mpi";
  if (!name.empty())
    return Error{Errc::usage,
                 "GRADLOOM_TRANSPORT=" + escaped(name) + " in the environment: expected mpi or tcp"};
  return is_on_path("mpirun") && find_plugin("mpi").ok();
}

// mpirun waits for seconds before it ends once a rank's exit code is not 0, so local ranks end with 0: rank 0 writes the common error,
// code and text, to this file.
constexpr const char* kEndFile = "GRADLOOM_RANKS_END";

class EndFile {
 public:
  // Its name is in the environment of what is started while it lives.
  explicit EndFile(std::string path) : path_(std::move(path)) { setenv(kEndFile, path_.c_str(), 1); }
  EndFile(const EndFile&) = delete;
  EndFile& operator=(const EndFile&) = delete;
  ~EndFile() { unsetenv(kEndFile); }
  bool written() const {
    struct stat at {};
    return stat(path_.c_str(), &at) == 0 && at.st_size > 0;
  }
  std::optional<Error> error() const {
    std::ifstream file(path_);
    int code = 0;
    if (!(file >> code) || code == 0) return std::nullopt;
    file.ignore(1);
    return Error{static_cast<Errc>(code), {std::istreambuf_iterator<char>(file), {}}};
  }

 private:
  std::string path_;
};

}  // namespace

bool is_local_rank() {
  const char* const path = std::getenv(kEndFile);
  return path != nullptr && *path != 0;
}

bool end_as_local_rank(int rank, const Error& error) {
  if (!is_local_rank()) return false;
  if (rank > 0) return true;
  std::ofstream file(std::getenv(kEndFile));
  file << static_cast<int>(error.code) << ' ' << error.message;
  return static_cast<bool>(file.flush());
}

Status start_local_ranks(std::int64_t ranks, CommandContext& context) {
  if (is_local_rank())  // its ranks would start ranks, without an end
    return Error{Errc::device, "this process was started as a rank, but its environment does not say which"};
  const Finishing finishing(context);  // the ranks have something to keep
  const bool mpi = TRY(by_mpirun());
  const ScratchFolder folder = TRY(ScratchFolder::create("ranks"));
  const EndFile end_file(folder / "end");
  // A world of one, which a launcher or a notebook has left, would count before what mpirun says (place.h).
  for (const char* const name : {"RANK", "WORLD_SIZE"}) unsetenv(name);
  const LocalEnd end =
      TRY(mpi ? run_by_mpirun(ranks, own_command(), folder.path(), context.stop)
              : run_by_themselves(ranks, own_command(), context.stop, [&] { return end_file.written(); }));
  const std::optional<Error> told = end_file.error();
  // A rank that a signal ended interrupts mpirun's others, and is missed by ours.
  if (!end.cause.empty() && (!mpi || !told || told->code == Errc::interrupted))
    return Error{Errc::device, end.cause};
  if (told) return *told;
  if (end.code == 0) return {};
  if (end.said && end.code <= static_cast<int>(Errc::numeric))
    return Error{static_cast<Errc>(end.code), ""};  // told before they met
  // Ranks that are asked to end while they start, and an mpirun that has not started them yet, end without a word.
  if (end.code == static_cast<int>(Errc::interrupted) || context.stop.stop_requested())
    return Error{Errc::interrupted, "interrupted"};
  return Error{Errc::device, std::string(mpi ? "mpirun" : "a rank") + " ended with exit code " +
                                 std::to_string(end.code) +
                                 (end.told.empty() ? ", and nobody said why" : ": " + escaped(end.told))};
}

}  // namespace gradloom
