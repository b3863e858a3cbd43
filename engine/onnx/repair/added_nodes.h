// Nodes, attributes and initializers that repairs add to the graph of a model file.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/tensor.h"

namespace gradloom {

// At the end of the graph; of ONNX's own domain, with one output, whose name the node bears too.
onnx::NodeProto& add_node(onnx::GraphProto& graph, const char* op, const std::vector<std::string>& inputs,
                          const std::string& output);
void add_attribute(onnx::NodeProto& node, const char* name, std::int64_t value);
void add_attribute(onnx::NodeProto& node, const char* name, const std::vector<std::int64_t>& values);
void add_attribute(onnx::NodeProto& node, const char* name, const Tensor& value);
void add_initializer(onnx::GraphProto& graph, const std::string& name, const Tensor& contents);

}  // namespace gradloom
