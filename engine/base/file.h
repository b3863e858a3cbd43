// Files: whole reads with a limit, and writes that either happen completely or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace gradloom {

// A file that is written in pieces and appears whole: what is written goes to a file without a name in the
// same folder (to a temporary one where the file system has none without), which is flushed to disk and then
// takes the name `path`. A reader sees the old contents or the new, never a part; nothing is left behind
// after a failure or when the process dies while it writes. A symbolic link at `path` is followed; the mode
// of an existing file is kept. Devices and pipes (/dev/stdout) are written straight into. Errors: Errc::io,
// naming path and reason.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();  // without commit the file is as it was

  Status write(std::string_view bytes);
  Status commit();

 private:
  AtomicFile() = default;
  Status give_name();
  Error error(const char* doing, int code) const;

  std::string path_, target_;  // as asked for; behind links
  std::string temporary_;      // name of the unfinished file; empty: it has none
  int fd_ = -1;
  unsigned mode_ = 0;
  bool straight_ = false;
};

Status atomic_write_file(const std::string& path, std::string_view bytes);

// Whether `path` could be written now, told without changing anything: its folder exists and takes files, and
// it is not a folder itself.
Status check_writable(const std::string& path);

// The whole file. Errors: not readable or not a regular file (Errc::io), longer than max_bytes (Errc::limit).
Result<std::string> read_file_limited(const std::string& path, std::int64_t max_bytes);

}  // namespace gradloom
