// fuse-attention: softmax(mask(scale q k^T)) v as one operator that keeps no probabilities
// (engine/ops/attention.cpp).
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/ops/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

bool is_op(const Node& node, std::string_view name) { return node.alive() && name == node.op->name; }

// The node that makes a value, or null.
const Node* maker(const Graph& graph, ValueId id) {
  const NodeId producer = id == kNone ? kNone : graph.values[id].producer;
  return producer == kNone ? nullptr : &graph.nodes[producer];
}

// An operand behind the transposes and scalings in front of it.
struct Operand {
  ValueId value = kNone;
  Perm perm;
  double scale = 1;
  std::vector<NodeId> nodes{};  // of both, the last one first
};

Operand operand_of(const Graph& graph, ValueId id) {
  Operand o{id, identity_perm(graph.type(id).shape.size()), 1};
  for (const Node* node = maker(graph, o.value); node != nullptr; node = maker(graph, o.value)) {
    double factor = 0;
    const NodeId made_by = graph.values[o.value].producer;
    if (is_op(*node, "Transpose")) {
      o.perm = composed(perm_of_transpose(graph, *node), o.perm);
      o.value = node->inputs[0];
    } else if (is_op(*node, "Mul") && scalar_constant(graph, node->inputs[1], &factor)) {
      o.scale *= factor;
      o.value = node->inputs[0];
    } else if (is_op(*node, "Mul") && scalar_constant(graph, node->inputs[0], &factor)) {
      o.scale *= factor;
      o.value = node->inputs[1];
    } else if (is_op(*node, "Div") && scalar_constant(graph, node->inputs[1], &factor) && factor != 0) {
      o.scale /= factor;
      o.value = node->inputs[0];
    } else {
      break;
    }
    o.nodes.push_back(made_by);
    if (graph.type(o.value).shape.size() != o.perm.size())
      return {id, identity_perm(o.perm.size()), 1};  // a constant of higher rank
  }
  return o;
}

// What leads from the scores' product to the softmax.
struct Chain {
  NodeId product = kNone;
  double scale = 1;
  ValueId mask = kNone;
  std::string mode;
  double fill = 0;
  std::vector<NodeId> inside;  // nodes between softmax and product, and the product
};

class FuseAttention final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("min_keys", min_keys_,
            {.help = "fewest keys per query for which probabilities are not kept", .min = 1, .max = 1e9});
  }

  Status run(Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph()))) {
      if (!is_op(rw.graph().nodes[id], "Softmax")) continue;
      const std::string why = fuse(rw, id);
      if (!why.empty()) rw.reject("attention", id, why);
    }
    return {};
  }

 private:
  // The reason, where it is an attention but cannot be fused; empty otherwise.
  std::string fuse(Rewriter& rw, NodeId softmax) const {
    const Graph& graph = rw.graph();
    const Node node = graph.nodes[softmax];
    const auto rank = static_cast<std::int64_t>(graph.type(node.inputs[0]).shape.size());
    Chain chain;
    std::string why = follow(rw, node.inputs[0], softmax, chain);
    if (chain.product == kNone) return "";  // no product behind it: another use of softmax
    if (!why.empty()) return why;
    const ValueId p = node.outputs[0];
    const NodeId reader = single_reader(rw, p);
    if (reader == kNone)
      return rw.is_output(p) ? "the probabilities are an output of the graph" : used_elsewhere(rw, p, {});
    const Node user = graph.nodes[reader];
    if (is_op(user, "Dropout"))
      return "dropout on the probabilities: its random numbers belong to a tensor in memory";
    if (!is_op(user, "MatMul") || user.inputs[0] != p)
      return "the probabilities are read by " + std::string(user.op->name) + ", not multiplied with values";
    const std::int64_t axis = node.attrs.integer("axis", node.op->until < 13 ? 1 : -1);
    if (rank < 2 || (axis != -1 && axis != rank - 1)) return "the softmax is not over the keys";
    const std::int64_t keys = graph.type(p).shape.back();
    if (keys >= 0 && keys < min_keys_)
      return std::to_string(keys) + " keys: keeping their probabilities costs little (min_keys)";
    const Node scores = graph.nodes[chain.product];
    const Operand q = operand_of(graph, scores.inputs[0]), k = operand_of(graph, scores.inputs[1]),
                  v = plain(graph, user.inputs[1]);
    for (const ValueId operand : {scores.inputs[0], scores.inputs[1], user.inputs[1]})
      if (graph.type(operand).shape.size() != static_cast<std::size_t>(rank))
        return "the operands have different numbers of dims";
    const Shape &left = graph.type(scores.inputs[0]).shape, &right = graph.type(scores.inputs[1]).shape,
                &values = graph.type(user.inputs[1]).shape;
    for (std::size_t i = 0; i + 2 < left.size(); ++i)
      if (left[i] != right[i] || left[i] != values[i]) return "batch dims of the operands differ";
    if (chain.mask != kNone && depends_on_parameter(graph, chain.mask)) return "the mask is trained";
    if (!rw.allowed("attention", softmax)) return "";
    Attrs attrs;
    const double scale = chain.scale * q.scale * k.scale;
    if (scale != 1) attrs.set("scale", scale);
    Perm perm_k = k.perm;
    std::swap(perm_k[perm_k.size() - 1],
              perm_k[perm_k.size() - 2]);  // the product multiplies with keys transposed
    set_perm(attrs, "perm_q", q.perm);
    set_perm(attrs, "perm_k", perm_k);
    set_perm(attrs, "perm_v", v.perm);
    std::vector<ValueId> inputs = {q.value, k.value, v.value};
    if (chain.mask != kNone) {
      inputs.push_back(chain.mask);
      attrs.set("mask", chain.mode);
      if (chain.mode != "add") attrs.set("fill", chain.fill);
    }
    std::vector<NodeId> replaced = {softmax, reader};
    replaced.insert(replaced.end(), chain.inside.begin(), chain.inside.end());
    for (const Operand* operand : {&q, &k, &v}) {
      for (const NodeId id : operand->nodes) {
        if (single_reader(rw, graph.nodes[id].outputs[0]) == kNone) break;  // it stays for others
        replaced.push_back(id);
      }
    }
    ValueId result = user.outputs[0];
    if (const NodeId after = single_reader(rw, result);
        after != kNone && is_op(graph.nodes[after], "Transpose")) {
      set_perm(attrs, "perm_y", perm_of_transpose(graph, graph.nodes[after]));
      result = graph.nodes[after].outputs[0];
      replaced.push_back(after);
    }
    GraphBuilder& b = rw.begin("attention", softmax, replaced);
    rw.replace(result, b.op("FusedAttention", inputs, std::move(attrs)));
    rw.commit("probabilities are not written to memory");
    return "";
  }

  // Values are not scaled: a factor of theirs would be one of the result.
  static Operand plain(const Graph& graph, ValueId id) {
    Operand o{id, identity_perm(graph.type(id).shape.size()), 1};
    for (const Node* node = maker(graph, id); node != nullptr && is_op(*node, "Transpose");
         node = maker(graph, o.value)) {
      o.nodes.push_back(graph.values[o.value].producer);
      o.perm = composed(perm_of_transpose(graph, *node), o.perm);
      o.value = node->inputs[0];
    }
    return o;
  }

  static void set_perm(Attrs& attrs, const char* name, const Perm& perm) {
    if (!is_identity(perm)) attrs.set(name, perm);
  }

  // From the softmax's input up to the product: at most one mask, then scalings. The reason when a value on
  // the way is read elsewhere.
  static std::string follow(const Rewriter& rw, ValueId at, NodeId reader, Chain& chain) {
    const Graph& graph = rw.graph();
    std::string shared;
    for (NodeId last = reader;;) {
      const Node* node = maker(graph, at);
      if (node == nullptr) return "";
      const NodeId id = graph.values[at].producer;
      if (shared.empty()) shared = used_elsewhere(rw, at, {last});
      if (shared.empty() && rw.is_output(at)) shared = "the scores are an output of the graph";
      chain.inside.push_back(id);
      last = id;
      double number = 0;
      if (is_op(*node, "MatMul")) {
        chain.product = id;
        return shared;
      }
      const bool masked = chain.mask != kNone || chain.scale != 1;  // a mask stands behind the scaling
      if (is_op(*node, "Mul") && scalar_constant(graph, node->inputs[1], &number)) {
        chain.scale *= number;
        at = node->inputs[0];
      } else if (is_op(*node, "Mul") && scalar_constant(graph, node->inputs[0], &number)) {
        chain.scale *= number;
        at = node->inputs[1];
      } else if (is_op(*node, "Div") && scalar_constant(graph, node->inputs[1], &number) && number != 0) {
        chain.scale /= number;
        at = node->inputs[0];
      } else if (!masked && is_op(*node, "Where") && scalar_constant(graph, node->inputs[1], &number)) {
        chain.mask = node->inputs[0];
        chain.mode = "block";
        chain.fill = number;
        at = node->inputs[2];
      } else if (!masked && is_op(*node, "Where") && scalar_constant(graph, node->inputs[2], &number)) {
        chain.mask = node->inputs[0];
        chain.mode = "keep";
        chain.fill = number;
        at = node->inputs[1];
      } else if (!masked && is_op(*node, "Add")) {
        const bool left = leads_to_product(graph, node->inputs[0]);
        chain.mask = node->inputs[left ? 1 : 0];
        chain.mode = "add";
        at = node->inputs[left ? 0 : 1];
      } else {
        return "";
      }
      if (graph.type(at).shape.size() != graph.type(graph.nodes[reader].inputs[0]).shape.size()) return "";
    }
  }

  static bool leads_to_product(const Graph& graph, ValueId at) {
    for (const Node* node = maker(graph, at); node != nullptr; node = maker(graph, at)) {
      double number = 0;
      if (is_op(*node, "MatMul")) return true;
      const bool scaled =
          (is_op(*node, "Mul") || is_op(*node, "Div")) && scalar_constant(graph, node->inputs[1], &number);
      const bool scaled_left = is_op(*node, "Mul") && scalar_constant(graph, node->inputs[0], &number);
      if (!scaled && !scaled_left) return false;
      at = node->inputs[scaled ? 0 : 1];
    }
    return false;
  }

  static bool depends_on_parameter(const Graph& graph, ValueId id) {
    std::vector<bool> seen(graph.values.size(), false);
    std::vector<ValueId> open = {id};
    while (!open.empty()) {
      const ValueId at = open.back();
      open.pop_back();
      if (at == kNone || seen[at]) continue;
      seen[at] = true;
      if (graph.values[at].role == Role::parameter) return true;
      if (const Node* node = maker(graph, at))
        open.insert(open.end(), node->inputs.begin(), node->inputs.end());
    }
    return false;
  }

  std::int64_t min_keys_ = 256;
};

Result<PassExample> example() {
  const Type q_type{DType::f32, {2, 256, 8}}, mask_type{DType::boolean, {256, 256}};
  PassExample e;
  GraphBuilder b(e.before);
  const ValueId q = b.input("q", q_type), k = b.input("k", q_type), v = b.input("v", q_type),
                mask = b.input("future", mask_type);
  const ValueId scores = b.op("MatMul", {q, b.op("Transpose", {k}, {{"perm", Perm{0, 2, 1}}})});
  const ValueId scaled = b.op("Mul", {scores, b.scalar(DType::f32, 0.5)});
  const ValueId masked = b.op("Where", {mask, b.scalar(DType::f32, -INFINITY), scaled});
  e.before.outputs = {b.op("MatMul", {b.op("Softmax", {masked}), v})};
  GraphBuilder a(e.after);
  const ValueId aq = a.input("q", q_type), ak = a.input("k", q_type), av = a.input("v", q_type),
                amask = a.input("future", mask_type);
  e.after.outputs = {a.op("FusedAttention", {aq, ak, av, amask},
                          {{"scale", 0.5}, {"mask", std::string("block")}, {"fill", -INFINITY}})};
  return e;
}

}  // namespace

extern const PassDef fuse_attention_pass;
const PassDef fuse_attention_pass = {
    .name = "fuse-attention",
    .summary = "attention that keeps no probabilities",
    .doc =
        "MatMul, scaling, mask, Softmax and MatMul become one FusedAttention: rows of queries are taken in "
        "blocks, the probabilities of a "
        "block stay in a small workspace, and the gradient computes them again. A step keeps no [queries, "
        "keys] tensor, and keys that a "
        "known mask hides (a causal one) are not multiplied at all. Needs a softmax over the keys without "
        "dropout on the probabilities, and "
        "a mask that is not trained.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseAttention); },
    .example = example,
};

}  // namespace gradloom
