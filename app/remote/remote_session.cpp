#include "app/remote/remote_session.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "app/remote/mirror.h"
#include "app/spawn.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/device/kernel_cache.h"

namespace gradloom {
namespace {

// The last line that a program says of what went wrong.
std::string last_line(const std::string& text) {
  std::string line = text.substr(0, text.find_last_not_of("\r\n") + 1);
  if (const std::size_t start = line.rfind('\n'); start != std::string::npos) line.erase(0, start + 1);
  return line.substr(0, 500);
}

}  // namespace

struct RemoteSession::Impl {
  explicit Impl(MirrorFolder own) : folder(std::move(own)), mirror(folder.path()) {}

  // A pipe whose ends are closed by themselves.
  struct Pipe {
    std::array<int, 2> ends{-1, -1};
    Pipe() = default;
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe() {
      close_end(0);
      close_end(1);
    }
    bool open() { return ::pipe2(ends.data(), O_CLOEXEC) == 0; }
    void close_end(std::size_t i) {
      if (ends[i] >= 0) ::close(std::exchange(ends[i], -1));
    }
  };

  const MirrorFolder folder;

  Pipe in, out, err;  // of ssh
  pid_t process = -1;
  std::function<void()> notify;
  Mirror mirror;  // of the thread
  mutable std::mutex mutex;
  State state;
  bool reaped = false;  // under `mutex`: afterwards the number may be somebody else's
  std::thread out_reader, err_reader;
  std::string said;  // on stderr

  void publish(std::optional<Error> ended) {
    {
      const std::lock_guard lock(mutex);
      state = {mirror.states(), mirror.fraction(),    mirror.session(), mirror.session_there(),
               mirror.model(),  mirror.model_there(), std::move(ended)};
    }
    if (notify) notify();
  }

  void read_errors() {
    std::array<char, 4096> bytes;
    for (;;) {
      const ssize_t n = ::read(err.ends[0], bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;
      said.append(bytes.data(), static_cast<std::size_t>(n));
      if (said.size() > 1 << 16) said.erase(0, said.size() - (1 << 12));
    }
  }

  // What the far end says, until it ends or says what cannot be.
  Status follow() {
    std::vector<char> bytes(1 << 16);
    std::int64_t states = -1;
    double fraction = -1;
    for (;;) {
      const ssize_t n = ::read(out.ends[0], bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return {};
      TRY(mirror.take(bytes.data(), static_cast<std::size_t>(n)));
      if (const auto answer = mirror.answer())
        if (::write(in.ends[1], answer->data(), answer->size()) < 0)
          return Error{Errc::io, "the connection is gone"};
      const double now = mirror.fraction();
      if (states == mirror.states() && std::abs(now - fraction) < 0.01) continue;
      states = mirror.states();
      fraction = now;
      publish(std::nullopt);
    }
  }

  void run() {
    const Status status = follow();
    if (!status) ::kill(-process, SIGKILL);
    err_reader.join();
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    {
      const std::lock_guard lock(mutex);
      reaped = true;
      int code = 0;
      ::waitpid(process, &code, 0);
    }
    const std::string line = last_line(said);
    const std::string why = !status         ? status.error().message
                            : !line.empty() ? without_program_name(escaped(line))
                                            : "the connection is gone";
    publish(Error{status ? Errc::io : status.error().code, why});
  }
};

Result<MirrorFolder> MirrorFolder::take(const RemoteAddress& address) {
  constexpr int kMostWindows = 64;  // that show one session
  const std::string cache = kernel_cache_folder();
  if (cache.empty())
    return Error{Errc::io, "there is no folder of this user's own for a copy of the session"};
  const std::string name = cache + "/remote/" + address.host + "-" + hash_hex(address.text()).substr(0, 16);
  for (int i = 0; i < kMostWindows; ++i) {
    MirrorFolder folder;
    folder.path_ = i == 0 ? name : name + "-" + std::to_string(i);
    std::error_code error;
    std::filesystem::create_directories(folder.path_, error);
    if (error) return Error{Errc::io, folder.path_ + ": " + error.message()};
    folder.lock_ = ::open((folder.path_ + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (folder.lock_ < 0) return Error{Errc::io, folder.path_ + "/.lock: " + std::strerror(errno)};
    if (::flock(folder.lock_, LOCK_EX | LOCK_NB) == 0) return folder;
  }
  return Error{Errc::io, name + " and its copies are in use"};
}

MirrorFolder::~MirrorFolder() {
  if (lock_ >= 0) ::close(lock_);
}

Result<std::unique_ptr<RemoteSession>> RemoteSession::start(const RemoteAddress& address,
                                                            std::function<void()> notify) {
  auto impl = std::make_unique<Impl>(TRY(MirrorFolder::take(address)));
  if (!impl->in.open() || !impl->out.open() || !impl->err.open())
    return Error{Errc::io, std::string("a pipe for ssh: ") + std::strerror(errno)};
  const int failure = spawn("ssh", ssh_words(address, {"serve", address.path}),
                            {impl->in.ends[0], impl->out.ends[1], impl->err.ends[1]}, impl->process);
  if (failure != 0) return Error{Errc::io, std::string("ssh cannot be started: ") + std::strerror(failure)};
  impl->in.close_end(0);
  impl->out.close_end(1);
  impl->err.close_end(1);
  impl->notify = std::move(notify);
  impl->err_reader = std::thread([&i = *impl] { i.read_errors(); });
  impl->out_reader = std::thread([&i = *impl] { i.run(); });
  return std::unique_ptr<RemoteSession>(new RemoteSession(address, std::move(impl)));
}

RemoteSession::RemoteSession(RemoteAddress address, std::unique_ptr<Impl> impl)
    : address_(std::move(address)), impl_(std::move(impl)) {}

RemoteSession::~RemoteSession() {
  {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->reaped) ::kill(-impl_->process, SIGKILL);
  }
  impl_->out_reader.join();
}

RemoteSession::State RemoteSession::state() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->state;
}

std::vector<std::string> words_there(std::vector<std::string> words, const RemoteSession::State& state) {
  const auto replace = [](std::string& word, const std::string& here, const std::string& there) {
    if (here.empty() || there.empty()) return;
    for (std::size_t at = word.find(here); at != std::string::npos; at = word.find(here, at + there.size()))
      word.replace(at, here.size(), there);
  };
  for (std::string& word : words) {
    replace(word, state.session, state.session_there);
    replace(word, state.model, state.model_there);
  }
  return words;
}

}  // namespace gradloom
