// The result of reading a model file: its graph, and the notes that the reader made on the way.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/onnx/repair/tied_copy.h"

namespace gradloom {

// A node that has no operator here, or whose types could not be inferred.
struct UnknownOp {
  std::string node, op_type, domain, scope, reason;
};

// What became of an initializer in training, before anything is frozen by name.
struct InitializerVerdict {
  std::string name;
  Type type;
  bool trained = false;
  std::string why;
  bool unsure = false;  // trained, and nothing tells it from a buffer: to be asked for
};

// A parameter that would not train as the module's own do: the exporter computed it from them.
struct ApartParameter {
  std::string name, why;  // "holds numbers of 'g' several times"
};

struct ImportedModel {
  Graph graph;
  std::string path, content_hash, producer;
  int ir_version = 0;
  std::vector<UnknownOp> unknown;  // with allow_unknown
  std::vector<UnknownOp> untyped;  // types of these could not be inferred; with allow_unknown or unbound dims
  std::vector<std::string> unbound_dims;  // symbolic dims without a binding
  std::vector<TiedCopy> tied_copies;
  std::vector<InitializerVerdict> initializers;  // all of the file, in its order; then those of subgraphs
  std::vector<ApartParameter> apart;             // without those that ImportOptions::train names
  std::vector<std::string> notes;                // e.g. "nodes were not sorted"
};

}  // namespace gradloom
