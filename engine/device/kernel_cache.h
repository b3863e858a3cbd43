// The folder that keeps compiled GPU kernels from run to run. Its files are loaded and executed, so the folder
// must be the user's own, and nobody else may write into it.
#pragma once

#include <string>

namespace gradloom {

// $GRADLOOM_CACHE, else $XDG_CACHE_HOME/gradloom, else $HOME/.cache/gradloom; variables that are empty, and
// the last two where they are no absolute path, do not count (XDG Base Directory Specification 0.8). Created
// when missing, for the user alone. Empty: none can be had, or it belongs to somebody else, or others may
// write into it; kernels are compiled anew then.
std::string kernel_cache_folder();

}  // namespace gradloom
