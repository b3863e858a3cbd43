// sync-batchnorm: BatchNormalization takes mean and variance of all ranks' batches together, as torch.nn.SyncBatchNorm.
//   mean = mean over ranks of m_r; variance = mean over ranks of (v_r + (m_r - mean)^2)   (Chan, Golub, LeVeque 1979)
//   dx = scale inv_std (dy - mean over ranks of sum(dy) / n - xhat mean over ranks of sum(dy xhat) / n), n numbers in a channel of a rank
// Every rank has as many samples. Gradients of scale and bias stay those of the rank: they are averaged as all gradients are.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/channel_blocks.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/sync_batch_norm.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

constexpr const char* kRule = "batchnorm";
constexpr double kMomentum = 0.9;  // without the attribute

// A BatchNormalization that trains, and what it leaves.
struct Found {
  NodeId node = kNone;
  std::vector<NodeId> gradients;  // BatchNormGrad
  std::vector<NodeId> means;      // over the ranks, of the new running statistics
};

struct Statistics {
  ValueId mean = kNone, inv_std = kNone;
};

class SyncBatchNorm final : public Pass {
 public:
  Status run(Rewriter& rw) const override {
    const std::int64_t ranks = rank_count(rw.graph());
    if (ranks == 0) return {};
    for (const NodeId id : TRY(topological_order(rw.graph()))) {
      const Node& node = rw.graph().nodes[id];
      if (!is_op(node, "BatchNormalization") || node.outputs.size() < 2) continue;
      Found found{id};
      if (const std::string why = follow(rw, found); !why.empty()) {
        rw.reject(kRule, id, why);
        continue;
      }
      if (rw.allowed(kRule, id)) TRY(replace(rw, found, ranks));
    }
    return {};
  }

 private:
  // 0: the graph exchanges nothing.
  static std::int64_t rank_count(const Graph& graph) {
    for (const Node& node : graph.nodes)
      if (node.alive() && (node.op == &all_reduce_op() || node.op == &all_reduce_begin_op()))
        return node.attrs.integer("ranks");
    return 0;
  }

  // Why not; empty: all that reads the node's statistics is found.
  static std::string follow(const Rewriter& rw, Found& found) {
    const Graph& graph = rw.graph();
    const Node& node = graph.nodes[found.node];
    if (!is_static(graph.type(node.inputs[0]).shape)) return "its sizes are not known";
    const double momentum = node.attrs.real("momentum", kMomentum);
    if (momentum < 0 || momentum >= 1) return "its running statistics stay as they are";
    for (std::size_t i = 1; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      for (const Use& use : rw.uses(node.outputs[i])) {
        const Node& reader = graph.nodes[use.node];
        const bool gradient = i >= 3 && is_op(reader, "BatchNormGrad");
        const bool mean = i < 3 && reader.op == &all_reduce_op() && reader.inputs.size() == 1;
        if (!gradient && !mean) return "others than its gradient read its statistics";
        std::vector<NodeId>& nodes = gradient ? found.gradients : found.means;
        if (std::find(nodes.begin(), nodes.end(), use.node) == nodes.end()) nodes.push_back(use.node);
      }
    }
    return "";
  }

  static ValueId mean_over_ranks(GraphBuilder& b, ValueId value, std::int64_t ranks) {
    return b.ops(all_reduce_op(), {value}, {{"ranks", ranks}}, 1)[0];
  }

  // Numbers in a channel of one rank.
  static double count_of(const Node& node, const Shape& shape) {
    const Shape x = plain_shape(shape, node.attrs.integer("block", 1));
    return static_cast<double>(x[0] * dim_product(x, 2, x.size()));
  }

  static Attrs block_attrs(const Node& node) {
    Attrs attrs;
    if (node.attrs.has("block")) attrs.set("block", node.attrs.integer("block"));
    return attrs;
  }

  static ValueId inverse_deviation(GraphBuilder& b, ValueId variance, double epsilon) {
    const ValueId sum = b.op("Add", {variance, b.scalar(b.type(variance).dtype, epsilon)});
    return b.op("Reciprocal", {b.op("Sqrt", {sum})});
  }

  static Status replace(Rewriter& rw, const Found& found, std::int64_t ranks) {
    const Node node = rw.graph().nodes[found.node];
    std::vector<NodeId> replaced{found.node};
    replaced.insert(replaced.end(), found.means.begin(), found.means.end());
    GraphBuilder& b = rw.begin(kRule, found.node, replaced);
    const std::vector<ValueId> moments = b.ops(batch_moments_op(), {node.inputs[0]}, block_attrs(node), 2);
    const ValueId mean = mean_over_ranks(b, moments[0], ranks), apart = b.op("Sub", {moments[0], mean});
    const ValueId variance =
        mean_over_ranks(b, b.op("Add", {moments[1], b.op("Mul", {apart, apart})}), ranks);
    const double epsilon = node.attrs.real("epsilon", 1e-5);
    const ValueId inv_std = found.gradients.empty() ? kNone : inverse_deviation(b, variance, epsilon);
    Attrs attrs = block_attrs(node);
    attrs.set("epsilon", epsilon);
    const ValueId y =
        b.ops(op_by_name("BatchNormalization"),
              {node.inputs[0], node.inputs[1], node.inputs[2], cast_to(b, mean, b.type(node.inputs[3]).dtype),
               cast_to(b, variance, b.type(node.inputs[4]).dtype)},
              std::move(attrs), 1)[0];
    rw.replace(node.outputs[0], y);
    replace_running(rw, b, node, found, {mean, variance}, ranks);
    rw.commit("over " + std::to_string(ranks) + " ranks");
    for (const NodeId gradient : found.gradients) replace_gradient(rw, gradient, {mean, inv_std}, ranks);
    return {};
  }

  // The same on all ranks: no mean of them is needed.
  static void replace_running(Rewriter& rw, GraphBuilder& b, const Node& node, const Found& found,
                              const std::vector<ValueId>& batch, std::int64_t ranks) {
    const double momentum = node.attrs.real("momentum", kMomentum),
                 n = count_of(node, b.shape(node.inputs[0])) * static_cast<double>(ranks);
    const double unbias = node.attrs.integer("unbiased", 0) != 0 && n > 1 ? n / (n - 1) : 1;
    for (std::size_t i = 0; i < 2; ++i) {
      const ValueId old = i + 1 < node.outputs.size() ? node.outputs[i + 1] : kNone;
      if (old == kNone || rw.use_count(old) == 0) continue;
      const DType type = b.type(node.inputs[3 + i]).dtype;
      ValueId value = cast_to(b, batch[i], type);
      if (i == 1 && unbias != 1) value = b.op("Mul", {value, b.scalar(type, unbias)});
      const ValueId next = b.op("MovingAverage", {node.inputs[3 + i], value}, {{"decay", momentum}});
      for (const NodeId mean : found.means)
        if (rw.graph().nodes[mean].inputs[0] == old) rw.replace(rw.graph().nodes[mean].outputs[0], next);
      rw.replace(old, next);
    }
  }

  static void replace_gradient(Rewriter& rw, NodeId id, const Statistics& statistics, std::int64_t ranks) {
    const Node node = rw.graph().nodes[id];
    const ValueId dy = node.inputs[0], x = node.inputs[1], scale = node.inputs[2];
    GraphBuilder& b = rw.begin(kRule, id, {id});
    const std::vector<ValueId> sums =
        b.ops(batch_grad_sums_op(), {dy, x, statistics.mean, statistics.inv_std}, block_attrs(node), 2);
    for (std::size_t i = 1; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNone)
        rw.replace(node.outputs[i], cast_to(b, sums[i - 1], b.type(node.outputs[i]).dtype));
    if (rw.use_count(node.outputs[0]) > 0) {
      const DType type = b.type(statistics.mean).dtype, wanted = b.type(node.outputs[0]).dtype;
      const Shape shape = b.shape(x);
      const std::int64_t block = node.attrs.integer("block", 1);
      Shape stands(shape.size(), 1);
      stands[1] = b.shape(statistics.mean)[0] / block;
      if (block > 1) stands.back() = block;
      const auto across = [&](ValueId of) { return b.reshape(cast_to(b, of, type), stands); };
      const auto part = [&](ValueId sum) {
        const ValueId mean = mean_over_ranks(b, sum, ranks);
        return across(b.op("Mul", {mean, b.scalar(type, 1 / count_of(node, shape))}));
      };
      const ValueId inv_std = across(statistics.inv_std),
                    xhat =
                        b.op("Mul", {b.op("Sub", {cast_to(b, x, type), across(statistics.mean)}), inv_std});
      const ValueId from_xhat = b.op("Mul", {xhat, part(sums[0])}),
                    centered = b.op("Sub", {cast_to(b, dy, type), part(sums[1])});
      const ValueId slope = b.op("Mul", {across(scale), inv_std});
      const ValueId dx = b.op("Mul", {b.op("Sub", {centered, from_xhat}), slope});
      rw.replace(node.outputs[0], cast_to(b, dx, wanted));
    }
    rw.commit("over " + std::to_string(ranks) + " ranks");
  }
};

// Of one rank: the same numbers.
Result<PassExample> example() {
  const Attrs ranks{{"ranks", std::int64_t{1}}}, train{{"training_mode", std::int64_t{1}}};
  const Type type{DType::f64, {3}};
  const auto build = [&](Graph& graph, bool sync) {
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f64, {4, 3, 5}});
    const ValueId scale = b.input("scale", type), bias = b.input("bias", type);
    const ValueId mean = b.input("mean", type), variance = b.input("variance", type);
    ValueId y = kNone;
    if (sync) {
      const std::vector<ValueId> moments = b.ops(batch_moments_op(), {x}, {}, 2);
      const ValueId all = b.ops(all_reduce_op(), {moments[0]}, ranks, 1)[0],
                    apart = b.op("Sub", {moments[0], all});
      const ValueId spread =
          b.ops(all_reduce_op(), {b.op("Add", {moments[1], b.op("Mul", {apart, apart})})}, ranks, 1)[0];
      y = b.op("BatchNormalization", {x, scale, bias, all, spread}, {{"epsilon", 1e-5}});
    } else {
      y = b.ops(op_by_name("BatchNormalization"), {x, scale, bias, mean, variance}, train, 2)[0];
    }
    graph.outputs = {b.ops(all_reduce_op(), {y}, ranks, 1)[0]};
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef sync_batchnorm_pass;
const PassDef sync_batchnorm_pass = {
    .name = "sync-batchnorm",
    .summary = "normalize by the statistics of all ranks' batches together",
    .doc =
        "With several ranks, BatchNormalization takes mean and variance of the ranks' batches together, and its gradient the sums over all of "
        "them (torch.nn.SyncBatchNorm): N ranks train as one with a batch N times as large. Running statistics are those of the large batch. "
        "That is another training than with each rank's own statistics. Each node waits for the other ranks twice in the forward pass and twice in the "
        "backward pass, for some numbers of each channel. One rank is left as it is.",
    .phase = PassPhase::post_gradient,
    .by_default = false,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new SyncBatchNorm); },
    .example = example,
};

}  // namespace gradloom
