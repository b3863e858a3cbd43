// dead-code: nodes that neither outputs, loss nor updates depend on, and optional results that nothing reads.
#include <algorithm>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

class DeadCode final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    TRY(remove_unneeded(rw, "unused"));
    for (NodeId id : order) {
      if (rw.graph().nodes[id].alive()) TRY(drop_unused_outputs(rw, id));
    }
    return {};
  }

 private:
  static Status drop_unused_outputs(Rewriter& rw, NodeId id) {
    const Node node = rw.graph().nodes[id];
    const bool named_stream =
        node.op->has(kRandom) && !node.attrs.has("key");  // its random numbers depend on its name
    if (!node.op->has(kOptionalOutputs) || named_stream) return {};
    const auto read = [&](ValueId v) { return v != kNone && rw.use_count(v) > 0; };
    std::vector<bool> kept;
    std::int64_t dropped = 0;
    for (const ValueId v : node.outputs) {
      const bool optional = !kept.empty() || node.op->has(kFirstOutputOptional);
      kept.push_back(read(v) || (v != kNone && !optional));
      if (v != kNone && !kept.back()) ++dropped;
    }
    while (!kept.empty() && !kept.back()) kept.pop_back();
    if (dropped == 0 || kept.empty() || !rw.allowed("unused-output", id)) return {};
    GraphBuilder& b = rw.begin("unused-output", id, {id});
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kept.size(); ++i)
      names.push_back(kept[i] ? b.unique_name(node.name + ":" + std::to_string(i)) : "");
    const auto outputs = TRY(b.add(*node.op, node.inputs, node.attrs, static_cast<int>(kept.size()), names));
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) rw.replace(node.outputs[i], outputs[i]);
    }
    rw.commit(plural_text(dropped, "result") + (dropped == 1 ? " is" : " are") + " not written");
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
    .summary = "remove nodes whose results nothing reads",
    .doc =
        "Removes nodes that no output, loss or update depends on, and leaves out optional results that "
        "nothing reads (the mask of Dropout, "
        "the indices of MaxPool, the statistics of normalizations, the sequence of an LSTM whose last state is used).",
    .phase = PassPhase::both,
    .make = [] { return std::unique_ptr<Pass>(new DeadCode); },
    .example = example,
};

}  // namespace gradloom
