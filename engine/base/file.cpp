// Whole-file reads and atomic replacement: unnamed file, fsync, a name, fsync of the folder.
#include "engine/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace gradloom {
namespace {

Error io_error(const std::string& doing, const std::string& path, int code) {
  return Error{Errc::io, doing + " " + path + ": " + std::strerror(code)};
}

std::string resolved(const std::string& path) {
  char buffer[PATH_MAX];
  return ::realpath(path.c_str(), buffer) ? std::string(buffer) : path;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// What open() would have given a new file.
mode_t new_file_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

Error AtomicFile::error(const char* doing, int code) const { return io_error(doing, path_, code); }

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, std::string())),
      fd_(std::exchange(other.fd_, -1)),
      mode_(other.mode_),
      straight_(other.straight_) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  AtomicFile file;
  file.path_ = path;
  file.target_ = resolved(path);
  struct stat old {};
  const bool exists = ::stat(file.target_.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) return Error{Errc::io, "cannot write " + path + ": is a folder"};
  if (exists && !S_ISREG(old.st_mode)) {
    file.straight_ = true;
    file.fd_ = ::open(file.target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.fd_ < 0) return file.error("cannot write", errno);
    return file;
  }
  file.mode_ = exists ? (old.st_mode & 07777) : new_file_mode();
  file.fd_ = ::open(folder_of(file.target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (file.fd_ < 0) {
    std::string name = file.target_ + ".XXXXXX";
    file.fd_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (file.fd_ < 0) return file.error("cannot write", errno);
    file.temporary_ = name;
  }
  return file;
}

Status AtomicFile::write(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error("cannot write", errno);
    done += static_cast<std::size_t>(n);
  }
  return {};
}

// Only rename() replaces a file in one step, and it needs a name to begin from.
Status AtomicFile::give_name() {
  if (temporary_.empty()) {
    const std::string open_file = "/proc/self/fd/" + std::to_string(fd_);
    const auto link = [&](const std::string& name) {
      return ::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    if (link(target_)) return {};
    if (errno != EEXIST) return error("cannot write", errno);
    const std::string beside = target_ + "." + std::to_string(::getpid()) + ".new";
    ::unlink(beside.c_str());
    if (!link(beside)) return error("cannot write", errno);
    temporary_ = beside;
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return error("cannot write", errno);
  temporary_.clear();
  return {};
}

Status AtomicFile::commit() {
  if (!straight_) {
    if (::fsync(fd_) != 0) return error("cannot flush", errno);
    if (::fchmod(fd_, mode_) != 0) return error("cannot write", errno);
    TRY(give_name());
  }
  if (::close(std::exchange(fd_, -1)) != 0) return error("cannot write", errno);
  const int dir = straight_ ? -1 : ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    ::fsync(dir);  // some file systems refuse fsync on folders; the data itself is safe already
    ::close(dir);
  }
  return {};
}

Status atomic_write_file(const std::string& path, std::string_view bytes) {
  AtomicFile file = TRY(AtomicFile::create(path));
  TRY(file.write(bytes));
  return file.commit();
}

Status check_writable(const std::string& path) {
  struct stat info {};
  const bool special = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  if (special)  // opening a pipe would wait for its reader
    return ::access(path.c_str(), W_OK) == 0 ? Status() : io_error("cannot write", path, errno);
  const auto file = AtomicFile::create(path);
  return file.ok() ? Status() : file.error();
}

Result<std::string> read_file_limited(const std::string& path, std::int64_t max_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return io_error("cannot read", path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return Error{Errc::io, "cannot read " + path + ": not a regular file"};
  }
  const auto too_long = [&] {
    return Error{Errc::limit, path + ": longer than the limit of " + std::to_string(max_bytes) + " bytes"};
  };
  if (info.st_size > max_bytes) {
    ::close(fd);
    return too_long();
  }
  // One byte more, so that the end is seen without growing: growing would hold the file twice.
  std::string bytes(static_cast<std::size_t>(info.st_size) + 1, '\0');
  std::size_t done = 0;
  int code = 0;
  bool grew = false;
  for (;;) {
    if (done == bytes.size()) {
      // Sizes of files in /proc read as 0, and a file may grow meanwhile:
      // go on until the end, within the limit.
      if (static_cast<std::int64_t>(done) >= max_bytes + 1) {
        grew = true;
        break;
      }
      bytes.resize(std::min<std::size_t>(done + 65536, static_cast<std::size_t>(max_bytes) + 1));
    }
    const ssize_t n = ::read(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) code = errno;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  ::close(fd);
  if (code != 0) return io_error("cannot read", path, code);
  if (grew || static_cast<std::int64_t>(done) > max_bytes) return too_long();
  bytes.resize(done);
  return bytes;
}

}  // namespace gradloom
