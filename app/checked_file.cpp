#include "app/checked_file.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/hash.h"

namespace gradloom {

Result<WrittenFile> write_hashed(const std::string& path,
                                 const std::function<Status(const SafetensorsSink& sink)>& fill) {
  AtomicFile file = TRY(AtomicFile::create(path));
  StreamHash hash;
  WrittenFile written;
  TRY(fill([&](std::string_view piece) -> Status {
    hash.add(piece);
    written.bytes += static_cast<std::int64_t>(piece.size());
    return file.write(piece);
  }));
  TRY(file.commit());
  written.hash = hash.hex();
  return written;
}

Result<std::shared_ptr<const InputFile>> open_written(const std::string& path, const WrittenFile& written) {
  if (::access(path.c_str(), F_OK) != 0) return Error{Errc::bad_input, "is missing"};
  auto file = std::make_shared<const InputFile>(TRY(InputFile::open(path)));
  if (file->size() != written.bytes)
    return Error{Errc::bad_input, "is damaged: it has " + std::to_string(file->size()) +
                                      " bytes, the checkpoint says " + std::to_string(written.bytes)};
  return file;
}

Result<std::string> hash_of(const InputFile& file, std::int64_t bytes) {
  StreamHash seen;
  std::vector<char> block(1 << 20);
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(block.size())) {
    const std::int64_t count = std::min(bytes - at, static_cast<std::int64_t>(block.size()));
    TRY(file.read_unchanged(at, block.data(), count));
    seen.add({block.data(), static_cast<std::size_t>(count)});
  }
  return seen.hex();
}

Status check_contents(const InputFile& file, const WrittenFile& written) {
  if (TRY(hash_of(file, written.bytes)) != written.hash)
    return Error{Errc::bad_input, "is damaged: its checksum is wrong"};
  return {};
}

}  // namespace gradloom
