// Short words for the models of the corpus.
#pragma once

#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/hostile/corpus.h"

namespace gradloom::hostile {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

// From ONNX's text syntax: "g (float[2] x) => (float[2] y) { y = Relu(x) }"; the input "none" is left out,
// which the syntax cannot say.
inline ModelProto parsed(const std::string& graph, int opset = 17) {
  ModelProto model;
  const std::string text = "<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) + "]> " + graph;
  const auto status = onnx::OnnxParser(text.c_str()).Parse(model);
  if (!status.IsOK()) {
    std::fprintf(stderr, "%s\n%s\n", graph.c_str(), status.ErrorMessage().c_str());
    std::abort();
  }
  for (NodeProto& node : *model.mutable_graph()->mutable_node())
    for (std::string& input : *node.mutable_input())
      if (input == "none") input.clear();
  return model;
}

// Trains on its own: a weight, and a scalar output.
inline ModelProto plain() {
  return parsed(
      "g (float[2, 4] x) => (float y) <float[4] w = {1, 2, 3, 4}> { h = Mul(x, w) y = ReduceMean<keepdims = "
      "0>(h) }");
}

template <class Change>
ModelProto changed(ModelProto model, const Change& change) {
  change(model, *model.mutable_graph());
  return model;
}

inline NodeProto* add_node(GraphProto& graph, const std::string& op, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs, const std::string& name = "") {
  NodeProto* node = graph.add_node();
  node->set_op_type(op);
  node->set_name(name);
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  return node;
}

inline AttributeProto* add_attribute(NodeProto* node, const std::string& name,
                                     AttributeProto::AttributeType type) {
  AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(type);
  return attribute;
}

inline TensorProto* add_tensor(GraphProto& graph, const std::string& name, int type,
                               const std::vector<std::int64_t>& dims) {
  TensorProto* tensor = graph.add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(type);
  for (const std::int64_t dim : dims) tensor->add_dims(dim);
  return tensor;
}

inline std::function<void(const Place&)> file(const ModelProto& model) {
  return [bytes = model.SerializePartialAsString()](const Place& place) { place.write("model.onnx", bytes); };
}
inline std::function<void(const Place&)> file(const std::string& bytes) {
  return [bytes](const Place& place) { place.write("model.onnx", bytes); };
}

inline Command inspect(int code, const std::string& says) { return {{"inspect", "model.onnx"}, code, says}; }
inline Command train(int code, const std::string& says, const std::vector<std::string>& more = {}) {
  Command run{{"train", "model.onnx", "--steps", "1"}, code, says};
  run.args.insert(run.args.end(), more.begin(), more.end());
  return run;
}
// Opened for viewing or for training, it is refused for the same reason.
inline std::vector<Command> refused(int code, const std::string& says) {
  return {inspect(code, says), train(code, says)};
}
// Viewing shows it; training is refused.
inline std::vector<Command> only_viewed(const std::string& shown, int code, const std::string& says) {
  return {inspect(0, shown), train(code, says)};
}

// Wire format by hand, for what protobuf would not write.
inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
inline std::string field(std::uint64_t number, const std::string& contents) {  // length-delimited
  return varint(number << 3 | 2) + varint(contents.size()) + contents;
}
inline std::string number_field(std::uint64_t number, std::uint64_t value) {
  return varint(number << 3) + varint(value);
}
inline std::string repeated(const std::string& bytes, std::size_t count) {
  std::string all;
  all.reserve(bytes.size() * count);
  for (std::size_t i = 0; i < count; ++i) all += bytes;
  return all;
}
// A model with this graph: IR version 8, opset 17.
inline std::string model_of(const std::string& graph) {
  return number_field(1, 8) + field(7, graph) + field(8, number_field(2, 17));
}

}  // namespace gradloom::hostile
