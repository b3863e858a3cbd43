#include "app/remote/mirror.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "app/json_fields.h"
#include "app/remote/protocol.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

Error not_understood(const std::string& what) {
  return {Errc::bad_input,
          "the far end says what this version does not understand: " + escaped(what.substr(0, 200))};
}

Error failed(const std::string& path, const char* doing) {
  return {Errc::io, std::string(doing) + " " + path + ": " + std::strerror(errno)};
}

// A whole number that is not negative; -1: it is none.
std::int64_t whole_of(const Json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
}

// Inside the folder, whatever the far end calls it.
bool is_inside(const std::string& name) {
  if (name.empty() || name.size() > 4096 || name.find('\0') != std::string::npos) return false;
  const fs::path path(name);
  if (path.is_absolute()) return false;
  for (const fs::path& part : path)
    if (part == ".." || part == "." || part.empty()) return false;
  return true;
}

}  // namespace

// Written under another name until it is whole.
struct Mirror::File {
  std::string name, path;  // path: in the end
  std::string part;        // now
  std::int64_t size = 0, written = 0;
  bool session = false;
  int fd = -1;
  ~File() {
    if (fd >= 0) ::close(fd);
    if (!part.empty()) ::unlink(part.c_str());
  }
};

Mirror::Mirror(std::string folder) : folder_(std::move(folder)) {}
Mirror::~Mirror() = default;

std::optional<std::string> Mirror::answer() {
  if (answer_.empty()) return std::nullopt;
  return std::exchange(answer_, {});
}

double Mirror::fraction() const {
  if (!file_ || file_->size == 0) return 1;
  return static_cast<double>(file_->written) / static_cast<double>(file_->size);
}

Status Mirror::take(const char* bytes, std::size_t count) {
  while (count > 0) {
    if (part_left_ > 0) {
      const std::size_t some =
          static_cast<std::size_t>(std::min<std::int64_t>(part_left_, static_cast<std::int64_t>(count)));
      const ssize_t n = ::pwrite(file_->fd, bytes, some, part_at_);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return failed(file_->part, "cannot write");
      bytes += n;
      count -= static_cast<std::size_t>(n);
      part_at_ += n;
      part_left_ -= n;
      file_->written += n;
      continue;
    }
    const auto* end = static_cast<const char*>(std::memchr(bytes, '\n', count));
    const std::size_t some = end ? static_cast<std::size_t>(end - bytes) : count;
    if (line_.size() + some > static_cast<std::size_t>(kLongestRemoteLine)) return not_understood(line_);
    line_.append(bytes, some);
    bytes += some + (end ? 1 : 0);
    count -= some + (end ? 1 : 0);
    if (end) TRY(line(std::exchange(line_, {})));
  }
  return {};
}

Status Mirror::line(const std::string& text) {
  const Json message = Json::parse(text, nullptr, false);
  if (!message.is_object()) return not_understood(text);
  if (message.contains("error")) return Error{Errc::io, escaped(text_of(message, "error"))};
  if (session_.empty()) return hello(message, text);
  if (message.contains("file")) return begin_file(text_of(message, "file"), whole_of(message, "size"));
  if (message.contains("session_size")) return begin_session(whole_of(message, "session_size"));
  if (message.contains("done")) return end_file(text_of(message, "done"));
  const std::int64_t at = whole_of(message, "at"), bytes = whole_of(message, "bytes");
  if (!file_ || at < 0 || bytes < 1 || bytes > kMostRemoteBytes || at > file_->size - bytes)
    return not_understood(text);
  part_at_ = at;
  part_left_ = bytes;
  return {};
}

Status Mirror::hello(const Json& message, const std::string& text) {
  const std::int64_t version = whole_of(message, "gradloom");
  if (version < 0) return not_understood(text);
  if (version != kRemoteProtocol)
    return Error{Errc::bad_input, "the far end has version " + escaped(text_of(message, "version")) +
                                      " of Gradloom, which speaks otherwise"};
  session_there_ = text_of(message, "session");
  model_there_ = text_of(message, "model");
  const std::string name = fs::path(session_there_).filename().string();
  if (!is_inside(name)) return not_understood(text);
  session_ = folder_ + "/" + name;
  if (model_there_.empty()) {
    answer_ = "{\"model\":false}\n";
    return {};
  }
  const std::string model = fs::path(model_there_).filename().string();
  if (!is_inside(model) || model == name) return not_understood(text);
  model_ = folder_ + "/" + model;
  // The same file, from the last time: it comes last, so what lies beside it is there too.
  const auto hash = hash_file_hex(model_);
  const bool known = hash && *hash == text_of(message, "model_hash");
  answer_ = known ? "{\"model\":false}\n" : "{\"model\":true}\n";
  return {};
}

Status Mirror::begin_file(const std::string& name, std::int64_t size) {
  const std::string path = folder_ + "/" + name;
  if (file_ || !is_inside(name) || path == session_ || size < 0 || size > kLargestRemoteFile)
    return not_understood(name);
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  auto file = std::make_unique<File>();
  file->name = name;
  file->path = path;
  file->part = path + ".part";
  file->size = size;
  file->fd = ::open(file->part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file->fd < 0) return failed(file->part, "cannot write");
  file_ = std::move(file);
  return {};
}

// The last state, of which blocks are replaced: a reader has one state or the other.
Status Mirror::begin_session(std::int64_t size) {
  if (file_ || size < 0 || size > kLargestRemoteFile) return not_understood("a session of such a size");
  auto file = std::make_unique<File>();
  file->path = session_;
  file->part = session_ + ".part";
  file->size = size;
  file->session = true;
  std::error_code error;
  if (states_ > 0) fs::copy_file(session_, file->part, fs::copy_options::overwrite_existing, error);
  if (error) return Error{Errc::io, file->part + ": " + error.message()};
  const int fresh = states_ > 0 ? 0 : O_TRUNC;
  file->fd = ::open(file->part.c_str(), O_RDWR | O_CREAT | fresh | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file->fd < 0 || ::ftruncate(file->fd, size) != 0) return failed(file->part, "cannot write");
  file_ = std::move(file);
  return {};
}

Status Mirror::end_file(const std::string& name) {
  if (!file_ || file_->name != name) return not_understood(name);
  struct stat info {};
  if (::fstat(file_->fd, &info) != 0 || info.st_size != file_->size)
    return not_understood(name + ", which is not whole");
  if (::rename(file_->part.c_str(), file_->path.c_str()) != 0) return failed(file_->path, "cannot write");
  file_->part.clear();
  if (file_->session) ++states_;
  file_.reset();
  return {};
}

}  // namespace gradloom
