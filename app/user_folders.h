// Where files of the user's own are kept, by the XDG Base Directory Specification: absolute paths, made by whoever writes there. Empty where
// neither the variable nor HOME is set.
#pragma once

#include <string>

namespace gradloom {

std::string config_folder();  // $XDG_CONFIG_HOME/gradloom, ~/.config/gradloom
std::string data_folder();    // $XDG_DATA_HOME/gradloom, ~/.local/share/gradloom

}  // namespace gradloom
