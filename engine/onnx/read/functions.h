// Model-local functions (FunctionProto): calls are replaced by the function's nodes before anything else
// looks at the graph.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/limits.h"

namespace gradloom {

using FunctionKey = std::tuple<std::string, std::string, std::string>;  // domain, name, overload
FunctionKey function_key(const onnx::NodeProto& call);

struct InlinedFunctions {
  // Why calls of a function were left as they are (they then count as unsupported operators).
  std::map<FunctionKey, std::string> skipped;
  // Of every node of the graph: the calls it came through, "layers.0/mlp:FeedForward"; empty: none.
  std::vector<std::string> scopes;
};

// Values inside a call are named "<call's node name>/<name in the function>". Calls in subgraphs are inlined
// too. Recursion, deep call chains and results over Limits::nodes are errors.
Result<InlinedFunctions> inline_functions(onnx::ModelProto& model, const Limits& limits);

}  // namespace gradloom
