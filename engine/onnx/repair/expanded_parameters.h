// Parameters that an exporter wrote expanded: dynamo's optimizer folds what is computed from weights alone,
// and so writes a class token once per image of the batch, which would train as many tokens.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

class TensorReader;

// Of an initializer "expand_1" that was folded from expansions of parameter "h.token" alone (provenance.h)
// the first of its equal parts becomes initializer "h.token", unless the file has that one, and an Expand
// makes "expand_1" of it. Returns the names of the parameters that were added.
Result<std::vector<std::string>> contract_expanded(onnx::GraphProto& graph, TensorReader& tensors);

}  // namespace gradloom
