#include "engine/onnx/read/known_inputs.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/onnx/read/fold.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

Status make_constant(Value& input, const Tensor& contents, const ImportOptions& options) {
  const DType type = options.imported(contents.dtype());
  Tensor data = type == contents.dtype() ? contents : contents.cast(type);
  bool equal = data.dtype() == input.type.dtype && data.shape().size() == input.type.shape.size();
  for (std::size_t i = 0; equal && i < data.shape().size(); ++i)
    equal = input.type.shape[i] < 0 || input.type.shape[i] == data.shape()[i];
  if (!equal)
    return Error{Errc::bad_input, "input '" + escaped(input.name) + "' is " + to_string(input.type) +
                                      ", its known contents are " + to_string(data.type())};
  input.role = Role::constant;
  input.type = data.type();
  input.data = std::move(data);
  return {};
}

Status infer_again(Graph& graph, const Node& node) {
  InferContext ctx{graph, node.attrs, node.inputs, static_cast<int>(node.outputs.size()),
                   std::vector<Type>(node.outputs.size())};
  TRY(node.op->infer(ctx));
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    const Type& type = ctx.outputs[i];
    if (is_static(type.shape)) TRY(checked_element_count(type.shape, dtype_bytes(type.dtype)));
    graph.values[node.outputs[i]].type = type;
  }
  return {};
}

}  // namespace

Status know_inputs(Graph& graph, const std::map<std::string, Tensor>& contents,
                   const ImportOptions& options) {
  std::vector<bool> follows(graph.values.size(), false);  // from the contents
  for (const ValueId id : graph.inputs) {
    const auto known = contents.find(graph.values[id].name);
    if (known == contents.end()) continue;
    TRY(make_constant(graph.values[id], known->second, options));
    follows[id] = true;
  }
  std::erase_if(graph.inputs, [&](ValueId id) { return follows[id]; });
  Folder folder(graph, options.limits);
  for (const NodeId id : TRY(topological_order(graph))) {
    const Node& node = graph.nodes[id];
    const bool concerned = std::any_of(node.inputs.begin(), node.inputs.end(),
                                       [&](ValueId in) { return in != kNone && follows[in]; });
    if (!concerned) continue;
    for (const ValueId out : node.outputs)
      if (out != kNone) follows[out] = true;
    Status status = folder.examine(*node.op, node.inputs);
    if (status) status = infer_again(graph, node);
    if (status) status = folder.fold(id);
    if (!status)
      return with_context(status.error(), "node '" + escaped(node.name) + "' (" + node.op->name + ")");
  }
  return {};
}

}  // namespace gradloom
