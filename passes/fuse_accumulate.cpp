// fuse-accumulate: with --accumulate, what makes a gradient adds it to the accumulator itself; other gradients are added together.
//   rows      next = Accumulate(acc, GatherGrad(dy, indices), micro)   becomes  next = AccumulateRows(acc, micro, dy, indices)
//             next = Accumulate(acc, GatherGrad(.., base), micro)      becomes  next = AccumulateRows(Accumulate(acc, base, micro), dy, ..)
//   product   next = Accumulate(acc, [Cast] A B, micro)                becomes  next = AccumulateMatMul(acc, micro, A, B)
//   head      next = Accumulate(acc, dw, micro), dw of LinearCrossEntropyGrad  becomes  AccumulateLinearCrossEntropy(acc, micro, ..), on every device
//   together  next_i = Accumulate(acc_i, g_i, micro)                   become   next_0, .. = Accumulate(acc_0, .., g_0, .., micro)
// Each runs as soon as the gradients are there, not at the end of the backward pass.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "engine/ir/op.h"
#include "engine/ops/inference.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/product.h"

namespace gradloom {
namespace {

constexpr const char *kProduct = "accumulate", *kRows = "rows", *kHead = "head", *kTogether = "together";

// An Accumulate of one gradient: acc, gradient, micro.
bool adds_one(const Node& node) { return is_op(node, "Accumulate") && node.inputs.size() == 3; }

class FuseAccumulate final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("together_kib", together_kib_,
            {.help = "gradients that one kernel adds have so much together; larger ones are added alone",
             .min = 0,
             .max = 1 << 30});
  }

  Status run(Rewriter& rw) const override { return run_for(kernels::Target::cpu, rw); }

  Status run_for(kernels::Target target, Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph())))
      if (adds_one(rw.graph().nodes[id])) add_rows(rw, id);
    for (const NodeId id : TRY(topological_order(rw.graph())))
      if (adds_one(rw.graph().nodes[id])) add_head(rw, id);
    // On a GPU, where the host does not see the micro-batch's number, a product and its sum stay two kernels.
    if (target == kernels::Target::cpu)
      for (const NodeId id : TRY(topological_order(rw.graph())))
        if (adds_one(rw.graph().nodes[id])) add_product(rw, id);
    return add_together(rw);
  }

 private:
  static void add_rows(Rewriter& rw, NodeId id) {
    const Node node = rw.graph().nodes[id];
    const NodeId producer = rw.graph().values[node.inputs[1]].producer;
    if (producer == kNone || !is_op(rw.graph().nodes[producer], "GatherGrad")) return;
    const Node rows = rw.graph().nodes[producer];
    if (rw.graph().type(node.inputs[0]) != rw.graph().type(node.inputs[1]))
      return rw.reject(kRows, id, "the accumulator has another type than the rows");
    if (const std::string why = used_elsewhere(rw, node.inputs[1], {id}); !why.empty())
      return rw.reject(kRows, id, why);
    if (!rw.allowed(kRows, id, {id, producer})) return;
    const std::int64_t count = node.attrs.integer("count", 1);
    ValueId sums = node.inputs[0], micro = node.inputs[2];
    GraphBuilder& b = rw.begin(kRows, id, {id, producer});
    if (rows.inputs.size() > 3 && rows.inputs[3] != kNone) {
      const BuildScope there(b, at_rank(b, rank_of(rw.graph(), rows.inputs[3])));
      sums = b.op("Accumulate", {sums, rows.inputs[3], micro}, {{"count", count}});
      micro = kNone;
    }
    const BuildScope there(b, at_rank(b, rows.rank));
    rw.replace(node.outputs[0], b.op("AccumulateRows", {sums, micro, rows.inputs[0], rows.inputs[1]},
                                     {{"axis", rows.attrs.integer("axis")}, {"count", count}}));
    rw.commit();
    // The base may be rows of another Gather of the same table.
    if (micro == kNone) add_rows(rw, rw.graph().values[sums].producer);
  }

  // The gradient of a vocabulary head's weight, which is made in chunks.
  static void add_head(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node node = graph.nodes[id];
    const ValueId gradient = node.inputs[1];
    const NodeId producer = graph.values[gradient].producer;
    if (producer == kNone || !is_op(graph.nodes[producer], "LinearCrossEntropyGrad")) return;
    const Node head = graph.nodes[producer];
    if (head.outputs.size() < 3 || head.outputs[2] != gradient) return;  // the bias's
    if (graph.type(node.inputs[0]).dtype != statistics_type(graph.type(head.inputs[1]).dtype))
      return rw.reject(kHead, producer, "the accumulator has another type than the sums");
    if (const std::string why = used_elsewhere(rw, gradient, {id}); !why.empty())
      return rw.reject(kHead, producer, why);
    if (!rw.allowed(kHead, producer, {id, producer})) return;
    Attrs attrs = head.attrs;
    attrs.set("count", node.attrs.integer("count", 1));
    std::vector<ValueId> inputs = {node.inputs[0], node.inputs[2]};
    inputs.insert(inputs.end(), head.inputs.begin(), head.inputs.end());
    GraphBuilder& b = rw.begin(kHead, producer, {id, producer});
    const auto made = b.ops(op_by_name("AccumulateLinearCrossEntropy"), inputs, std::move(attrs),
                            static_cast<int>(head.outputs.size()));
    for (std::size_t i = 0; i < made.size(); ++i)
      if (i != 2 && head.outputs[i] != kNone) rw.replace(head.outputs[i], made[i]);
    rw.replace(node.outputs[0], made[2]);
    rw.commit();
  }

  static void add_product(Rewriter& rw, NodeId id) {
    const Graph& graph = rw.graph();
    const Node node = graph.nodes[id];
    std::vector<NodeId> nodes = {id};
    ValueId value = node.inputs[1];
    NodeId producer = graph.values[value].producer;
    if (producer != kNone && is_op(graph.nodes[producer], "Cast")) {
      const ValueId narrow = graph.nodes[producer].inputs[0];
      if (graph.type(value).dtype != statistics_type(graph.type(narrow).dtype)) return;
      if (const std::string why = used_elsewhere(rw, value, nodes); !why.empty())
        return rw.reject(kProduct, id, why);
      nodes.push_back(producer);
      value = narrow;
      producer = graph.values[value].producer;
    }
    if (producer == kNone) return;
    const auto product = read_product(graph, producer);
    if (!product) return;
    if (const std::string why = problem(rw, value, nodes, *product); !why.empty())
      return rw.reject(kProduct, id, why);
    if (!rw.allowed(kProduct, id)) return;
    nodes.push_back(producer);
    Attrs attrs = layout_attrs(*product);
    attrs.set("count", node.attrs.integer("count", 1));
    const std::int64_t rank = graph.nodes[producer].rank;
    GraphBuilder& b = rw.begin(kProduct, id, nodes);
    const BuildScope there(b, at_rank(b, rank));
    rw.replace(
        node.outputs[0],
        b.op("AccumulateMatMul", {node.inputs[0], node.inputs[2], product->a, product->b}, std::move(attrs)));
    rw.commit();
  }

  struct Bucket {
    std::vector<NodeId> nodes;
    std::int64_t bytes = 0;
  };

  // As many as make up together_kib, in the order in which their gradients are complete.
  Status add_together(Rewriter& rw) const {
    const Graph& graph = rw.graph();
    std::vector<std::size_t> place(graph.nodes.size(), 0);
    std::vector<NodeId> found;
    const std::vector<NodeId> order = TRY(topological_order(graph));
    for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    const auto complete = [&](NodeId id) {
      const NodeId maker = graph.values[graph.nodes[id].inputs[1]].producer;
      return maker == kNone ? 0 : place[maker];
    };
    for (const NodeId id : order)
      if (adds_one(graph.nodes[id]) && is_static(graph.type(graph.nodes[id].inputs[0]).shape))
        found.push_back(id);
    std::stable_sort(found.begin(), found.end(),
                     [&](NodeId a, NodeId b) { return complete(a) < complete(b); });
    std::map<std::string, Bucket> open;
    std::vector<std::vector<NodeId>> full;
    for (const NodeId id : found) {
      const Node& node = graph.nodes[id];
      const Type& type = graph.type(node.inputs[0]);
      const auto bytes = static_cast<std::int64_t>(byte_size(type));
      if (bytes > together_kib_ * 1024) {
        rw.reject(kTogether, id, "the gradient is larger than together_kib");
        continue;
      }
      if (!rw.allowed(kTogether, id)) continue;
      const std::string key = std::string(dtype_name(type.dtype)) + " " + to_string(node.attrs) + " " +
                              std::to_string(node.inputs[2]);
      Bucket& bucket = open[key];
      if (bucket.bytes + bytes > together_kib_ * 1024) full.push_back(std::move(bucket.nodes)), bucket = {};
      bucket.nodes.push_back(id);
      bucket.bytes += bytes;
    }
    for (auto& [key, bucket] : open) full.push_back(std::move(bucket.nodes));
    for (const std::vector<NodeId>& nodes : full)
      if (nodes.size() > 1) TRY(merge(rw, nodes));
    return {};
  }

  static Status merge(Rewriter& rw, const std::vector<NodeId>& nodes) {
    const Graph& graph = rw.graph();
    std::vector<ValueId> inputs, gradients, old_outputs;
    std::int64_t rank = rank_of(graph, graph.nodes[nodes[0]].inputs[1]);
    for (const NodeId id : nodes) {
      const Node& node = graph.nodes[id];
      inputs.push_back(node.inputs[0]);
      gradients.push_back(node.inputs[1]);
      old_outputs.push_back(node.outputs[0]);
      rank = std::max(rank, rank_of(graph, node.inputs[1]));
    }
    inputs.insert(inputs.end(), gradients.begin(), gradients.end());
    const Node first = graph.nodes[nodes[0]];
    inputs.push_back(first.inputs[2]);
    GraphBuilder& b = rw.begin(kTogether, nodes[0], nodes);
    const BuildScope there(b, at_rank(b, rank));
    const auto outputs = TRY(b.add(*first.op, inputs, first.attrs, static_cast<int>(old_outputs.size()), {},
                                   b.unique_name("all/Accumulate")));
    for (std::size_t i = 0; i < outputs.size(); ++i) rw.replace(old_outputs[i], outputs[i]);
    rw.commit(std::to_string(nodes.size()) + " gradients in one kernel");
    return {};
  }

  // Of what makes the value; of what nothing makes: the first.
  static std::int64_t rank_of(const Graph& graph, ValueId value) {
    const NodeId producer = graph.values[value].producer;
    return producer == kNone ? 0 : graph.nodes[producer].rank;
  }
  static BuildContext at_rank(const GraphBuilder& b, std::int64_t rank) {
    return {b.context().origin, rank, b.context().name_prefix};
  }

  static std::string problem(const Rewriter& rw, ValueId value, const std::vector<NodeId>& inside,
                             const Product& product) {
    if (product.bias != kNone || product.activation != "none")
      return "the product has a bias or an activation";
    const Type& type = rw.graph().type(value);
    if (!is_static(type.shape) || element_count(type.shape) == 0 ||
        rw.graph().type(product.a).shape.back() == 0)
      return "there is nothing to multiply";
    return used_elsewhere(rw, value, inside);
  }

  std::int64_t together_kib_ = 4096;
};

// A weight's gradient, an embedding's, and those of a scale and a bias.
Result<PassExample> example() {
  const Attrs turned{{"perm_a", Perm{1, 0}}}, half{{"count", std::int64_t{2}}};
  Attrs counted = turned, rows = half;
  counted.set("count", std::int64_t{2});
  rows.set("axis", std::int64_t{0});
  const auto build = [&](Graph& graph, bool fused) {
    GraphBuilder b(graph, {.origin = {{}, Phase::backward}});
    const ValueId micro = b.input("micro", {DType::i64, {}}, Role::hyper);
    std::vector<ValueId> acc;
    for (const Shape& shape : {Shape{4, 3}, Shape{9, 4}, Shape{4}, Shape{4}})
      acc.push_back(b.input("acc" + std::to_string(acc.size()), {DType::f32, shape}, Role::state));
    const ValueId x = b.input("x", {DType::f32, {8, 4}}), dy = b.input("dy", {DType::f32, {8, 3}}),
                  tokens = b.input("tokens", {DType::i64, {8}}), dx = b.input("dx", {DType::f32, {8, 4}});
    const auto add = [&](std::size_t i, ValueId gradient) {
      return b.op("Accumulate", {acc[i], gradient, micro}, half);
    };
    const ValueId scale = b.input("dscale", {DType::f32, {4}}), bias = b.input("dbias", {DType::f32, {4}});
    if (!fused) {
      const ValueId table = b.op("GatherGrad", {dx, tokens, b.i64s({9, 4})}, {{"axis", std::int64_t{0}}});
      graph.updates = {{acc[0], add(0, b.op("FusedMatMul", {x, dy}, turned))},
                       {acc[1], add(1, table)},
                       {acc[2], add(2, scale)},
                       {acc[3], add(3, bias)}};
      return;
    }
    const ValueId table = b.op("AccumulateRows", {acc[1], micro, dx, tokens}, rows),
                  product = b.op("AccumulateMatMul", {acc[0], micro, x, dy}, counted);
    const auto sums = b.ops(op_by_name("Accumulate"), {acc[2], acc[3], scale, bias, micro}, half, 2);
    graph.updates = {{acc[0], product}, {acc[1], table}, {acc[2], sums[0]}, {acc[3], sums[1]}};
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef fuse_accumulate_pass;
const PassDef fuse_accumulate_pass = {
    .name = "fuse-accumulate",
    .summary = "add gradients to their accumulators where they are made, the others in one kernel",
    .doc =
        "With --accumulate, what makes a gradient adds it to the accumulator itself: on the CPU a matrix product (BLAS's beta = 1), in "
        "f32 where its operands are bf16, and on every device the rows of an embedding's gradient, which touch only the rows that a "
        "micro-batch names, and that of a vocabulary head, chunk by chunk. So the gradient is not written and read once more, and needs no memory. The others, of biases and scales, "
        "are added by one kernel for each together_kib of them. Nothing is cleared: a step's first micro-batch writes, the others add.",
    .phase = PassPhase::post_gradient,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new FuseAccumulate); },
    .example = example,
};

}  // namespace gradloom
