// fuse-attention: softmax(mask(scale q k^T)) v as one operator that keeps no probabilities
// (engine/ops/attention/attention.cpp).
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/ops/preparation.h"
#include "engine/ops/rank_part.h"
#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"
#include "passes/trained.h"

namespace gradloom {
namespace {

const Node* maker(const Graph& graph, ValueId id) {
  const NodeId producer = graph.values[id].producer;
  return producer == kNone ? nullptr : &graph.nodes[producer];
}

// An operand behind the transposes, and where `scaled` the scalings, in front of it.
struct Operand {
  ValueId value = kNone;
  Perm perm;
  double scale = 1;
  std::vector<NodeId> nodes{};  // of both, the last one first
};

Operand operand_of(const Graph& graph, ValueId id, bool scaled) {
  Operand o{id, identity_perm(graph.type(id).shape.size())};
  for (NodeId made = graph.values[id].producer; made != kNone; made = graph.values[o.value].producer) {
    const Node& node = graph.nodes[made];
    if (is_op(node, "Transpose")) {
      o.perm = composed(perm_of_transpose(graph, node), o.perm);
      o.value = node.inputs[0];
    } else if (const auto scaling = scaled ? read_scaling(graph, made) : std::nullopt) {
      o.scale *= scaling->factor;
      o.value = scaling->value;
    } else {
      break;
    }
    o.nodes.push_back(made);
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

// An attention: the softmax, the product that reads it, and what the fused node takes.
struct Site {
  NodeId softmax = kNone, user = kNone;
  Chain chain{};
  Operand q{}, k{}, v{};
  Attrs attrs{};
  std::vector<NodeId> replaced{};
};

class FuseAttention final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field(
        "min_keys", min_keys_,
        {.help = "fewest keys per query for which probabilities are not kept; 0: 256 on the CPU, on GPUs any",
         .min = 0,
         .max = 1e9});
  }

  Status run_for(kernels::Target target, Rewriter& rw) const override {
    FuseAttention of_target = *this;
    if (min_keys_ == 0) of_target.min_keys_ = target == kernels::Target::cpu ? kKeysOnCpu : 1;
    return of_target.fuse_all(rw);
  }
  Status run(Rewriter& rw) const override { return run_for(kernels::Target::cpu, rw); }

 private:
  Status fuse_all(Rewriter& rw) const {
    for (const NodeId id : TRY(topological_order(rw.graph()))) {
      if (!is_op(rw.graph().nodes[id], "Softmax")) continue;
      const std::string why = fuse(rw, id);
      if (!why.empty()) rw.reject("attention", id, why);
    }
    return {};
  }

  // The reason, where it is an attention but cannot be fused; empty otherwise.
  std::string fuse(Rewriter& rw, NodeId softmax) const {
    const Graph& graph = rw.graph();
    Site site{.softmax = softmax};
    std::string why = follow(rw, graph.nodes[softmax].inputs[0], softmax, site.chain);
    if (site.chain.product == kNone) return "";  // no product behind it: another use of softmax
    if (!why.empty() || rw.uses(graph.nodes[softmax].outputs[0]).empty()) return why;
    if (why = find_user(rw, site); !why.empty()) return why;
    // Values are not scaled: a factor of theirs would be one of the result.
    const Node scores = graph.nodes[site.chain.product], user = graph.nodes[site.user];
    site.q = operand_of(graph, scores.inputs[0], true);
    site.k = operand_of(graph, scores.inputs[1], true);
    site.v = operand_of(graph, user.inputs[1], false);
    if (why = misfit(graph, site); !why.empty()) return why;
    if (rw.allowed("attention", softmax, {softmax, site.chain.product, site.user}))
      rewrite(rw, std::move(site));
    return "";
  }

  // From the softmax to the product with the values: sets `user`, what is dropped and what is
  // replaced on the way.
  static std::string find_user(const Rewriter& rw, Site& site) {
    const Graph& graph = rw.graph();
    ValueId p = graph.nodes[site.softmax].outputs[0];
    NodeId reader = rw.uses(p)[0].node;
    if (std::string why = used_elsewhere(rw, p, {reader}); !why.empty()) return why;
    site.replaced = {site.softmax};
    if (is_op(graph.nodes[reader], "Dropout")) {
      if (std::string why = read_dropout(rw, graph.nodes[reader], site.attrs); !why.empty()) return why;
      site.replaced.push_back(reader);
      p = graph.nodes[reader].outputs[0];
      reader = rw.uses(p)[0].node;
    }
    site.replaced.push_back(reader);
    site.user = reader;
    const Node& user = graph.nodes[reader];
    if (is_op(user, "MatMul") && user.inputs[0] == p) return "";
    return "the probabilities are read by " + std::string(user.op->name) + ", not multiplied with values";
  }

  // Why its axes, dims or mask do not fit; empty: they do.
  std::string misfit(const Graph& graph, const Site& site) const {
    const Node& node = graph.nodes[site.softmax];
    const Node &scores = graph.nodes[site.chain.product], &user = graph.nodes[site.user];
    const auto rank = static_cast<std::int64_t>(graph.type(node.inputs[0]).shape.size());
    const std::int64_t axis = node.attrs.integer("axis", node.op->until < 13 ? 1 : -1);
    if (rank < 2 || (axis != -1 && axis != rank - 1)) return "the softmax is not over the keys";
    const std::int64_t keys = graph.type(user.inputs[0]).shape.back();
    if (keys >= 0 && keys < min_keys_)
      return std::to_string(keys) + " keys: keeping their probabilities costs little (min_keys)";
    for (const ValueId operand : {scores.inputs[0], scores.inputs[1], user.inputs[1]})
      if (graph.type(operand).shape.size() != static_cast<std::size_t>(rank))
        return "the operands have different numbers of dims";
    const Shape &left = graph.type(scores.inputs[0]).shape, &right = graph.type(scores.inputs[1]).shape,
                &values = graph.type(user.inputs[1]).shape;
    for (std::size_t i = 0; i + 2 < left.size(); ++i)
      if (left[i] != right[i] || left[i] != values[i]) return "batch dims of the operands differ";
    if (graph.type(scores.outputs[0]).shape != graph.type(node.inputs[0]).shape)
      return "the mask broadcasts the scores";
    if (site.chain.mask != kNone && depends_on_trained(graph, site.chain.mask)) return "the mask is trained";
    return "";
  }

  static void rewrite(Rewriter& rw, Site site) {
    const Graph& graph = rw.graph();
    const NodeId softmax = site.softmax, user = site.user;
    const Chain& chain = site.chain;
    const Operand &q = site.q, &k = site.k, &v = site.v;
    Attrs& attrs = site.attrs;
    const double scale = chain.scale * q.scale * k.scale;
    if (scale != 1) attrs.set("scale", scale);
    Perm perm_k = k.perm;
    std::swap(perm_k[perm_k.size() - 1],
              perm_k[perm_k.size() - 2]);  // the product multiplies with keys transposed
    set_perm(attrs, "perm_q", q.perm);
    set_perm(attrs, "perm_k", perm_k);
    set_perm(attrs, "perm_v", v.perm);
    if (graph.nodes[softmax].attrs.integer("safe") != 0) attrs.set("safe", std::int64_t{1});
    std::vector<ValueId> inputs = {q.value, k.value, v.value};
    if (chain.mask != kNone) {
      inputs.push_back(chain.mask);
      attrs.set("mask", chain.mode);
      if (chain.mode != "add") attrs.set("fill", chain.fill);
    }
    std::vector<NodeId>& replaced = site.replaced;
    replaced.insert(replaced.end(), chain.inside.begin(), chain.inside.end());
    for (const Operand* operand : {&q, &k, &v}) {
      for (const NodeId id : operand->nodes) {
        if (single_reader(rw, graph.nodes[id].outputs[0]) == kNone) break;  // it stays for others
        replaced.push_back(id);
      }
    }
    ValueId result = graph.nodes[user].outputs[0];
    if (const NodeId after = single_reader(rw, result);
        after != kNone && is_op(graph.nodes[after], "Transpose")) {
      set_perm(attrs, "perm_y", perm_of_transpose(graph, graph.nodes[after]));
      result = graph.nodes[after].outputs[0];
      replaced.push_back(after);
    }
    GraphBuilder& b = rw.begin("attention", softmax, replaced);
    rw.replace(result, b.op("FusedAttention", inputs, std::move(attrs)));
    rw.commit("probabilities are not written to memory");
  }

  // Sets what FusedAttention drops. The reason when it cannot, or when its result has other readers than one.
  static std::string read_dropout(const Rewriter& rw, const Node& node, Attrs& attrs) {
    const Graph& graph = rw.graph();
    const auto input = [&](std::size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNone; };
    double ratio = 0.5, training = 0;
    if (input(1) != kNone && !scalar_constant(graph, input(1), &ratio))
      return "the ratio of the dropout is not known before running";
    if (input(2) != kNone && !scalar_constant(graph, input(2), &training))
      return "whether the dropout drops is not known before running";
    if (node.outputs.size() > 1 && node.outputs[1] != kNone && rw.use_count(node.outputs[1]) != 0)
      return "the mask of the dropout is read";
    if (training != 0 && ratio > 0) {
      attrs.set("dropout", ratio);
      attrs.set("key", static_cast<std::int64_t>(random_key(node.attrs, node.name)));
      copy_rank_part(node.attrs, attrs);
    }
    const ValueId kept = node.outputs[0];
    if (rw.uses(kept).empty()) return "nothing reads the probabilities";
    return used_elsewhere(rw, kept, {rw.uses(kept)[0].node});
  }

  // From the softmax's input up to the product: at most one mask, then scalings. The reason when a value on
  // the way is read elsewhere.
  static std::string follow(const Rewriter& rw, ValueId at, NodeId reader, Chain& chain) {
    const Graph& graph = rw.graph();
    const std::size_t rank = graph.type(at).shape.size();
    std::string shared;
    for (NodeId id; (id = graph.values[at].producer) != kNone; reader = id) {
      if (shared.empty()) shared = used_elsewhere(rw, at, {reader});
      chain.inside.push_back(id);
      if (is_op(graph.nodes[id], "MatMul")) {
        chain.product = id;
        return shared;
      }
      if (const auto scaling = read_scaling(graph, id)) {
        chain.scale *= scaling->factor;
        at = scaling->value;
      } else if (chain.mask == kNone && chain.scale == 1) {  // a mask stands behind the scaling
        at = read_mask(graph, graph.nodes[id], chain);
      } else {
        return "";
      }
      if (at == kNone || graph.type(at).shape.size() != rank) return "";
    }
    return "";
  }

  // What the mask is applied to; kNone when the node applies none.
  static ValueId read_mask(const Graph& graph, const Node& node, Chain& chain) {
    if (is_op(node, "Where")) {
      for (const std::size_t filled : {1, 2}) {
        if (!scalar_constant(graph, node.inputs[filled], &chain.fill)) continue;
        chain.mask = node.inputs[0];
        chain.mode = filled == 1 ? "block" : "keep";
        return node.inputs[3 - filled];
      }
    } else if (is_op(node, "Add")) {
      const std::size_t scores = leads_to_product(graph, node.inputs[0]) ? 0 : 1;
      chain.mask = node.inputs[1 - scores];
      chain.mode = "add";
      return node.inputs[scores];
    }
    return kNone;
  }

  static bool leads_to_product(const Graph& graph, ValueId at) {
    const Operand behind = operand_of(graph, at, true);
    const Node* node = maker(graph, behind.value);
    return node != nullptr && is_op(*node, "MatMul") && is_identity(behind.perm);
  }

  // Probabilities of fewer keys stay in the CPU's caches, and its products of them are larger than those of a block of rows. A GPU's
  // kernels of one piece save their memory and four launches whatever their number is.
  static constexpr std::int64_t kKeysOnCpu = 256;
  std::int64_t min_keys_ = 0;  // 0: of the target
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
    .summary = "compute attention without storing its probabilities",
    .doc =
        "MatMul, scaling, mask, Softmax and MatMul become one FusedAttention: rows of queries are taken in "
        "blocks, the probabilities of a "
        "block stay in a small workspace, and the gradient computes them again. A step keeps no [queries, "
        "keys] tensor, and keys that a "
        "known mask hides (a causal one) are not multiplied at all. A dropout on the "
        "probabilities drops the same ones inside. Needs a softmax over the keys and a mask that is not "
        "trained.",
    .phase = PassPhase::pre_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseAttention); },
    .example = example,
};

}  // namespace gradloom
