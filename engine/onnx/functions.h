// Model-local functions (FunctionProto): calls are replaced by the function's nodes before anything else
// looks at the graph.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <utility>

#include "engine/onnx/import.h"

namespace gradloom {

// Why calls of a function {domain, name} were left as they are (they then count as unsupported operators).
using SkippedFunctions = std::map<std::pair<std::string, std::string>, std::string>;

// Values inside a call are named "<call's node name>/<name in the function>". Recursion, deep call chains and
// results over Limits::nodes are errors.
Result<SkippedFunctions> inline_functions(onnx::ModelProto& model, const Limits& limits);

}  // namespace gradloom
