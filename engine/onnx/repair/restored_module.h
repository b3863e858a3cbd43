// Restores what torch's dynamo exporter leaves out of a module in training. By default (optimize=True) it
// merges parameters of equal numbers and drops biases of zeros, so that a module that is not trained yet
// would share the scale of all its norms and have no biases. It always writes BatchNormalization in the
// form of inference.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/onnx/repair/dropped_arguments.h"
#include "engine/onnx/repair/expanded_parameters.h"

namespace gradloom {

class TensorReader;

struct RestoredModule {
  std::vector<std::string> split, biases;  // names of the initializers that were added
  Contracted contracted;                   // expanded_parameters.h
  RestoredArguments arguments;             // dropped_arguments.h
  std::int64_t batch_norms = 0;            // how many nodes
  std::vector<std::string> missing;  // what else the module had, sorted; weights tied to others left out
};

// Brings back in the file what it still tells of (provenance.h, name_scopes of scope.h), 64 MiB at most. Where the node's
// call (traced_call.h) names parameters, it decides: two scales of one module are apart, and what it names stays as it is.
//   split: a node of module "h.1.ln" that reads "h.0.ln.weight" reads an initializer "h.1.ln.weight" of the
//   same contents from then on; only of contents that are one number: others are tied weights. Buffers too.
//   contracted: a parameter that was written expanded is one again (expanded_parameters.h).
//   biases: Gemm, Conv and ConvTranspose of module "h.1.fc" without a bias get "h.1.fc.bias", zeros, or what their
//   call has in the bias's place.
//   batch_norms: those that torch.export recorded in training mode get training_mode = 1.
Result<RestoredModule> restore_module(onnx::ModelProto& model, TensorReader& tensors);

}  // namespace gradloom
