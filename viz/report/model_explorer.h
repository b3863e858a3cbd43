// A graph as Google's Model Explorer reads it: a JSON collection with one graph, whose nodes have a namespace (phase, then scope), attributes
// and incoming edges (src/ui/src/components/visualizer/common/input_graph.ts of its sources).
//
// A node is a box of the model; its attributes say kernel, cost, time where it was measured, the ONNX nodes it stands for and the passes
// that made it. Parameters, constants and states are named at the inputs that read them.
#pragma once

#include <map>
#include <string>

#include "viz/model/graph_model.h"

namespace gradloom {

// `about`: of the whole graph, by name: model, run, ..
std::string model_explorer_json(const GraphModel& model, const std::map<std::string, std::string>& about);

}  // namespace gradloom
