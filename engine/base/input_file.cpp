// POSIX file access with the checks that untrusted files and names need: components are opened one by one,
// links never followed.
#include "engine/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/base/memory.h"
#include "engine/base/text.h"

namespace gradloom {

namespace {

Error io_error(const std::string& path, const std::string& what) {
  return Error{Errc::io, escaped(path) + ": " + what + ": " + std::strerror(errno)};
}

// The components of an untrusted relative path, or why it is refused.
Result<std::vector<std::string>> safe_components(const std::string& relative) {
  const auto refuse = [&](const char* why) {
    return Error{Errc::bad_input, "path '" + escaped(relative) + "' is refused: " + why};
  };
  if (relative.empty()) return refuse("it is empty");
  if (relative.size() > 4096) return refuse("it is too long");
  if (relative.find('\0') != std::string::npos) return refuse("it holds a NUL byte");
  if (relative.front() == '/') return refuse("it is absolute");
  if (relative.find('\\') != std::string::npos) return refuse("it holds a backslash");
  if (relative.find(':') != std::string::npos) return refuse("it holds a colon");
  std::vector<std::string> components;
  for (std::size_t begin = 0; begin <= relative.size();) {
    std::size_t end = relative.find('/', begin);
    if (end == std::string::npos) end = relative.size();
    std::string part = relative.substr(begin, end - begin);
    if (part == "..") return refuse("it leaves the model's folder");
    if (part.empty() && end == relative.size()) return refuse("it names a folder");
    if (!part.empty() && part != ".") components.push_back(std::move(part));
    begin = end + 1;
  }
  if (components.empty()) return refuse("it names a folder");
  return components;
}

std::int64_t last_written_ns(const struct stat& info) {
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

Result<InputFile> InputFile::adopt(int fd, const std::string& path, bool single_link) {
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    Error error = io_error(path, "cannot read its size");
    ::close(fd);
    return error;
  }
  const char* why = nullptr;
  if (!S_ISREG(info.st_mode)) {
    why = "is not a regular file";
  } else if (single_link && info.st_nlink != 1) {
    why = "is a hard link to another file";
  }
  if (why != nullptr) {
    ::close(fd);
    return Error{Errc::bad_input, escaped(path) + ": " + why};
  }
  return InputFile(fd, info.st_size, last_written_ns(info), path);
}

Result<InputFile> InputFile::open(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    return Error{Errc::bad_input, escaped(path) + ": holds a NUL byte"};
  const int fd =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // non-blocking: a FIFO must not hang us
  if (fd < 0) return io_error(path, "cannot open");
  return adopt(fd, path, false);
}

Result<InputFile> InputFile::open_inside(const std::string& folder, const std::string& relative) {
  const std::vector<std::string> components = TRY(safe_components(relative));
  int at = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (at < 0) return io_error(folder, "cannot open the folder");
  for (std::size_t i = 0; i < components.size(); ++i) {
    const bool last = i + 1 == components.size();
    // O_NOFOLLOW at every component: a link swapped in between two looks is refused too.
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (last ? 0 : O_DIRECTORY);
    const int next = ::openat(at, components[i].c_str(), flags);
    const int saved = errno;
    ::close(at);
    errno = saved;
    if (next < 0) {
      if (errno == ELOOP || (errno == ENOTDIR && !last)) {
        return Error{Errc::bad_input, "path '" + escaped(relative) + "' is refused: '" +
                                          escaped(components[i]) + "' is a symbolic link or not a folder"};
      }
      return io_error(folder + "/" + relative, "cannot open");
    }
    at = next;
  }
  return adopt(at, relative, true);
}

InputFile InputFile::joined(std::vector<Piece> pieces, std::string called) {
  std::int64_t size = 0;
  for (const Piece& piece : pieces) size += piece.bytes;
  InputFile file(-1, size, 0, std::move(called));
  file.pieces_ = std::move(pieces);
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : fd_(other.fd_),
      size_(other.size_),
      written_ns_(other.written_ns_),
      path_(std::move(other.path_)),
      pieces_(std::move(other.pieces_)) {
  other.fd_ = -1;
}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(written_ns_, other.written_ns_);
  std::swap(path_, other.path_);
  std::swap(pieces_, other.pieces_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status InputFile::read_at(std::int64_t offset, void* to, std::int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > size_ || bytes > size_ - offset) {
    return Error{Errc::bad_input, escaped(path_) + ": bytes " + std::to_string(offset) + " + " +
                                      std::to_string(bytes) + " are beyond its end (" +
                                      std::to_string(size_) + " bytes)"};
  }
  char* cursor = static_cast<char*>(to);
  if (fd_ < 0) return read_pieces(offset, cursor, bytes);
  while (bytes > 0) {
    const auto chunk = static_cast<std::size_t>(std::min<std::int64_t>(bytes, std::int64_t{1} << 30));
    const ssize_t got = ::pread(fd_, cursor, chunk, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path_, "cannot read");
    if (got == 0) return Error{Errc::io, escaped(path_) + ": ended while it was read"};
    cursor += got;
    offset += got;
    bytes -= got;
  }
  return {};
}

Status InputFile::read_pieces(std::int64_t offset, char* to, std::int64_t bytes) const {
  for (const Piece& piece : pieces_) {
    const std::int64_t count = std::min(bytes, piece.bytes - offset);
    if (count > 0) {
      TRY(piece.read(offset, to, count));
      to += count;
      bytes -= count;
    }
    offset = std::max<std::int64_t>(offset - piece.bytes, 0);
  }
  return {};
}

// The look at the file comes after the read: what was read is then from before any change.
Status InputFile::read_unchanged(std::int64_t offset, void* to, std::int64_t bytes) const {
  const Status read = read_at(offset, to, bytes);
  if (fd_ < 0) return read;
  struct stat info {};
  if (fstat(fd_, &info) != 0) return io_error(path_, "cannot read its size");
  if (info.st_size != size_ || last_written_ns(info) != written_ns_)
    return Error{Errc::io, escaped(path_) + ": has changed since it was opened"};
  return read;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::int64_t memory_budget_bytes() { return usable_memory_bytes() / 10 * 8; }

}  // namespace gradloom
