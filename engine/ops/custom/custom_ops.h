// Operators of the user's own, from shared libraries (gradloom_op.h). Code is loaded here alone, and only for paths
// that the user typed: no model, recipe or session names a library that is loaded for it.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

// Loads a library for the rest of the process and adds its operators to the table, all or none. Returns the hash of
// its file; one that is loaded already is not loaded again. Errors: io (no such file), bad_input (no library,
// no entry, another version, an operator that cannot be), limit.
Result<std::string> load_op_library(const std::string& path);

struct OpLibrary {
  std::string path, hash;  // path as it was named
};
std::vector<OpLibrary> op_libraries();  // those that are loaded, in order

// Rows of what is loaded, in order. They live as long as the process.
std::vector<const OpDef*> custom_ops();
const OpDef* find_custom_op(const std::string& name, const std::string& domain, int opset);
// Of a library, or a function of the program (host_call.h): attributes and arity are its own.
bool is_custom(const OpDef& op);

}  // namespace gradloom
