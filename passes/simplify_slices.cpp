// simplify-slices: what picks a range is a slice, and slices that are put together again are no copies.
//   Gather(x, [2, 3, 4]) -> Slice(x, 2:5);  Gather(x, 2) -> Reshape(Slice(x, 2:3))
//   Concat(x[0:2], x[2:5]) -> x[0:5], or x where that is all of it;  Concat of the results of a Split -> its input
//   Slice or Split of a Concat, where one part has all of it -> that part, or a Slice of it
//   x[0:2], x[2:5] of an axis of size 5 -> Split(x, [2, 3])
#include <algorithm>
#include <map>
#include <optional>

#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"

namespace gradloom {
namespace {

constexpr const char* kGather = "gather-range";
constexpr const char* kConcat = "concat-slices";
constexpr const char* kPart = "slice-of-concat";
constexpr const char* kSplit = "slices-split";

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
      if (is_op(rw.graph().nodes[id], "Slice")) slice_of_concat(rw, id);
    }
    const auto values = static_cast<ValueId>(rw.graph().values.size());
    for (ValueId v = 0; v < values; ++v) split(rw, v);
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
    rw.replace(y, dims == 1 ? slice : b.reshape(slice, result));
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

  static void slice_of_concat(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const ValueId y = graph.nodes[id].outputs[0], joined = graph.nodes[id].inputs[0];
    const NodeId before = graph.values[joined].producer;
    if (before == kNone || !is_op(graph.nodes[before], "Concat") || !is_static(graph.type(joined).shape))
      return;
    const auto range = read_range(graph, y);
    if (!range) return rw.reject(kPart, id, "it is no range of one axis");
    const Node& concat = graph.nodes[before];
    if (range->axis != axis_of(concat.attrs.integer("axis"), graph.type(joined).shape))
      return rw.reject(kPart, id, "node " + concat.name + " joins along another axis");
    Range part{kNone, range->axis};
    std::int64_t begin = 0;
    for (const ValueId in : concat.inputs) {
      const std::int64_t end = begin + graph.type(in).shape[range->axis];
      if (part.value == kNone && range->begin >= begin && range->end <= end && range->begin < range->end)
        part = {in, range->axis, range->begin - begin, range->end - begin};
      begin = end;
    }
    if (part.value == kNone) return rw.reject(kPart, id, "no part of node " + concat.name + " has all of it");
    const bool all = graph.type(part.value) == graph.type(y);
    if (all && rw.is_output(y))
      return rw.reject(kPart, id, "its result " + graph.values[y].name + " is an output of the graph");
    if (!rw.allowed(kPart, id, {id, before})) return;
    GraphBuilder& b = rw.begin(kPart, id, {id, before});
    rw.replace(y, all ? part.value : build_slice(b, part));
    rw.commit(all ? "it is one of the parts" : "a slice of one of the parts");
  }

  // The slices of v along one axis, where they are all of it and do not overlap: the results of one Split.
  static void split(Rewriter& rw, ValueId v) {
    const Graph& graph = rw.graph();
    if (!graph.values[v].has_type || !is_static(graph.type(v).shape) || is_constant(graph, v)) return;
    std::map<std::size_t, std::map<std::int64_t, std::vector<NodeId>>> by_axis;  // axis -> begin -> slices
    for (const Use& use : rw.uses(v)) {
      const Node& node = graph.nodes[use.node];
      if (use.input_index != 0 || !is_op(node, "Slice") || graph.values[node.outputs[0]].data.defined())
        continue;
      if (const auto range = read_range(graph, node.outputs[0]))
        by_axis[range->axis][range->begin].push_back(use.node);
    }
    for (const auto& [axis, slices] : by_axis)
      if (slices.size() > 1) split_along(rw, v, axis, slices);
  }

  static void split_along(Rewriter& rw, ValueId v, std::size_t axis,
                          const std::map<std::int64_t, std::vector<NodeId>>& slices) {
    const Graph& graph = rw.graph();
    const NodeId first = slices.begin()->second.front();
    std::vector<std::int64_t> sizes;
    std::vector<NodeId> matched;
    std::int64_t end = 0;
    for (const auto& [begin, nodes] : slices) {
      if (begin != end)
        return rw.reject(kSplit, first,
                         begin > end
                             ? "elements " + std::to_string(end) + " to " + std::to_string(begin) +
                                   " of axis " + std::to_string(axis) + " are in no slice"
                             : "node " + graph.nodes[nodes[0]].name + " begins before another slice ends");
      for (const NodeId id : nodes) {
        const std::int64_t size = graph.type(graph.nodes[id].outputs[0]).shape[axis];
        if (id != nodes[0] && size != sizes.back())
          return rw.reject(kSplit, first,
                           "node " + graph.nodes[id].name + " ends elsewhere than another slice");
        if (id == nodes[0]) sizes.push_back(size);
        matched.push_back(id);
      }
      end = begin + sizes.back();
    }
    if (end != graph.type(v).shape[axis])
      return rw.reject(
          kSplit, first,
          "elements from " + std::to_string(end) + " of axis " + std::to_string(axis) + " are in no slice");
    if (!rw.allowed(kSplit, first, matched)) return;
    GraphBuilder& b = rw.begin(kSplit, first, matched);
    const auto parts = b.ops(op_by_name("Split"), {v, b.i64s(sizes)},
                             {{"axis", static_cast<std::int64_t>(axis)}}, static_cast<int>(sizes.size()));
    std::size_t i = 0;
    for (const auto& [begin, nodes] : slices) {
      for (const NodeId id : nodes) rw.replace(graph.nodes[id].outputs[0], parts[i]);
      ++i;
    }
    rw.commit(std::to_string(matched.size()) +
              " slices are one node, and their gradients are joined, not added");
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
    .summary =
        "make ranges of constant indices slices, what was cut and joined again whole, and slices that are all splits",
    .doc =
        "A Gather with constant indices that ascend evenly is a Slice, whose gradient copies instead of adding by "
        "index. A Concat of slices of one tensor, or of the results of a Split, that follow each other is one Slice of "
        "it, or the tensor itself. A Slice of a Concat that lies in one part is that part, or a slice of it, and the Concat "
        "may go. Slices that are all of an axis are one Split, whose gradient joins theirs instead of adding tensors with "
        "zeros.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new SimplifySlices); },
    .example = example,
};

}  // namespace gradloom
