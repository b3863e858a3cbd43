// Graphs inside the attributes of nodes (If, Loop, Scan): where they are and what they read from outside.
#pragma once

#include <onnx/onnx_pb.h>

#include <functional>
#include <string>
#include <vector>

namespace gradloom {

// The graphs in the attributes of one node.
std::vector<const onnx::GraphProto*> subgraphs_of(const onnx::NodeProto& node);

// `visit` for the graph and every graph inside it, outer ones first.
void for_each_graph(const onnx::GraphProto& graph,
                    const std::function<void(const onnx::GraphProto& graph)>& visit);

// Names that the subgraphs of a node read without defining them, in order of first
// use: captured outer values.
std::vector<std::string> captured_names(const onnx::NodeProto& node);

}  // namespace gradloom
