// simplify-slices: what picks a range is a slice, and slices that are put together again are no copies.
//   Gather(x, [2, 3, 4]) -> Slice(x, 2:5);  Gather(x, 2) -> Reshape(Slice(x, 2:3))
//   Concat(x[0:2], x[2:5]) -> x[0:5], or x where that is all of it;  Concat of the results of a Split -> its input
#include <algorithm>
#include <optional>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

constexpr const char* kGather = "gather-range";
constexpr const char* kConcat = "concat-slices";

// Elements [begin, end) of `value` along one axis.
struct Range {
  ValueId value = kNone;
  std::size_t axis = 0;
  std::int64_t begin = 0, end = 0, step = 1;
};

std::optional<std::vector<std::int64_t>> known_integers(const Graph& graph, ValueId v) {
  constexpr std::int64_t kMostRead = 65536;
  if (v == kNone || !is_constant(graph, v) || !graph.values[v].data.defined() ||
      graph.values[v].data.count() > kMostRead || graph.values[v].data.count() == 0)
    return std::nullopt;
  return graph.values[v].data.to_i64();
}

std::size_t axis_of(std::int64_t axis, const Shape& shape) {
  return static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(shape.size()) : axis);
}

// What a Slice along one axis with step 1, or a result of a Split, is of its input.
std::optional<Range> read_range(const Graph& graph, ValueId v) {
  const NodeId id = graph.values[v].producer;
  if (id == kNone) return std::nullopt;
  const Node& node = graph.nodes[id];
  if (!is_op(node, "Slice") && !is_op(node, "Split")) return std::nullopt;
  Range range{node.inputs[0]};
  const Shape& shape = graph.type(range.value).shape;
  if (is_op(node, "Split")) {
    range.axis = axis_of(node.attrs.integer("axis", 0), shape);
    for (std::size_t i = 0; i <= graph.values[v].output_index; ++i) {
      if (node.outputs[i] == kNone) return std::nullopt;  // its size is unknown
      range.begin = range.end;
      range.end += graph.type(node.outputs[i]).shape[range.axis];
    }
    return range;
  }
  if (node.inputs.size() < 4) return std::nullopt;
  const auto starts = known_integers(graph, node.inputs[1]), ends = known_integers(graph, node.inputs[2]),
             axes = known_integers(graph, node.inputs[3]);
  if (!starts || !ends || !axes || starts->size() != 1 || ends->size() != 1 || axes->size() != 1)
    return std::nullopt;
  if (node.inputs.size() > 4 && node.inputs[4] != kNone)
    if (known_integers(graph, node.inputs[4]) != std::vector<std::int64_t>{1}) return std::nullopt;
  range.axis = axis_of((*axes)[0], shape);
  const std::int64_t size = shape[range.axis];
  const auto clamped = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  range.begin = clamped((*starts)[0]);
  range.end = std::max(range.begin, clamped((*ends)[0]));
  return range;
}

ValueId build_slice(GraphBuilder& b, const Range& range) {
  return b.op("Slice", {range.value, b.i64s({range.begin}), b.i64s({range.end}),
                        b.i64s({static_cast<std::int64_t>(range.axis)}), b.i64s({range.step})});
}

class SimplifySlices final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph()))) {
      const Node& node = rw.graph().nodes[id];
      // What is known before running is for fold-constants: shapes may depend on it.
      if (!node.alive() || node.outputs[0] == kNone || rw.graph().values[node.outputs[0]].data.defined())
        continue;
      if (is_op(rw.graph().nodes[id], "Gather")) gather(rw, id);
      if (is_op(rw.graph().nodes[id], "Concat")) concat(rw, id);
    }
    return {};
  }

 private:
  static void gather(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node& node = graph.nodes[id];
    const Shape& shape = graph.type(node.inputs[0]).shape;
    auto indices = known_integers(graph, node.inputs[1]);
    const std::size_t dims = graph.type(node.inputs[1]).shape.size();
    if (!indices || !is_static(shape)) return;  // looked up, as tokens are: nothing to tell
    if (dims > 1) return rw.reject(kGather, id, "the indices are no list");
    Range range{node.inputs[0], axis_of(node.attrs.integer("axis", 0), shape)};
    const std::int64_t size = shape[range.axis];
    for (std::int64_t& index : *indices) {
      index += index < 0 ? size : 0;
      if (index < 0 || index >= size) return rw.reject(kGather, id, "an index is out of range");
    }
    const std::vector<std::int64_t>& at = *indices;
    if (at.size() > 1) range.step = at[1] - at[0];
    for (std::size_t i = 1; i < at.size(); ++i)
      if (at[i] - at[i - 1] != range.step || range.step < 1)
        return rw.reject(kGather, id, "the indices are not evenly ascending");
    range.begin = at.front();
    range.end = at.back() + 1;
    if (!rw.allowed(kGather, id)) return;
    const ValueId y = node.outputs[0];
    const Shape result = graph.type(y).shape;
    GraphBuilder& b = rw.begin(kGather, id, {id});
    const ValueId slice = build_slice(b, range);
    rw.replace(y, dims == 1 ? slice : b.op("Reshape", {slice, b.i64s(result)}));
    rw.commit("its gradient is one copy, not a sum by index");
  }

  static void concat(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node& node = graph.nodes[id];
    if (node.inputs.size() < 2) return;
    const auto first = read_range(graph, node.inputs[0]);
    if (!first) return;
    Range whole = *first;
    std::vector<NodeId> matched = {id};
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const auto next = read_range(graph, node.inputs[i]);
      if (!next || next->value != whole.value)
        return rw.reject(kConcat, id, graph.values[node.inputs[i]].name + " is not of the same tensor");
      if (next->axis != whole.axis ||
          axis_of(node.attrs.integer("axis"), graph.type(whole.value).shape) != whole.axis)
        return rw.reject(kConcat, id, "the slices are along another axis");
      if (i > 0 && next->begin != whole.end)
        return rw.reject(kConcat, id,
                         graph.values[node.inputs[i]].name + " does not begin where the one before it ends");
      whole.end = next->end;
      const NodeId producer = graph.values[node.inputs[i]].producer;
      if (std::find(matched.begin(), matched.end(), producer) == matched.end()) matched.push_back(producer);
    }
    const ValueId y = node.outputs[0];
    const bool all = graph.type(whole.value) == graph.type(y);
    if (all && rw.is_output(y))
      return rw.reject(kConcat, id, "its result " + graph.values[y].name + " is an output of the graph");
    if (!rw.allowed(kConcat, id, matched)) return;
    GraphBuilder& b = rw.begin(kConcat, id, matched);
    rw.replace(y, all ? whole.value : build_slice(b, whole));
    rw.commit(all ? "it is the tensor that was cut" : "one slice of it");
  }
};

Result<PassExample> example() {
  const Type type{DType::f32, {2, 6}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId x = b.input("x", type);
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return b.op("Slice", {x, b.i64s({begin}), b.i64s({end}), b.i64s({1})});
  };
  const ValueId again = b.op("Concat", {part(0, 2), part(2, 6)}, {{"axis", std::int64_t{1}}});
  const ValueId picked = b.op("Gather", {x, b.i64s({1, 2, 3})}, {{"axis", std::int64_t{1}}});
  e.before.outputs = {b.op("Tanh", {again}), b.op("Exp", {picked})};
  GraphBuilder a(e.after);
  const ValueId ax = a.input("x", type);
  const ValueId whole = a.op("Tanh", {ax});
  const ValueId slice = a.op("Slice", {ax, a.i64s({1}), a.i64s({4}), a.i64s({1}), a.i64s({1})});
  e.after.outputs = {whole, a.op("Exp", {slice})};
  return e;
}

}  // namespace

extern const PassDef simplify_slices_pass;
const PassDef simplify_slices_pass = {
    .name = "simplify-slices",
    .summary = "make ranges of constant indices slices, and what was cut and joined again whole",
    .doc =
        "A Gather with constant indices that ascend evenly is a Slice, whose gradient copies instead of adding by "
        "index. A Concat of slices of one tensor, or of the results of a Split, that follow each other is one Slice of "
        "it, or the tensor itself.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new SimplifySlices); },
    .example = example,
};

}  // namespace gradloom
