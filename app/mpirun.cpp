#include "app/mpirun.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <regex>

#include "app/lines.h"
#include "app/spawn.h"

namespace gradloom {
namespace {

std::vector<std::string> words_of_mpirun(std::int64_t ranks, const std::string& folder,
                                         const std::vector<std::string>& command) {
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
                                 std::to_string(ranks)};
  // By itself every mpirun of a user makes, and the last one removes, one folder for all: one that starts while another ends may find it
  // gone, and fails.
  words.insert(words.begin() + 1, {"--mca", "orte_tmpdir_base", folder});
  if (geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

// mpirun's own words, between lines of dashes, and those of Open MPI in the ranks say what a rank's end was; the rest is the ranks'.
class MpirunErrors {
 public:
  // Passes on what the ranks say.
  void take(std::string_view bytes) {
    lines_.take(bytes, [&](const std::string& text) { line(text); });
  }
  void finish() {
    lines_.finish([&](const std::string& text) { line(text); });
  }
  void asked_to_end() { asked_ = true; }
  const std::string& cause() const { return cause_; }  // of the first rank that a signal ended; ""
  const std::string& told() const { return told_; }    // mpirun's last words
  bool said() const { return said_; }                  // a rank has told an error

 private:
  void line(const std::string& text) {
    if (text.size() > 20 && text.find_first_not_of('-') == std::string::npos) {
      quoted_ = !quoted_;
      return;
    }
    // The library inside of a rank, of a peer that has ended: "[node-0:123] Read -1, expected 5120, errno = 3".
    static const std::regex of_library(R"(\[[^\]\s]+:\d+\] .*)");
    if (!quoted_ && !std::regex_match(text, of_library)) {
      said_ = said_ || text.starts_with("gradloom: ");
      std::fprintf(stderr, "%s\n", text.c_str());
      return;
    }
    static const std::regex ended(R"(process rank (\d+) .* exited on (signal (\d+) \([^)]*\)))");
    std::smatch match;
    const bool found = cause_.empty() && std::regex_search(text, match, ended);
    const bool ours = asked_ && found && match[3].str() == std::to_string(SIGTERM);
    if (found && !ours) cause_ = "rank " + match[1].str() + " was ended by " + match[2].str();
    if (!text.empty()) told_ += (told_.empty() ? "" : " ") + text;
  }

  LineSplitter lines_;
  std::string cause_, told_;
  bool quoted_ = false, said_ = false, asked_ = false;
};

struct Child {
  pid_t id = -1;
  int errors = -1;
};

Result<Child> start(std::int64_t ranks, const std::string& folder, const std::vector<std::string>& command) {
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), O_CLOEXEC) != 0)
    return Error{Errc::device, std::string("a pipe: ") + std::strerror(errno)};
  Child child{.errors = pipe[0]};
  // What mpirun has to say of its own is an error of ours; what the ranks print is theirs.
  const int code = spawn("mpirun", words_of_mpirun(ranks, folder, command), {.err = pipe[1]}, child.id);
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
int wait_for(const Child& child, MpirunErrors& errors, const std::stop_token& stop) {
  std::array<char, 4096> bytes{};
  bool told = false;
  for (bool open = true; open;) {
    pollfd waits{child.errors, POLLIN, 0};
    if (poll(&waits, 1, 100) > 0) {
      const ssize_t count = read(child.errors, bytes.data(), bytes.size());
      if (count > 0) errors.take({bytes.data(), static_cast<std::size_t>(count)});
      open = count > 0 || (count < 0 && errno == EINTR);
    }
    if (stop.stop_requested() && !told) {
      stop_children(child.id);
      errors.asked_to_end();
      told = true;
    }
  }
  errors.finish();
  int status = 0;
  while (waitpid(child.id, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Result<LocalEnd> run_by_mpirun(std::int64_t ranks, const std::vector<std::string>& command,
                               const std::string& folder, const std::stop_token& stop) {
  const Child child = TRY(start(ranks, folder, command));
  MpirunErrors errors;
  const int status = wait_for(child, errors, stop);
  close(child.errors);
  return LocalEnd{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), errors.cause(),
                  errors.told(), errors.said()};
}

}  // namespace gradloom
