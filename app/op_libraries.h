// --ops: libraries with operators of the user's own. Their code runs in this process, so only what the command line
// names is loaded; a recipe (the file, a checkpoint's, the window's) says which libraries it needs, and is refused
// where those are not loaded. In both a library is PATH or PATH#HASH, with the hash of its file in hexadecimal.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace CLI {
class App;
}

namespace gradloom {

void declare_op_libraries(CLI::App& app, std::vector<std::string>& given);
// Loads what the user named. Returns each as PATH#HASH. Errors: those of load_op_library; bad_input: another hash.
Result<std::vector<std::string>> load_op_libraries(const std::vector<std::string>& named);
// Whether all that a recipe needs is loaded. Errors: usage (name it), bad_input (a library of that name has
// other contents).
Status check_op_libraries(const std::vector<std::string>& needed);
// Those of them that are loaded, as the user named them: what a command line that this process shows or starts
// may say.
std::vector<std::string> loaded_of(const std::vector<std::string>& needed);

}  // namespace gradloom
