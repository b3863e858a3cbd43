// Contents of values that do not depend on inputs, parameters or random numbers, computed while a model is
// read: later shapes depend on them. Nodes stay where they are (pass fold-constants removes them).
#pragma once

#include "engine/ir/graph.h"
#include "engine/onnx/import.h"

namespace gradloom {

class Folder {
 public:
  Folder(Graph& graph, const Limits& limits) : graph_(graph), limits_(limits) {}
  // Sets Value::data of the node's outputs if they can be known. Errors are those of the operator on these
  // very contents.
  Status fold(NodeId node);
  int skipped() const { return skipped_; }  // nodes that could be computed but are over a limit

 private:
  bool fold_shape(const Node& node);
  bool affordable(const Node& node);
  Graph& graph_;
  const Limits& limits_;
  double flops_ = 0, bytes_ = 0;  // spent so far
  int skipped_ = 0;
};

}  // namespace gradloom
