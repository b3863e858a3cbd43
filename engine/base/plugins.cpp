#include "engine/base/plugins.h"

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

std::string program_folder() {
  const std::string path = program_path();
  return path.empty() ? "." : path.substr(0, path.rfind('/'));
}

}  // namespace

Result<std::string> find_plugin(const std::string& kind) {
  const std::string name = "libgradloom_" + kind + ".so", own = program_folder();
  std::vector<std::string> folders;
  if (const char* set = std::getenv("GRADLOOM_PLUGINS")) folders.push_back(set);
  folders.insert(folders.end(), {own, own + "/lib", own + "/../lib/gradloom"});
  for (const std::string& folder : folders)
    if (access((folder + "/" + name).c_str(), R_OK) == 0) return folder + "/" + name;
  return Error{Errc::device, name + " is not beside the program"};
}

}  // namespace gradloom
