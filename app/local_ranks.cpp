#include "app/local_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <vector>

#include "app/spawn.h"
#include "engine/base/plugins.h"

namespace gradloom {
namespace {

// The words of this process's command line.
std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::vector<std::string> words_of_mpirun(std::int64_t ranks) {
  const std::string path = program_path(), program = path.empty() ? "gradloom" : path;
  // More ranks than processors are allowed; ranks are not bound, since they divide the processors themselves; no other
  // machine is asked, so no ssh is looked for.
  std::vector<std::string> words{"mpirun",
                                 "--oversubscribe",
                                 "--bind-to",
                                 "none",
                                 "--mca",
                                 "plm",
                                 "isolated",
                                 "--mca",
                                 "odls_base_sigkill_timeout",
                                 "3",
                                 "-n",
                                 std::to_string(ranks),
                                 program};
  if (geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
  const std::vector<std::string> own = own_words();
  words.insert(words.end(), own.begin() + std::min<std::ptrdiff_t>(1, std::ssize(own)), own.end());
  return words;
}

// mpirun's own words, between lines of dashes, say what a rank's end was; the rest is the ranks'.
class MpirunErrors {
 public:
  // Passes on what the ranks say.
  void take(std::string_view bytes) {
    text_ += bytes;
    for (std::size_t end = 0; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
      line(text_.substr(0, end));
  }
  void finish() {
    if (!text_.empty()) line(text_);
    text_.clear();
  }
  const std::string& cause() const { return cause_; }  // of the first rank that a signal ended; ""
  const std::string& told() const { return told_; }    // mpirun's last words

 private:
  void line(const std::string& text) {
    if (text.size() > 20 && text.find_first_not_of('-') == std::string::npos) {
      quoted_ = !quoted_;
      return;
    }
    if (!quoted_) {
      std::fprintf(stderr, "%s\n", text.c_str());
      return;
    }
    static const std::regex ended(R"(process rank (\d+) .* exited on (signal \d+ \([^)]*\)))");
    std::smatch match;
    if (cause_.empty() && std::regex_search(text, match, ended))
      cause_ = "rank " + match[1].str() + " was ended by " + match[2].str();
    if (!text.empty()) told_ += (told_.empty() ? "" : " ") + text;
  }

  std::string text_, cause_, told_;
  bool quoted_ = false;
};

struct Child {
  pid_t id = -1;
  int errors = -1;
};

Result<Child> start_mpirun(std::int64_t ranks) {
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), O_CLOEXEC) != 0)
    return Error{Errc::device, std::string("a pipe: ") + std::strerror(errno)};
  Child child{.errors = pipe[0]};
  // What mpirun has to say of its own is an error of ours; what the ranks print is theirs.
  const int code = spawn("mpirun", words_of_mpirun(ranks), -1, pipe[1], child.id);
  close(pipe[1]);
  if (code == 0) return child;
  close(pipe[0]);
  return Error{Errc::device, std::string("mpirun: ") + std::strerror(code) +
                                 " (--ranks starts ranks by Open MPI, package openmpi-bin)"};
}

// The ranks, as mpirun's children, hear a signal that mpirun itself would take for an order to end them.
void stop_children(pid_t mpirun) {
  const std::string id = std::to_string(mpirun);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  bool any = false;
  for (pid_t child = 0; file >> child; any = true) kill(child, SIGTERM);
  if (!any) kill(mpirun, SIGTERM);
}

// Until it has ended: its exit status as waitpid tells it.
int wait_for(const Child& child, MpirunErrors& errors, CommandContext& context) {
  std::array<char, 4096> bytes{};
  bool told = false;
  for (bool open = true; open;) {
    pollfd waits{child.errors, POLLIN, 0};
    if (poll(&waits, 1, 100) > 0) {
      const ssize_t count = read(child.errors, bytes.data(), bytes.size());
      if (count > 0) errors.take({bytes.data(), static_cast<std::size_t>(count)});
      open = count > 0 || (count < 0 && errno == EINTR);
    }
    if (context.stop.stop_requested() && !told) {
      stop_children(child.id);
      told = true;
    }
  }
  errors.finish();
  int status = 0;
  while (waitpid(child.id, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// mpirun waits for seconds before it ends once a rank's exit code is not 0, so ranks end with 0: rank 0 writes the common error,
// code and text, to this file.
constexpr const char* kEndFile = "GRADLOOM_RANKS_END";

class EndFile {
 public:
  EndFile() {
    std::string path = (std::filesystem::temp_directory_path() / "gradloom-ranks-XXXXXX").string();
    const int file = mkstemp(path.data());
    if (file < 0) return;
    close(file);
    path_ = path;
  }
  EndFile(const EndFile&) = delete;
  EndFile& operator=(const EndFile&) = delete;
  ~EndFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
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
  const Finishing finishing(context);  // the ranks have something to keep
  const EndFile end_file;
  setenv(kEndFile, end_file.path().c_str(), 1);
  const Child child = TRY(start_mpirun(ranks));
  MpirunErrors errors;
  const int status = wait_for(child, errors, context);
  close(child.errors);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  // A rank that a signal ended interrupts the others.
  if (const auto told = end_file.error(); told && (told->code != Errc::interrupted || errors.cause().empty()))
    return *told;
  if (!errors.cause().empty()) return Error{Errc::device, errors.cause()};
  if (code == 0) return {};
  if (code <= static_cast<int>(Errc::numeric))
    return Error{static_cast<Errc>(code), ""};  // told before they met
  return Error{Errc::device, "mpirun ended with exit code " + std::to_string(code) +
                                 (errors.told().empty() ? "" : ": " + errors.told())};
}

}  // namespace gradloom
