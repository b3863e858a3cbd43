#include "engine/base/plugins.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace gradloom {
std::string program_path() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length <= 0 ? "" : std::string(path, static_cast<std::size_t>(length));
}

namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Of the program or shared library that this function is part of.
std::string own_folder() {
  Dl_info own{};
  return dladdr(reinterpret_cast<void*>(&own_folder), &own) == 0 || own.dli_fname == nullptr
             ? "."
             : folder_of(own.dli_fname);
}

}  // namespace

Result<std::string> find_plugin(const std::string& kind) {
  const std::string name = "libgradloom_" + kind + ".so", program = folder_of(program_path()),
                    own = own_folder();
  std::vector<std::string> folders;
  if (const char* set = std::getenv("GRADLOOM_PLUGINS")) folders.push_back(set);
  folders.insert(folders.end(),
                 {program, program + "/lib", program + "/../lib/gradloom", own, own + "/gradloom"});
  for (const std::string& folder : folders)
    if (access((folder + "/" + name).c_str(), R_OK) == 0) return folder + "/" + name;
  return Error{Errc::device, name + " is not beside the program"};
}

}  // namespace gradloom
