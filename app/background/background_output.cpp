#include "app/background/background_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "app/json_fields.h"
#include "app/lines.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr int kLookMs = 500;  // where no change is told: not every file system does
constexpr off_t kTailBytes = 64 << 10;

}  // namespace

struct BackgroundOutput::Impl {
  // Lines of a file that grows; empty ones are left out.
  struct GrowingFile {
    int fd = -1;
    LineSplitter lines;

    void read_more(std::vector<std::string>& to) {
      char bytes[1 << 16];
      for (ssize_t n; (n = ::read(fd, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR);)
        if (n > 0)
          lines.take({bytes, static_cast<std::size_t>(n)},
                     [&](std::string line) { add(std::move(line), to); });
    }
    void take_rest(std::vector<std::string>& to) {
      lines.finish([&](std::string line) { add(std::move(line), to); });
    }

   private:
    static void add(std::string line, std::vector<std::string>& to) {
      if (!line.empty()) to.push_back(std::move(line));
    }
  };

  BackgroundCommand command;
  GrowingFile out, err;
  int changes = -1, woken = -1;  // inotify; eventfd
  bool over = false;

  ~Impl() {
    for (const int fd : {out.fd, err.fd, changes, woken})
      if (fd >= 0) close(fd);
  }
};

BackgroundOutput::BackgroundOutput(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BackgroundOutput::BackgroundOutput(BackgroundOutput&&) noexcept = default;
BackgroundOutput::~BackgroundOutput() = default;

Result<BackgroundOutput> BackgroundOutput::follow(const BackgroundCommand& command) {
  auto impl = std::make_unique<Impl>();
  impl->command = command;
  impl->out.fd = open(command.out().c_str(), O_RDONLY | O_CLOEXEC);
  impl->err.fd = open(command.err().c_str(), O_RDONLY | O_CLOEXEC);
  impl->woken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (impl->out.fd < 0 || impl->err.fd < 0 || impl->woken < 0)
    return Error{Errc::io, command.files + ": " + std::strerror(errno)};
  impl->changes =
      inotify_init1(IN_CLOEXEC | IN_NONBLOCK);  // without it, where there are no more: by time alone
  if (impl->changes >= 0)
    inotify_add_watch(impl->changes, command.files.c_str(),
                      IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE);
  return BackgroundOutput(std::move(impl));
}

bool BackgroundOutput::read(std::vector<std::string>& out, std::vector<std::string>& err) {
  Impl& impl = *impl_;
  if (impl.over) return false;
  look_again(impl.command);  // before reading: what has ended writes no more
  impl.out.read_more(out);
  impl.err.read_more(err);
  if (impl.command.running) return true;
  impl.out.take_rest(out);
  impl.err.take_rest(err);
  impl.over = true;
  return false;
}

void BackgroundOutput::wait() {
  pollfd fds[2] = {{impl_->woken, POLLIN, 0}, {impl_->changes, POLLIN, 0}};
  if (poll(fds, impl_->changes >= 0 ? 2 : 1, kLookMs) <= 0) return;
  char bytes[4096];
  for (const pollfd& fd : fds)
    while (fd.revents != 0 && ::read(fd.fd, bytes, sizeof bytes) > 0) {
    }
}

void BackgroundOutput::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(impl_->woken, &one, sizeof one);
}

const BackgroundCommand& BackgroundOutput::command() const { return impl_->command; }

std::string last_line(const BackgroundCommand& command) {
  const int fd = open(command.out().c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const off_t size = lseek(fd, 0, SEEK_END), begin = std::max<off_t>(0, size - kTailBytes);
  std::string tail(static_cast<std::size_t>(std::max<off_t>(0, size - begin)), '\0');
  const ssize_t n = pread(fd, tail.data(), tail.size(), begin);
  close(fd);
  tail.resize(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
  const std::size_t end = tail.rfind('\n');
  if (end == std::string::npos || end == 0) return {};
  const std::size_t before = tail.rfind('\n', end - 1);
  if (before == std::string::npos && begin > 0) return {};  // a line longer than the tail
  return tail.substr(before == std::string::npos ? 0 : before + 1,
                     end - (before == std::string::npos ? 0 : before + 1));
}

std::string progress_text(const std::string& line) {
  const Json root = Json::parse(line, nullptr, false);
  if (!root.is_object()) return {};
  if (const auto step = root.find("step"); step != root.end() && step->is_number()) {
    const auto loss = root.find("loss");
    const bool number = loss != root.end() && loss->is_number();
    return "step " + std::to_string(integer_of(root, "step")) +
           (number ? ", loss " + short_text(loss->get<double>()) : "");
  }
  if (text_of(root, "event") != "progress") return {};
  const std::string what = text_of(root, "what");
  return percent_text(number_of(root, "fraction")) + (what.empty() ? "" : ", " + escaped(what));
}

}  // namespace gradloom
