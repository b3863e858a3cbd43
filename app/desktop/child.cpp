#include "app/desktop/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>

#include "app/background/background_output.h"
#include "app/lines.h"
#include "app/spawn.h"

namespace gradloom {

Result<std::vector<std::string>> split_command_line(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == ' ' || c == '\t') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
      continue;
    }
    in_word = true;
    if (c == '\'') {
      const std::size_t end = line.find('\'', i + 1);
      if (end == std::string::npos) return Error{Errc::usage, "a quote of the command line is not closed"};
      word += line.substr(i + 1, end - i - 1);
      i = end;
    } else if (c == '\\' && i + 1 < line.size()) {
      word += line[++i];
    } else {
      word += c;
    }
  }
  if (in_word) words.push_back(std::move(word));
  return words;
}

struct Child::Impl {
  std::function<void()> notify;
  pid_t process = -1;
  int out = -1, err = -1;
  std::atomic<bool> running{true};
  std::atomic<bool> asked{false};  // we sent a signal
  mutable std::mutex mutex;
  bool reaped = false;  // under `mutex`: afterwards the pid may be somebody else's
  std::vector<std::string> lines;
  ChildExit result;
  std::optional<BackgroundOutput> background;  // in its stead pipes and process
  std::optional<BackgroundCommand> command;
  std::atomic<bool> leaving{false};  // nobody reads any more
  std::thread reader;

  // What a command in the background writes, until it has ended or is left.
  void follow() {
    std::string last_error;
    for (bool more = true; more && !leaving;) {
      std::vector<std::string> said, errors;
      more = background->read(said, errors);
      if (!errors.empty()) last_error = std::move(errors.back());
      if (!said.empty()) {
        const std::lock_guard lock(mutex);
        std::move(said.begin(), said.end(), std::back_inserter(lines));
      }
      if (notify && !leaving) notify();
      if (more) background->wait();
    }
    if (leaving) return;
    if (command->keeper > 0) {
      while (waitpid(command->keeper, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    const std::optional<BackgroundEnd>& end = background->command().end;
    {
      const std::lock_guard lock(mutex);
      if (end) {
        set_result(end->exit_code, end->signal, last_error);
      } else {
        result = {128 + SIGKILL, true, "the run is lost: what kept it was killed"};
      }
    }
    running = false;
    if (notify) notify();
  }

  // `ended_by`: a signal, or 0.
  void set_result(int code, int ended_by, const std::string& last_error) {
    result.code = code;
    result.crashed = ended_by > 0 && !asked;
    result.error = without_program_name(last_error);
    if (result.crashed) result.error = std::string("the run crashed: ") + strsignal(ended_by);
  }

  // Reads both pipes until both are closed, then reaps.
  void read_all() {
    LineSplitter out_lines, err_lines;
    std::string last_error;
    const auto keep_error = [&](std::string line) {
      if (!line.empty()) last_error = std::move(line);
    };
    pollfd fds[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
    char bytes[1 << 16];
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
      if (poll(fds, 2, -1) < 0 && errno != EINTR) break;
      for (pollfd& fd : fds) {
        if (fd.fd < 0 || fd.revents == 0) continue;
        const ssize_t n = read(fd.fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
          fd.fd = -1;
          continue;
        }
        if (&fd == &fds[1]) {
          err_lines.take({bytes, static_cast<std::size_t>(n)}, keep_error);
          continue;
        }
        const std::lock_guard lock(mutex);
        out_lines.take({bytes, static_cast<std::size_t>(n)}, [&](std::string line) {
          if (!line.empty()) lines.push_back(std::move(line));
        });
      }
      if (notify) notify();
    }
    err_lines.finish(keep_error);
    finish(last_error);
  }

  void finish(const std::string& last_error) {
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    int status = 0;
    {
      const std::lock_guard lock(mutex);
      while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
      }
      reaped = true;
      const int signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      set_result(signal_number > 0 ? 128 + signal_number : WEXITSTATUS(status), signal_number, last_error);
    }
    running = false;
    if (notify) notify();
  }

  void send(int signal_number) {
    const std::lock_guard lock(mutex);
    if (reaped || !running) return;
    asked = true;
    if (command) {
      // It may have ended just now: then there is nobody to ask.
      (void)ask_background(*command,
                           signal_number == SIGKILL ? BackgroundAsk::kill : BackgroundAsk::interrupt);
      return;
    }
    ::kill(-process, signal_number);  // its whole process group: what it started holds our pipes open too
  }
};

Child::Child(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Child>> Child::start(const std::string& program,
                                            const std::vector<std::string>& arguments,
                                            std::function<void()> notify) {
  int out[2] = {-1, -1}, err[2] = {-1, -1};
  if (pipe2(out, O_CLOEXEC) != 0)
    return Error{Errc::io, std::string("a pipe for the run: ") + std::strerror(errno)};
  if (pipe2(err, O_CLOEXEC) != 0) {
    const Error error{Errc::io, std::string("a pipe for the run: ") + std::strerror(errno)};
    close(out[0]);
    close(out[1]);
    return error;
  }
  std::vector<std::string> words{"gradloom"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  pid_t process = -1;
  const int failure = spawn(program, std::move(words), {.out = out[1], .err = err[1]}, process);
  close(out[1]);
  close(err[1]);
  if (failure != 0) {
    close(out[0]);
    close(err[0]);
    return Error{Errc::io, program + " cannot be started: " + std::strerror(failure)};
  }
  auto impl = std::make_shared<Impl>();
  impl->notify = std::move(notify);
  impl->process = process;
  impl->out = out[0];
  impl->err = err[0];
  impl->reader = std::thread([state = impl.get()] { state->read_all(); });
  return std::unique_ptr<Child>(new Child(std::move(impl)));
}

Result<std::unique_ptr<Child>> Child::follow(const BackgroundCommand& command, std::function<void()> notify) {
  auto output = TRY(BackgroundOutput::follow(command));
  auto impl = std::make_shared<Impl>();
  impl->notify = std::move(notify);
  impl->command = command;
  impl->background.emplace(std::move(output));
  impl->reader = std::thread([state = impl.get()] { state->follow(); });
  return std::unique_ptr<Child>(new Child(std::move(impl)));
}

Child::~Child() {
  if (impl_->background) {
    impl_->leaving = true;
    impl_->background->wake();
  } else {
    kill();
  }
  impl_->reader.join();
  for (const int fd : {impl_->out, impl_->err})
    if (fd >= 0) close(fd);
}

std::vector<std::string> Child::take_lines(std::size_t most) {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string>& lines = impl_->lines;
  if (lines.size() <= most) return std::exchange(lines, {});
  const auto end = lines.begin() + static_cast<std::ptrdiff_t>(most);
  std::vector<std::string> taken(std::make_move_iterator(lines.begin()), std::make_move_iterator(end));
  lines.erase(lines.begin(), end);
  return taken;
}

bool Child::all_taken() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->lines.empty();
}

bool Child::running() const { return impl_->running; }
ChildExit Child::exit() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->result;
}
void Child::interrupt() { impl_->send(SIGINT); }
void Child::kill() { impl_->send(SIGKILL); }
long Child::pid() const { return impl_->process; }
const BackgroundCommand* Child::background() const { return impl_->command ? &*impl_->command : nullptr; }

}  // namespace gradloom
