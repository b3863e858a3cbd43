#include "engine/base/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/text.h"

namespace gradloom {

namespace fs = std::filesystem;

Result<ScratchFolder> ScratchFolder::create(std::string_view purpose) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return Error{Errc::io, "no folder for temporary files (TMPDIR): " + error.message()};
  std::string path = (parent / ("gradloom-" + std::string(purpose) + "-XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr)
    return Error{Errc::io, "cannot make a folder for temporary files in " + escaped(parent.string()) + ": " +
                               std::strerror(errno)};
  return ScratchFolder(std::move(path));
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

ScratchFolder& ScratchFolder::operator=(ScratchFolder&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace gradloom
