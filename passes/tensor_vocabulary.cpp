#include "passes/tensor_vocabulary.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/inference.h"

namespace gradloom {
namespace {

ValueId number(GraphBuilder& b, ValueId like, std::int64_t value) {
  return b.scalar(b.type(like).dtype, static_cast<double>(value));
}

// Whether x is at least 0 and below `limit`.
ValueId is_below(GraphBuilder& b, ValueId x, std::int64_t limit) {
  return b.op("And", {b.op("GreaterOrEqual", {x, number(b, x, 0)}), b.op("Less", {x, number(b, x, limit)})});
}

ValueId places_in_part(GraphBuilder& b, ValueId indices, std::int64_t ranks, std::int64_t size) {
  return b.op("PartIndices", {indices}, {{"parts", ranks}, {"size", size}});
}

Result<ValueId> added_up(GraphBuilder& b, const Node& node, ValueId part, const PartsSummed& summed) {
  const std::string name = b.unique_name(node.name + "/AllReduceSum");
  return TRY(b.add(all_reduce_sum_op(), {part}, summed.attrs, 1, {}, name))[0];
}

ValueId sum_of(GraphBuilder& b, ValueId x) {
  std::vector<std::int64_t> axes(b.shape(x).size());
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  return axes.empty() ? x : b.op("ReduceSum", {x, b.i64s(axes)}, {{"keepdims", std::int64_t{0}}});
}

// The loss of each row: [parts + 1, rows..] scores of all ranks -> [rows..].
Result<ValueId> row_losses(GraphBuilder& b, ValueId scores, Shape rows, std::int64_t parts) {
  const std::vector<ValueId> lines =
      TRY(b.add(op_by_name("Split"), {scores, b.i64s({parts, 1})}, {{"axis", std::int64_t{0}}}, 2));
  const ValueId log_sum_exp =
      b.op("ReduceLogSumExp", {lines[0], b.i64s({0})}, {{"keepdims", std::int64_t{0}}});
  return b.op("Sub", {log_sum_exp, b.reshape(lines[1], std::move(rows))});
}

}  // namespace

Result<ValueId> gather_of_parts(GraphBuilder& b, const Node& node, ValueId part, const PartsSummed& summed) {
  const std::int64_t size = b.shape(part)[0];
  ValueId indices = node.inputs[1];  // negative ones count from the end
  const ValueId from_end = b.op("Add", {indices, number(b, indices, summed.all(size))});
  indices = b.op("Where", {b.op("Less", {indices, number(b, indices, 0)}), from_end, indices});
  const ValueId place = places_in_part(b, indices, summed.ranks, size), here = is_below(b, place, size);
  const ValueId rows = b.op("Gather", {part, b.op("Where", {here, place, number(b, place, 0)})}, node.attrs);
  Shape dims = b.shape(here);
  dims.push_back(1);
  const ValueId own = b.op("Where", {b.reshape(here, dims), rows, number(b, rows, 0)});
  return added_up(b, node, own, summed);
}

Result<ValueId> loss_of_parts(GraphBuilder& b, const Node& node, ValueId logits, const PartsSummed& summed) {
  const ValueId labels = node.inputs[1];
  const std::int64_t size = b.shape(logits)[1], classes = summed.all(size);
  ValueId counts = is_below(b, labels, classes);
  if (node.attrs.has("ignore_index")) {
    const ValueId ignored = b.op("Equal", {labels, number(b, labels, node.attrs.integer("ignore_index"))});
    counts = b.op("And", {counts, b.op("Not", {ignored})});
  }
  // A place that no label has, of rows that do not count.
  const std::int64_t nowhere = -size * summed.ranks - 1;
  const ValueId places =
      b.op("Where", {counts, places_in_part(b, labels, summed.ranks, size), number(b, labels, nowhere)});
  Attrs of_parts{{"parts", summed.ranks}, {"ignore_index", nowhere}};
  if (summed.dim != 0) of_parts.set("classes", summed.dim);
  const ValueId scores = b.op("PartScores", {logits, places}, std::move(of_parts));
  const DType wide = b.type(scores).dtype;
  ValueId losses = TRY(row_losses(b, TRY(added_up(b, node, scores, summed)), b.shape(labels), summed.ranks));
  ValueId weights = b.op("Cast", {counts}, {{"to", onnx_from_dtype(wide)}});
  if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
    ValueId weight = node.inputs[2];
    if (b.type(weight).dtype != wide) weight = b.op("Cast", {weight}, {{"to", onnx_from_dtype(wide)}});
    const ValueId of_row = b.op("Gather", {weight, b.op("Where", {counts, labels, number(b, labels, 0)})});
    weights = b.op("Mul", {weights, of_row});
  }
  losses = b.op("Mul", {b.op("Where", {counts, losses, number(b, losses, 0)}), weights});
  const std::string reduction = node.attrs.text("reduction", "mean");
  if (reduction != "none") losses = sum_of(b, losses);
  if (reduction == "mean") losses = b.op("Div", {losses, sum_of(b, weights)});
  // A node with a name of its own, for the last one of a rewrite without takes its anchor's, which may be the embedding.
  const Attrs to{{"to", onnx_from_dtype(b.type(node.outputs[0]).dtype)}};
  return TRY(b.add(op_by_name("Cast"), {losses}, to, 1, {}, b.unique_name(node.name + "/parts")))[0];
}

}  // namespace gradloom
