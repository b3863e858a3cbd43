#include "engine/train/inference_form.h"

#include <string_view>

#include "engine/ir/op.h"

namespace gradloom {
namespace {

// Dropout in training mode has its third input since opset 12; before, it is the identity anyway.
void keep_all(Rewriter& rw, NodeId id) {
  const Node& node = rw.graph().nodes[id];
  if (node.inputs.size() < 3 || node.inputs[2] == kNone) return;
  if (node.outputs.size() > 1 && node.outputs[1] != kNone && rw.use_count(node.outputs[1]) > 0) return;
  const ValueId x = node.inputs[0], y = node.outputs[0];
  rw.begin("keep-all", id, {id});
  rw.replace(y, x);
  rw.commit();
}

// In training a node has the new running statistics (and those of the batch) as further outputs.
void take_running_statistics(Rewriter& rw, NodeId id) {
  const Node node = rw.graph().nodes[id];
  const bool by_outputs = node.op->since < 14;
  if (by_outputs ? node.outputs.size() < 2 : node.attrs.integer("training_mode") == 0) return;
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kNone && rw.use_count(node.outputs[i]) > 0) return;
  Attrs attrs = node.attrs;
  attrs.erase("training_mode");
  GraphBuilder& b = rw.begin("running-statistics", id, {id});
  rw.replace(node.outputs[0], b.op(*node.op, node.inputs, std::move(attrs)));
  rw.commit();
}

}  // namespace

Result<std::vector<RewriteRecord>> make_inference_form(Graph& graph) {
  CHECK(graph.loss != kNone, "add_loss comes first");
  graph.outputs = {graph.loss};
  return make_inference_form_of_outputs(graph);
}

Result<std::vector<RewriteRecord>> make_inference_form_of_outputs(Graph& graph) {
  graph.updates.clear();
  Rewriter rw(graph, "evaluation");
  TRY(remove_unneeded(rw, "not evaluated"));
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (is_op(graph.nodes[id], "Dropout")) keep_all(rw, id);
    if (is_op(graph.nodes[id], "BatchNormalization")) take_running_statistics(rw, id);
  }
  return rw.take_log();
}

}  // namespace gradloom
