// Files of a checkpoint: written whole with what is needed to know them again, size and XXH3-128.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/base/input_file.h"
#include "engine/base/safetensors.h"

namespace gradloom {

struct WrittenFile {
  std::int64_t bytes = 0;
  std::string hash;
};

// What `fill` gives the sink; flushed to disk. Errc::io.
Result<WrittenFile> write_hashed(const std::string& path,
                                 const std::function<Status(const SafetensorsSink& sink)>& fill);
// Errors say what is wrong, not where. Errc::bad_input: it is missing, or has another size.
Result<std::shared_ptr<const InputFile>> open_written(const std::string& path, const WrittenFile& written);
// XXH3-128 of so many bytes, as hex digits. Errc::io.
Result<std::string> hash_of(const InputFile& file, std::int64_t bytes);
// Reads all of it. Errc::bad_input: it has another hash.
Status check_contents(const InputFile& file, const WrittenFile& written);

}  // namespace gradloom
