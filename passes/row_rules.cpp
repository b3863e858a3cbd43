#include "passes/row_rules.h"

#include <algorithm>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/ops/dims.h"
#include "engine/ops/indexing/slice_ranges.h"
#include "engine/ops/inference.h"
#include "engine/ops/rank_part.h"
#include "engine/ops/products/matrix_product.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr const char* kMixes = "mixes the rows";

// The steps of a rule; the first reason stays.
class RowWalk {
 public:
  RowWalk(const Graph& of, NodeId id, const AxisBlock& wanted, const RowChoice& taken)
      : graph(of), node(of.nodes[id]), block(wanted), choice(taken) {
    rule.operands.resize(node.inputs.size());
    rule.attrs = node.attrs;
  }

  const Graph& graph;
  const Node& node;
  const AxisBlock block;
  const RowChoice choice;
  RowRule rule;

  const Shape& shape(ValueId v) const { return graph.type(v).shape; }
  const Shape& in(std::size_t i) const { return shape(node.inputs[i]); }
  const Shape& out() const { return shape(node.outputs[0]); }
  bool has(std::size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNone; }
  void fail(const std::string& why) {
    if (rule.why_not.empty()) rule.why_not = why;
  }
  void take(std::size_t i, AxisBlock of) { rule.operands[i] = {RowOperand::Kind::rows, of}; }
  void tell(std::size_t i, Shape numbers) {
    rule.operands[i] = {RowOperand::Kind::numbers, {}, std::move(numbers)};
  }
  // An attribute that names an axis behind the rows.
  void move_axis(const char* name, std::int64_t axis) {
    rule.attrs.set(name, axis - static_cast<std::int64_t>(block.count) + 1);
  }
  Shape rows_of_result() const { return with_rows(out(), block, choice.rows); }
};

std::int64_t size_of(const Shape& shape, const AxisBlock& block) {
  return dim_product(shape, block.first, block.end());
}

// ---- operators whose axes stay what they are ------------------------------------------------------------------------------

// An operand is broadcast to the result: axes count from the end.
void broadcast_rows(RowWalk& walk, std::size_t i) {
  if (!walk.has(i)) return;
  const Shape &own = walk.in(i), &out = walk.out();
  if (own.size() > out.size()) return walk.fail("has an operand of more dims");
  const std::size_t missing = out.size() - own.size();
  if (missing >= walk.block.end()) return;  // it has none of these axes
  bool all = missing <= walk.block.first, none = true;
  for (std::size_t axis = std::max(missing, walk.block.first); axis < walk.block.end(); ++axis) {
    all = all && own[axis - missing] == out[axis];
    none = none && own[axis - missing] == 1;
  }
  const std::size_t from = walk.block.first > missing ? walk.block.first - missing : 0;
  const AxisBlock there{from, walk.block.end() - missing - from};
  if (all && size_of(own, there) > 1) return walk.take(i, there);
  if (!none) return walk.fail("broadcasts an operand to some of the axes that rows are counted over");
  if (there.count == 1) return;
  walk.rule.operands[i] = {RowOperand::Kind::reshaped, {}, with_rows(own, there, 1)};
}

void rows_of_elementwise(RowWalk& walk) {
  for (std::size_t i = 0; i < walk.node.inputs.size(); ++i) broadcast_rows(walk, i);
}

void rows_of_expand(RowWalk& walk) {
  broadcast_rows(walk, 0);
  walk.tell(1, walk.rows_of_result());
}

// Random numbers by position are those of one of equal parts of all rows (engine/ops/rank_part.h), where they can be. `run`: numbers of a
// row.
void draw_a_part(RowWalk& walk, std::int64_t run) {
  const RowChoice& c = walk.choice;
  if (walk.node.attrs.has("parts"))
    walk.fail("has a part of a tensor already");
  else if (!c.begin || c.size % c.rows != 0 || *c.begin % c.rows != 0)
    walk.fail("draws random numbers by position, and the rows are not one of equal parts");
  else if (c.size / c.rows > kMostParts)
    walk.fail("draws random numbers by position, of too many parts to count");
  if (!walk.rule.why_not.empty()) return;
  set_rank_part(walk.rule.attrs, c.size / c.rows, c.rows * run, *c.begin / c.rows);
}

// The numbers of the rows that are left.
void rows_of_dropout(RowWalk& walk) {
  broadcast_rows(walk, 0);
  if (!walk.node.op->has(kRandom)) return;
  if (walk.node.outputs.size() > 1 && walk.node.outputs[1] != kNone) return walk.fail("gives its mask");
  for (const std::size_t i : {1u, 2u})
    if (walk.has(i) && !is_constant(walk.graph, walk.node.inputs[i]))
      return walk.fail("drops what is not known before running");
  draw_a_part(walk, dim_product(walk.out(), walk.block.end(), walk.out().size()));
}

// ---- operators along axes -------------------------------------------------------------------------------------------------

void rows_of_normalization(RowWalk& walk) {
  const auto axis = normalized_axis(walk.node.attrs.integer("axis", -1), walk.out().size());
  if (!axis.ok() || static_cast<std::size_t>(*axis) < walk.block.end()) return walk.fail(kMixes);
  walk.take(0, walk.block);
  walk.move_axis("axis", *axis);
}

void rows_of_softmax(RowWalk& walk) {
  const bool old = walk.node.op->until < 13;  // over all axes from this one on
  const auto axis = normalized_axis(walk.node.attrs.integer("axis", old ? 1 : -1), walk.out().size());
  if (!axis.ok()) return walk.fail(kMixes);
  const auto own = static_cast<std::size_t>(*axis);
  if (own < walk.block.end() && (old || own >= walk.block.first)) return walk.fail(kMixes);
  walk.take(0, walk.block);
  if (own > walk.block.first) walk.move_axis("axis", *axis);
}

void rows_of_reduction(RowWalk& walk) {
  const Node& node = walk.node;
  const IntArgument axes = int_argument(node_types(walk.graph, node), "axes", 1);
  if (!axes.present || !axes.values || axes.values->empty() || walk.block.count != 1)
    return walk.fail(kMixes);
  const auto reduced = normalized_axes(*axes.values, walk.in(0).size());
  if (!reduced.ok()) return walk.fail(kMixes);
  const bool keeps = node.attrs.integer("keepdims", 1) != 0;
  std::size_t axis = 0, of_result = 0;  // the axis of the input that the rows are of
  for (;; ++axis) {
    const bool gone = std::binary_search(reduced->begin(), reduced->end(), static_cast<std::int64_t>(axis));
    if (gone && !keeps) continue;
    if (of_result++ != walk.block.first) continue;
    if (gone) return walk.fail(kMixes);
    break;
  }
  walk.take(0, {axis, 1});
}

void rows_of_concat(RowWalk& walk) {
  const auto axis = normalized_axis(walk.node.attrs.integer("axis", 0), walk.out().size());
  if (!axis.ok()) return walk.fail(kMixes);
  const auto own = static_cast<std::size_t>(*axis);
  if (own >= walk.block.first && own < walk.block.end())
    return walk.fail("joins its operands along the axis of the rows");
  for (std::size_t i = 0; i < walk.node.inputs.size(); ++i) walk.take(i, walk.block);
  if (own > walk.block.first) walk.move_axis("axis", *axis);
}

// Of other axes; what says of which stays right.
void rows_of_slice(RowWalk& walk) {
  const auto ranges = slice_ranges(node_types(walk.graph, walk.node));
  if (!ranges || !*ranges || walk.block.count != 1) return walk.fail(kMixes);
  const SliceRange& own = (**ranges)[walk.block.first];
  if (own.start != 0 || own.step != 1 || own.count != walk.in(0)[walk.block.first])
    return walk.fail("takes some of the rows itself");
  walk.take(0, walk.block);
}

// Of another axis, or in the order of indices that have the rows: those are looked up.
void rows_of_gather(RowWalk& walk) {
  const auto given = normalized_axis(walk.node.attrs.integer("axis"), walk.in(0).size());
  if (!given.ok()) return walk.fail(kMixes);
  const auto axis = static_cast<std::size_t>(*given);
  const std::size_t indices = walk.in(1).size();
  if (walk.block.first >= axis && walk.block.end() <= axis + indices)
    return walk.take(1, {walk.block.first - axis, walk.block.count});
  if (walk.block.count != 1) return walk.fail(kMixes);
  walk.take(0, {walk.block.first < axis ? walk.block.first : walk.block.first - indices + 1, 1});
}

// ---- operators that move axes ---------------------------------------------------------------------------------------------

void rows_of_transpose(RowWalk& walk) {
  if (walk.block.count != 1) return walk.fail("moves axes that rows are counted over");
  walk.take(0, {static_cast<std::size_t>(perm_of_transpose(walk.graph, walk.node)[walk.block.first]), 1});
}

// The axes of `from` that the block of `to` is made of; count 0: there are none.
AxisBlock block_before(const Shape& from, const Shape& to, const AxisBlock& block) {
  const std::int64_t size = size_of(to, block), before = dim_product(to, 0, block.first);
  std::int64_t leading = 1;
  std::size_t first = 0;
  while (first < from.size() && (leading != before || from[first] == 1)) leading *= from[first++];
  AxisBlock found{first, 0};
  for (std::int64_t inside = 1; leading == before && found.end() < from.size() && inside < size;)
    inside *= from[first + found.count++];
  return found.count > 0 && size_of(from, found) == size ? found : AxisBlock{0, 0};
}

// What changes no element by itself, nor its place.
void rows_of_same(RowWalk& walk) {
  if (walk.node.inputs.size() != 1) return walk.fail("is not known to compute rows by themselves");
  walk.take(0, walk.block);
}

void rows_of_view(RowWalk& walk) {
  if (!walk.node.op->has(kReshapes)) return rows_of_same(walk);
  const AxisBlock before = block_before(walk.in(0), walk.out(), walk.block);
  if (before.count == 0) return walk.fail("has the rows in other axes");
  walk.take(0, before);
  const std::string_view op = walk.node.op->name;
  if (op == "Reshape") {
    if (walk.node.attrs.has("shape"))
      walk.rule.attrs.set("shape", walk.rows_of_result());
    else
      walk.tell(1, walk.rows_of_result());
    return;
  }
  // Axes that it names stay where they are.
  if (before.count != 1 || walk.block.count != 1) return walk.fail("joins axes that rows are counted over");
  const bool unnamed = op == "Squeeze" && !walk.has(1) && !walk.node.attrs.has("axes");
  if (unnamed && walk.choice.rows == 1) walk.fail("would drop the axis of the rows");
}

// ---- products and attention -----------------------------------------------------------------------------------------------

// Rows of the left operand; of axes of the batch also those of the right one.
void rows_of_matmul(RowWalk& walk) {
  const std::size_t a = walk.in(0).size(), b = walk.in(1).size(), y = walk.out().size();
  if (a < 2 || b < 2 || a != y) return walk.fail("broadcasts its left operand");
  if (walk.block.end() == y) return walk.fail("is asked for columns, not rows");
  for (std::size_t axis = walk.block.first; axis < walk.block.end(); ++axis)
    if (walk.in(0)[axis] != walk.out()[axis]) return walk.fail("broadcasts its left operand");
  walk.take(0, walk.block);
  if (walk.block.end() + 1 == y && walk.block.count == 1) return;  // rows of a matrix
  bool same = true;                                                // the right operand, for all of these rows
  for (std::size_t axis = walk.block.first; axis < std::min(walk.block.end(), y - 2); ++axis)
    same = same && (axis + b < y || walk.in(1)[axis + b - y] == 1);
  if (!same) return walk.fail("multiplies each part of the batch with its own matrix");
  if (walk.block.count > 1 && b > 2) walk.fail("multiplies with a matrix of more than two dims");
}

void rows_of_gemm(RowWalk& walk) {
  if (walk.block != AxisBlock{0, 1}) return walk.fail("is asked for columns, not rows");
  const auto axis = static_cast<std::size_t>(walk.node.attrs.integer("transA", 0) != 0);
  walk.take(0, {axis, 1});
  broadcast_rows(walk, 2);
}

// Rows of queries: keys and values stay whole.
void rows_of_attention(RowWalk& walk) {
  const std::size_t rank = walk.out().size();
  const auto perm = [&](const char* name) {
    const Perm given = walk.node.attrs.integers(name);
    return given.empty() ? identity_perm(rank) : given;
  };
  const auto queries = static_cast<std::int64_t>(rank) - 2;
  if (walk.block.count != 1 || perm("perm_y")[walk.block.first] != queries)
    return walk.fail("is asked for other rows than those of queries");
  walk.take(0, {static_cast<std::size_t>(perm("perm_q")[rank - 2]), 1});
  if (walk.has(3) && walk.in(3).size() >= 2 && walk.in(3)[walk.in(3).size() - 2] != 1)
    walk.take(3, {walk.in(3).size() - 2, 1});
  if (walk.node.attrs.real("dropout", 0) == 0) return;
  draw_a_part(walk, walk.in(1)[static_cast<std::size_t>(perm("perm_k")[rank - 2])]);
}

// ---- which rule -------------------------------------------------------------------------------------------------------------

struct NamedRowRule {
  std::string_view op;
  void (*apply)(RowWalk& walk);
};
constexpr NamedRowRule kRowRules[] = {
    {"MatMul", rows_of_matmul},
    {"Gemm", rows_of_gemm},
    {"FusedAttention", rows_of_attention},
    {"LayerNormalization", rows_of_normalization},
    {"RMSNormalization", rows_of_normalization},
    {"Softmax", rows_of_softmax},
    {"LogSoftmax", rows_of_softmax},
    {"Dropout", rows_of_dropout},
    {"Transpose", rows_of_transpose},
    {"Slice", rows_of_slice},
    {"Gather", rows_of_gather},
    {"Concat", rows_of_concat},
    {"Expand", rows_of_expand},
    {"AllReduceSum", rows_of_same},
};

}  // namespace

Shape with_rows(const Shape& shape, const AxisBlock& block, std::int64_t rows) {
  Shape taken(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(block.first));
  taken.push_back(rows);
  taken.insert(taken.end(), shape.begin() + static_cast<std::ptrdiff_t>(block.end()), shape.end());
  return taken;
}

RowRule rule_of_rows(const Graph& graph, NodeId id, const AxisBlock& block, const RowChoice& choice) {
  RowWalk walk(graph, id, block, choice);
  const Node& node = graph.nodes[id];
  const auto named = std::find_if(std::begin(kRowRules), std::end(kRowRules),
                                  [&](const NamedRowRule& r) { return is_op(node, r.op); });
  if (named != std::end(kRowRules))
    named->apply(walk);
  else if (node.op->has(kRandom))
    walk.fail("draws random numbers by position");
  else if (node.op->has(kView))
    rows_of_view(walk);
  else if (std::string_view(node.op->name).starts_with("Reduce") && node.op->domain[0] == 0)
    rows_of_reduction(walk);
  else if (node.op->has(kElementwise) || node.op->has(kPointwise))
    rows_of_elementwise(walk);
  else
    walk.fail("is not known to compute rows by themselves");
  if (!walk.rule.why_not.empty())
    walk.rule.why_not = std::string(node.op->name) + " " + node.name + " " + walk.rule.why_not;
  return std::move(walk.rule);
}

}  // namespace gradloom
