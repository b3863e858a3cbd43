// The files beside a model that hold contents of its tensors (onnx.proto, TensorProto.external_data).
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

// Their locations as the model says them, each once, in order; of initializers and of constants, those of subgraphs and functions too.
// Errors: those of reading a model.
Result<std::vector<std::string>> external_files(const std::string& model);

}  // namespace gradloom
