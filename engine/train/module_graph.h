// A model as a part of somebody else's training: its outputs leave, their gradients come back, and the gradients of
// parameters and inputs are results. No loss, no optimizer. What is shared with training proper: what is frozen,
// autodiff, and running statistics as updates of states.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/rewriter.h"
#include "engine/train/train_graph.h"

namespace gradloom {

struct ModuleSpec {
  bool training = true;                      // false: the graph in inference form (inference_form.h)
  bool gradients = true;                     // false: forward alone
  std::vector<std::string> outputs;          // names, in this order; empty: those of the model
  std::vector<std::string> input_gradients;  // globs over names of inputs whose gradients are results
  // Globs over outputs whose gradients are given, if they have one; empty: all
  std::vector<std::string> output_gradients;
};

// The forward graph: the outputs that are wanted, what is frozen marked, and nothing that neither an output nor an update
// needs. Errc::usage: an output that the model does not have.
Result<std::vector<RewriteRecord>> make_module_forward(Graph& graph, const ModuleSpec& spec,
                                                       const TrainSpec& freezing);

// What add_module_gradients added. Passes replace values; places in Graph::outputs stay.
struct ModuleGradients {
  struct Given {
    std::size_t output = 0;    // place in Graph::outputs
    ValueId gradient = kNone;  // a graph input, "<output>/grad"
  };
  struct Made {
    std::string of;         // parameter or input
    std::size_t place = 0;  // in Graph::outputs, behind those of the model
  };
  std::vector<Given> given;
  std::vector<Made> made;
};
// Appends inputs for the gradients of outputs, and the backward graph. Nothing, where nothing has a gradient. Errors:
// those of add_gradients; Errc::usage: a glob that fits nothing it could be meant for.
Result<ModuleGradients> add_module_gradients(Graph& graph, const ModuleSpec& spec);

}  // namespace gradloom
