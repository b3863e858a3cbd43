// Whole-file reads and atomic replacement: temporary file, fsync, rename, fsync of the folder.
#include "engine/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace gradloom {
namespace {

Error io_error(const std::string& doing, const std::string& path, int code) {
  return Error{Errc::io, doing + " " + path + ": " + std::strerror(code)};
}

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("cannot write", path, errno);
    done += static_cast<std::size_t>(n);
  }
  if (::fsync(fd) != 0) return io_error("cannot flush", path, errno);
  return {};
}

std::string resolved(const std::string& path) {
  char buffer[PATH_MAX];
  return ::realpath(path.c_str(), buffer) ? std::string(buffer) : path;
}

}  // namespace

Status atomic_write_file(const std::string& path, std::string_view bytes) {
  const std::string target = resolved(path);
  struct stat old {};
  const bool exists = ::stat(target.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    // Devices and pipes (/dev/stdout) cannot be replaced by a rename: write straight into them.
    if (S_ISDIR(old.st_mode)) return Error{Errc::io, "cannot write " + path + ": is a folder"};
    const int fd = ::open(target.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return io_error("cannot write", path, errno);
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const int code = errno;
        ::close(fd);
        return io_error("cannot write", path, code);
      }
      done += static_cast<std::size_t>(n);
    }
    ::close(fd);
    return {};
  }
  const std::size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : target.substr(0, slash);
  std::string temporary = target + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return io_error("cannot write", path, errno);
  // mkostemp makes 0600; a new file gets what open() would have given it.
  mode_t mode = exists ? (old.st_mode & 07777) : 0644;
  if (!exists) {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    mode = 0666 & ~mask;
  }
  Status status = write_all(fd, bytes, path);
  if (status.ok() && ::fchmod(fd, mode) != 0) status = io_error("cannot write", path, errno);
  if (::close(fd) != 0 && status.ok()) status = io_error("cannot write", path, errno);
  if (status.ok() && ::rename(temporary.c_str(), target.c_str()) != 0)
    status = io_error("cannot write", path, errno);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  const int dir = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    ::fsync(dir);  // some file systems refuse fsync on folders; the data itself is safe already
    ::close(dir);
  }
  return {};
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
      // Sizes of files in /proc read as 0, and a file may grow meanwhile: go on until the end, within the
      // limit.
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
