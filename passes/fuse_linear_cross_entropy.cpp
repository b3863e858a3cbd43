// fuse-linear-cross-entropy: the vocabulary head. Before autodiff
//   y = SoftmaxCrossEntropyLoss(rows of (x w + bias), labels)  becomes  LinearCrossEntropyLoss(x', w, bias, labels)
// where what lies between the product and the loss (Reshape, Slice or Gather of rows, a Transpose that brings the
// classes to axis 1, a Cast that widens) is done to x instead, which is narrower; after autodiff its loss and its
// gradients become one node, so that a chunk's logits are computed once (engine/ops/losses/linear_cross_entropy_loss.cpp).
// PartScores, of a vocabulary that ranks share, becomes LinearPartScores in the same way; its gradients stay apart.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/ops/copies.h"
#include "engine/ops/inference.h"
#include "engine/ops/losses/linear_head.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr const char *kRule = "linear-cross-entropy", *kMergeRule = "loss-with-gradients";

// The way from the logits that the loss reads up to the product that makes them.
struct Head {
  NodeId loss = kNone;
  // Nodes from the product to the loss that are done to x instead, in this order
  std::vector<NodeId> between;
  std::vector<NodeId> nodes;  // all that the rewrite replaces, the loss first
  ValueId x = kNone, w = kNone, bias = kNone;
  bool transposed = false;
  std::int64_t n = 0, k = 0, classes = 0;
};

std::int64_t axis_of(std::int64_t axis, const Shape& shape) {
  return axis < 0 ? axis + static_cast<std::int64_t>(shape.size()) : axis;
}

std::string name_of(const Node& node) { return std::string(node.op->name) + " " + node.name; }

// Why what the node does to [.., classes] cannot be done to the rows of x; empty: it can.
std::string moves_rows(const Graph& graph, const Node& node) {
  const std::string_view op = node.op->name;
  const Shape &in = graph.type(node.inputs[0]).shape, &out = graph.type(node.outputs[0]).shape;
  if (op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Flatten") {
    if (in.empty() || out.empty() || in.back() != out.back()) return name_of(node) + " splits the classes";
    return "";
  }
  if (op == "Gather") {
    if (axis_of(node.attrs.integer("axis"), in) + 1 == static_cast<std::int64_t>(in.size()))
      return name_of(node) + " takes classes, not rows";
    return "";
  }
  if (op == "Slice") {
    if (in.back() != out.back()) return name_of(node) + " takes part of the classes";
    const bool named = node.inputs.size() > 3 && node.inputs[3] != kNone;
    if (named && !is_constant(graph, node.inputs[3]))
      return name_of(node) + " has axes that are not constant";
    std::vector<std::int64_t> axes =
        named ? graph.values[node.inputs[3]].data.to_i64() : node.attrs.integers("axes");
    if (axes.empty()) return name_of(node) + " is along every axis";
    for (const std::int64_t axis : axes)
      if (axis_of(axis, in) + 1 == static_cast<std::int64_t>(in.size()))
        return name_of(node) + " is along the classes";
    return "";
  }
  return "node " + name_of(node) + " lies between the product and the loss";
}

// A Transpose that brings the last axis, the classes, to axis 1 and keeps the order of the others.
bool brings_classes_second(const Graph& graph, const Node& node) {
  if (!is_op(node, "Transpose")) return false;
  const Perm perm = perm_of_transpose(graph, node);
  if (perm.size() < 3 || perm[0] != 0 || perm[1] + 1 != static_cast<std::int64_t>(perm.size())) return false;
  for (std::size_t i = 2; i < perm.size(); ++i)
    if (perm[i] + 1 != static_cast<std::int64_t>(i)) return false;
  return true;
}

class Finder {
 public:
  Finder(const Rewriter& rw, NodeId loss) : rw_(rw), graph_(rw.graph()) {
    head_.loss = loss;
    head_.nodes = {loss};
  }

  // The reason when there is no such head.
  std::string find() {
    const Node& loss = graph_.nodes[head_.loss];
    if (std::string why = check_loss(loss); !why.empty()) return why;
    ValueId at = loss.inputs[0];
    if (graph_.type(at).shape.size() > 2) {
      const NodeId id = graph_.values[at].producer;
      if (id == kNone || !brings_classes_second(graph_, graph_.nodes[id]))
        return "the classes are in axis 1 of " + to_string(graph_.type(at).shape);
      if (std::string why = take(id); !why.empty()) return why;
      at = graph_.nodes[id].inputs[0];
    }
    for (;;) {
      const NodeId id = graph_.values[at].producer;
      if (id == kNone) return "the logits are not computed here";
      if (std::string why = take(id); !why.empty()) return why;
      const Node& node = graph_.nodes[id];
      if (is_op(node, "MatMul") || is_op(node, "Gemm") || is_op(node, "FusedMatMul")) return read(id);
      if (is_bias(node)) {
        if (head_.bias != kNone) return "two biases are added";
        at = take_bias(node);
        continue;
      }
      if (is_op(node, "Cast")) {
        if (graph_.type(at).dtype != statistics_type(graph_.type(node.inputs[0]).dtype))
          return name_of(node) + " does not widen";
      } else {
        if (std::string why = moves_rows(graph_, node); !why.empty()) return why;
        head_.between.insert(head_.between.begin(), id);
      }
      at = node.inputs[0];
    }
  }

  const Head& head() const { return head_; }

 private:
  std::string check_loss(const Node& loss) const {
    if (is_op(loss, "PartScores")) return "";
    const DType type = graph_.type(loss.inputs[0]).dtype;
    if (loss.attrs.text("reduction", "mean") == "none") return "the loss is not reduced to one number";
    for (std::size_t i = 1; i < loss.outputs.size(); ++i)
      if (loss.outputs[i] != kNone && rw_.use_count(loss.outputs[i]) > 0)
        return "its log-probabilities or sums are read";
    if (graph_.type(loss.outputs[0]).dtype != statistics_type(type))
      return std::string("the loss is ") + dtype_name(type);
    if (loss.inputs.size() > 2 && loss.inputs[2] != kNone && !is_constant(graph_, loss.inputs[2]))
      return "the class weight is not constant";
    return "";
  }

  // The node is replaced: nothing else may read its result.
  std::string take(NodeId id) {
    const ValueId value = graph_.nodes[id].outputs[0];
    if (std::string why = used_elsewhere(rw_, value, head_.nodes); !why.empty()) return why;
    head_.nodes.push_back(id);
    return "";
  }

  bool is_bias(const Node& node) const {
    if (!is_op(node, "Add")) return false;
    const Shape& out = graph_.type(node.outputs[0]).shape;
    const auto fits = [&](ValueId id, ValueId other) {
      const Shape& s = graph_.type(id).shape;
      return s.size() == 1 && s[0] == out.back() && out.size() > 1 && graph_.type(other).shape == out;
    };
    return fits(node.inputs[0], node.inputs[1]) != fits(node.inputs[1], node.inputs[0]);
  }
  ValueId take_bias(const Node& node) {
    const bool first = graph_.type(node.inputs[0]).shape.size() == 1;
    head_.bias = node.inputs[first ? 0 : 1];
    return node.inputs[first ? 1 : 0];
  }

  std::string read(NodeId id) {
    const auto product = read_product(graph_, id);
    if (!product) return name_of(graph_.nodes[id]) + " is no product of a matrix";
    const std::size_t rank = graph_.type(product->b).shape.size();
    if (rank != 2) return "the weight has " + std::to_string(rank) + " dims";
    if (product->alpha != 1) return "the product is scaled";
    if (product->activation != "none") return "the product has an activation";
    if (product->perm_a != identity_perm(product->perm_a.size()) ||
        product->perm_y != identity_perm(product->perm_y.size()))
      return "the product transposes its rows";
    if (product->bias != kNone && head_.bias != kNone) return "two biases are added";
    if (product->bias != kNone) head_.bias = product->bias;
    head_.x = product->a;
    head_.w = product->b;
    head_.transposed = product->perm_b[0] == 1;
    const NodeId from = graph_.values[head_.w].producer;
    if (from != kNone && is_op(graph_.nodes[from], "Transpose")) {
      head_.w = graph_.nodes[from].inputs[0];
      head_.transposed = !head_.transposed;
      if (rw_.use_count(product->b) == 1) head_.nodes.push_back(from);
    }
    const DType type = graph_.type(head_.x).dtype;
    if (head_.bias != kNone && graph_.type(head_.bias).dtype != type)
      return std::string("the bias is ") + dtype_name(graph_.type(head_.bias).dtype);
    head_.k = graph_.type(head_.x).shape.back();
    head_.classes = graph_.type(graph_.nodes[head_.loss].inputs[0]).shape[1];
    head_.n = element_count(graph_.type(graph_.nodes[head_.loss].inputs[1]).shape);
    return "";
  }

  const Rewriter& rw_;
  const Graph& graph_;
  Head head_;
};

bool is_static_type(const Graph& graph, ValueId id) {
  return graph.values[id].has_type && is_static(graph.type(id).shape);
}

// What was done to the logits [.., classes], done to x [.., k]; as [n, k].
ValueId rows_of_x(GraphBuilder& b, const Head& head) {
  ValueId x = head.x;
  for (const NodeId id : head.between) {
    const Node node = b.graph().nodes[id];
    if (is_op(node, "Slice") || is_op(node, "Gather")) {
      std::vector<ValueId> inputs = node.inputs;
      inputs[0] = x;
      x = b.op(*node.op, inputs, node.attrs);
    } else {
      Shape shape = b.graph().type(node.outputs[0]).shape;
      shape.back() = head.k;
      x = b.reshape(x, shape);
    }
  }
  const Shape flat = {head.n, head.k};
  return b.shape(x) == flat ? x : b.reshape(x, flat);
}

class FuseLinearCrossEntropy final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("min_mib", min_mib_,
            {.help = "logits of less, in f32, are left as they are", .min = 0, .max = 1 << 20});
    v.field("chunk_mib", chunk_mib_,
            {.help = "logits that exist at a time, in f32; 0: 128 on the CPU, 400 on GPUs",
             .min = 0,
             .max = 1 << 20});
  }

  Status run_for(kernels::Target target, Rewriter& rw) const override {
    FuseLinearCrossEntropy of_target = *this;
    if (chunk_mib_ == 0) of_target.chunk_mib_ = target == kernels::Target::cpu ? kMibOnCpu : kMibOnGpu;
    return of_target.fuse_all(rw);
  }
  Status run(Rewriter& rw) const override { return run_for(kernels::Target::cpu, rw); }

 private:
  Status fuse_all(Rewriter& rw) const {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    const bool trained = std::any_of(order.begin(), order.end(), [&](NodeId id) {
      return rw.graph().nodes[id].origin.phase == Phase::backward;
    });
    for (const NodeId id : order) {
      const Node& node = rw.graph().nodes[id];
      if (!node.alive()) continue;
      const bool merges = is_op(node, "LinearCrossEntropyGrad");
      const bool loss = is_op(node, "SoftmaxCrossEntropyLoss") || is_op(node, "PartScores");
      if (loss && !trained) fuse(rw, id);  // moves the graph's nodes
      if (merges) merge(rw, id);
    }
    return {};
  }

  void fuse(Rewriter& rw, NodeId id) const {
    const Graph& graph = rw.graph();
    const Node& loss = graph.nodes[id];
    if (!is_static_type(graph, loss.inputs[0]) || !is_static_type(graph, loss.inputs[1])) return;
    const double mib = 4.0 * static_cast<double>(element_count(graph.type(loss.inputs[0]).shape)) / (1 << 20);
    if (mib < static_cast<double>(min_mib_))
      return rw.reject(kRule, id, "the logits take less than " + std::to_string(min_mib_) + " MiB (min_mib)");
    Finder finder(rw, id);
    if (const std::string why = finder.find(); !why.empty()) return rw.reject(kRule, id, why);
    if (!rw.allowed(kRule, id, finder.head().nodes)) return;
    const Head& head = finder.head();
    const Node node = loss;
    const bool scores = is_op(node, "PartScores");
    Attrs attrs{{"chunk_rows", std::min(head.n, chunk_rows(head.n, head.classes, chunk_mib_ << 20))}};
    if (scores)
      attrs.set("parts", node.attrs.integer("parts"));
    else
      attrs.set("reduction", node.attrs.text("reduction", "mean"));
    if (scores && node.attrs.has("classes")) attrs.set("classes", node.attrs.integer("classes"));
    if (head.transposed) attrs.set("axis", std::int64_t{0});
    if (node.attrs.has("ignore_index")) attrs.set("ignore_index", node.attrs.integer("ignore_index"));
    GraphBuilder& b = rw.begin(kRule, id, head.nodes);
    ValueId labels = node.inputs[1];
    if (graph.type(labels).shape.size() != 1) labels = b.reshape(labels, {head.n});
    std::vector<ValueId> inputs = {rows_of_x(b, head), head.w, head.bias, labels};
    if (node.inputs.size() > 2 && node.inputs[2] != kNone) inputs.push_back(node.inputs[2]);
    ValueId result = b.op(scores ? "LinearPartScores" : "LinearCrossEntropyLoss", inputs, attrs);
    if (const Shape shape = b.shape(node.outputs[0]); b.shape(result) != shape)
      result = b.reshape(result, shape);
    rw.replace(node.outputs[0], result);
    rw.commit("of " + bytes_of(mib) + " of logits " +
              bytes_of(4.0 * static_cast<double>(attrs.integer("chunk_rows")) *
                       static_cast<double>(head.classes) / (1 << 20)) +
              " exist at a time");
  }

  static std::string bytes_of(double mib) { return std::to_string(std::llround(mib)) + " MiB"; }

  // The node with the loss of these operands and of this kind.
  static NodeId loss_of(const Rewriter& rw, const Node& gradient) {
    for (const Use& use : rw.uses(gradient.inputs[1])) {
      const Node& node = rw.graph().nodes[use.node];
      if (node.alive() && is_op(node, "LinearCrossEntropyLoss") && node.outputs[0] != kNone &&
          std::equal(node.inputs.begin(), node.inputs.end(), gradient.inputs.begin() + 1,
                     gradient.inputs.end()) &&
          node.attrs == gradient.attrs)
        return use.node;
    }
    return kNone;
  }

  // The Casts to the type of sums that alone read the gradient; empty: something else does.
  static std::vector<NodeId> widening_readers(const Rewriter& rw, ValueId gradient, DType to) {
    std::vector<NodeId> casts;
    if (gradient == kNone || rw.uses(gradient).size() != rw.use_count(gradient)) return {};
    for (const Use& use : rw.uses(gradient)) {
      const Node& node = rw.graph().nodes[use.node];
      if (!is_op(node, "Cast") || rw.graph().type(node.outputs[0]).dtype != to) return {};
      casts.push_back(use.node);
    }
    return casts;
  }

  static void merge(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node gradient = graph.nodes[id];
    if (gradient.outputs[0] != kNone && rw.use_count(gradient.outputs[0]) > 0) return;
    const NodeId loss = loss_of(rw, gradient);
    if (loss == kNone) return;
    if (graph.loss == kNone)  // a module: its caller brings the gradient of the loss
      return rw.reject(kMergeRule, loss, "forward and backward run apart: the product is computed twice");
    if (leads_to(rw, loss, id))
      return rw.reject(kMergeRule, loss, "the gradient depends on the loss: the product is computed twice");
    if (!rw.allowed(kMergeRule, loss, {loss, id})) return;
    const DType type = graph.type(gradient.inputs[1]).dtype, sums = statistics_type(type);
    std::vector<NodeId> casts, replaced = {loss, id};
    if (sums != type) {
      casts = widening_readers(rw, gradient.outputs[2], sums);
      if (gradient.outputs.size() > 3 && rw.use_count(gradient.outputs[3]) > 0) {
        const auto more = widening_readers(rw, gradient.outputs[3], sums);
        if (more.empty()) casts.clear();
        if (!casts.empty()) casts.insert(casts.end(), more.begin(), more.end());
      }
      replaced.insert(replaced.end(), casts.begin(), casts.end());
    }
    Attrs attrs = gradient.attrs;
    if (!casts.empty()) attrs.set("wide_gradients", std::int64_t{1});
    GraphBuilder& b = rw.begin(kMergeRule, loss, replaced);
    const auto out = b.ops(*gradient.op, gradient.inputs, attrs, static_cast<int>(gradient.outputs.size()));
    rw.replace(graph.nodes[loss].outputs[0], out[0]);
    if (gradient.outputs.size() > 1 && gradient.outputs[1] != kNone) rw.replace(gradient.outputs[1], out[1]);
    for (const NodeId cast : casts)
      rw.replace(graph.nodes[cast].outputs[0],
                 graph.nodes[cast].inputs[0] == gradient.outputs[2] ? out[2] : out[3]);
    for (std::size_t i = 2; i < gradient.outputs.size() && casts.empty(); ++i)
      if (gradient.outputs[i] != kNone) rw.replace(gradient.outputs[i], out[i]);
    rw.commit("the logits are computed once");
  }

  // On a GPU every chunk reads and writes the weight's gradient in f32: of 50257 classes 2000 rows or more keep the products busier
  // with multiplying than with that.
  static constexpr std::int64_t kMibOnCpu = 128, kMibOnGpu = 400;
  std::int64_t min_mib_ = 8, chunk_mib_ = 0;  // 0: of the target
};

Result<PassExample> example() {
  constexpr std::int64_t n = 1024, k = 4, classes = 2048;
  PassExample e;
  GraphBuilder b(e.before);
  const auto inputs = [&](GraphBuilder& g) {
    return std::vector<ValueId>{g.input("x", {DType::f32, {n, k}}), g.input("w", {DType::f32, {k, classes}}),
                                g.input("labels", {DType::i64, {n}})};
  };
  const std::vector<ValueId> in = inputs(b);
  e.before.outputs = {b.op("SoftmaxCrossEntropyLoss", {b.op("MatMul", {in[0], in[1]}), in[2]})};
  GraphBuilder a(e.after);
  const std::vector<ValueId> ain = inputs(a);
  e.after.outputs = {a.op("LinearCrossEntropyLoss", {ain[0], ain[1], kNone, ain[2]},
                          {{"chunk_rows", n}, {"reduction", std::string("mean")}})};
  return e;
}

}  // namespace

extern const PassDef fuse_linear_cross_entropy_pass;
const PassDef fuse_linear_cross_entropy_pass = {
    .name = "fuse-linear-cross-entropy",
    .summary = "compute the vocabulary head in chunks of rows: its logits never exist whole",
    .doc =
        "A matrix product whose rows are the logits of a softmax cross-entropy becomes one kernel that takes some rows "
        "at a time: logits, loss and, in training, the gradients of the chunk with respect to its operands. A reshape "
        "between the two, and a slice or gather of rows, is done to the product's operand instead, so that rows which "
        "the loss does not read are not computed; on the CPU nor are rows whose label is ignored. Needs one number as "
        "loss, logits that nothing else reads and that take min_mib, and a weight of 2 dims. Of a vocabulary that ranks "
        "share (tensor-parallel) each rank takes its part in the same way, and its logits are computed again backward.",
    .phase = PassPhase::both,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseLinearCrossEntropy); },
    .example = example,
};

}  // namespace gradloom
