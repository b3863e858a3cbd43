// select-rows: only the rows that are read are computed.
//   Slice(f(x), rows) -> f(Slice(x, rows)), and the same of Gather and GatherND, through all that computes rows by themselves
// A classifier reads the first token: of its last layer the queries, the products behind attention, the norms and what they add up are
// computed for that one. Keys and values need every token, and there it ends. (onnxruntime's UpStreamGather moves one Gather over one
// operator at a time; here the whole region moves, or nothing.)
//
// The region grows from what is selected towards its operands: a node belongs to it where rule_of_rows (row_rules.h) says how it
// computes these rows alone, and where all that reads its result are nodes of the region that take the same rows. Its nodes stay what
// they are, of fewer rows; what they read from outside is selected.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/dims.h"
#include "engine/ops/indexing/slice_ranges.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/row_rules.h"

namespace gradloom {
namespace {

constexpr const char* kRule = "rows";

// A node that takes rows of its first input.
struct RowSelector {
  NodeId node = kNone;
  AxisBlock block{};
  RowChoice choice{};
  std::optional<SliceRange> range{};  // of a Slice; else the second input has the numbers of the rows
  bool by_axes = false;               // a number for each axis of the block
};

void read_slice(const Graph& graph, const Node& node, RowSelector& selector, std::string& why) {
  const auto ranges = slice_ranges(node_types(graph, node));
  if (!ranges || !*ranges) {
    why = "which rows it takes is not known before running";
    return;
  }
  const Shape& shape = graph.type(node.inputs[0]).shape;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const SliceRange& range = (**ranges)[axis];
    if (range.count == shape[axis] && range.step == 1) continue;
    if (selector.range) why = "it takes parts of several axes";
    if (range.step < 1) why = "it takes the rows backwards";
    selector.range = range;
    selector.block = {axis, 1};
    selector.choice = {shape[axis], range.count};
    if (range.step == 1) selector.choice.begin = range.start;
  }
}

void read_gather(const Graph& graph, const Node& node, RowSelector& selector) {
  const Shape& shape = graph.type(node.inputs[0]).shape;
  const auto axis = normalized_axis(node.attrs.integer("axis"), shape.size());
  if (!axis.ok()) return;
  selector.block = {static_cast<std::size_t>(*axis), 1};
  const std::int64_t size = shape[selector.block.first];
  selector.choice = {size, element_count(graph.type(node.inputs[1]).shape)};
  double position = 0;
  if (!scalar_constant(graph, node.inputs[1], &position)) return;
  const auto number = static_cast<std::int64_t>(position);
  selector.choice.begin = number < 0 ? number + size : number;
}

void read_gather_nd(const Graph& graph, const Node& node, RowSelector& selector, std::string& why) {
  const Shape &shape = graph.type(node.inputs[0]).shape, &numbers = graph.type(node.inputs[1]).shape;
  if (node.attrs.integer("batch_dims") != 0) {
    why = "each part of the batch takes rows of its own";
    return;
  }
  selector.block = {0, static_cast<std::size_t>(numbers.back())};
  selector.by_axes = true;
  selector.choice = {dim_product(shape, 0, selector.block.end()),
                     dim_product(numbers, 0, numbers.size() - 1)};
}

// Nothing: the node selects no rows of what other nodes compute. `why`: why its rows cannot be followed.
std::optional<RowSelector> read_selector(const Graph& graph, NodeId id, std::string& why) {
  const Node& node = graph.nodes[id];
  const bool slice = is_op(node, "Slice"), gather = is_op(node, "Gather");
  if (!slice && !gather && !is_op(node, "GatherND")) return std::nullopt;
  if (node.outputs[0] == kNone || graph.values[node.outputs[0]].data.defined() ||
      !shapes_known(graph, node) || graph.values[node.inputs[0]].producer == kNone ||
      !is_float(graph.type(node.inputs[0]).dtype))
    return std::nullopt;
  RowSelector selector{.node = id};
  if (slice)
    read_slice(graph, node, selector, why);
  else if (gather)
    read_gather(graph, node, selector);
  else
    read_gather_nd(graph, node, selector, why);
  if (why.empty() && (selector.choice.rows < 1 || selector.choice.size < 2)) return std::nullopt;
  return selector;
}

// What selecting saves and costs, in bytes that are moved in the time of it.
struct RowCosts {
  double saved = 0, added = 0;
};

// Nodes as they may run, and where each stands among them.
struct NodeOrder {
  std::vector<NodeId> nodes;
  std::vector<std::size_t> place;  // by node
};

Result<NodeOrder> order_of(const Graph& graph) {
  NodeOrder order{TRY(topological_order(graph)), std::vector<std::size_t>(graph.nodes.size())};
  for (std::size_t i = 0; i < order.nodes.size(); ++i) order.place[order.nodes[i]] = i;
  return order;
}

class RowRegion {
 public:
  RowRegion(Rewriter& rw, RowSelector selector) : rw_(rw), selector_(std::move(selector)) {}

  // Why there is none, or none that gains anything; empty: there is.
  std::string grow(const NodeOrder& order) {
    const Node& last = graph().nodes[selector_.node];
    // Places of nodes that make what is wanted: behind each all that reads its results is known
    std::set<std::size_t> open;
    const auto want = [&](ValueId v) {
      if (const NodeId producer = graph().values[v].producer; producer != kNone)
        open.insert(order.place[producer]);
    };
    wanted_[last.inputs[0]] = {selector_.block, 1};
    want(last.inputs[0]);
    std::string border;
    while (!open.empty()) {
      const NodeId id = order.nodes[*open.rbegin()];
      open.erase(std::prev(open.end()));
      const std::size_t before = nodes_.size();
      const std::string why_not = add(id);
      if (border.empty()) border = why_not;
      if (nodes_.size() == before) continue;
      for (const ValueId v : graph().nodes[id].inputs)
        if (v != kNone && wanted_.count(v) != 0) want(v);
    }
    if (nodes_.empty()) return border;
    std::reverse(nodes_.begin(), nodes_.end());
    const RowCosts costs = find_costs();
    if (costs.saved > costs.added) return "";
    return "selecting more tensors would cost more than the rows that are left out" +
           (border.empty() ? "" : ": " + border);
  }

  std::vector<NodeId> matched() const {
    std::vector<NodeId> all = nodes_;
    all.push_back(selector_.node);
    return all;
  }

  void rewrite() {
    const NodeId id = selector_.node;
    const Node last = graph().nodes[id];
    const Shape result = graph().type(last.outputs[0]).shape;
    const bool output = rw_.is_output(last.outputs[0]);
    GraphBuilder& b = rw_.begin(kRule, id, {id});
    std::size_t products = 0;
    for (const NodeId node : nodes_) {
      retype(b, node);
      products += graph().nodes[node].op->arithmetic == Arithmetic::vectors ? 0 : 1;
    }
    ValueId rows = last.inputs[0];
    // The name of an output stays its own.
    if (output || graph().type(rows).shape != result) rows = b.reshape(rows, result);
    rw_.replace(last.outputs[0], rows);
    rw_.commit(std::to_string(selector_.choice.rows) + " of " + plural_text(selector_.choice.size, "row") +
               " in " + plural_text(static_cast<std::int64_t>(nodes_.size()), "node") + ", " +
               plural_text(static_cast<std::int64_t>(products), "product"));
  }

 private:
  // Rows of a value that nodes of the region read, so many times.
  struct RowsWanted {
    AxisBlock block{};
    std::size_t readers = 0;
  };

  const Graph& graph() const { return rw_.graph(); }

  // Why the node stays outside, if it makes what the region reads.
  std::string add(NodeId id) {
    const Node& node = graph().nodes[id];
    const auto made =
        node.outputs.empty() || node.outputs[0] == kNone ? wanted_.end() : wanted_.find(node.outputs[0]);
    if (made == wanted_.end()) {
      const bool others = std::any_of(node.outputs.begin(), node.outputs.end(),
                                      [&](ValueId v) { return v != kNone && wanted_.count(v) != 0; });
      return others ? std::string(node.op->name) + " " + node.name + " has several results" : "";
    }
    if (std::string why = read_otherwise(node, made->second); !why.empty()) return why;
    if (!shapes_known(graph(), node)) return "sizes of " + node.name + " are not known";
    RowRule rule = rule_of_rows(graph(), id, made->second.block, selector_.choice);
    if (!rule.why_not.empty()) return rule.why_not;
    std::map<ValueId, RowsWanted> more;
    for (std::size_t i = 0; i < rule.operands.size(); ++i) {
      if (rule.operands[i].kind != RowOperand::Kind::rows) continue;
      const ValueId v = node.inputs[i];
      const AxisBlock& block = rule.operands[i].block;
      const auto known = wanted_.find(v);
      auto& wanted =
          more.try_emplace(v, known == wanted_.end() ? RowsWanted{block} : known->second).first->second;
      if (wanted.block != block) return graph().values[v].name + " would be selected in two ways";
      if (selector_.by_axes && (block != selector_.block || !has_dims_of_selected(v)))
        return node.op->name + (" " + node.name) + " has the rows in other axes";
      ++wanted.readers;
    }
    for (const auto& [v, wanted] : more) wanted_[v] = wanted;
    nodes_.push_back(id);
    rules_.emplace(id, std::move(rule));
    return "";
  }

  // Numbers for each axis of the block count in the same dims.
  bool has_dims_of_selected(ValueId v) const {
    const Shape &own = graph().type(v).shape,
                &selected = graph().type(graph().nodes[selector_.node].inputs[0]).shape;
    for (std::size_t axis = selector_.block.first; axis < selector_.block.end(); ++axis)
      if (own[axis] != selected[axis]) return false;
    return true;
  }

  std::string read_otherwise(const Node& node, const RowsWanted& wanted) const {
    for (std::size_t i = 1; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNone && rw_.use_count(node.outputs[i]) > 0)
        return std::string(node.op->name) + " " + node.name + " has several results";
    const ValueId v = node.outputs[0];
    if (rw_.use_count(v) == wanted.readers) return "";
    std::vector<NodeId> inside = matched();
    if (std::string why = used_elsewhere(rw_, v, inside); !why.empty()) return why;
    return graph().values[v].name + " is read whole, too";
  }

  // ---- whether it is worth it -------------------------------------------------------------------------------------

  // Of a training: the gradients of products are two as large ones, those of the other operators no smaller than they are. What is
  // selected is read and written, its gradient is written among zeros.
  RowCosts find_costs() const {
    constexpr double kFlopsPerByte = 20, kWithGradients = 3;
    const auto time_of = [](const Cost& c) {
      return std::max(c.flops / kFlopsPerByte, c.bytes_read + c.bytes_written);
    };
    RowCosts costs;
    std::set<ValueId> made;
    for (const NodeId id : nodes_) {
      const Node& node = graph().nodes[id];
      const NodeTypes types = node_types(graph(), node);
      costs.saved +=
          kWithGradients * (time_of(node.op->cost(types)) - time_of(node.op->cost(of_rows(id, types))));
      made.insert(node.outputs[0]);
    }
    costs.saved += selection_bytes(graph().nodes[selector_.node].inputs[0], selector_.block);
    for (const auto& [v, wanted] : wanted_)
      if (made.count(v) == 0) costs.added += selection_bytes(v, wanted.block);
    return costs;
  }

  double selection_bytes(ValueId v, const AxisBlock& block) const {
    const Type& type = graph().type(v);
    const double whole = static_cast<double>(byte_size(type)),
                 rows = whole * static_cast<double>(selector_.choice.rows) /
                        static_cast<double>(dim_product(type.shape, block.first, block.end()));
    return is_constant(graph(), v) ? 0 : 3 * rows + (is_float(type.dtype) ? whole : 0);
  }

  NodeTypes of_rows(NodeId id, NodeTypes types) const {
    const RowRule& rule = rules_.at(id);
    const Node& node = graph().nodes[id];
    types.attrs = rule.attrs;
    for (std::size_t i = 0; i < rule.operands.size(); ++i) {
      const RowOperand& operand = rule.operands[i];
      if (operand.kind == RowOperand::Kind::same) continue;
      types.constants[i] = nullptr;
      Shape& shape = types.inputs[i].shape;
      if (operand.kind == RowOperand::Kind::rows)
        shape = with_rows(shape, operand.block, selector_.choice.rows);
      if (operand.kind == RowOperand::Kind::reshaped) shape = operand.shape;
    }
    types.outputs[0].shape =
        with_rows(types.outputs[0].shape, wanted_.at(node.outputs[0]).block, selector_.choice.rows);
    return types;
  }

  // ---- the rewrite --------------------------------------------------------------------------------------------------

  void retype(GraphBuilder& b, NodeId id) {
    const RowRule& rule = rules_.at(id);
    std::vector<ValueId> inputs = graph().nodes[id].inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const RowOperand& operand = rule.operands[i];
      switch (operand.kind) {
        case RowOperand::Kind::same: break;
        case RowOperand::Kind::rows: inputs[i] = rows_of(b, inputs[i], operand.block); break;
        case RowOperand::Kind::reshaped: inputs[i] = b.reshape(inputs[i], operand.shape); break;
        case RowOperand::Kind::numbers: inputs[i] = b.i64s(operand.shape); break;
      }
    }
    rw_.retype(id, std::move(inputs), rule.attrs);
  }

  // The rows of what the region reads; of what it makes it has no more.
  ValueId rows_of(GraphBuilder& b, ValueId v, const AxisBlock& block) {
    if (const NodeId producer = graph().values[v].producer; rules_.count(producer) != 0) return v;
    const auto [known, fresh] = selected_.try_emplace(v, kNone);
    if (!fresh) return known->second;
    ValueId all = v;
    if (!selector_.by_axes && block.count > 1)
      all = b.reshape(v, with_rows(graph().type(v).shape, block, selector_.choice.size));
    std::vector<ValueId> inputs{all};
    Attrs attrs;
    const auto axis = static_cast<std::int64_t>(block.first);
    const char* op = "Slice";
    if (selector_.range) {
      const SliceRange& range = *selector_.range;
      for (const std::int64_t number :
           {range.start, range.start + (range.count - 1) * range.step + 1, axis, range.step})
        inputs.push_back(b.i64s({number}));
    } else {
      op = selector_.by_axes ? "GatherND" : "Gather";
      if (!selector_.by_axes) attrs.set("axis", axis);
      inputs.push_back(numbers(b));
    }
    return selected_[v] = of_constants(b, op_by_name(op), inputs, attrs);
  }

  // A mask that is known stays known.
  ValueId of_constants(GraphBuilder& b, const OpDef& op, const std::vector<ValueId>& inputs,
                       const Attrs& attrs) const {
    std::vector<Tensor> contents;
    for (const ValueId v : inputs)
      if (is_constant(graph(), v) && graph().values[v].data.defined())
        contents.push_back(graph().values[v].data);
    if (contents.size() == inputs.size())
      if (const auto known = evaluate(op, attrs, contents); known.ok()) return b.constant((*known)[0]);
    return b.op(op, inputs, attrs);
  }

  // The numbers of the rows as a list.
  ValueId numbers(GraphBuilder& b) {
    if (numbers_ != kNone) return numbers_;
    numbers_ = graph().nodes[selector_.node].inputs[1];
    Shape list{selector_.choice.rows};
    if (selector_.by_axes) list.push_back(graph().type(numbers_).shape.back());
    if (graph().type(numbers_).shape != list) numbers_ = b.reshape(numbers_, list);
    return numbers_;
  }

  Rewriter& rw_;
  const RowSelector selector_;
  std::map<ValueId, RowsWanted> wanted_;
  std::vector<NodeId> nodes_;  // last first while it grows, then in topological order
  std::map<NodeId, RowRule> rules_;
  std::map<ValueId, ValueId> selected_;
  ValueId numbers_ = kNone;
};

class SelectRows final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("most_kept", most_kept_,
            {.help = "percent of the rows that a selection may keep", .min = 1, .max = 100});
  }

  Status run(Rewriter& rw) const override {
    NodeOrder order = TRY(order_of(rw.graph()));
    const std::vector<NodeId> all = order.nodes;
    for (std::size_t i = all.size(); i-- > 0;) {
      if (!rw.graph().nodes[all[i]].alive()) continue;
      std::string why;
      auto selector = read_selector(rw.graph(), all[i], why);
      if (!selector) continue;
      const RowChoice& choice = selector->choice;
      if (why.empty() && choice.rows * 100 > choice.size * most_kept_)
        why = "it keeps " + std::to_string(choice.rows) + " of " + std::to_string(choice.size) +
              " rows, more than " + std::to_string(most_kept_) + " % (most_kept)";
      RowRegion region(rw, *selector);
      if (why.empty()) why = region.grow(order);
      if (!why.empty()) {
        rw.reject(kRule, all[i], why);
        continue;
      }
      if (!rw.allowed(kRule, all[i], region.matched())) continue;
      region.rewrite();
      order = TRY(order_of(rw.graph()));
    }
    return {};
  }

 private:
  std::int64_t most_kept_ = 75;
};

// What the first of four tokens is, of a layer behind attention.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool early) {
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {2, 4, 6}}), w = b.parameter("w", Tensor(DType::f32, {6, 8})),
                  bias = b.parameter("bias", Tensor(DType::f32, {8}));
    const auto first = [&](ValueId v) {
      return b.op("Slice", {v, b.i64s({0}), b.i64s({1}), b.i64s({1}), b.i64s({1})});
    };
    ValueId y = b.op("Softmax", {x}, {{"axis", std::int64_t{1}}});
    y = b.op("Gelu", {b.op("Add", {b.op("MatMul", {early ? first(y) : y, w}), bias})});
    graph.outputs = {b.op("Exp", {early ? y : first(y)})};
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef select_rows_pass;
const PassDef select_rows_pass = {
    .name = "select-rows",
    .summary =
        "compute only the rows that are read: a classifier's first token, the last layer's labelled positions",
    .doc =
        "A Slice, Gather or GatherND that takes some rows (positions, examples of a batch) of what is computed for all of them moves "
        "up, through products with weights, biases, activations, normalizations and softmax over other axes, residual "
        "additions, transposes and views, up to the queries of attention: what lies between computes these rows alone, and so "
        "do its gradients. Keys and values, and whatever something else reads, stay whole. Dropout keeps its masks, where "
        "the rows are one of equal parts of all (one token is); where rows are chosen by the data it is the border.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .gives_way_to = "drop-padding",  // which cannot follow its mask to what is left of an attention
    .make = [] { return std::unique_ptr<Pass>(new SelectRows); },
    .example = example,
};

}  // namespace gradloom
