// Names and order of the nodes of an ONNX graph: every node gets a name of its own, and an order in which
// producers come first.
#pragma once

#include <onnx/onnx_pb.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/base/names.h"
#include "engine/base/result.h"

namespace gradloom {

struct NodeNaming {
  std::vector<std::string> names;  // in file order
  NameSet taken;                   // all of them, and those of the file
  int renamed = 0;
};

// The file's names; nodes without one are "<OpType>_<index>", second bearers of a name get a number. Random
// streams, provenance and switches are keyed by these names, so the same file always gives the same ones.
NodeNaming unique_node_names(const onnx::GraphProto& graph);

struct NodeOrder {
  std::vector<int> order;  // indices into GraphProto::node
  bool was_sorted = true;
};

// Errors: a name with two producers (both places), an input that nothing produces (consumer and name), a
// cycle (its nodes). `labels`: one per node, for messages. Nodes that are ready at the same time keep the
// file's order. What a node's subgraphs capture counts as its input. `is_outer`, of a subgraph: whether a
// name exists around it; such names may be read but not defined again.
using IsOuter = std::function<bool(const std::string& name)>;
Result<NodeOrder> order_nodes(const onnx::GraphProto& graph, const std::vector<std::string>& labels,
                              const IsOuter& is_outer = nullptr);

}  // namespace gradloom
