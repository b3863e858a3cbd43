// fuse-optimizer: the updates of all parameters in one kernel (multi-tensor apply).
#include <map>
#include <string>

#include "engine/ir/op.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

using namespace optimizer_inputs;

// Attributes with a number for each parameter.
constexpr const char* kOfEach[] = {"keys", "begins", "counts"};

class FuseOptimizer final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    const Graph& graph = rw.graph();
    std::map<std::string, std::vector<NodeId>> groups;
    for (NodeId id : TRY(topological_order(graph))) {
      const Node& node = graph.nodes[id];
      if (!is_op(node, "Optimizer") || !rw.allowed("optimizer", id)) continue;
      Attrs attrs = node.attrs;
      attrs.erase("n");
      attrs.erase("copies");
      for (const char* name : kOfEach)
        if (attrs.has(name)) attrs.set(name, std::int64_t{1});  // have some; which they are is each one's own
      std::string key = to_string(attrs) + dtype_name(graph.type(node.inputs[kFirst]).dtype);
      for (std::size_t i = 0; i < kFirst; ++i) key += "," + std::to_string(node.inputs[i]);
      key += "@" + std::to_string(node.rank);  // an early update stays alone
      groups[key].push_back(id);
    }
    for (const auto& [key, nodes] : groups) {
      if (nodes.size() > 1) {
        TRY(merge(rw, nodes));
      } else if (groups.size() > 1) {
        rw.reject("optimizer", nodes[0],
                  "no other update has the same type, options, step and gradient scale");
      }
    }
    return {};
  }

 private:
  static Status merge(Rewriter& rw, const std::vector<NodeId>& nodes) {
    const Node first = rw.graph().nodes[nodes[0]];
    // The parameter and its states.
    const std::size_t sets =
        (first.outputs.size() - first.attrs.integers("copies").size()) / parameter_count(first.attrs);
    std::vector<ValueId> inputs(first.inputs.begin(), first.inputs.begin() + kFirst), old_outputs;
    std::size_t total = 0;
    for (NodeId id : nodes) total += parameter_count(rw.graph().nodes[id].attrs);
    // Sets of inputs: parameters, gradients, states; sets of outputs: parameters, states.
    const auto gather = [&](const std::vector<ValueId> Node::*list, std::size_t start, std::size_t set,
                            std::vector<ValueId>& to) {
      for (NodeId id : nodes) {
        const Node& node = rw.graph().nodes[id];
        const std::size_t n = parameter_count(node.attrs);
        for (std::size_t i = 0; i < n; ++i) to.push_back((node.*list)[start + set * n + i]);
      }
    };
    for (std::size_t set = 0; set < sets + 1; ++set) gather(&Node::inputs, kFirst, set, inputs);
    for (std::size_t set = 0; set < sets; ++set) gather(&Node::outputs, 0, set, old_outputs);
    const std::vector<std::int64_t> copies = gather_copies(rw.graph(), nodes, inputs, old_outputs);
    Attrs attrs = first.attrs;
    attrs.set("n", static_cast<std::int64_t>(total));
    attrs.erase("copies");
    for (const char* name : kOfEach)
      if (first.attrs.has(name)) attrs.set(name, all_of(rw.graph(), nodes, name));
    if (!copies.empty()) attrs.set("copies", copies);
    GraphBuilder& b = rw.begin("optimizer", nodes[0], nodes);
    const auto outputs = TRY(b.add(*first.op, inputs, attrs, static_cast<int>(old_outputs.size()), {},
                                   b.unique_name("all/Optimizer")));
    for (std::size_t i = 0; i < outputs.size(); ++i) rw.replace(old_outputs[i], outputs[i]);
    rw.commit(std::to_string(nodes.size()) + " updates in one kernel");
    return {};
  }

  static std::vector<std::int64_t> all_of(const Graph& graph, const std::vector<NodeId>& nodes,
                                          const char* name) {
    std::vector<std::int64_t> all;
    for (NodeId id : nodes) {
      const std::vector<std::int64_t> own = graph.nodes[id].attrs.integers(name);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

  // The parameters that have copies, by their place among all; the copies are appended to inputs and outputs.
  static std::vector<std::int64_t> gather_copies(const Graph& graph, const std::vector<NodeId>& nodes,
                                                 std::vector<ValueId>& inputs,
                                                 std::vector<ValueId>& outputs) {
    std::vector<std::int64_t> all;
    std::int64_t before = 0;
    for (NodeId id : nodes) {
      const Node& node = graph.nodes[id];
      const std::vector<std::int64_t> own = node.attrs.integers("copies");
      for (const std::int64_t place : own) all.push_back(before + place);
      const auto count = static_cast<std::ptrdiff_t>(own.size());
      inputs.insert(inputs.end(), node.inputs.end() - count, node.inputs.end());
      outputs.insert(outputs.end(), node.outputs.end() - count, node.outputs.end());
      before += static_cast<std::int64_t>(parameter_count(node.attrs));
    }
    return all;
  }
};

// SGD of two parameters, as the trainer builds it.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool fused) {
    GraphBuilder b(graph, {.origin = {{}, Phase::optimizer}});
    const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                  step = b.input("step", {DType::i64, {}}, Role::hyper);
    const ValueId p = b.parameter("p", Tensor(DType::f32, {4})),
                  q = b.parameter("q", Tensor(DType::f32, {2, 3}));
    const ValueId dp = b.input("dp", {DType::f32, {4}}), dq = b.input("dq", {DType::f32, {2, 3}});
    const OpDef& optimizer = op_by_name("Optimizer");
    Attrs attrs{{"kind", std::string("sgd")}, {"n", std::int64_t{1}}};
    if (fused) {
      attrs.set("n", std::int64_t{2});
      const auto next = b.ops(optimizer, {lr, step, kNone, kNone, p, q, dp, dq}, attrs, 2);
      graph.updates = {{p, next[0]}, {q, next[1]}};
    } else {
      graph.updates = {{p, b.ops(optimizer, {lr, step, kNone, kNone, p, dp}, attrs, 1)[0]}};
      graph.updates.push_back({q, b.ops(optimizer, {lr, step, kNone, kNone, q, dq}, attrs, 1)[0]});
    }
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef fuse_optimizer_pass;
const PassDef fuse_optimizer_pass = {
    .name = "fuse-optimizer",
    .summary = "update all parameters in one kernel",
    .doc =
        "Optimizer nodes with equal options, step and gradient scale become one node over all their "
        "parameters: one launch instead of one "
        "per parameter, and small parameters share the threads.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new FuseOptimizer); },
    .example = example,
};

}  // namespace gradloom
