// A folder of its own for files that only this process and its children need.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "engine/base/result.h"

namespace gradloom {

// Below the system's folder for temporary files (TMPDIR); removed with all that is in it when the object goes.
class ScratchFolder {
 public:
  // "ranks": .../gradloom-ranks-a8Xq1Z. Errc::io: there is no place for it.
  static Result<ScratchFolder> create(std::string_view purpose);
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&& other) noexcept;
  ~ScratchFolder();
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;  // "" once it was moved from
};

}  // namespace gradloom
