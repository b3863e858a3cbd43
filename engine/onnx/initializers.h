// What an initializer is to training: a parameter, a state (BatchNormalization's running statistics) or a
// constant.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "engine/base/names.h"
#include "engine/ir/graph.h"

namespace gradloom {

enum class InitializerUse : std::uint8_t { unused, parameter, state, constant };

struct InitializerUses {
  NameMap<InitializerUse> use;                  // of every initializer
  std::vector<std::string> exporter_constants;  // float initializers taken for constants by their name
};

// Integers and booleans are constants. Floats are parameters, except: running statistics; arguments that are
// not weights (ratio of Dropout, bounds of Clip, scales of Resize, exponents, ...); and torch's unnamed
// constants ("onnx::Mul_123"), unless the name is that of an operator whose folded weights get such names
// ("onnx::MatMul_250"), or "val_12" and no factor of a product. Initializers and uses in subgraphs count too;
// a name that several graphs give to initializers of their own stands for constants.
InitializerUses classify_initializers(const onnx::GraphProto& graph);

}  // namespace gradloom
