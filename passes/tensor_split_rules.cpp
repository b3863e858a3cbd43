// What operators ask of their operands where ranks have parts of them: a rule for each kind of operator.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/ops/indexing/slice_ranges.h"
#include "engine/ops/inference.h"
#include "engine/ops/rank_part.h"
#include "passes/product.h"
#include "passes/tensor_splits.h"
#include "passes/trained.h"

namespace gradloom {
namespace {

constexpr const char* kTwoWays = "its operands would be split in two ways";
constexpr const char* kUnknown = "it is not known to compute parts by themselves";
constexpr const char* kMixed = "it mixes what different ranks have";

// The steps of a rule; the first reason stays.
class Rule {
 public:
  Rule(TensorRegion& region, NodeId id) : region_(region), node_(region.graph().nodes[id]), id_(id) {}
  const Node& node() const { return node_; }
  NodeId id() const { return id_; }
  const Graph& graph() const { return region_.graph(); }
  const Shape& shape(ValueId id) const { return graph().type(id).shape; }
  std::int64_t rank(ValueId id) const { return static_cast<std::int64_t>(shape(id).size()); }
  const TensorSplit* split(ValueId id) const { return id == kNone ? nullptr : region_.split(id); }
  bool has(std::size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != kNone; }

  void set(ValueId id, TensorSplit s) {
    if (why_.empty()) why_ = region_.set(id, s);
  }
  void keep_whole(ValueId id) {
    if (why_.empty()) why_ = region_.keep_whole(id);
  }
  void fail(const std::string& why) {
    if (why_.empty()) why_ = why;
  }
  void end() { region_.end_at(id_); }
  bool read_by(ValueId id, const char* op) const { return region_.read_by(id, op); }
  bool unread(ValueId id) const { return region_.unread(id); }
  const std::string& why() const { return why_; }
  std::int64_t ranks() const { return region_.ranks(); }

 private:
  TensorRegion& region_;
  const Node node_;
  NodeId id_;
  std::string why_;
};

std::int64_t product_of(const Shape& shape, std::size_t begin, std::size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin),
                         shape.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1},
                         std::multiplies<>());
}

// A parameter behind views and transposes; kNone: something else.
ValueId weight_behind(const Graph& graph, ValueId id) {
  while (graph.values[id].producer != kNone) {
    const Node& node = graph.nodes[graph.values[id].producer];
    if (!node.op->has(kView) && !is_op(node, "Transpose")) return kNone;
    id = node.inputs[0];
  }
  return graph.values[id].role == Role::parameter ? id : kNone;
}

// ---- operators whose axes stay what they are ----------------------------------------------------------------

// Operands are broadcast to the result: axes count from the end.
void spread_broadcast(Rule& rule, std::size_t inputs) {
  const ValueId out = rule.node().outputs[0];
  std::optional<TensorSplit> wanted;  // of the result
  const auto look = [&](ValueId id) {
    const TensorSplit* const s = rule.split(id);
    if (s == nullptr) return;
    const TensorSplit of_result{s->axis + rule.rank(out) - rule.rank(id), s->groups};
    if (wanted && *wanted != of_result) rule.fail(kTwoWays);
    wanted = of_result;
  };
  look(out);
  for (std::size_t i = 0; i < inputs; ++i)
    if (rule.has(i)) look(rule.node().inputs[i]);
  if (!wanted) return;
  rule.set(out, *wanted);
  const std::int64_t dim = rule.shape(out)[static_cast<std::size_t>(wanted->axis)];
  for (std::size_t i = 0; i < inputs; ++i) {
    if (!rule.has(i)) continue;
    const ValueId in = rule.node().inputs[i];
    const std::int64_t axis = wanted->axis - rule.rank(out) + rule.rank(in);
    if (axis < 0 || rule.shape(in)[static_cast<std::size_t>(axis)] != dim)
      rule.keep_whole(in);
    else
      rule.set(in, {axis, wanted->groups});
  }
}

// One input, and results with as many axes; `whole`: those that the operator needs whole.
void spread_along(Rule& rule, const std::vector<std::int64_t>& whole) {
  std::vector<ValueId> tensors{rule.node().inputs[0]};
  for (const ValueId out : rule.node().outputs)
    if (out != kNone) tensors.push_back(out);
  const auto known =
      std::find_if(tensors.begin(), tensors.end(), [&](ValueId id) { return rule.split(id) != nullptr; });
  if (known == tensors.end()) return;
  const TensorSplit s = *rule.split(*known);
  if (std::find(whole.begin(), whole.end(), s.axis) != whole.end()) return rule.fail(kMixed);
  for (const ValueId id : tensors) rule.set(id, s);
}

std::vector<std::int64_t> axes_from(const Rule& rule, std::int64_t first) {
  std::vector<std::int64_t> axes;
  const std::int64_t rank = rule.rank(rule.node().inputs[0]);
  for (std::int64_t axis = first < 0 ? first + rank : first; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

// Ranks have parts of the classes, axis 1; the labels and the loss are whole. Of few classes parts save less than their exchange costs.
constexpr std::int64_t kLeastClasses = 64;
void spread_cross_entropy(Rule& rule) {
  const Node& node = rule.node();
  const TensorSplit* const s = rule.split(node.inputs[0]);
  if (s == nullptr || s->axis != 1 || s->groups != 1) return rule.fail(kMixed);
  if (rule.shape(node.inputs[0])[1] < kLeastClasses)
    return rule.fail("its classes are fewer than " + std::to_string(kLeastClasses));
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kNone && !rule.unread(node.outputs[i]))
      return rule.fail("its log-probabilities are read");
  if (rule.has(2) && depends_on_trained(rule.graph(), node.inputs[2]))
    return rule.fail("its class weight is trained");
  rule.keep_whole(node.inputs[1]);
  if (rule.has(2)) rule.keep_whole(node.inputs[2]);
  rule.keep_whole(node.outputs[0]);
  rule.end();
}

// The axis of a Softmax or LogSoftmax whose input has so many dims; of old ones the first of several.
std::int64_t softmax_axis(const Node& node, std::int64_t rank) {
  const std::int64_t axis = node.attrs.integer("axis", node.op->until < 13 ? 1 : -1);
  return axis < 0 ? axis + rank : axis;
}
bool is_over_classes(const Node& node, std::int64_t rank) {
  return softmax_axis(node, rank) == 1 && (node.op->until >= 13 || rank == 2);
}

// What LogSoftmax makes of parts of the classes only a loss can take, which takes its operand instead.
void spread_log_likelihood(Rule& rule) {
  const ValueId input = rule.node().inputs[0];
  const NodeId producer = rule.graph().values[input].producer;
  if (producer == kNone || !is_op(rule.graph().nodes[producer], "LogSoftmax") ||
      !is_over_classes(rule.graph().nodes[producer], rule.rank(input)))
    return rule.fail(kMixed);
  spread_cross_entropy(rule);
}

void spread_softmax(Rule& rule) {
  const bool old = rule.node().op->until < 13;  // over all axes from this one on
  const std::int64_t rank = rule.rank(rule.node().inputs[0]), axis = softmax_axis(rule.node(), rank);
  const TensorSplit* const s = rule.split(rule.node().inputs[0]);
  const bool over_classes = s != nullptr && s->axis == 1 && is_over_classes(rule.node(), rank);
  if (over_classes && is_op(rule.node(), "LogSoftmax") &&
      rule.read_by(rule.node().outputs[0], "NegativeLogLikelihoodLoss")) {
    rule.end();
    return spread_along(rule, {});
  }
  spread_along(rule, old ? axes_from(rule, axis) : std::vector{axis});
}

// A part drops what the whole tensor would (engine/ops/rank_part.h), where that is known before running.
void spread_dropout(Rule& rule) {
  const Node& node = rule.node();
  if (node.attrs.has("parts")) return rule.fail("it has a part of a tensor already");
  if (node.op->until >= 12) {
    if (node.outputs.size() > 1 && node.outputs[1] != kNone) return rule.fail("it gives its mask");
    for (const std::size_t i : {1u, 2u})
      if (rule.has(i) && !is_constant(rule.graph(), node.inputs[i]))
        return rule.fail("what it drops is not known before running");
  }
  spread_along(rule, {});
  for (const std::size_t i : {1u, 2u})
    if (rule.has(i)) rule.keep_whole(node.inputs[i]);
}

// Scale and bias are of the axes that are normalized.
void spread_layer_norm(Rule& rule) {
  if (rule.node().outputs.size() > 1) return rule.fail(kUnknown);
  spread_along(rule, axes_from(rule, rule.node().attrs.integer("axis", -1)));
  for (std::size_t i = 1; i < rule.node().inputs.size(); ++i) rule.keep_whole(rule.node().inputs[i]);
}

void spread_reduction(Rule& rule) {
  const Node& node = rule.node();
  const ValueId in = node.inputs[0], out = node.outputs[0];
  const IntArgument axes = int_argument(node_types(rule.graph(), node), "axes", 1);
  if (!axes.present || !axes.values || axes.values->empty()) return rule.fail(kMixed);
  const bool keeps = node.attrs.integer("keepdims", 1) != 0;
  std::vector<std::int64_t> kept;  // axes of the input, by axis of the result
  for (std::int64_t axis = 0; axis < rule.rank(in); ++axis) {
    const bool reduced = std::any_of(axes.values->begin(), axes.values->end(),
                                     [&](std::int64_t a) { return (a < 0 ? a + rule.rank(in) : a) == axis; });
    if (!reduced || keeps) kept.push_back(reduced ? -1 : axis);
  }
  if (const TensorSplit* const s = rule.split(in)) {
    const auto at = std::find(kept.begin(), kept.end(), s->axis);
    if (at == kept.end()) return rule.fail(kMixed);
    rule.set(out, {at - kept.begin(), s->groups});
  }
  if (const TensorSplit* const s = rule.split(out)) {
    const std::int64_t axis = kept[static_cast<std::size_t>(s->axis)];
    if (axis < 0) return rule.fail(kMixed);
    rule.set(in, {axis, s->groups});
  }
}

void spread_concat(Rule& rule) {
  const ValueId out = rule.node().outputs[0];
  std::optional<TensorSplit> wanted;
  if (rule.split(out) != nullptr) wanted = *rule.split(out);
  for (const ValueId in : rule.node().inputs)
    if (rule.split(in) != nullptr) wanted = *rule.split(in);
  const std::int64_t axis = rule.node().attrs.integer("axis", 0);
  if (!wanted) return;
  if (wanted->axis == (axis < 0 ? axis + rule.rank(out) : axis)) return rule.fail(kMixed);
  rule.set(out, *wanted);
  for (const ValueId in : rule.node().inputs) rule.set(in, *wanted);
}

// ---- operators that move axes ---------------------------------------------------------------------------------

void spread_transpose(Rule& rule) {
  const ValueId in = rule.node().inputs[0], out = rule.node().outputs[0];
  const Perm perm = perm_of_transpose(rule.graph(), rule.node());
  if (const TensorSplit* const s = rule.split(out))
    rule.set(in, {perm[static_cast<std::size_t>(s->axis)], s->groups});
  if (const TensorSplit* const s = rule.split(in))
    rule.set(out, {std::find(perm.begin(), perm.end(), s->axis) - perm.begin(), s->groups});
}

// Where the same elements lie in another shape; nothing: ranks would have no part of one of its axes.
std::optional<TensorSplit> split_as(const Shape& from, const TensorSplit& s, const Shape& to,
                                    std::int64_t ranks) {
  const std::int64_t before = product_of(from, 0, static_cast<std::size_t>(s.axis)) * s.groups;
  if (before == 0) return std::nullopt;  // nothing is there
  std::int64_t leading = 1;              // elements of the axes before
  for (std::size_t axis = 0; axis < to.size(); leading *= to[axis++]) {
    if (leading * to[axis] <= before) continue;
    if (before % leading != 0) return std::nullopt;
    const std::int64_t groups = before / leading;
    const bool same = groups == 1 && s.groups == 1 && to[axis] == from[static_cast<std::size_t>(s.axis)];
    if (!same && to[axis] % (groups * ranks) != 0) return std::nullopt;
    return TensorSplit{static_cast<std::int64_t>(axis), groups};
  }
  return std::nullopt;
}

void spread_view(Rule& rule) {
  const ValueId in = rule.node().inputs[0], out = rule.node().outputs[0];
  for (const bool forward : {true, false}) {
    const ValueId from = forward ? in : out, to = forward ? out : in;
    const TensorSplit* const s = rule.split(from);
    if (s == nullptr) continue;
    const auto there = split_as(rule.shape(from), *s, rule.shape(to), rule.ranks());
    if (!there) return rule.fail("the dims of " + to_string(rule.shape(to)) + " are not those of the parts");
    rule.set(to, *there);
  }
}

// Results that are equal pieces of the axis: the groups are shared out to them.
void spread_split_op(Rule& rule) {
  const Node& node = rule.node();
  const ValueId in = node.inputs[0];
  const std::int64_t given = node.attrs.integer("axis", 0), axis = given < 0 ? given + rule.rank(in) : given;
  const auto pieces = static_cast<std::int64_t>(node.outputs.size());
  if (std::count(node.outputs.begin(), node.outputs.end(), kNone) > 0) return rule.fail(kUnknown);
  std::optional<TensorSplit> wanted;  // of the input
  if (rule.split(in) != nullptr) wanted = *rule.split(in);
  for (const ValueId out : node.outputs) {
    if (rule.split(out) == nullptr) continue;
    TensorSplit s = *rule.split(out);
    if (s.axis == axis) s.groups *= pieces;
    if (wanted && *wanted != s) return rule.fail(kTwoWays);
    wanted = s;
  }
  if (!wanted) return;
  rule.set(in, *wanted);
  TensorSplit of_piece = *wanted;
  if (wanted->axis == axis) {
    for (const ValueId out : node.outputs)
      if (rule.shape(out) != rule.shape(node.outputs[0])) return rule.fail(kMixed);
    if (wanted->groups % pieces != 0) return rule.fail(kMixed);
    of_piece.groups /= pieces;
  }
  for (const ValueId out : node.outputs) rule.set(out, of_piece);
}

// A range that begins and ends between groups.
void spread_slice(Rule& rule) {
  const Node& node = rule.node();
  const ValueId in = node.inputs[0], out = node.outputs[0];
  const auto ranges = slice_ranges(node_types(rule.graph(), node));
  if (!ranges || !*ranges) return rule.fail(kUnknown);
  for (const bool forward : {true, false}) {
    const TensorSplit* const s = rule.split(forward ? in : out);
    if (s == nullptr) continue;
    const auto axis = static_cast<std::size_t>(s->axis);
    const SliceRange& range = (**ranges)[axis];
    const std::int64_t dim = rule.shape(in)[axis];
    TensorSplit other = *s;
    if (range.count != dim || range.step != 1) {
      if (range.count == 0) return rule.fail(kMixed);
      const std::int64_t unit = (forward ? dim : range.count) / s->groups;
      if (range.step != 1 || range.start % unit != 0 || range.count % unit != 0 || dim % unit != 0)
        return rule.fail(kMixed);
      other.groups = forward ? range.count / unit : dim / unit;
    }
    rule.set(forward ? out : in, other);
  }
}

// Of another axis than the split one; indices stay whole. Of rows of a table ranks gather those that they have.
void spread_gather(Rule& rule) {
  const Node& node = rule.node();
  const ValueId in = node.inputs[0], indices = node.inputs[1], out = node.outputs[0];
  const std::int64_t given = node.attrs.integer("axis", 0), axis = given < 0 ? given + rule.rank(in) : given,
                     more = rule.rank(indices) - 1;
  if (rule.split(indices) != nullptr) return rule.fail(kUnknown);
  if (const TensorSplit* const s = rule.split(in)) {
    if (s->axis == axis) {
      if (axis != 0 || s->groups != 1 || weight_behind(rule.graph(), in) == kNone) return rule.fail(kMixed);
      rule.keep_whole(indices);
      rule.keep_whole(out);
      return rule.end();
    }
    rule.set(out, {s->axis < axis ? s->axis : s->axis + more, s->groups});
  }
  if (const TensorSplit* const s = rule.split(out)) {
    if (s->axis >= axis && s->axis <= axis + more) return rule.fail(kUnknown);
    rule.set(in, {s->axis < axis ? s->axis : s->axis - more, s->groups});
  }
}

// ---- products ---------------------------------------------------------------------------------------------------

// The axes of a product, for each role the axis of left operand, right operand and result, or -1.
struct ProductAxes {
  std::int64_t left = -1, right = -1, result = -1;
};

// One role of axes is split in all that has it.
void spread_product(Rule& rule, const std::vector<ProductAxes>& roles) {
  const Node& node = rule.node();
  const ValueId operands[3] = {node.inputs[0], node.inputs[1], node.outputs[0]};
  const auto axis_of = [](const ProductAxes& role, int operand) {
    return operand == 0 ? role.left : operand == 1 ? role.right : role.result;
  };
  const ProductAxes* found = nullptr;
  std::int64_t groups = 1;
  for (int i = 0; i < 3; ++i) {
    const TensorSplit* const s = rule.split(operands[i]);
    if (s == nullptr) continue;
    const auto role = std::find_if(roles.begin(), roles.end(),
                                   [&](const ProductAxes& r) { return axis_of(r, i) == s->axis; });
    if (role == roles.end()) return rule.fail(kUnknown);
    if (found != nullptr && (found != &*role || groups != s->groups)) return rule.fail(kTwoWays);
    found = &*role;
    groups = s->groups;
  }
  if (found == nullptr) return;
  const bool weight = weight_behind(rule.graph(), operands[1]) != kNone;
  if (found->result < 0) {
    if (!weight) return rule.fail("it adds parts up, but of no rows of a weight");
    rule.end();
  }
  if (found->left < 0 && !weight) return rule.fail("what it multiplies with is no weight");
  for (int i = 0; i < 3; ++i) {
    const std::int64_t axis = axis_of(*found, i);
    if (axis < 0)
      rule.keep_whole(operands[i]);
    else
      rule.set(operands[i], {axis, groups});
  }
}

void spread_matmul(Rule& rule) {
  const Node& node = rule.node();
  const ValueId left = node.inputs[0], right = node.inputs[1], out = node.outputs[0];
  const std::int64_t a = rule.rank(left), b = rule.rank(right), y = rule.rank(out);
  if (a < 2 || b < 2) return rule.fail(kUnknown);
  std::vector<ProductAxes> roles{{a - 1, b - 2, -1}, {-1, b - 1, y - 1}, {a - 2, -1, y - 2}};
  for (std::int64_t k = 3; k <= y; ++k) {  // axes of the batch, from the end
    const std::int64_t dim = rule.shape(out)[static_cast<std::size_t>(y - k)];
    const auto axis_in = [&](ValueId id, std::int64_t rank) {
      return rank >= k && rule.shape(id)[static_cast<std::size_t>(rank - k)] == dim ? rank - k : -1;
    };
    roles.push_back({axis_in(left, a), axis_in(right, b), y - k});
  }
  spread_product(rule, roles);
}

void spread_gemm(Rule& rule) {
  const Node& node = rule.node();
  const std::int64_t m = node.attrs.integer("transA", 0) != 0 ? 1 : 0,
                     n = node.attrs.integer("transB", 0) != 0 ? 0 : 1;
  spread_product(rule, {{1 - m, 1 - n, -1}, {-1, n, 1}, {m, -1, 0}});
  if (!rule.has(2) || !rule.why().empty()) return;
  const ValueId bias = node.inputs[2], out = node.outputs[0];
  const TensorSplit* const s = rule.split(out);
  const std::int64_t axis = s == nullptr ? -1 : s->axis - 2 + rule.rank(bias);
  if (axis >= 0 &&
      rule.shape(bias)[static_cast<std::size_t>(axis)] == rule.shape(out)[static_cast<std::size_t>(s->axis)])
    rule.set(bias, {axis, s->groups});
  else
    rule.keep_whole(bias);
}

// ---- which rule -------------------------------------------------------------------------------------------------

struct NamedRule {
  std::string_view op;
  void (*spread)(Rule& rule);
};
constexpr NamedRule kRules[] = {
    {"MatMul", spread_matmul},
    {"Gemm", spread_gemm},
    {"Transpose", spread_transpose},
    {"Split", spread_split_op},
    {"Slice", spread_slice},
    {"Concat", spread_concat},
    {"Gather", spread_gather},
    {"Softmax", spread_softmax},
    {"LogSoftmax", spread_softmax},
    {"SoftmaxCrossEntropyLoss", spread_cross_entropy},
    {"NegativeLogLikelihoodLoss", spread_log_likelihood},
    {"LayerNormalization", spread_layer_norm},
    {"Dropout", spread_dropout},
    {"Expand", [](Rule& rule) { spread_broadcast(rule, 1); }},
    {"Cast", [](Rule& rule) { spread_broadcast(rule, 1); }},
};

// A Slice of these ranges of all axes, attributes or inputs as the node has them.
void write_slice(const std::vector<SliceRange>& ranges, const Shape& shape, const Node& node,
                 PartArguments& arguments) {
  std::vector<std::int64_t> lists[4];  // starts, ends, axes, steps
  for (std::size_t axis = 0; axis < ranges.size(); ++axis) {
    const SliceRange& r = ranges[axis];
    const std::int64_t last = r.start + (r.count - 1) * r.step,
                       before = last > 0 ? last - 1 : -shape[axis] - 1;
    lists[0].push_back(r.start);
    lists[1].push_back(r.count == 0 ? r.start : r.step > 0 ? last + 1 : before);
    lists[2].push_back(static_cast<std::int64_t>(axis));
    lists[3].push_back(r.step);
  }
  constexpr const char* kNames[] = {"starts", "ends", "axes", "steps"};
  const bool attributes = node.attrs.has("starts");
  for (std::size_t i = 0; i < 4; ++i) {
    if (!attributes)
      arguments.inputs[i + 1] = std::move(lists[i]);
    else if (i < 3)  // such have no steps
      arguments.attrs.set(kNames[i], std::move(lists[i]));
  }
}

}  // namespace

bool multiplies_with_weight(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  if (!is_op(node, "MatMul") && !is_op(node, "Gemm")) return false;
  const ValueId weight = node.inputs[1], left = node.inputs[0];
  return weight_behind(graph, weight) != kNone && graph.type(weight).shape.size() == 2 &&
         graph.type(left).shape.size() >= 2 && weight_behind(graph, left) == kNone;
}

bool gathers_from_table(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  if (!is_op(node, "Gather") || node.attrs.integer("axis", 0) != 0) return false;
  const ValueId table = node.inputs[0];
  return weight_behind(graph, table) != kNone && graph.type(table).shape.size() == 2 &&
         shapes_known(graph, node) &&
         graph.type(table).shape[0] >= kLeastRows * element_count(graph.type(node.inputs[1]).shape);
}

std::string spread_split(TensorRegion& region, NodeId id) {
  Rule rule(region, id);
  const Node& node = rule.node();
  const auto named = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const NamedRule& r) { return is_op(node, r.op); });
  if (named != std::end(kRules))
    named->spread(rule);
  else if (node.op->has(kRandom))
    rule.fail("its random numbers would not be those of one rank");
  else if (node.op->has(kView))
    spread_view(rule);
  else if (std::string_view(node.op->name).starts_with("Reduce") && node.op->domain[0] == 0)
    spread_reduction(rule);
  else if (node.op->has(kElementwise))
    spread_broadcast(rule, node.inputs.size());
  else
    rule.fail(kUnknown);
  return rule.why();
}

PartArguments part_arguments(const TensorRegion& region, NodeId id) {
  const Graph& graph = region.graph();
  const Node& node = graph.nodes[id];
  PartArguments arguments{{}, node.attrs};
  const auto say = [&](const char* attribute, std::size_t input, std::vector<std::int64_t> values) {
    if (node.attrs.has(attribute))
      arguments.attrs.set(attribute, std::move(values));
    else if (input < node.inputs.size() && node.inputs[input] != kNone)
      arguments.inputs[input] = std::move(values);
  };
  if (is_op(node, "Reshape") || is_op(node, "Expand")) say("shape", 1, region.part_shape(node.outputs[0]));
  const TensorSplit* const s = node.inputs.empty() ? nullptr : region.split(node.inputs[0]);
  if (s == nullptr) return arguments;
  const std::int64_t given = node.attrs.integer("axis", 0),
                     axis = given < 0
                                ? given + static_cast<std::int64_t>(graph.type(node.inputs[0]).shape.size())
                                : given;
  if (is_op(node, "Dropout") && node.op->has(kRandom)) {
    const Shape part = region.part_shape(node.inputs[0]);
    set_rank_part(arguments.attrs, region.ranks(),
                  product_of(part, static_cast<std::size_t>(s->axis), part.size()) / s->groups);
  }
  if (is_op(node, "Split") && axis == s->axis) {
    std::vector<std::int64_t> sizes;
    for (const ValueId out : node.outputs)
      sizes.push_back(graph.type(out).shape[static_cast<std::size_t>(axis)] / region.ranks());
    say("split", 1, sizes);
  }
  if (is_op(node, "Slice")) {
    std::vector<SliceRange> ranges = **slice_ranges(node_types(graph, node));
    SliceRange& range = ranges[static_cast<std::size_t>(s->axis)];
    range.start /= region.ranks();
    range.count = region.part_shape(node.outputs[0])[static_cast<std::size_t>(s->axis)];
    write_slice(ranges, region.part_shape(node.inputs[0]), node, arguments);
  }
  return arguments;
}

}  // namespace gradloom
