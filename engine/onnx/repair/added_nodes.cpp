#include "engine/onnx/repair/added_nodes.h"

#include "engine/onnx/file/tensor_proto.h"

namespace gradloom {
namespace {

onnx::AttributeProto& added(onnx::NodeProto& node, const char* name,
                            onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

}  // namespace

onnx::NodeProto& add_node(onnx::GraphProto& graph, const char* op, const std::vector<std::string>& inputs,
                          const std::string& output) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_name(output);
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

void add_attribute(onnx::NodeProto& node, const char* name, std::int64_t value) {
  added(node, name, onnx::AttributeProto::INT).set_i(value);
}

void add_attribute(onnx::NodeProto& node, const char* name, const std::vector<std::int64_t>& values) {
  onnx::AttributeProto& attribute = added(node, name, onnx::AttributeProto::INTS);
  for (const std::int64_t value : values) attribute.add_ints(value);
}

void add_attribute(onnx::NodeProto& node, const char* name, const Tensor& value) {
  write_tensor(value, added(node, name, onnx::AttributeProto::TENSOR).mutable_t());
}

void add_initializer(onnx::GraphProto& graph, const std::string& name, const Tensor& contents) {
  onnx::TensorProto& initializer = *graph.add_initializer();
  initializer.set_name(name);
  write_tensor(contents, &initializer);
}

}  // namespace gradloom
