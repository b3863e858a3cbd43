#include "profiler/import/text_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gradloom {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::int64_t kSmallBytes = 64 << 20, kMostRatio = 200;  // traces pack to a tenth or a fortieth

Error cannot_read(const std::string& path, int code) {
  return {Errc::io, "cannot read " + path + ": " + std::strerror(code)};
}

}  // namespace

Result<std::unique_ptr<TextStream>> TextStream::open(const std::string& path, ImportProgress progress) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return cannot_read(path, errno);
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return Error{Errc::io, "cannot read " + path + ": it is not a regular file"};
  }
  const gzFile file = gzdopen(fd, "rb");
  if (file == nullptr) {
    ::close(fd);
    return Error{Errc::limit, "out of memory"};
  }
  gzbuffer(file, 256 << 10);
  return std::unique_ptr<TextStream>(new TextStream(file, status.st_size, std::move(progress)));
}

TextStream::TextStream(gzFile file, std::int64_t file_bytes, ImportProgress progress)
    : file_(file), file_bytes_(file_bytes), progress_(std::move(progress)), buffer_(kPieceBytes) {}

TextStream::int_type TextStream::underflow() {
  if (failure_) return traits_type::eof();
  const int count = gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size()));
  if (count < 0) {
    int code = 0;
    const char* const text = gzerror(file_.get(), &code);
    if (code == Z_ERRNO)
      failure_ = Error{Errc::io, std::strerror(errno)};
    else
      failure_ = Error{Errc::bad_input, std::string("its compression is damaged: ") + text};
    return traits_type::eof();
  }
  if (count == 0) {
    int code = 0;
    (void)gzerror(file_.get(), &code);
    if (code == Z_BUF_ERROR) failure_ = Error{Errc::bad_input, "its compression ends in the middle"};
    return traits_type::eof();
  }
  read_bytes_ += count;
  if (!check(count)) return traits_type::eof();
  if (progress_ && file_bytes_ > 0)
    progress_(static_cast<double>(gzoffset(file_.get())) / static_cast<double>(file_bytes_));
  setg(buffer_.data(), buffer_.data(), buffer_.data() + count);
  return traits_type::to_int_type(buffer_[0]);
}

bool TextStream::check(std::int64_t count) {
  if (read_bytes_ > kMostImportBytes) {
    failure_ = Error{Errc::limit, "it has more than " + std::to_string(kMostImportBytes >> 30) + " GiB"};
    return false;
  }
  if (read_bytes_ > kSmallBytes && read_bytes_ / kMostRatio > file_bytes_) {
    failure_ = Error{Errc::limit, "it unpacks to more than 200 times its size"};
    return false;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const char c = buffer_[static_cast<std::size_t>(i)];
    if (in_string_) {
      ++length_;
      if (escaped_)
        escaped_ = false;
      else if (c == '\\')
        escaped_ = true;
      else if (c == '"')
        in_string_ = false, length_ = 0;
      if (length_ <= kMostString) continue;
      failure_ = Error{Errc::limit, "it has a string of more than 16 MiB"};
      return false;
    }
    in_string_ = c == '"';
    const bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    const bool mark = in_string_ || c == ',' || c == ':' || c == '{' || c == '}' || c == '[' || c == ']';
    length_ = mark || blank != blank_ ? 1 : length_ + 1;
    blank_ = blank;
    if (length_ <= (blank ? kMostBlanks : kMostWord)) continue;
    failure_ = Error{Errc::bad_input, blank ? "it has more than 64 KiB of blanks in a row"
                                            : "it has a number or word of more than 1024 letters"};
    return false;
  }
  return true;
}

}  // namespace gradloom
