// The reference of commands as Markdown (docs/commands.md): every command with its arguments and flags, as it
// declares them. Flags that at least three commands have alike stand in one table in front.
#pragma once

#include <string>

namespace gradloom {

std::string command_page();

}  // namespace gradloom
