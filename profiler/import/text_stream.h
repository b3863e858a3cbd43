// A JSON file as a stream, plain or gzip, that a parser can trust: it ends the stream where the file has more bytes, or a longer
// word, string or stretch of blanks, than a trace has: a parser that collects each of them never holds more than that.
#pragma once

#include <zlib.h>

#include <memory>
#include <optional>
#include <streambuf>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "profiler/import/imported_trace.h"

namespace gradloom {

class TextStream : public std::streambuf {
 public:
  static constexpr std::int64_t kMostString = 16 << 20, kMostWord = 1024, kMostBlanks = 64 << 10;  // bytes
  static Result<std::unique_ptr<TextStream>> open(const std::string& path, ImportProgress progress);

  // Why the stream ended before the file did.
  const std::optional<Error>& failure() const { return failure_; }

 protected:
  int_type underflow() override;

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };
  TextStream(gzFile file, std::int64_t file_bytes, ImportProgress progress);
  bool check(std::int64_t count);

  std::unique_ptr<gzFile_s, Close> file_;
  std::int64_t file_bytes_, read_bytes_ = 0;
  ImportProgress progress_;
  std::vector<char> buffer_;
  std::optional<Error> failure_;
  bool in_string_ = false, escaped_ = false, blank_ = false;
  std::int64_t length_ = 0;  // of the string, word or blanks so far
};

}  // namespace gradloom
