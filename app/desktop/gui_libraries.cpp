#include "app/desktop/gui_libraries.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

namespace gradloom {

std::vector<std::pair<std::string, std::string>> gui_libraries() {
  return {{"Dear ImGui", IMGUI_VERSION},
          {"GLFW", fmt::format("{}.{}.{}", GLFW_VERSION_MAJOR, GLFW_VERSION_MINOR, GLFW_VERSION_REVISION)}};
}

}  // namespace gradloom
