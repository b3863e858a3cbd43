// recompute-activations: results of elementwise kernels that the backward pass alone still needs are made again there from operands that
// are kept anyway, instead of being kept themselves: the GELU of a transformer, whose gradient needs what goes into it and whose result
// waits for one weight gradient.
//
// All that are found run again or none: two plans tell whether the peak falls by as much as asked, FLOPs and bytes what it costs.
// Chains that begin at kept values are for --recompute and --memory-budget (recompute.h).
#include <algorithm>
#include <memory>
#include <set>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ir/views.h"
#include "engine/plan/known_kernels.h"
#include "passes/pass.h"
#include "passes/phases.h"
#include "passes/planners.h"
#include "passes/repeatable.h"

namespace gradloom {
namespace {

constexpr const char* kAgainRule = "activation";

// The readers of a value, through views of it too, that run after the loss.
bool read_after_loss(const Rewriter& rw, ValueId value, NodeId but_for) {
  for (const Use& use : rw.uses(value)) {
    const Node& node = rw.graph().nodes[use.node];
    if (use.node == but_for) continue;
    if (runs_after_loss(node) && !node.op->has(kView)) return true;
    if (node.op->has(kView) && use.input_index == 0 && read_after_loss(rw, node.outputs[0], but_for))
      return true;
  }
  return false;
}

class RecomputeActivations final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("min_mib", min_mib_,
            {.help = "a peak that falls by less is not worth it", .min = 0, .max = 1048576});
    v.field("max_percent", max_percent_,
            {.help = "most that it may cost, of a step, by FLOPs and bytes", .min = 0, .max = 100});
  }

  Status run(Rewriter& rw) const override { return run_for(kernels::Target::cpu, rw); }

  Status run_for(kernels::Target target, Rewriter& rw) const override {
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    const std::vector<NodeId> nodes = find(rw, order);
    if (nodes.empty()) return {};
    const auto refuse_all = [&](const std::string& why) {
      for (const NodeId id : nodes) rw.reject(kAgainRule, id, why);
    };
    double bytes = 0;
    for (const NodeId id : nodes) bytes += bytes_kept(rw, id);
    const std::string least = "less than min_mib";
    if (bytes < least_bytes()) {
      refuse_all("all of them hold " + bytes_text(bytes) + ", " + least);
      return {};
    }
    PlanOptions options{plan_nothing, "", true, target};
    options.pieces = false;
    options.known_kernels = std::make_shared<KnownKernels>();
    const auto before = make_plan(rw.graph(), options);
    if (!before) return {};  // what cannot be planned is told when it is
    const double cost = cost_of(*before, {nodes.begin(), nodes.end()}, target);
    if (100 * cost > max_percent_) {
      refuse_all("all of them would take " + percent_text(cost) + " of a step, more than max_percent");
      return {};
    }
    Graph tried = rw.graph();
    Rewriter other(tried, "recompute-activations");
    for (const NodeId id : nodes) TRY(run_again(other, order, id));
    const auto after = make_plan(tried, options);
    if (!after) return {};
    const double saved = static_cast<double>(before->lower_bound_bytes - after->lower_bound_bytes);
    if (saved < least_bytes() || saved <= 0) {
      refuse_all("with all of them the peak would fall by " + bytes_text(std::max(saved, 0.0)) + ", " +
                 least);
      return {};
    }
    for (const NodeId id : nodes) TRY(run_again(rw, order, id));
    return {};
  }

 private:
  double least_bytes() const { return static_cast<double>(min_mib_) * 1024 * 1024; }

  // In the order in which they run.
  static std::vector<NodeId> find(Rewriter& rw, const std::vector<NodeId>& order) {
    const Graph& graph = rw.graph();
    const std::vector<bool> repeatable = repeatable_nodes(graph);
    std::vector<NodeId> found;
    std::set<ValueId> again;
    for (const NodeId id : order) {
      const Node& node = graph.nodes[id];
      const bool pointwise = node.op->has(kElementwise) || node.op->has(kPointwise);
      if (!runs_forward(node) || !repeatable[id] || !pointwise || bytes_kept(rw, id) == 0) continue;
      const std::string why = problem(rw, id, again);
      if (!why.empty()) {
        rw.reject(kAgainRule, id, why);
      } else if (rw.allowed(kAgainRule, id)) {
        found.push_back(id);
        again.insert(node.outputs.begin(), node.outputs.end());
      }
    }
    return found;
  }

  // Why it is not made again; empty: it is, but for what it holds and costs. `again`: results that are.
  static std::string problem(const Rewriter& rw, NodeId id, const std::set<ValueId>& again) {
    const Graph& graph = rw.graph();
    for (const ValueId out : graph.nodes[id].outputs) {
      if (out == kNone) continue;
      if (rw.is_output(out)) return graph.values[out].name + " is an output of the graph";
      for (const Use& use : rw.uses(out)) {
        const Node& view = graph.nodes[use.node];
        if (view.op->has(kView) && !runs_after_loss(view) && read_after_loss(rw, view.outputs[0], kNone))
          return "a view of it from before the loss, " + view.name + ", is read after it";
      }
    }
    for (const ValueId in : graph.nodes[id].inputs) {
      if (in == kNone) continue;
      const ValueId storage = behind_views(graph, in);
      if (graph.values[storage].producer == kNone) continue;
      if (again.count(storage) != 0 || !read_after_loss(rw, storage, id))
        return "what it reads, " + graph.values[in].name + ", is not kept";
    }
    return "";
  }

  // Of its results that are read after the loss.
  static double bytes_kept(const Rewriter& rw, NodeId id) {
    double bytes = 0;
    for (const ValueId out : rw.graph().nodes[id].outputs)
      if (out != kNone && is_static(rw.graph().type(out).shape) && read_after_loss(rw, out, kNone))
        bytes += static_cast<double>(byte_size(rw.graph().type(out)));
    return bytes;
  }

  // As a part of the step's, by FLOPs and bytes: so many FLOPs take as long as moving a byte.
  static double cost_of(const Plan& plan, const std::set<NodeId>& nodes, kernels::Target target) {
    const double flops_per_byte = target == kernels::Target::cpu ? 15 : 100;
    double all = 0, again = 0;
    for (const PlanStep& step : plan.steps) {
      const double cost = std::max(step.flops / flops_per_byte, step.bytes_read + step.bytes_written);
      all += cost;
      if (nodes.count(step.node) != 0) again += cost;
    }
    return all > 0 ? again / all : 0;
  }

  // A clone before the first that reads it after the loss.
  static Status run_again(Rewriter& rw, const std::vector<NodeId>& order, NodeId id) {
    const Graph& graph = rw.graph();
    const Node node = graph.nodes[id];
    std::vector<std::vector<Use>> readers(node.outputs.size());
    NodeId first = kNone;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      for (const Use& use : rw.uses(node.outputs[i]))
        if (runs_after_loss(graph.nodes[use.node])) readers[i].push_back(use);
    }
    for (const NodeId reader : order)
      for (const std::vector<Use>& uses : readers)
        for (const Use& use : uses)
          if (first == kNone && use.node == reader) first = reader;
    CHECK(first != kNone, "a result that nothing reads after the loss");
    GraphBuilder& b = rw.begin(kAgainRule, first, {id});
    std::vector<std::string> names;
    for (const ValueId out : node.outputs)
      names.push_back(out == kNone ? "" : b.unique_name(graph.values[out].name + "/again"));
    const std::vector<ValueId> made =
        TRY(b.add(*node.op, node.inputs, node.attrs, static_cast<int>(names.size()), names,
                  b.unique_name(node.name + "/again")));
    for (std::size_t i = 0; i < made.size(); ++i)
      for (const Use& use : readers[i]) {
        std::vector<ValueId> inputs = graph.nodes[use.node].inputs;
        inputs[use.input_index] = made[i];
        rw.retype(use.node, std::move(inputs), graph.nodes[use.node].attrs);
      }
    rw.commit("runs again before " + graph.nodes[first].name);
    return {};
  }

  std::int64_t min_mib_ = 32;
  double max_percent_ = 3;
};

// A layer of a network: what goes into its activation is kept for the gradient, what comes out of it for the next weight's.
Result<PassExample> example() {
  const Type type{DType::f32, {2064, 4096}}, row{DType::f32, {4096}};
  const Attrs all{{"keepdims", std::int64_t{0}}};
  PassExample e;
  for (const bool again : {false, true}) {
    Graph& graph = again ? e.after : e.before;
    GraphBuilder b(graph);
    const ValueId in = b.input("in", {DType::f32, {2064, 2560}}),
                  w = b.input("w", {DType::f32, {2560, 4096}}), dy = b.input("dy", row);
    const ValueId x = b.op("MatMul", {in, w}), y = b.op("Gelu", {x});
    const ValueId sum = b.op("ReduceSum", {y}, all), other = b.op("ReduceSum", {b.op("Exp", {x})}, all);
    GraphBuilder after(graph, {.origin = {{}, Phase::backward}});
    const ValueId slope = after.op("ReduceSum", {after.op("GeluGrad", {dy, x})}, all);
    const ValueId product = after.op("Mul", {dy, again ? after.op("Gelu", {x}) : y});
    graph.outputs = {sum, other, slope, after.op("ReduceSum", {product}, all)};
  }
  return e;
}

}  // namespace

extern const PassDef recompute_activations_pass;
const PassDef recompute_activations_pass = {
    .name = "recompute-activations",
    .summary =
        "make results of elementwise kernels again for the backward pass, where that frees much and costs little",
    .doc =
        "A result of an elementwise kernel that the backward pass reads, made of nothing but what is kept for it anyway, runs again in front of "
        "its first reader there: a GELU, or the product of a gated unit, beside the weight gradient of the next layer. Its memory is free in between. The same "
        "numbers to the bit, and the same masks of Dropout. All that are found run again where the peak falls by min_mib or more and a step takes at most "
        "max_percent longer, by FLOPs and bytes; otherwise none does.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new RecomputeActivations); },
    .example = example,
};

}  // namespace gradloom
