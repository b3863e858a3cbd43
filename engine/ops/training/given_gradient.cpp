// Gradients that a rule of the user gives (passes/rules.h) in place of those that follow from the operators.
//   GradientSeed (ours)    y -> what stands for the gradient of y until there is one
//   GivenGradient (ours)   y, seed, x1, g1, .., xn, gn -> y. The gradient of xi is gi with the gradient of the result in the seed's place.
// What gi is computed from stands beside y as nodes that autodiff repeats with the gradient; y and gi come through StopGradient. Both
// are views: a graph in which nobody differentiates gives the same numbers. Before the passes behind autodiff they go, with all
// that they alone read (passes/given_gradients.h).
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"

namespace gradloom {
namespace {

Status infer_seed(InferContext& ctx) { return set_outputs(ctx, {ctx.in(0)}); }

Status infer_given(InferContext& ctx) {
  if (ctx.inputs.size() % 2 != 0) return infer_error("a value without its gradient");
  for (std::size_t i = 0; i < ctx.inputs.size(); i += 2)
    if (!ctx.has(i) || !ctx.has(i + 1) || ctx.in(i) != ctx.in(i + 1))
      return infer_error("input " + std::to_string(i + 1) + " is not of the type of its value");
  return set_outputs(ctx, {ctx.in(0)});
}

// The nodes between the seed and the gradients, once more with the gradient of the result.
class Repeated {
 public:
  Repeated(GradContext& ctx, ValueId gradient) : b_(ctx.b) {
    made_[ctx.node.inputs[1]] = gradient;
    const Graph& graph = b_.graph();
    const auto uses = uses_of(graph);
    std::vector<ValueId> next{ctx.node.inputs[1]};
    while (!next.empty()) {
      const ValueId value = next.back();
      next.pop_back();
      for (const Use& use : uses[value])
        if (use.node != ctx.node_id && seeded_.insert(use.node).second)
          for (const ValueId out : graph.nodes[use.node].outputs)
            if (out != kNone) next.push_back(out);
    }
  }
  ValueId operator()(ValueId value) {
    if (value == kNone) return kNone;
    if (const auto found = made_.find(value); found != made_.end()) return found->second;
    const NodeId producer = b_.graph().values[value].producer;
    if (producer == kNone || seeded_.count(producer) == 0) return value;
    const Node node = b_.graph().nodes[producer];
    std::vector<ValueId> inputs;
    for (const ValueId in : node.inputs) inputs.push_back((*this)(in));
    const auto outputs = b_.ops(*node.op, inputs, node.attrs, static_cast<int>(node.outputs.size()));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (node.outputs[i] != kNone) made_[node.outputs[i]] = outputs[i];
    return made_.at(value);
  }

 private:
  GraphBuilder& b_;
  std::map<ValueId, ValueId> made_;
  std::set<NodeId> seeded_;
};

Status grad_given(GradContext& ctx) {
  Repeated repeated(ctx, ctx.out_grads[0]);
  for (std::size_t i = 2; i < ctx.node.inputs.size(); i += 2)
    if (ctx.wanted[i]) ctx.in_grads[i] = repeated(ctx.node.inputs[i + 1]);
  return {};
}

Cost no_work(const NodeTypes&) { return {}; }

// Of integers, which have no gradient that finite differences could find.
std::vector<Sample> seed_samples() { return {sample_of("integers", {}, {ints({2, 3}, 0, 9)})}; }
std::vector<Sample> given_samples() {
  return {
      sample_of("integers", {}, {ints({2, 3}, 0, 9), ints({2, 3}, 0, 9), ints({4}, 0, 9), ints({4}, 0, 9)})};
}

}  // namespace

const OpDef gradient_seed_op = {
    .name = "GradientSeed",
    .domain = "gradloom",
    .summary = "Stands for the gradient of a value until autodiff has one.",
    .traits = kView | kNoGradient,
    .infer = infer_seed,
    .cost = no_work,
    .samples = seed_samples,
};
const OpDef given_gradient_op = {
    .name = "GivenGradient",
    .domain = "gradloom",
    .summary = "The first input, with gradients that a rule of the user gives.",
    .traits = kView,
    .min_inputs = 4,
    .max_inputs = 130,
    .infer = infer_given,
    .grad = grad_given,
    .cost = no_work,
    .samples = given_samples,
    .precision = Precision::full,
};

}  // namespace gradloom
