#include "app/user_folders.h"

#include <cstdlib>

namespace gradloom {
namespace {

// A relative path in the variable is ignored, as the specification says.
std::string folder_from(const char* variable, const char* in_home) {
  if (const char* set = std::getenv(variable); set != nullptr && set[0] == '/')
    return std::string(set) + "/gradloom";
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] != '\0')
    return std::string(home) + in_home + "/gradloom";
  return {};
}

}  // namespace

std::string config_folder() { return folder_from("XDG_CONFIG_HOME", "/.config"); }
std::string data_folder() { return folder_from("XDG_DATA_HOME", "/.local/share"); }

}  // namespace gradloom
