#include "engine/base/plugins.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/base/input_file.h"

namespace gradloom {
std::string program_path() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length <= 0 ? "" : std::string(path, static_cast<std::size_t>(length));
}

namespace {

// Of the shared library that this function is part of. Empty: it is part of the program, whose name may be one that was looked for
// (glibc gives argv[0]); its folder would be the current one, out of which nothing is loaded.
std::string library_folder() {
  Dl_info own{};
  if (dladdr(reinterpret_cast<void*>(&library_folder), &own) == 0 || own.dli_fname == nullptr) return "";
  return std::strchr(own.dli_fname, '/') == nullptr ? "" : folder_of(own.dli_fname);
}

}  // namespace

Result<std::string> find_plugin(const std::string& kind) {
  const std::string name = "libgradloom_" + kind + ".so", path = program_path(), own = library_folder();
  std::vector<std::string> folders;
  if (const char* set = std::getenv("GRADLOOM_PLUGINS")) folders.push_back(set);
  if (!own.empty()) folders.insert(folders.end(), {own, own + "/gradloom"});  // of the same version
  if (!path.empty()) {
    const std::string program = folder_of(path);
    folders.insert(folders.end(), {program, program + "/lib", program + "/../lib/gradloom"});
  }
  for (const std::string& folder : folders)
    if (access((folder + "/" + name).c_str(), R_OK) == 0) return folder + "/" + name;
  return Error{Errc::device, name + " is not beside the program"};
}

}  // namespace gradloom
