// A training graph as an ONNX model: the forward pass, its gradients, or whole steps with the optimizer, before or
// after passes.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

enum class ExportPart : std::uint8_t {
  step,       // one step: outputs are the loss and the next parameters and states
  gradients,  // the loss, and of each trained parameter "<name>/grad", before scaling and clipping
  forward,    // the loss
};

struct ExportedGraph {
  std::size_t nodes = 0, functions = 0;
  // Operators that stay Gradloom's, with the reason, and how many nodes have them: a viewer shows them, no other
  // program runs them.
  std::vector<std::string> without_form;
  std::vector<std::string> masks;  // inputs for what Dropout keeps
};

// Nodes of standard operators as they are, Gradloom's own as functions of standard ones (IR version 8, opset 17 or the
// model's if newer). Inputs of the graph: those of the model, gradloom/lr, gradloom/step where they are read, a mask for
// each Dropout; what a step changes is an input with its first contents as default,
// and metadata "next of NAME" names the output with its next. Dims are bound. A node's doc_string
// tells phase, the model's nodes and passes. Errors: Errc::limit over 2 GiB, Errc::io.
Result<ExportedGraph> export_graph(const Graph& graph, ExportPart part, const std::string& path);

}  // namespace gradloom
