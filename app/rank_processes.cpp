#include "app/rank_processes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "app/spawn.h"
#include "engine/base/hash.h"

namespace gradloom {
namespace {

// A port that nobody else gets while this lives, and at which rank 0 can listen: sockets that allow each other's address may share it
// until one of them listens.
class ReservedPort {
 public:
  ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof place;
    const auto at = reinterpret_cast<sockaddr*>(&place);
    if (socket_ >= 0 && setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(socket_, at, bytes) == 0 && getsockname(socket_, at, &bytes) == 0)
      port_ = ntohs(place.sin_port);
  }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  ~ReservedPort() {
    if (socket_ >= 0) close(socket_);
  }
  int port() const { return port_; }  // 0: there is none

 private:
  int socket_, port_ = 0;
};

std::string new_world_id() {
  std::array<char, 32> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return std::to_string(getpid());
  return hash_hex({random.data(), random.size()});
}

using Clock = std::chrono::steady_clock;
constexpr auto kAskAfter = std::chrono::seconds(1), kQuiet = std::chrono::seconds(6);  // after one has failed
constexpr std::chrono::seconds kMost(60), kMostOfFirst(600);

// What a process has done so far: processor time and bytes given to files, as the system counts them; where it waits for a disk,
// it is at work too.
struct ProcessActivity {
  std::string processor, written;
  bool on_disk = false;
  bool operator==(const ProcessActivity&) const = default;
};

ProcessActivity activity_of(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process);
  ProcessActivity activity;
  std::ifstream stat(folder + "/stat");
  std::string text{std::istreambuf_iterator<char>(stat), {}};
  // Behind the name, which may hold anything: state, ten fields, user time, system time.
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string field;
  for (int i = 0; i < 13 && fields >> field; ++i) {
    if (i == 0) activity.on_disk = field == "D";
    if (i > 10) activity.processor += field + " ";
  }
  std::ifstream io(folder + "/io");
  for (std::string line; std::getline(io, line);)
    if (line.rfind("wchar", 0) == 0 || line.rfind("write_bytes", 0) == 0) activity.written += line + " ";
  return activity;
}

struct Process {
  pid_t id = -1;
  bool ended = false;
  ProcessActivity activity{};  // as it was last seen
  Clock::time_point busy{};
};

void signal_all(const std::vector<Process>& processes, int number) {
  for (const Process& one : processes)
    if (!one.ended) kill(one.id, number);
}

// Looks once at each. `signalled`: this process has sent them signals. True: all have ended.
bool collect(std::vector<Process>& processes, bool signalled, LocalEnd& end) {
  bool all = true;
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    Process& one = processes[rank];
    int status = 0;
    if (!one.ended && waitpid(one.id, &status, WNOHANG) == one.id) {
      one.ended = true;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (end.code == 0) end.code = code;
      if (WIFSIGNALED(status) && !signalled && end.cause.empty())
        end.cause = "rank " + std::to_string(rank) + " was ended by signal " +
                    std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
    }
    all = all && one.ended;
  }
  return all;
}

// Those that do nothing any more, or do it for too long.
void kill_idle(std::vector<Process>& processes, Clock::time_point since) {
  const Clock::time_point now = Clock::now();
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    Process& one = processes[rank];
    if (one.ended) continue;
    ProcessActivity activity = activity_of(one.id);
    if (activity != one.activity || activity.on_disk || one.busy < since) one.busy = now;
    one.activity = std::move(activity);
    if (now > one.busy + kQuiet || now > since + (rank == 0 ? kMostOfFirst : kMost)) kill(one.id, SIGKILL);
  }
}

// Returns soon after one of them has ended, at the latest after the time given.
class EndOfAny {
 public:
  explicit EndOfAny(const std::vector<Process>& processes) {
    for (const Process& one : processes) {
      const auto handle = static_cast<int>(syscall(SYS_pidfd_open, one.id, 0));
      if (handle >= 0) waits_.push_back({handle, POLLIN, 0});
    }
  }
  EndOfAny(const EndOfAny&) = delete;
  EndOfAny& operator=(const EndOfAny&) = delete;
  ~EndOfAny() {
    for (const pollfd& one : waits_)
      if (one.fd >= 0) close(one.fd);
  }
  void wait(int milliseconds) {
    poll(waits_.data(), waits_.size(), milliseconds);
    for (pollfd& one : waits_)
      if (one.revents != 0) close(std::exchange(one.fd, -1));  // once: poll skips it from now on
  }

 private:
  std::vector<pollfd> waits_;
};

LocalEnd wait_for(std::vector<Process>& processes, const std::stop_token& stop,
                  const std::function<bool()>& failed) {
  constexpr int kLookMs = 50;
  LocalEnd end;
  EndOfAny ends(processes);
  bool told = false;
  std::optional<Clock::time_point> since;  // one has failed
  while (!collect(processes, told, end)) {
    if (!since && (end.code != 0 || failed())) since = Clock::now();
    const bool ask = stop.stop_requested() || (since && Clock::now() > *since + kAskAfter);
    if (ask && !std::exchange(told, true)) signal_all(processes, SIGTERM);
    if (since) kill_idle(processes, *since);
    ends.wait(kLookMs);
  }
  return end;
}

}  // namespace

Result<LocalEnd> run_by_themselves(std::int64_t ranks, const std::vector<std::string>& command,
                                   const std::stop_token& stop, const std::function<bool()>& failed) {
  const ReservedPort reserved;
  if (reserved.port() == 0)
    return Error{Errc::device, std::string("no port at which ranks could meet: ") + std::strerror(errno)};
  const std::string of_all = std::to_string(ranks), id = new_world_id();
  std::vector<Process> processes;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::string own = std::to_string(rank);
    Process& one = processes.emplace_back();
    if (const int code =
            spawn(command[0], command, {}, one.id,
                  {"RANK=" + own, "LOCAL_RANK=" + own, "WORLD_SIZE=" + of_all, "LOCAL_WORLD_SIZE=" + of_all,
                   "MASTER_ADDR=127.0.0.1", "GRADLOOM_PORT=" + std::to_string(reserved.port()),
                   "GRADLOOM_WORLD_ID=" + id})) {
      processes.pop_back();
      signal_all(processes, SIGKILL);
      for (LocalEnd ignored; !collect(processes, true, ignored);)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return Error{Errc::device, "rank " + own + " cannot be started: " + std::strerror(code)};
    }
  }
  return wait_for(processes, stop, failed);
}

}  // namespace gradloom
