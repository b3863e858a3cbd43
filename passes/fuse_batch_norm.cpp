// fuse-batch-norm: what follows a batch normalization in the loop that writes its result, and the gradient of that in the loops that
// read it. Maps of convolutions exceed the caches: each loop of its own reads and writes them in memory.
//   activation   f(BatchNormalization(x) + residual), f: Relu, Clip or nothing, residual: a tensor of its shape or nothing
//   gradient     BatchNormGrad(f's gradient of dy), where nothing was added: where f held a bound follows from x, which is read anyway,
//                so that the result of the normalization need not be kept
// The gradient goes first: behind it nothing but f reads what Clip's gradient compared.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "passes/pass.h"
#include "passes/pattern.h"
#include "passes/phases.h"

namespace gradloom {
namespace {

constexpr const char *kNormRule = "activation", *kNormGradientRule = "gradient";

// Relu, or Clip with bounds that are known before running.
struct BoundedBy {
  std::string name;
  std::optional<double> low{}, high{};

  Attrs attrs() const {
    Attrs attrs;
    if (!name.empty()) attrs.set("activation", name);
    if (low) attrs.set("low", *low);
    if (high) attrs.set("high", *high);
    return attrs;
  }
};

bool is_activation(const Node& node) { return is_op(node, "Relu") || is_op(node, "Clip"); }

// Nothing: a bound is computed.
std::optional<BoundedBy> read_activation(const Graph& graph, const Node& node) {
  if (is_op(node, "Relu")) return BoundedBy{"relu"};
  BoundedBy clip{"clip"};
  std::optional<double>* const bounds[] = {&clip.low, &clip.high};
  const char* const names[] = {"min", "max"};
  for (std::size_t i = 0; i < 2; ++i) {
    double bound = 0;
    if (node.attrs.has(names[i])) *bounds[i] = node.attrs.real(names[i]);
    if (node.inputs.size() <= i + 1 || node.inputs[i + 1] == kNone) continue;
    if (!scalar_constant(graph, node.inputs[i + 1], &bound)) return std::nullopt;
    *bounds[i] = bound;
  }
  return clip;
}

bool trains(const Node& norm) {
  return norm.op->since >= 14 ? norm.attrs.integer("training_mode") != 0 : norm.outputs.size() > 1;
}

Attrs fused_attrs(const Node& norm, const BoundedBy& activation) {
  Attrs attrs = activation.attrs();
  for (const char* const name : {"epsilon", "momentum"})
    if (norm.attrs.has(name)) attrs.set(name, norm.attrs.real(name));
  for (const char* const name : {"unbiased", "block"})
    if (norm.attrs.has(name)) attrs.set(name, norm.attrs.integer(name));
  if (trains(norm)) attrs.set("training_mode", std::int64_t{1});
  return attrs;
}

// A batch normalization and what is done to its result on the way to `last`.
struct NormTail {
  NodeId norm = kNone, sum = kNone, activation = kNone;
  ValueId added = kNone;
  std::vector<NodeId> nodes() const {
    std::vector<NodeId> all{norm};
    for (const NodeId id : {sum, activation})
      if (id != kNone) all.push_back(id);
    return all;
  }
  NodeId last() const { return activation != kNone ? activation : sum; }
};

class FuseBatchNorm final : public Pass {
 public:
  Status run(Rewriter& rw) const override { return run_for(kernels::Target::cpu, rw); }

  Status run_for(kernels::Target target, Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    for (const NodeId id : order)
      if (rw.graph().nodes[id].alive() && is_op(rw.graph().nodes[id], "BatchNormGrad"))
        fuse_gradient(rw, id, target);
    for (const NodeId id : order)
      if (rw.graph().nodes[id].alive() && is_op(rw.graph().nodes[id], "BatchNormalization"))
        fuse_tail(rw, id, target);
    return {};
  }

 private:
  // The forward node that alone reads the value before the loss; kNone: there is none, or several.
  static NodeId only_reader(const Rewriter& rw, ValueId value) {
    NodeId reader = kNone;
    for (const Use& use : rw.uses(value)) {
      if (runs_after_loss(rw.graph().nodes[use.node])) continue;
      if (reader != kNone) return kNone;
      reader = use.node;
    }
    return reader;
  }

  // Why a node's kernel does not do it on such a tensor; empty: it does. GPUs' kernels take every type.
  static std::string type_problem(const Graph& graph, NodeId id, std::size_t input, kernels::Target target) {
    const Type& type = graph.type(graph.nodes[id].inputs[input]);
    if (!is_static(type.shape)) return "its sizes are not known";
    if (target != kernels::Target::cpu) return "";
    const DType scale = graph.type(graph.nodes[id].inputs[input + 1]).dtype;
    const bool own = type.dtype == DType::bf16 && scale == DType::f32 && graph.nodes[id].attrs.has("block");
    return is_half(type.dtype) && !own
               ? "16 bits that are not bf16 in blocks with parameters in f32 are computed in f32, without rounding in between"
               : "";
  }

  static NormTail find_tail(const Rewriter& rw, NodeId norm) {
    const Graph& graph = rw.graph();
    NormTail tail{norm};
    ValueId value = graph.nodes[norm].outputs[0];
    NodeId reader = value == kNone ? kNone : only_reader(rw, value);
    if (reader != kNone && is_op(graph.nodes[reader], "Add")) {
      const std::vector<ValueId>& terms = graph.nodes[reader].inputs;
      tail.sum = reader;
      tail.added = terms[0] == value ? terms[1] : terms[0];
      value = graph.nodes[reader].outputs[0];
      reader = only_reader(rw, value);
    }
    if (reader != kNone && is_activation(graph.nodes[reader]) && graph.nodes[reader].inputs[0] == value)
      tail.activation = reader;
    return tail;
  }

  // Why the sum cannot be made by the normalization; empty: it can.
  static std::string sum_problem(const Rewriter& rw, const NormTail& tail) {
    const Graph& graph = rw.graph();
    const ValueId y = graph.nodes[tail.norm].outputs[0];
    if (graph.type(tail.added) != graph.type(y))
      return "what is added, " + to_string(graph.type(tail.added).shape) + ", is not like it, " +
             to_string(graph.type(y).shape);
    const NodeId other = graph.values[tail.added].producer;
    return other != kNone && leads_to(rw, tail.norm, other) ? "what is added waits for it" : "";
  }

  static void fuse_tail(Rewriter& rw, NodeId id, kernels::Target target) {
    const Graph& graph = rw.graph();
    const NormTail tail = find_tail(rw, id);
    if (tail.last() == kNone) return;
    const auto refuse = [&](const std::string& why) { rw.reject(kNormRule, id, why); };
    if (const std::string why = type_problem(graph, id, 0, target); !why.empty()) return refuse(why);
    const std::vector<NodeId> nodes = tail.nodes();
    if (tail.sum != kNone)
      if (const std::string why = sum_problem(rw, tail); !why.empty()) return refuse(why);
    BoundedBy activation;
    if (tail.activation != kNone) {
      const auto known = read_activation(graph, graph.nodes[tail.activation]);
      if (!known) return refuse("a bound of " + graph.nodes[tail.activation].name + " is computed");
      activation = *known;
    }
    for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
      if (const std::string why = used_elsewhere(rw, graph.nodes[nodes[i]].outputs[0], nodes); !why.empty())
        return refuse(why);
    if (!rw.allowed(kNormRule, id, nodes)) return;
    const Node norm = graph.nodes[id];
    const ValueId result = graph.nodes[tail.last()].outputs[0];
    const double bytes = static_cast<double>(byte_size(graph.type(result)));
    std::vector<ValueId> inputs(norm.inputs.begin(), norm.inputs.begin() + 5);
    if (tail.sum != kNone) inputs.push_back(tail.added);
    GraphBuilder& b = rw.begin(kNormRule, tail.last(), nodes);
    const std::vector<ValueId> made =
        b.ops(op_by_name("FusedBatchNorm"), std::move(inputs), fused_attrs(norm, activation),
              static_cast<int>(norm.outputs.size()));
    rw.replace(result, made[0]);
    for (std::size_t i = 1; i < made.size(); ++i)
      if (norm.outputs[i] != kNone) rw.replace(norm.outputs[i], made[i]);
    rw.commit(bytes_text(2 * bytes * static_cast<double>(nodes.size() - 1)) + " less to read and write");
  }

  // ---- the gradient --------------------------------------------------------------------------------------

  // Nodes that stop the gradient, the last one first, and where it comes from.
  struct StoppedGradient {
    std::vector<NodeId> nodes;
    ValueId from = kNone;
  };

  // The gradient of f(y) on its way to y's; no nodes: it is something else.
  static StoppedGradient find_stop(const Graph& graph, ValueId gradient, ValueId y, const Node& activation,
                                   const BoundedBy& clip) {
    StoppedGradient stop{{}, gradient};
    const auto producer = [&](ValueId v) { return v == kNone ? kNone : graph.values[v].producer; };
    if (is_op(activation, "Relu")) {
      const NodeId id = producer(gradient);
      if (id != kNone && is_op(graph.nodes[id], "ReluGrad") &&
          graph.nodes[id].inputs[1] == activation.outputs[0])
        stop = {{id}, graph.nodes[id].inputs[0]};
      return stop;
    }
    for (const char* const compare : {"GreaterOrEqual", "LessOrEqual"}) {
      const NodeId where = producer(stop.from);
      double zero = 1;
      if (where == kNone || !is_op(graph.nodes[where], "Where") ||
          !scalar_constant(graph, graph.nodes[where].inputs[1], &zero) || zero != 0)
        continue;
      const NodeId test = producer(graph.nodes[where].inputs[0]);
      double bound = 0;
      if (test == kNone || !is_op(graph.nodes[test], compare) || graph.nodes[test].inputs[0] != y ||
          !scalar_constant(graph, graph.nodes[test].inputs[1], &bound) ||
          bound != (std::string_view(compare) == "LessOrEqual" ? clip.low : clip.high))
        continue;
      stop.nodes.insert(stop.nodes.end(), {where, test});
      stop.from = graph.nodes[where].inputs[2];
    }
    return stop;
  }

  // The normalization whose gradient this is.
  static NodeId find_norm(const Rewriter& rw, const Node& gradient) {
    const Graph& graph = rw.graph();
    for (const Use& use : rw.uses(gradient.inputs[1])) {
      const Node& node = graph.nodes[use.node];
      if (use.input_index == 0 && is_op(node, "BatchNormalization") && node.outputs.size() == 5 &&
          node.outputs[3] == gradient.inputs[3] && node.outputs[4] == gradient.inputs[4] &&
          node.inputs[1] == gradient.inputs[2] && trains(node))
        return use.node;
    }
    return kNone;
  }

  static void fuse_gradient(Rewriter& rw, NodeId id, kernels::Target target) {
    const Graph& graph = rw.graph();
    const auto refuse = [&](const std::string& why) { rw.reject(kNormGradientRule, id, why); };
    if (const std::string why = type_problem(graph, id, 1, target); !why.empty()) return refuse(why);
    const NodeId norm = find_norm(rw, graph.nodes[id]);
    if (norm == kNone) return refuse("its statistics are not those of a batch that the graph normalizes");
    const NormTail tail = find_tail(rw, norm);
    if (tail.activation == kNone) return;
    if (tail.sum != kNone)
      return refuse("a sum lies between it and the activation, whose gradient others read too");
    // A library of a GPU may make what this kernel could not find again to the bit.
    if (target != kernels::Target::cpu && rw.is_output(graph.nodes[norm].outputs[0]))
      return refuse("its normalization's result is an output of the graph");
    const Node activation = graph.nodes[tail.activation];
    const auto bounds = read_activation(graph, activation);
    if (!bounds) return refuse("a bound of " + activation.name + " is computed");
    const StoppedGradient stop =
        find_stop(graph, graph.nodes[id].inputs[0], graph.nodes[norm].outputs[0], activation, *bounds);
    const std::size_t bounds_told = (bounds->low ? 1 : 0) + (bounds->high ? 1 : 0);
    if (stop.nodes.size() != (bounds->name == "relu" ? 1 : 2 * bounds_told))
      return refuse("its gradient is not that of " + activation.name + " alone");
    std::vector<NodeId> nodes{id};
    nodes.insert(nodes.end(), stop.nodes.begin(), stop.nodes.end());
    for (const NodeId between : stop.nodes)
      if (const std::string why = used_elsewhere(rw, graph.nodes[between].outputs[0], nodes); !why.empty())
        return refuse(why);
    if (!rw.allowed(kNormGradientRule, id, nodes)) return;
    const Node gradient = graph.nodes[id];
    const double bytes = static_cast<double>(byte_size(graph.type(gradient.inputs[0])));
    std::vector<ValueId> inputs = gradient.inputs;
    inputs[0] = stop.from;
    inputs.push_back(graph.nodes[norm].inputs[2]);
    Attrs attrs = bounds->attrs();
    for (const char* const name : {"training", "block"})
      if (gradient.attrs.has(name)) attrs.set(name, gradient.attrs.integer(name));
    GraphBuilder& b = rw.begin(kNormGradientRule, id, nodes);
    const std::vector<ValueId> made = b.ops(op_by_name("FusedBatchNormGrad"), std::move(inputs),
                                            std::move(attrs), static_cast<int>(gradient.outputs.size()));
    for (std::size_t i = 0; i < made.size(); ++i)
      if (gradient.outputs[i] != kNone) rw.replace(gradient.outputs[i], made[i]);
    rw.commit(bytes_text(3 * bytes) + " less to read and write");
  }
};

// Training: the forward node and its gradient as autodiff leaves them.
Result<PassExample> example() {
  const Type x_type{DType::f32, {2, 3, 4, 4}}, c_type{DType::f32, {3}};
  const Attrs train{{"training_mode", std::int64_t{1}}}, relu{{"activation", std::string("relu")}};
  PassExample e;
  for (const bool fused : {false, true}) {
    Graph& graph = fused ? e.after : e.before;
    GraphBuilder b(graph);
    const ValueId x = b.input("x", x_type), scale = b.input("scale", c_type), bias = b.input("bias", c_type),
                  mean = b.input("mean", c_type), variance = b.input("variance", c_type),
                  dy = b.input("dy", x_type);
    Attrs attrs = train;
    if (fused) attrs.set("activation", std::string("relu"));
    const auto norm = b.ops(op_by_name(fused ? "FusedBatchNorm" : "BatchNormalization"),
                            {x, scale, bias, mean, variance}, attrs, 5);
    const ValueId y = fused ? norm[0] : b.op("Relu", {norm[0]});
    GraphBuilder after(graph, {.origin = {{}, Phase::backward}});
    const auto dx =
        fused ? after.ops(op_by_name("FusedBatchNormGrad"), {dy, x, scale, norm[3], norm[4], bias}, relu, 3)
              : after.ops(op_by_name("BatchNormGrad"),
                          {after.op("ReluGrad", {dy, y}), x, scale, norm[3], norm[4]}, {}, 3);
    graph.outputs = {y, norm[1], norm[2], dx[0], dx[1], dx[2]};
  }
  return e;
}

}  // namespace

extern const PassDef fuse_batch_norm_pass;
const PassDef fuse_batch_norm_pass = {
    .name = "fuse-batch-norm",
    .summary =
        "batch normalization with the sum and the activation behind it in one pass over memory, gradient too",
    .doc =
        "A BatchNormalization whose result goes through Relu or Clip, or is added to a tensor of its shape and then goes through one of them, "
        "writes what comes of that at once. In training, where nothing is added, its gradient finds again from its input where the activation "
        "let the gradient pass: Relu's gradient needs no loop of its own, and what Clip's gradient compared with the bounds is neither "
        "written nor kept. Blocks of channels and plain tensors, f32, f64 and, on GPUs and in blocks, 16 bits; the same numbers to the bit.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new FuseBatchNorm); },
    .example = example,
};

}  // namespace gradloom
