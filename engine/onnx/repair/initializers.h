// The role of an initializer in training: a parameter, a state (BatchNormalization's running
// statistics) or a constant.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "engine/base/names.h"
#include "engine/ir/graph.h"

namespace gradloom {

enum class InitializerUse : std::uint8_t { unused, parameter, state, constant };

// A parameter that the exporter computed from others when it wrote the file.
struct ComputedParameter {
  std::string name;
  std::vector<std::string> from;  // parameters of modules, which the file may have or not
  bool rearranged = false;        // their numbers in another order (provenance.h)
  bool copied = false, repeated = false, named = false;  // provenance.h
  bool factor = false;                                   // of a product: most likely a transposed weight
  bool recurrent = false;  // read by LSTM, GRU or RNN alone, for which the exporter puts weights together
};

struct InitializerUses {
  NameMap<InitializerUse> use;                  // of every initializer
  NameMap<std::string> why;                     // the same, in words
  NameSet unsure;                               // parameters that may be buffers
  NameSet said;                                 // those of which the exporter said whether they are trained
  std::vector<std::string> exporter_constants;  // floats taken for constants by their name alone
  std::vector<ComputedParameter> computed;      // in file order
};

// Integers and booleans are constants. Floats are parameters, except: running statistics; arguments that are
// not weights (ratio of Dropout, bounds of Clip, scales of Resize, exponents, ...), through Cast and Identity
// too; what the exporter says to be no parameter of a module nor computed from one (provenance.h); and, where it says nothing, torch's
// unnamed constants ("onnx::Mul_123"), unless the name is that of an operator whose folded weights get such
// names ("onnx::MatMul_250"), or "val_12" and no factor of a product. Initializers and uses in subgraphs
// count too; a name that several graphs give to initializers of their own stands for constants. What one of
// the globs `train` fits is a parameter whatever name or exporter say.
InitializerUses classify_initializers(const onnx::GraphProto& graph, const std::vector<std::string>& train);

}  // namespace gradloom
