#include "engine/device/kernel_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace gradloom {
namespace {

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string wanted_folder() {
  if (const std::string own = setting("GRADLOOM_CACHE"); !own.empty()) return own;
  if (const std::string cache = setting("XDG_CACHE_HOME"); !cache.empty() && cache[0] == '/')
    return cache + "/gradloom";
  if (const std::string home = setting("HOME"); !home.empty() && home[0] == '/')
    return home + "/.cache/gradloom";
  return "";
}

}  // namespace

std::string kernel_cache_folder() {
  constexpr mode_t kOwner = 0700, kOthersWrite = 022;
  const std::string folder = wanted_folder();
  if (folder.empty()) return "";
  for (std::size_t at = folder.find('/', 1); at != std::string::npos; at = folder.find('/', at + 1))
    (void)::mkdir(folder.substr(0, at).c_str(), kOwner);
  (void)::mkdir(folder.c_str(), kOwner);
  struct stat info {};
  const bool ours = ::stat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                    info.st_uid == ::geteuid() && (info.st_mode & kOthersWrite) == 0;
  return ours ? folder : "";
}

}  // namespace gradloom
