// Nesting is limited before a file is parsed (wire_scan.h), so recursion is.
#include "engine/onnx/file/subgraph.h"

#include "engine/base/names.h"

namespace gradloom {

namespace {

void collect_captures(const onnx::GraphProto& graph, std::vector<const NameSet*>& defined_outside,
                      NameSet& seen, std::vector<std::string>& captures) {
  NameSet defined;
  for (const auto& input : graph.input()) defined.insert(input.name());
  for (const auto& initializer : graph.initializer()) defined.insert(initializer.name());
  for (const auto& node : graph.node()) defined.insert(node.output().begin(), node.output().end());
  defined_outside.push_back(&defined);
  const auto look = [&](const std::string& name) {
    for (const NameSet* names : defined_outside)
      if (names->count(name) != 0) return;
    if (!name.empty() && seen.insert(name).second) captures.push_back(name);
  };
  for (const auto& node : graph.node()) {
    for (const std::string& name : node.input()) look(name);
    for (const onnx::GraphProto* inner : subgraphs_of(node))
      collect_captures(*inner, defined_outside, seen, captures);
  }
  for (const auto& output : graph.output()) look(output.name());
  defined_outside.pop_back();
}

}  // namespace

std::vector<const onnx::GraphProto*> subgraphs_of(const onnx::NodeProto& node) {
  std::vector<const onnx::GraphProto*> graphs;
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) graphs.push_back(&attribute.g());
    for (const auto& graph : attribute.graphs()) graphs.push_back(&graph);
  }
  return graphs;
}

void for_each_graph(const onnx::GraphProto& graph,
                    const std::function<void(const onnx::GraphProto& graph)>& visit) {
  visit(graph);
  for (const auto& node : graph.node())
    for (const onnx::GraphProto* inner : subgraphs_of(node)) for_each_graph(*inner, visit);
}

std::vector<std::string> captured_names(const onnx::NodeProto& node) {
  std::vector<std::string> captures;
  std::vector<const NameSet*> defined_outside;
  NameSet seen;
  for (const onnx::GraphProto* graph : subgraphs_of(node))
    collect_captures(*graph, defined_outside, seen, captures);
  return captures;
}

}  // namespace gradloom
