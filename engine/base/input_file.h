// Reading files that are named or made by strangers: regular files only, nothing outside a folder, no read
// past the end. (Whole files and atomic writes: engine/base/file.h.)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

// A regular file opened for reading at offsets. Pipes, devices and folders are refused
// without blocking on them.
class InputFile {
 public:
  static Result<InputFile> open(const std::string& path);
  // A file inside `folder`, named by an untrusted relative path: absolute paths, "..", drive letters,
  // backslashes, NUL bytes, symbolic links at any component, hard links and anything that is not a regular
  // file are refused.
  static Result<InputFile> open_inside(const std::string& folder, const std::string& relative);

  // What lies in pieces, as if it were one file: one behind the other, each read by its own means, from an offset in the piece. `called`:
  // how errors call it.
  struct Piece {
    std::int64_t bytes = 0;
    std::function<Status(std::int64_t offset, void* to, std::int64_t bytes)> read;
  };
  static InputFile joined(std::vector<Piece> pieces, std::string called);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  std::int64_t size() const { return size_; }
  // Exactly `bytes` bytes from `offset`; beyond the end (also when the file shrinks meanwhile) is an error.
  Status read_at(std::int64_t offset, void* to, std::int64_t bytes) const;
  // The same, of the file as it was when it was opened: Errc::io where it has another size, or was written
  // to, since. (A file that was deleted, or that another took the name of, is still the same.)
  Status read_unchanged(std::int64_t offset, void* to, std::int64_t bytes) const;

 private:
  InputFile(int fd, std::int64_t size, std::int64_t written_ns, std::string path)
      : fd_(fd), size_(size), written_ns_(written_ns), path_(std::move(path)) {}
  static Result<InputFile> adopt(int fd, const std::string& path, bool single_link);
  Status read_pieces(std::int64_t offset, char* to, std::int64_t bytes) const;
  int fd_ = -1;                             // of none, where there are pieces
  std::int64_t size_ = 0, written_ns_ = 0;  // when it was opened
  std::string path_;
  std::vector<Piece> pieces_;
};

std::string folder_of(const std::string& path);  // "a/b" of "a/b/c", "." of "c"
std::int64_t memory_budget_bytes();  // 80 % of usable memory: what contents read from files may take

}  // namespace gradloom
