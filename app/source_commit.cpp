#include "app/source_commit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include "app/spawn.h"
#include "engine/base/text.h"
#include "kernels/clock.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMostNs = 2'000'000'000;
constexpr std::size_t kMostAnswerBytes = 1 << 22;  // of the answer
constexpr std::size_t kShownDigits = 12, kMostBranch = 200;

bool is_commit(const std::string& id) {
  return (id.size() == 40 || id.size() == 64) &&
         id.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Until the end, the limit of bytes or of time. False: it did not end.
bool read_answer(int from, std::string& text) {
  const std::int64_t end_ns = kernels::now_ns() + kMostNs;
  char bytes[1 << 14];
  while (text.size() < kMostAnswerBytes) {
    const std::int64_t left_ns = end_ns - kernels::now_ns();
    if (left_ns <= 0) return false;
    pollfd waiting{from, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left_ns / 1'000'000 + 1));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    const ssize_t n = read(from, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0;
    text.append(bytes, static_cast<std::size_t>(n));
  }
  return false;
}

}  // namespace

std::optional<SourceCommit> source_commit(const std::string& folder) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return std::nullopt;
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  pid_t process = 0;
  const int failure =
      spawn("git",
            {"git", "-c", "core.fsmonitor=false", "-C", folder.empty() ? "." : folder, "status",
             "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=dirty"},
            {.out = pipe_ends[1], .err = nowhere}, process, {"GIT_OPTIONAL_LOCKS=0", "LC_ALL=C"});
  close(pipe_ends[1]);
  if (nowhere >= 0) close(nowhere);
  std::string text;
  const bool whole = failure == 0 && read_answer(pipe_ends[0], text);
  close(pipe_ends[0]);
  if (failure != 0) return std::nullopt;
  if (!whole) kill(-process, SIGKILL);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return parse_git_status(text);
}

std::optional<SourceCommit> parse_git_status(const std::string& text) {
  SourceCommit commit;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    constexpr std::string_view kId = "# branch.oid ", kBranch = "# branch.head ";
    if (line.starts_with(kId))
      commit.id = line.substr(kId.size());
    else if (line.starts_with(kBranch))
      commit.branch = line.substr(kBranch.size(), kMostBranch);
    else if (!line.empty() && line[0] != '#')
      ++commit.changed;
  }
  if (commit.branch == "(detached)") commit.branch.clear();
  return is_commit(commit.id) ? std::optional(commit) : std::nullopt;
}

std::map<std::string, std::string> source_rows(const SourceCommit& commit) {
  std::map<std::string, std::string> rows{
      {"source.commit", commit.id},
      {"source.changed", commit.changed == 0 ? "no" : plural_text(commit.changed, "file")}};
  if (!commit.branch.empty()) rows["source.branch"] = commit.branch;
  return rows;
}

std::string source_text(const std::map<std::string, std::string>& environment) {
  const auto id = environment.find("source.commit"), changed = environment.find("source.changed");
  if (id == environment.end()) return {};
  std::string text = escaped(id->second.substr(0, kShownDigits));
  if (changed != environment.end() && changed->second != "no")
    text += ", " + escaped(changed->second) + " changed";
  return text;
}

}  // namespace gradloom
