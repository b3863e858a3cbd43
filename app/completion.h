// Scripts by which shells complete command lines of gradloom: commands, flags, values that are words (passes, devices, optimizers, ..)
// and files by their endings, all as the commands declare them.
#pragma once

#include <span>
#include <string>

namespace gradloom {

std::span<const char* const> completion_shells();         // bash, zsh, fish
std::string completion_script(const std::string& shell);  // REQUIRES one of them
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace gradloom
