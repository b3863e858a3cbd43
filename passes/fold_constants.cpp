// fold-constants: nodes whose results do not depend on anything fed to a step are computed now.
#include <algorithm>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

bool is_used(const Rewriter& rw, ValueId id) { return id != kNone && rw.use_count(id) > 0; }

class FoldConstants final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("max_bytes", max_bytes_,
            {.help = "largest result that is computed ahead", .unit = "bytes", .min = 0, .max = 1e9});
  }

  Status run(Rewriter& rw) const override {
    for (NodeId id : TRY(topological_order(rw.graph()))) {
      const Node& node = rw.graph().nodes[id];
      if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return is_used(rw, v); }))
        continue;
      const bool known = std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
        return !is_used(rw, v) || rw.graph().values[v].data.defined();
      });
      if (known) {
        if (rw.allowed("known-contents", id)) replace_outputs(rw, "known-contents", id, {});
      } else {
        TRY(evaluate_node(rw, id));
      }
    }
    return {};
  }

 private:
  // Computes a node all of whose inputs are constants.
  Status evaluate_node(Rewriter& rw, NodeId id) const {
    const Graph& graph = rw.graph();
    const Node& node = graph.nodes[id];
    const bool all_constant = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
      return v == kNone || (is_constant(graph, v) && graph.values[v].data.defined());
    });
    if (!all_constant || node.inputs.empty() || node.op->has(kRandom) || node.op->has(kMustAlias)) return {};
    if (node.op->cpu == nullptr && !node.op->has(kView)) return {};
    double bytes = 0;
    for (ValueId v : node.outputs) {
      if (v == kNone) continue;
      if (!is_static(graph.type(v).shape)) return {};
      bytes += static_cast<double>(byte_size(graph.type(v)));
    }
    if (bytes > static_cast<double>(max_bytes_)) {
      rw.reject("constant-inputs", id, "the result would take " + bytes_text(bytes) + ", above max_bytes");
      return {};
    }
    if (!rw.allowed("constant-inputs", id)) return {};
    std::vector<Tensor> inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == kNone ? Tensor() : graph.values[v].data);
    auto results = evaluate(*node.op, node.attrs, inputs, static_cast<int>(node.outputs.size()), node.name);
    if (!results) {
      rw.reject("constant-inputs", id, results.error().message);
      return {};
    }
    replace_outputs(rw, "constant-inputs", id, *results);
    return {};
  }

  static void replace_outputs(Rewriter& rw, const char* rule, NodeId id, const std::vector<Tensor>& results) {
    const std::vector<ValueId> outputs = rw.graph().nodes[id].outputs;
    GraphBuilder& b = rw.begin(rule, id, {id});
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!is_used(rw, outputs[i])) continue;
      rw.replace(outputs[i], b.constant(results.empty() ? rw.graph().values[outputs[i]].data : results[i]));
    }
    rw.commit();
  }

  std::int64_t max_bytes_ = 1 << 20;
};

Result<PassExample> example() {
  const Type type{DType::f32, {4}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type);
  const ValueId half = b.op("Div", {b.scalar(DType::f32, 1), b.scalar(DType::f32, 2)});
  e.before.outputs = {b.op("Mul", {x, half})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", type);
  e.after.outputs = {a.op("Mul", {ax, a.scalar(DType::f32, 0.5)})};
  return e;
}

}  // namespace

extern const PassDef fold_constants_pass;
const PassDef fold_constants_pass = {
    .name = "fold-constants",
    .summary = "compute once, while planning, what does not depend on the step's inputs",
    .doc =
        "Replaces nodes whose results are known by constants: index arithmetic that import already resolved "
        "(Shape, Gather, Concat, ...) and "
        "nodes with constant inputs only, computed with the same kernels as at run time. Parameters are not "
        "constants. Random nodes and "
        "results above max_bytes stay.",
    .phase = PassPhase::both,
    .make = [] { return std::unique_ptr<Pass>(new FoldConstants); },
    .example = example,
};

}  // namespace gradloom
