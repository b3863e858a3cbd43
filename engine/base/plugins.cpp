#include "engine/base/plugins.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace gradloom {
namespace {

std::string program_folder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return ".";
  const std::string text(path, static_cast<std::size_t>(length));
  return text.substr(0, text.rfind('/'));
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
