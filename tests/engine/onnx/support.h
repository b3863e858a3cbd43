// Builds small ONNX models in memory and imports them through files, as users do.
#pragma once

#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/onnx/import.h"
#include "engine/ir/op.h"
#include "tests/folder.h"

namespace gradloom::test {

// Removes first: file systems flush a truncated file when it is closed,
// which makes loops over damaged files slow.
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_bytes(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// From ONNX's text syntax: "g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }".
inline onnx::ModelProto model_from_text(const std::string& graph, int opset = 17) {
  onnx::ModelProto model;
  const std::string text = "<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) + "]> " + graph;
  const auto status = onnx::OnnxParser(text.c_str()).Parse(model);
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
  return model;
}

inline onnx::TensorProto* add_floats(onnx::ModelProto& model, const std::string& name,
                                     std::vector<std::int64_t> dims, const std::vector<float>& values) {
  onnx::TensorProto* tensor = model.mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  for (const std::int64_t dim : dims) tensor->add_dims(dim);
  for (const float value : values) tensor->add_float_data(value);
  return tensor;
}

inline onnx::TensorProto* add_ints(onnx::ModelProto& model, const std::string& name,
                                   std::vector<std::int64_t> dims, const std::vector<std::int64_t>& values) {
  onnx::TensorProto* tensor = model.mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::INT64);
  for (const std::int64_t dim : dims) tensor->add_dims(dim);
  for (const std::int64_t value : values) tensor->add_int64_data(value);
  return tensor;
}

// An entry of metadata_props, whose number is `field` in this message.
template <class Message>
void add_metadata(Message* message, int field, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(field,
                                                                              entry.SerializeAsString());
}

// Keys of what torch's dynamo exporter says of a graph and of its values.
constexpr const char *kSignature = "pkg.torch.export.ExportedProgram.graph_signature",
                     *kFoldedFrom = "pkg.onnxscript.optimizer.folded_from";

inline void describe(onnx::ModelProto& model, const std::string& value, const std::string& key,
                     const std::string& text) {
  auto* info = model.mutable_graph()->add_value_info();
  info->set_name(value);
  add_metadata(info, 4, key, text);
}

inline Result<ImportedModel> import_bytes(const std::string& bytes, const ImportOptions& options = {}) {
  const TemporaryFolder folder;
  write_bytes(folder / "model.onnx", bytes);
  return import_onnx(folder / "model.onnx", options);
}

inline Result<ImportedModel> import_model(const onnx::ModelProto& model, const ImportOptions& options = {}) {
  return import_bytes(model.SerializeAsString(), options);
}

// The model, verified; empty after a failure.
inline ImportedModel imported_or_fail(const onnx::ModelProto& model, const ImportOptions& options = {}) {
  Result<ImportedModel> imported = import_model(model, options);
  if (!imported.ok()) {
    ADD_FAILURE() << imported.error().message;
    return {};
  }
  const Status verified = verify(imported->graph);
  EXPECT_TRUE(verified.ok()) << verified.error().message;
  return std::move(*imported);
}

// The model must be refused with this code and a message that holds each of the texts.
inline void expect_refused(const Result<ImportedModel>& imported, Errc code,
                           const std::vector<std::string>& texts) {
  ASSERT_FALSE(imported.ok());
  EXPECT_EQ(imported.error().code, code) << imported.error().message;
  for (const std::string& text : texts) {
    EXPECT_NE(imported.error().message.find(text), std::string::npos)
        << "'" << text << "' is not in: " << imported.error().message;
  }
}

inline const Value& value_of(const Graph& graph, const std::string& name) {
  const ValueId id = find_value(graph, name);
  if (id == kNone) {
    ADD_FAILURE() << "no value '" << name << "'";
    static const Value none;
    return none;
  }
  return graph.value(id);
}

inline const Node& node_of(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes) {
    if (node.alive() && node.name == name) return node;
  }
  ADD_FAILURE() << "no node '" << name << "'";
  static const Node none;
  return none;
}

inline bool has_note(const ImportedModel& model, const std::string& text) {
  for (const std::string& note : model.notes) {
    if (note.find(text) != std::string::npos) return true;
  }
  return false;
}

}  // namespace gradloom::test
