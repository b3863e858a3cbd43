// drop-padding: a batch of texts of different lengths without the positions that only fill it up.
//
// Before autodiff: nodes that compute every position by itself (products with weights, normalizations, elementwise
// operators) read and write rows, one per token, instead of [batch, position, ..]. PackRows makes them of what comes
// padded, UnpackRows gives them back to what knows positions: attention, losses, graph outputs. Gradients follow by
// autodiff, for each of the two is the other's gradient. Where tokens are the mask says that attention leaves keys out by
// (padding_mask.h).
//
// After the fusions: shapes still are those of a batch without padding. What reads rows becomes PackedRows, which
// computes as many as the batch at hand has tokens (engine/ops/padding/packed_rows.h), with all that reads its rows.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/elementwise/fused.h"
#include "engine/ops/padding/packed_rows.h"
#include "engine/ops/padding/token_rows.h"
#include "engine/ops/products/matrix_product.h"
#include "passes/batch_axes.h"
#include "passes/padding_mask.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

bool is_normalization(const Node& node) {
  return is_op(node, "LayerNormalization") || is_op(node, "RMSNormalization");
}

constexpr const char *kMaskRule = "mask", *kRule = "rows", *kKernelRule = "row-kernels";

// ---- Before autodiff ------------------------------------------------------------------------------------------

class Packer {
 public:
  Packer(Rewriter& rw, std::string mask) : rw_(rw), mask_name_(std::move(mask)) {}

  Status run() {
    order_ = TRY(topological_order(graph()));
    const PaddingMask mask = find_padding_mask(graph(), order_, mask_name_);
    if (mask.value == kNone) {
      if (mask.at != kNone) rw_.reject(kMaskRule, mask.at, mask.why_not);
      return {};
    }
    const BatchAxesFinder axes(graph(), order_, type(mask.value).shape);
    axes_ = &axes;
    for (const NodeId id : order_)
      if (computes_positions(id)) operands_[id] = operands_of(id);
    for (const std::vector<NodeId>& island : islands()) pack(island, mask);
    return {};
  }

 private:
  const Graph& graph() const { return rw_.graph(); }
  const Type& type(ValueId v) const { return graph().type(v); }

  // ---- what can be rows ----

  bool computes_positions(NodeId id) const {
    const Node& node = graph().nodes[id];
    if (node.outputs.empty() || node.outputs[0] == kNone || !axes_->leads(node.outputs[0])) return false;
    if (type(node.outputs[0]).shape.size() < 3 || node.op->has(kRandom) || graph().loss == node.outputs[0])
      return false;
    for (std::size_t i = 1; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNone && rw_.use_count(node.outputs[i]) > 0) return false;
    if (is_op(node, "MatMul")) return multiplies_rows(node);
    if (is_normalization(node)) return normalizes_rows(node);
    return node.op->has(kElementwise) && !node.op->has(kView) &&
           std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) {
             return in == kNone || is_rows(in, node) || operand_shape(in, node);
           });
  }

  bool multiplies_rows(const Node& node) const {
    return axes_->leads(node.inputs[0]) && type(node.inputs[0]).shape.size() == 3 &&
           type(node.inputs[1]).shape.size() == 2;
  }

  bool normalizes_rows(const Node& node) const {
    const auto axis = normalized_axis(node.attrs.integer("axis", -1), type(node.inputs[0]).shape.size());
    return axes_->leads(node.inputs[0]) && axis.ok() && *axis >= 2;
  }

  // The operand has the dims of both axes, as the result has.
  bool is_rows(ValueId in, const Node& node) const {
    return type(in).shape.size() == type(node.outputs[0]).shape.size() && axes_->has_dims(in);
  }

  // An operand that is the same at all positions, as it is broadcast to rows; nothing: it is not.
  std::optional<Shape> operand_shape(ValueId in, const Node& node) const {
    const Shape &own = type(in).shape, &result = type(node.outputs[0]).shape;
    if (!is_static(own) || own.size() > result.size()) return std::nullopt;
    const std::size_t missing = result.size() - own.size();
    for (std::size_t axis = missing; axis < 2; ++axis)
      if (own[axis - missing] != 1) return std::nullopt;
    return Shape(own.begin() + static_cast<std::ptrdiff_t>(missing < 2 ? 2 - missing : 0), own.end());
  }

  // By input: its rows are those of the result; else how it is broadcast to them, where it is.
  struct Operand {
    bool rows = false;
    std::optional<Shape> broadcast{};
  };

  std::vector<Operand> operands_of(NodeId id) const {
    const Node& node = graph().nodes[id];
    std::vector<Operand> operands(node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      const bool elementwise = node.op->has(kElementwise);
      operands[i].rows = elementwise ? is_rows(node.inputs[i], node) : i == 0;
      if (elementwise && !operands[i].rows) operands[i].broadcast = operand_shape(node.inputs[i], node);
    }
    return operands;
  }

  // Nodes that pass rows on to each other, in topological order; those with a product.
  std::vector<std::vector<NodeId>> islands() const {
    std::map<NodeId, std::size_t> island_of;
    std::vector<std::vector<NodeId>> all;
    for (const NodeId id : order_) {
      if (operands_.count(id) == 0) continue;
      std::set<std::size_t> joined;
      for (std::size_t i = 0; i < graph().nodes[id].inputs.size(); ++i) {
        if (!operands_.at(id)[i].rows) continue;
        const auto from = island_of.find(graph().values[graph().nodes[id].inputs[i]].producer);
        if (from != island_of.end()) joined.insert(from->second);
      }
      const std::size_t own = joined.empty() ? all.size() : *joined.begin();
      if (joined.empty()) all.emplace_back();
      for (const std::size_t other : joined) {
        if (other == own) continue;
        for (const NodeId moved : all[other]) island_of[moved] = own;
        all[own].insert(all[own].end(), all[other].begin(), all[other].end());
        all[other].clear();
      }
      all[own].push_back(id);
      island_of[id] = own;
    }
    std::map<NodeId, std::size_t> place;
    for (std::size_t i = 0; i < order_.size(); ++i) place[order_[i]] = i;
    std::erase_if(all, [&](const std::vector<NodeId>& nodes) {
      return std::none_of(nodes.begin(), nodes.end(),
                          [&](NodeId id) { return is_op(graph().nodes[id], "MatMul"); });
    });
    for (auto& nodes : all)
      std::sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) { return place[a] < place[b]; });
    return all;
  }

  // ---- the rewrite ----

  struct Tokens {
    ValueId rows, places, count;
  };

  void pack(const std::vector<NodeId>& island, const PaddingMask& mask) {
    const NodeId anchor = *std::find_if(island.begin(), island.end(),
                                        [&](NodeId id) { return is_op(graph().nodes[id], "MatMul"); });
    if (!rw_.allowed(kRule, anchor, island)) return;
    GraphBuilder& b = rw_.begin(kRule, anchor, {anchor});
    if (!tokens_) {
      Attrs attrs;
      if (mask.inverted) attrs.set("inverted", std::int64_t{1});
      const std::vector<ValueId> made = b.ops(token_rows_op(), {mask.value}, std::move(attrs), 3);
      tokens_ = Tokens{made[0], made[1], made[2]};
    }
    const std::set<NodeId> here(island.begin(), island.end());
    std::map<ValueId, ValueId> packed;  // of what comes padded
    std::size_t products = 0;
    for (const NodeId id : island) {
      products += is_op(graph().nodes[id], "MatMul") ? 1 : 0;
      retype(b, id, here, packed);
    }
    std::size_t unpacked = 0;
    for (const NodeId id : island) unpacked += serve_others(b, graph().nodes[id].outputs[0], here) ? 1 : 0;
    rw_.commit(plural_text(island.size(), "node") + ", " + plural_text(products, "product") + ", on rows; " +
               plural_text(packed.size(), "value") + " packed, " + std::to_string(unpacked) + " unpacked");
  }

  ValueId rows_of(GraphBuilder& b, ValueId padded) const {
    return b.op(pack_rows_op(), {padded, tokens_->rows, tokens_->places, tokens_->count});
  }

  void retype(GraphBuilder& b, NodeId id, const std::set<NodeId>& here, std::map<ValueId, ValueId>& packed) {
    const Node node = graph().nodes[id];
    std::vector<ValueId> inputs = node.inputs;
    Attrs attrs = node.attrs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Operand& operand = operands_.at(id)[i];
      if (operand.rows && here.count(graph().values[inputs[i]].producer) == 0) {
        const auto [found, fresh] = packed.try_emplace(inputs[i], kNone);
        if (fresh) found->second = rows_of(b, inputs[i]);
        inputs[i] = found->second;
      } else if (operand.broadcast && *operand.broadcast != type(inputs[i]).shape) {
        inputs[i] = b.reshape(inputs[i], *operand.broadcast);
      }
    }
    const std::int64_t axis = attrs.integer("axis", -1);
    if (is_normalization(node) && axis > 0) attrs.set("axis", axis - 1);
    rw_.retype(id, std::move(inputs), std::move(attrs));
  }

  // Who knows positions gets them; whether anybody does.
  bool serve_others(GraphBuilder& b, ValueId v, const std::set<NodeId>& here) {
    std::vector<Use> others;
    for (const Use& use : rw_.uses(v))
      if (here.count(use.node) == 0) others.push_back(use);
    if (others.empty() && !rw_.is_output(v)) return false;
    const ValueId padded = b.op(unpack_rows_op(), {v, tokens_->rows, tokens_->places, tokens_->count});
    for (const Use& use : others) {
      std::vector<ValueId> inputs = graph().nodes[use.node].inputs;
      inputs[use.input_index] = padded;
      rw_.retype(use.node, std::move(inputs), graph().nodes[use.node].attrs);
    }
    if (rw_.is_output(v)) rw_.replace_outputs(v, padded);
    return true;
  }

  Rewriter& rw_;
  const std::string mask_name_;
  std::vector<NodeId> order_;
  const BatchAxesFinder* axes_ = nullptr;
  std::map<NodeId, std::vector<Operand>> operands_;  // of nodes that compute every position by itself
  std::optional<Tokens> tokens_;
};

// ---- After the fusions ----------------------------------------------------------------------------------------

// Makes PackedRows of what reads rows.
class Limiter {
 public:
  explicit Limiter(Rewriter& rw) : rw_(rw) {}

  Status run() {
    const std::vector<NodeId> order = TRY(topological_order(graph()));
    for (const NodeId id : order) follow(id);
    // A result that is read whole is computed whole, and so is what it is made of.
    bool changed = true;
    while (changed) {
      changed = false;
      for (auto at = nodes_.begin(); at != nodes_.end();) {
        const std::string why = whole_reader(at->first);
        if (why.empty()) {
          ++at;
          continue;
        }
        rw_.reject(kKernelRule, at->first, why);
        at = nodes_.erase(at);
        changed = true;
      }
    }
    for (const NodeId id : order)
      if (const auto found = nodes_.find(id); found != nodes_.end()) limit(id, found->second);
    return {};
  }

 private:
  struct Rows {
    ValueId count = kNone;
    std::vector<std::int64_t> inputs{}, outputs{};
  };

  const Graph& graph() const { return rw_.graph(); }
  const Shape& shape(ValueId v) const { return graph().type(v).shape; }

  void follow(NodeId id) {
    const Node& node = graph().nodes[id];
    if (is_op(node, "PackRows")) {
      count_[node.outputs[0]] = node.inputs[3];
      return;
    }
    Rows rows;
    std::int64_t size = 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const auto found = node.inputs[i] == kNone ? count_.end() : count_.find(node.inputs[i]);
      if (found == count_.end()) continue;
      if (rows.count != kNone && rows.count != found->second) return;
      rows.count = found->second;
      rows.inputs.push_back(static_cast<std::int64_t>(i));
      size = shape(node.inputs[i])[0];
    }
    if (rows.count == kNone || is_op(node, "UnpackRows")) return;
    const std::string why = problem(node, rows, size);
    if (!why.empty()) return rw_.reject(kKernelRule, id, why);
    for (const std::int64_t i : rows.outputs) count_[node.outputs[static_cast<std::size_t>(i)]] = rows.count;
    nodes_[id] = std::move(rows);
  }

  // Finds which results have rows. The reason where the node does not compute every row by itself, or sums over all.
  std::string problem(const Node& node, Rows& rows, std::int64_t size) const {
    std::vector<std::int64_t> whole_rows;  // operands of as many rows, which are no tokens'
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] != kNone && count_.count(node.inputs[i]) == 0 && !shape(node.inputs[i]).empty() &&
          shape(node.inputs[i])[0] == size)
        whole_rows.push_back(static_cast<std::int64_t>(i));
    const auto all_results = [&] {
      for (std::size_t i = 0; i < node.outputs.size(); ++i)
        if (node.outputs[i] != kNone) rows.outputs.push_back(static_cast<std::int64_t>(i));
    };
    if (node.op->has(kElementwise) || node.op->has(kPointwise)) {
      if (draws(node)) return "it draws random numbers by position";
      const std::size_t rank = shape(node.outputs[0]).size();
      for (const std::int64_t i : rows.inputs)
        if (shape(node.inputs[static_cast<std::size_t>(i)]).size() != rank) return "rows are broadcast";
      for (const std::int64_t i : whole_rows)
        if (shape(node.inputs[static_cast<std::size_t>(i)]).size() == rank && size != 1)
          return "an operand has rows of its own";
      all_results();
      return "";
    }
    if (is_normalization(node) || is_op(node, "LayerNormGrad") || is_op(node, "RMSNormGrad")) {
      const auto axis = normalized_axis(node.attrs.integer("axis", -1),
                                        shape(node.inputs[static_cast<std::size_t>(rows.inputs[0])]).size());
      if (!axis.ok() || *axis < 1) return "rows are normalized together";
      if (is_op(node, "LayerNormGrad") && !adds_rows(node, 5)) return "an operand has rows of its own";
      if (node.op->grad != nullptr) {
        all_results();
        return "";
      }
      if (node.outputs[0] != kNone) rows.outputs = {0};  // the others are sums
      return "";
    }
    if (is_op(node, "ReduceSum")) return sums_rows(node) ? "" : "it sums over other axes";
    if (is_op(node, "FusedMatMul") || is_op(node, "FusedMatMulGrad") || is_op(node, "MatMul"))
      return of_product(node, 0, rows);
    if (is_op(node, "AccumulateMatMul")) return of_product(node, 2, rows);
    return "no rows are left out of " + std::string(node.op->name);
  }

  static bool draws(const Node& node) {
    if (!node.op->has(kRandom)) return false;
    const Result<std::vector<FusedStatement>> code = parse_fused(node.attrs.text("code"));
    return !code.ok() || std::any_of(code->begin(), code->end(), [](const FusedStatement& s) {
      return s.key != 0 && s.op != kernels::EwOp::Cast;
    });
  }

  bool sums_rows(const Node& node) const {
    if (node.inputs.size() < 2 || node.inputs[1] == kNone) return false;
    const Value& axes = graph().value(node.inputs[1]);
    return axes.data.defined() && axes.data.to_i64() == Shape{0};
  }

  // Products by a weight, A's rows on their own, and sums over the rows of both.
  std::string of_product(const Node& node, std::size_t first, Rows& rows) const {
    const ValueId a = node.inputs[first], b = node.inputs[first + 1];
    if (shape(a).size() != 2 || shape(b).size() != 2) return "it multiplies more than rows";
    if (first == 0 && !adds_rows(node, 3)) return "an operand has rows of its own";
    const auto spec = product_spec(node.attrs, 2, 2);
    if (!spec.ok()) return spec.error().message;
    const auto is_packed = [&](ValueId v) { return count_.count(v) != 0; };
    const bool turns_a = !is_identity(spec->perm_a), turns_b = !is_identity(spec->perm_b);
    if (is_packed(a) && is_packed(b))
      return turns_a && !turns_b && rows.inputs.size() == 2 ? "" : "it multiplies rows with rows";
    if (!is_packed(a) || turns_a || !is_identity(spec->perm_y) || first != 0 || node.attrs.has("sums"))
      return "rows are not the first axis";
    if (node.outputs.size() > 1 && shape(node.outputs[1]).size() != 2) return "it makes sums";
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNone) rows.outputs.push_back(static_cast<std::int64_t>(i));
    return "";
  }

  // Whether the input that is added to the rows is not there, or has rows of tokens too.
  bool adds_rows(const Node& node, std::size_t input) const {
    return node.inputs.size() <= input || node.inputs[input] == kNone ||
           count_.count(node.inputs[input]) != 0;
  }

  std::string whole_reader(NodeId id) const {
    const Node& node = graph().nodes[id];
    for (const std::int64_t i : nodes_.at(id).outputs) {
      const ValueId v = node.outputs[static_cast<std::size_t>(i)];
      if (rw_.is_output(v)) return "its rows leave the graph";
      for (const Use& use : rw_.uses(v))
        if (nodes_.count(use.node) == 0 && !is_op(graph().nodes[use.node], "UnpackRows"))
          return graph().nodes[use.node].name + " reads all rows";
    }
    return "";
  }

  void limit(NodeId id, const Rows& rows) {
    const Node node = graph().nodes[id];
    PackedNode packed = packed_node(node, rows.count, rows.inputs, rows.outputs);
    GraphBuilder& b = rw_.begin(kKernelRule, id, {id});
    const std::vector<ValueId> made = b.ops(*packed.op, std::move(packed.inputs), std::move(packed.attrs),
                                            static_cast<int>(node.outputs.size()));
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNone) rw_.replace(node.outputs[i], made[i]);
    rw_.commit();
  }

  Rewriter& rw_;
  std::map<ValueId, ValueId> count_;  // of values with rows of tokens
  std::map<NodeId, Rows> nodes_;      // that compute some rows alone
};

class DropPadding final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("mask", mask_,
            {.help = "input that says where tokens are, or from which that follows; empty: any"});
  }
  Status run(Rewriter& rw) const override { return Limiter(rw).run(); }

  Status run_in(PassPhase phase, kernels::Target, Rewriter& rw) const override {
    return phase == PassPhase::pre_gradient ? Packer(rw, mask_).run() : run(rw);
  }

 private:
  std::string mask_;
};

// What the rewrite before autodiff leaves, and what its kernels become.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool limited) {
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {2, 4, 6}}), mask = b.input("mask", {DType::i64, {2, 4}}),
                  w = b.input("w", {DType::f32, {6, 6}}, Role::parameter);
    const std::vector<ValueId> t = b.ops(token_rows_op(), {mask}, {}, 3);
    const ValueId rows = b.op(pack_rows_op(), {x, t[0], t[1], t[2]});
    ValueId y = kNone;
    if (limited) {
      const Node product{.op = &op_by_name("MatMul"), .inputs = {rows, w}};
      PackedNode packed = packed_node(product, t[2], {0}, {0});
      y = b.op(*packed.op, std::move(packed.inputs), std::move(packed.attrs));
    } else {
      y = b.op("MatMul", {rows, w});
    }
    graph.outputs = {b.op(unpack_rows_op(), {y, t[0], t[1], t[2]})};
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef drop_padding_pass;
const PassDef drop_padding_pass = {
    .name = "drop-padding",
    .summary = "compute the tokens of a padded batch alone",
    .doc =
        "A batch of texts of different lengths is filled up with padding, which a mask hides from attention. All that "
        "computes positions by themselves (products with weights, normalizations, elementwise operators) reads and writes "
        "one row per token here: a batch that is half padding takes about half the time there. The mask is found by trying "
        "which keys attention leaves out. Every batch may have another number of tokens; memory is planned for one without "
        "padding. A GPU learns from the host how many there are, which counts them in what it sends: where the mask follows "
        "from more than the inputs of the model, all positions are computed there. What the loss reads at padding is 0 then, so a model whose loss depends on padding trains differently: "
        "that is why nobody but the user switches it on, and `verify` tells with the job's own data. Dropout draws the same "
        "masks, at all positions.",
    .phase = PassPhase::both,
    .by_default = false,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new DropPadding); },
    .example = example,
};

}  // namespace gradloom
