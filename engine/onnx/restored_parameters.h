// Parameters that torch's dynamo exporter leaves out by default (optimize=True) of a module that is not
// trained yet: one of several of equal numbers stays, and biases of zeros go. Trained as they stand, such
// files would share every norm's scale and have no biases.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace gradloom {

class TensorReader;

struct RestoredParameters {
  std::vector<std::string> split, biases;  // names of the initializers that were added
  std::vector<std::string> missing;  // what else the module had, sorted; weights tied to others left out
};

// Brings back in the file what it still tells of (provenance.h), 64 MiB at most.
//   split: a node of module "h.1.ln" that reads "h.0.ln.weight" reads an initializer "h.1.ln.weight" of the
//   same contents from then on; only of contents that are one number: others are tied weights.
//   biases: Gemm, Conv and ConvTranspose of module "h.1.fc" without a bias get "h.1.fc.bias", zeros.
Result<RestoredParameters> restore_parameters(onnx::GraphProto& graph, TensorReader& tensors);

}  // namespace gradloom
