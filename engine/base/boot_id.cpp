#include "engine/base/boot_id.h"

#include "engine/base/file.h"

namespace gradloom {

std::string boot_id() {
  const Result<std::string> text = read_file_limited("/proc/sys/kernel/random/boot_id", 4096);
  return text.ok() ? text->substr(0, text->find('\n')) : "?";
}

}  // namespace gradloom
