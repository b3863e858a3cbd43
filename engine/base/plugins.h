// Where the shared libraries lie that the program loads when it needs them.
#pragma once

#include <string>

#include "engine/base/result.h"

namespace gradloom {

// The plugin of this kind ("cuda", "hip", "hostgpu", "mpi"): in $GRADLOOM_PLUGINS, beside the program, in
// ../lib/gradloom. Errc::device: none of these has it.
Result<std::string> find_plugin(const std::string& kind);

}  // namespace gradloom
