// Files: whole reads with a limit, and writes that either happen completely or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace gradloom {

// Writes `bytes` to a temporary file beside `path`, flushes it to disk, renames it over `path` and flushes
// the folder: a reader sees the old contents or the new, never a part; after a failure nothing is left
// behind. Errc::io, naming path and reason. A symbolic link at `path` is followed; the mode of an existing
// file is kept.
Status atomic_write_file(const std::string& path, std::string_view bytes);

// The whole file. Errors: not readable or not a regular file (Errc::io), longer than max_bytes (Errc::limit).
Result<std::string> read_file_limited(const std::string& path, std::int64_t max_bytes);

}  // namespace gradloom
