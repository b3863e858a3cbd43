// eliminate-noops: nodes that hand their input on unchanged, and pairs that cancel or merge.
#include <algorithm>

#include "engine/ir/op.h"
#include "passes/casts.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

// The dims [begin, end) of `from` whose product is each dim of `joined`; empty unless there are such for all.
using Run = std::pair<std::size_t, std::size_t>;
std::vector<Run> joined_runs(const Shape& from, const Shape& joined) {
  std::vector<Run> runs;
  std::size_t at = 0;
  for (std::size_t i = 0; i < joined.size(); ++i) {
    const std::size_t begin = at;
    std::int64_t product = 1;
    while (at < from.size() && (at == begin || product < joined[i])) product *= from[at++];
    if (product != joined[i] || product <= 0) return {};
    // Dims of 1 belong to either neighbour.
    while (at < from.size() && from[at] == 1 && (i + 1 == joined.size() || joined[i + 1] != 1)) ++at;
    runs.emplace_back(begin, at);
  }
  return at == from.size() ? runs : std::vector<Run>{};
}

class EliminateNoops final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    for (NodeId id : TRY(topological_order(rw.graph()))) {
      if (!rw.graph().nodes[id].alive()) continue;
      if (remove_noop(rw, id)) continue;
      merge_with_producer(rw, id);
    }
    return {};
  }

 private:
  static bool remove_noop(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node& node = graph.nodes[id];
    const Noop noop = node.op->noop == nullptr ? Noop{} : node.op->noop(graph, node);
    if (noop.rule.empty()) return false;
    const ValueId input = node.inputs[noop.input], output = node.outputs[0];
    if (output == kNone || graph.type(input) != graph.type(output) || !is_static(graph.type(input).shape))
      return false;
    if (rw.is_output(output)) {
      rw.reject(noop.rule, id, "its result " + graph.values[output].name + " is an output of the graph");
      return false;
    }
    if (rw.use_count(output) == 0 || !rw.allowed(noop.rule, id)) return false;
    rw.begin(noop.rule, id, {id});
    rw.replace(output, input);
    rw.commit();
    return true;
  }

  // Cast of a Cast to a wider type, which changed no number: from the first input.
  static void merge_casts(Rewriter& rw, NodeId id, NodeId before) {
    const Graph& graph = rw.graph();
    const ValueId source = graph.nodes[before].inputs[0], between = graph.nodes[id].inputs[0];
    const ValueId output = graph.nodes[id].outputs[0];
    if (!widens(graph.type(source).dtype, graph.type(between).dtype)) return;
    const bool cancels = graph.type(source) == graph.type(output);
    if ((cancels && rw.is_output(output)) || !rw.allowed("cast-cast", id, {id, before})) return;
    const Attrs attrs = graph.nodes[id].attrs;
    GraphBuilder& b = rw.begin("cast-cast", id, {id, before});
    rw.replace(output, cancels ? source : b.op("Cast", {source}, attrs));
    rw.commit();
  }

  // A view of a Transpose of a view that joins dims, where it takes them apart again: a Transpose.
  static void merge_around_transpose(Rewriter& rw, NodeId id, NodeId before) {
    const Graph& graph = rw.graph();
    const NodeId joining = graph.values[graph.nodes[before].inputs[0]].producer;
    if (joining == kNone || !graph.nodes[joining].op->has(kReshapes)) return;
    const ValueId source = graph.nodes[joining].inputs[0], output = graph.nodes[id].outputs[0];
    const Shape& from = graph.type(source).shape;
    const auto runs = joined_runs(from, graph.type(graph.nodes[before].inputs[0]).shape);
    std::vector<std::int64_t> perm;
    Shape shape;
    if (!runs.empty()) {
      for (const std::int64_t axis : perm_of_transpose(graph, graph.nodes[before])) {
        const auto [begin, end] = runs[static_cast<std::size_t>(axis)];
        for (std::size_t i = begin; i < end; ++i) {
          perm.push_back(static_cast<std::int64_t>(i));
          shape.push_back(from[i]);
        }
      }
    }
    if (perm.empty() || shape != graph.type(output).shape ||
        !rw.allowed("view-transpose-view", id, {id, before, joining}))
      return;
    GraphBuilder& b = rw.begin("view-transpose-view", id, {id, before, joining});
    rw.replace(output, b.op("Transpose", {source}, {{"perm", perm}}));
    rw.commit();
  }

  // Transpose of Transpose and view of view: one node from the first input.
  static void merge_with_producer(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node& node = graph.nodes[id];
    if (node.inputs.empty() || node.inputs[0] == kNone) return;
    const NodeId before = graph.values[node.inputs[0]].producer;
    if (before == kNone) return;
    const Node& first = graph.nodes[before];
    if (is_op(node, "Cast") && is_op(first, "Cast")) return merge_casts(rw, id, before);
    const ValueId source = first.inputs.empty() ? kNone : first.inputs[0], output = node.outputs[0];
    if (is_op(node, "Transpose") && is_op(first, "Transpose")) {
      const Perm perm = composed(perm_of_transpose(graph, first), perm_of_transpose(graph, node));
      const bool cancels = is_identity(perm);
      if ((cancels && rw.is_output(output)) || !rw.allowed("transpose-transpose", id, {id, before})) return;
      GraphBuilder& b = rw.begin("transpose-transpose", id, {id, before});
      rw.replace(output, cancels ? source : b.op("Transpose", {source}, {{"perm", perm}}));
      rw.commit();
      return;
    }
    if (!node.op->has(kReshapes)) return;
    if (is_op(first, "Transpose")) return merge_around_transpose(rw, id, before);
    if (!first.op->has(kReshapes)) return;
    const Shape shape = graph.type(output).shape;
    const bool positive = std::all_of(shape.begin(), shape.end(), [](std::int64_t d) { return d > 0; });
    const bool same = graph.type(source) == graph.type(output);
    if (!positive || (same && rw.is_output(output)) || !rw.allowed("view-view", id, {id, before})) return;
    GraphBuilder& b = rw.begin("view-view", id, {id, before});
    rw.replace(output, same ? source : b.reshape(source, shape));
    rw.commit();
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {2, 3}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type);
  const ValueId same = b.op("Mul", {b.op("Identity", {x}), b.scalar(DType::f32, 1)});
  const Attrs swap{{"perm", std::vector<std::int64_t>{1, 0}}};
  e.before.outputs = {b.op("Exp", {b.op("Transpose", {b.op("Transpose", {same}, swap)}, swap)})};
  GraphBuilder a(e.after);
  e.after.outputs = {a.op("Exp", {a.input("x", type)})};
  return e;
}

}  // namespace

extern const PassDef eliminate_noops_pass;
const PassDef eliminate_noops_pass = {
    .name = "eliminate-noops",
    .summary = "remove nodes that change nothing",
    .doc =
        "Removes Identity, casts to the same type, views to the same shape, transposes that keep the order, "
        "Expand to the same shape, "
        "reductions over axes of size 1, dropout that is switched off, and x + 0, x - 0, x * 1, x / 1, x ^ 1 "
        "with scalar constants (the sum of -0 and 0 keeps its sign so). Two "
        "transposes or two views in a row, or a cast of what was cast to a wider type, become one or none; a "
        "transpose between a view that joins dims and one that takes them apart takes their place. A "
        "result that is an output of the graph keeps "
        "its node.",
    .phase = PassPhase::both,
    .make = [] { return std::unique_ptr<Pass>(new EliminateNoops); },
    .example = example,
};

}  // namespace gradloom
