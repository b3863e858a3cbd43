// Contents of values that do not depend on inputs, parameters or random numbers, computed while a model is
// read: later shapes depend on them. Nodes stay where they are (pass fold-constants removes them).
#pragma once

#include "engine/ir/graph.h"
#include "engine/base/limits.h"

namespace gradloom {

class Folder {
 public:
  Folder(Graph& graph, const Limits& limits) : graph_(graph), limits_(limits) {}
  // Sets Value::data of the node's outputs if they can be known.
  // Errors are those of the operator on these very contents.
  Status fold(NodeId node);
  // Counts the elements that inference of a node is about to look at.
  Status examine(const OpDef& op, const std::vector<ValueId>& inputs);
  int skipped() const { return skipped_; }  // nodes that could be computed but are over a limit

 private:
  bool fold_shape(const Node& node);
  bool affordable(const Node& node);
  Graph& graph_;
  const Limits& limits_;
  double work_ = 0, bytes_ = 0;  // spent so far
  std::int64_t examined_ = 0;
  int skipped_ = 0;
};

}  // namespace gradloom
