// The libraries that the window is drawn with, by name and version.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gradloom {

std::vector<std::pair<std::string, std::string>> gui_libraries();

}  // namespace gradloom
