// cse: nodes with the same operator, attributes and inputs compute the same; one of them is enough.
#include <algorithm>
#include <string>

#include "engine/base/hash.h"
#include "engine/base/names.h"
#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

constexpr std::size_t kLargestComparedConstant = 1 << 20;  // bytes

class Cse final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    const std::vector<ValueId> same_constant = merge_constants(rw.graph());
    NameMap<std::vector<NodeId>> seen;
    for (NodeId id : TRY(topological_order(rw.graph()))) {
      const Node& node = rw.graph().nodes[id];
      // The key of random numbers is an attribute: in `key`, or inside the code of a fused region.
      const bool keyed = node.attrs.has("key") || node.attrs.has("code");
      if (node.op->has(kMustAlias) || (node.op->has(kRandom) && !keyed)) continue;
      std::vector<NodeId>& candidates = seen[key(node, same_constant)];
      const bool merged =
          std::any_of(candidates.begin(), candidates.end(), [&](NodeId kept) { return merge(rw, kept, id); });
      if (!merged) candidates.push_back(id);
    }
    return {};
  }

 private:
  // For every constant, the first one with equal contents; other values stand for themselves.
  static std::vector<ValueId> merge_constants(const Graph& graph) {
    std::vector<ValueId> first(graph.values.size());
    NameMap<ValueId> by_contents;
    for (ValueId id = 0; id < graph.values.size(); ++id) {
      first[id] = id;
      const Value& value = graph.values[id];
      if (value.role != Role::constant || !value.data.defined() ||
          value.data.bytes() > kLargestComparedConstant)
        continue;
      const std::string_view bytes(static_cast<const char*>(value.data.data()), value.data.bytes());
      const std::string contents =
          to_string(value.type) + (bytes.size() <= 64 ? std::string(bytes) : hash_hex(bytes));
      first[id] = by_contents.emplace(contents, id).first->second;
    }
    return first;
  }

  static std::string key(const Node& node, const std::vector<ValueId>& same_constant) {
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs)
      inputs.push_back(v == kNone || v >= same_constant.size() ? v : same_constant[v]);
    if (is_commutative(node)) std::sort(inputs.begin(), inputs.end());
    std::string text =
        std::to_string(reinterpret_cast<std::uintptr_t>(node.op)) + to_string(node.attrs) + "(";
    for (ValueId v : inputs) text += std::to_string(v) + ",";
    // A different number of outputs can be a different computation (Split).
    return text + ")" + (node.outputs.size() > 1 ? std::to_string(node.outputs.size()) : "");
  }

  static bool merge(Rewriter& rw, NodeId kept, NodeId duplicate) {
    const Graph& graph = rw.graph();
    const std::vector<ValueId> from = graph.nodes[duplicate].outputs, to = graph.nodes[kept].outputs;
    if (!(graph.nodes[duplicate].attrs == graph.nodes[kept].attrs)) return false;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i] == kNone || rw.use_count(from[i]) == 0) continue;
      if (to[i] == kNone) return false;
      if (rw.is_output(from[i])) {
        rw.reject("same-computation", duplicate,
                  "its result " + graph.values[from[i]].name + " is an output of the graph");
        return false;
      }
    }
    if (!rw.allowed("same-computation", duplicate)) return false;
    rw.begin("same-computation", duplicate, {duplicate});
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i] != kNone && rw.use_count(from[i]) > 0) rw.replace(from[i], to[i]);
    }
    rw.stands_for_replaced(kept);
    rw.commit("the same as node " + rw.graph().nodes[kept].name);
    return true;
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {4}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type), y = b.input("y", type);
  e.before.outputs = {b.op("Mul", {b.op("Exp", {b.op("Add", {x, y})}), b.op("Exp", {b.op("Add", {y, x})})})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", type), ay = a.input("y", type);
  const ValueId exp = a.op("Exp", {a.op("Add", {ax, ay})});
  e.after.outputs = {a.op("Mul", {exp, exp})};
  return e;
}

}  // namespace

extern const PassDef cse_pass;
const PassDef cse_pass = {
    .name = "cse",
    .summary = "compute equal expressions once",
    .doc =
        "Nodes with the same operator, attributes and inputs (constants compared by contents, operands of "
        "commutative operators in any "
        "order) are merged. Random nodes merge only when they draw the same numbers (equal key); optimizer "
        "updates and nodes whose result "
        "is an output of the graph stay.",
    .phase = PassPhase::both,
    .make = [] { return std::unique_ptr<Pass>(new Cse); },
    .example = example,
};

}  // namespace gradloom
