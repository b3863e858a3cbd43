// Sparse initializers become dense ones.
#pragma once

#include "engine/base/limits.h"

namespace onnx {
class ModelProto;
}

namespace gradloom {

class TensorReader;

// Those of every graph of the model, within Limits::folded_bytes. Returns how many there were. `tensors`
// reads their contents.
Result<std::int64_t> make_dense(onnx::ModelProto& model, TensorReader& tensors, const Limits& limits);

}  // namespace gradloom
