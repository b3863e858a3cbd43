// Where the shared libraries lie that the program loads when it needs them.
#pragma once

#include <string>

#include "engine/base/result.h"

namespace gradloom {

std::string program_path();  // the file of this process's program; "": it is not known

// The plugin of this kind ("cuda", "hip", "hostgpu", "mpi", "tcp"): in $GRADLOOM_PLUGINS; beside the program, in its
// lib and ../lib/gradloom; beside libgradloom.so, where that is what runs, and in its folder gradloom. Errc::device: none of these has it.
Result<std::string> find_plugin(const std::string& kind);

}  // namespace gradloom
