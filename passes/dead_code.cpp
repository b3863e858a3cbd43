// dead-code: nodes that neither outputs, loss nor updates depend on, and optional results that nothing reads.
#include <algorithm>
#include <string_view>

#include "engine/ops/op.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

// Operators whose outputs after the first are optional: leaving one out does not change the others.
bool has_optional_outputs(const Node& node) {
  static const char* const names[] = {"Dropout", "MaxPool", "LayerNormalization", "SoftmaxCrossEntropyLoss"};
  return std::any_of(std::begin(names), std::end(names),
                     [&](std::string_view name) { return name == node.op->name; });
}

class DeadCode final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    remove_unreachable(rw, order);
    for (NodeId id : order) {
      if (rw.graph().nodes[id].alive()) TRY(drop_unused_outputs(rw, id));
    }
    return {};
  }

 private:
  static void remove_unreachable(Rewriter& rw, const std::vector<NodeId>& order) {
    const Graph& graph = rw.graph();
    std::vector<bool> live(graph.nodes.size(), false);
    std::vector<NodeId> dead;
    for (std::size_t i = order.size(); i-- > 0;) {
      const Node& node = graph.nodes[order[i]];
      for (ValueId v : node.outputs) {
        if (v == kNone) continue;
        const auto& uses = rw.uses(v);
        const bool read =
            std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return live[use.node]; });
        if (read || rw.is_output(v)) live[order[i]] = true;
      }
      if (!live[order[i]]) dead.push_back(order[i]);
    }
    for (NodeId id : dead) {  // consumers first
      if (!rw.allowed("unused", id)) continue;
      const auto& outputs = graph.nodes[id].outputs;
      if (std::any_of(outputs.begin(), outputs.end(),
                      [&](ValueId v) { return v != kNone && rw.use_count(v) > 0; }))
        continue;
      rw.begin("unused", id, {id});
      rw.commit();
    }
  }

  static Status drop_unused_outputs(Rewriter& rw, NodeId id) {
    const Node node = rw.graph().nodes[id];
    std::size_t wanted = node.outputs.size();
    while (wanted > 1 && (node.outputs[wanted - 1] == kNone || rw.use_count(node.outputs[wanted - 1]) == 0))
      --wanted;
    const bool writes_unread = std::any_of(node.outputs.begin() + static_cast<std::ptrdiff_t>(wanted),
                                           node.outputs.end(), [](ValueId v) { return v != kNone; });
    const bool named_stream =
        node.op->has(kRandom) && !node.attrs.has("key");  // its random numbers depend on its name
    if (!writes_unread || !has_optional_outputs(node) || named_stream || !rw.allowed("unused-output", id))
      return {};
    GraphBuilder& b = rw.begin("unused-output", id, {id});
    const auto outputs = TRY(b.add(*node.op, node.inputs, node.attrs, static_cast<int>(wanted)));
    for (std::size_t i = 0; i < wanted; ++i) {
      if (node.outputs[i] != kNone) rw.replace(node.outputs[i], outputs[i]);
    }
    rw.commit(std::to_string(node.outputs.size() - wanted) + " result(s) are not written");
    return {};
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {4}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type);
  b.op("Exp", {b.op("Neg", {x})});
  e.before.outputs = {b.op("Tanh", {x})};
  GraphBuilder a(e.after);
  e.after.outputs = {a.op("Tanh", {a.input("x", type)})};
  return e;
}

}  // namespace

extern const PassDef dead_code_pass;
const PassDef dead_code_pass = {
    .name = "dead-code",
    .summary = "remove what nothing reads",
    .doc =
        "Removes nodes that no output, loss or update depends on, and leaves out optional results that "
        "nothing reads (the mask of Dropout, "
        "the indices of MaxPool, the statistics of LayerNormalization).",
    .phase = PassPhase::both,
    .make = [] { return std::unique_ptr<Pass>(new DeadCode); },
    .example = example,
};

}  // namespace gradloom
