// Graph inputs whose contents turn out to be known after a model was read: they become constants, and what
// follows from them is inferred and folded as it would have been had ImportOptions::known_inputs named them.
// Errors: Errc::bad_input for contents that are not of the input's type or that an operator refuses,
// Errc::limit for sizes over a limit.
#pragma once

#include <map>
#include <string>

#include "engine/ir/graph.h"
#include "engine/onnx/file/import_options.h"

namespace gradloom {

// `options`: those that the model was read with.
Status know_inputs(Graph& graph, const std::map<std::string, Tensor>& contents, const ImportOptions& options);

}  // namespace gradloom
