#include "engine/onnx/file/external_files.h"

#include <algorithm>

#include "engine/onnx/file/model_file.h"
#include "engine/onnx/file/subgraph.h"

namespace gradloom {
namespace {

void add_location(const onnx::TensorProto& tensor, std::vector<std::string>& locations) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
  for (const auto& entry : tensor.external_data())
    if (entry.key() == "location" &&
        std::find(locations.begin(), locations.end(), entry.value()) == locations.end())
      locations.push_back(entry.value());
}

template <class Nodes>
void add_constants(const Nodes& nodes, std::vector<std::string>& locations) {
  for (const onnx::NodeProto& node : nodes)
    for (const onnx::AttributeProto& attribute : node.attribute())
      if (attribute.has_t()) add_location(attribute.t(), locations);
}

}  // namespace

Result<std::vector<std::string>> external_files(const std::string& model) {
  const ModelFile file = TRY(read_model_file(model, Limits{}));
  std::vector<std::string> locations;
  for_each_graph(file.model.graph(), [&](const onnx::GraphProto& graph) {
    for (const onnx::TensorProto& tensor : graph.initializer()) add_location(tensor, locations);
    add_constants(graph.node(), locations);
  });
  for (const onnx::FunctionProto& function : file.model.functions())
    add_constants(function.node(), locations);
  return locations;
}

}  // namespace gradloom
