#include "engine/autodiff/autodiff.h"

#include <algorithm>
#include <string_view>

#include "engine/base/text.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

// Backward nodes are scheduled after every forward node, in reverse order of the nodes they differentiate.
constexpr std::int64_t kBackwardRank = std::int64_t{1} << 40;

// For each value: does a gradient flow to it? (It depends on some wrt,
// and the loss depends on it, through floats.)
struct Flow {
  std::vector<bool> depends;  // on a wrt value
  std::vector<bool> reaches;  // a loss
};

// Whether the value is a code of its operator (OpDef::codes), or one in another order or shape: gradients
// pass straight through it, as float tensors.
bool quantized(const Graph& graph, ValueId id) {
  constexpr int kMostSteps = 16;  // models have two or three; a file's long chain is walked from each value
  for (int step = 0; step < kMostSteps && id != kNone && graph.values[id].producer != kNone; ++step) {
    const Node& node = graph.nodes[graph.values[id].producer];
    if (node.op->codes == Codes::all) return true;
    if (node.op->codes == Codes::small_floats) return is_small_float(graph.values[id].type.dtype);
    if ((!node.op->has(kView) && !node.op->has(kPermutes)) || node.inputs.empty()) return false;
    id = node.inputs[0];
  }
  return false;
}

bool differentiable(const Graph& graph, ValueId id) {
  if (id == kNone || !graph.values[id].has_type) return false;
  return is_float(graph.values[id].type.dtype) || quantized(graph, id);
}

Flow find_flow(const Graph& graph, const std::vector<NodeId>& order, const std::vector<ValueId>& losses,
               const std::vector<ValueId>& wrt) {
  Flow flow{std::vector<bool>(graph.values.size(), false), std::vector<bool>(graph.values.size(), false)};
  for (ValueId id : wrt) flow.depends[id] = true;
  for (NodeId id : order) {
    const Node& node = graph.nodes[id];
    if (node.op->has(kNoGradient)) continue;
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId in) { return in != kNone && flow.depends[in]; });
    if (!any) continue;
    for (ValueId out : node.outputs)
      if (differentiable(graph, out)) flow.depends[out] = true;
  }
  for (ValueId loss : losses) flow.reaches[loss] = true;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& node = graph.nodes[*it];
    if (node.op->has(kNoGradient)) continue;
    const bool any = std::any_of(node.outputs.begin(), node.outputs.end(),
                                 [&](ValueId out) { return out != kNone && flow.reaches[out]; });
    if (!any) continue;
    for (ValueId in : node.inputs)
      if (differentiable(graph, in)) flow.reaches[in] = true;
  }
  return flow;
}

bool on_path(const Flow& flow, const Node& node) {
  const auto carries = [&](ValueId id) { return id != kNone && flow.depends[id] && flow.reaches[id]; };
  return std::any_of(node.inputs.begin(), node.inputs.end(), carries) &&
         std::any_of(node.outputs.begin(), node.outputs.end(), carries);
}

MissingGradient missing_at(const Graph& graph, NodeId id, std::string reason) {
  const Node& node = graph.nodes[id];
  const std::string scope = node.origin.sources.empty() ? "" : graph.sources[node.origin.sources[0]].scope;
  return {node.name, node.op->name, scope, std::move(reason)};
}

// Every gradient that arrives is of a tensor without elements: those that leave are 0, whatever the operator.
bool nothing_flows(const GradContext& ctx) {
  const auto typed = [&](ValueId id) { return is_static(ctx.shape(id)) && is_float(ctx.dtype(id)); };
  for (std::size_t i = 0; i < ctx.out_grads.size(); ++i) {
    if (ctx.out_grads[i] == kNone) continue;
    const ValueId out = ctx.node.outputs[i];
    if (!typed(out) || element_count(ctx.shape(out)) > 0) return false;
  }
  for (std::size_t k = 0; k < ctx.wanted.size(); ++k)
    if (ctx.wanted[k] && !typed(ctx.node.inputs[k])) return false;
  return true;
}

// A gradient whose dims are not those of its value: both are known only by running, under different names.
bool dims_differ(const GradContext& ctx) {
  for (std::size_t i = 0; i < ctx.out_grads.size(); ++i)
    if (ctx.out_grads[i] != kNone && ctx.shape(ctx.out_grads[i]) != ctx.shape(ctx.node.outputs[i]))
      return true;
  return false;
}

struct Backward {
  std::map<ValueId, ValueId> grads;  // of every value that a gradient flows to
  std::vector<MissingGradient> missing;
};

// Appends the backward nodes. `grads`: those of the losses. What is missing counts as 0, so that all of it is
// found. `only_known`: rules are not asked about nodes whose shapes are not known yet.
Backward differentiate(GraphBuilder& b, const std::vector<NodeId>& order, const Flow& flow,
                       std::map<ValueId, ValueId> grads, bool only_known) {
  const Graph& graph = b.graph();
  Backward result;
  const auto carries = [&](ValueId id) {
    return id != kNone && id < flow.depends.size() && flow.depends[id] && flow.reaches[id];
  };
  for (std::size_t i = order.size(); i-- > 0;) {
    const NodeId id = order[i];
    if (graph.nodes[id].op->has(kNoGradient) || !on_path(flow, graph.nodes[id])) continue;
    GradContext ctx{b, graph.nodes[id], id, {}, {}, {}};
    bool any = false;
    for (ValueId out : ctx.node.outputs) {
      const auto it = out == kNone ? grads.end() : grads.find(out);
      ctx.out_grads.push_back(it == grads.end() ? kNone : it->second);
      any = any || it != grads.end();
    }
    const bool rule = ctx.node.op->grad != nullptr;
    if (!rule) result.missing.push_back(missing_at(graph, id, ""));
    if (!any || (only_known && !shapes_known(graph, ctx.node))) continue;
    for (ValueId in : ctx.node.inputs) ctx.wanted.push_back(carries(in));
    ctx.in_grads.assign(ctx.node.inputs.size(), kNone);
    const BuildScope here(b, {.origin = {ctx.node.origin.sources, Phase::backward},
                              .rank = kBackwardRank + static_cast<std::int64_t>(order.size() - i),
                              .name_prefix = ctx.node.name + "/grad/"});
    bool zero = !rule || nothing_flows(ctx);
    if (!zero) {
      const Status built = dims_differ(ctx) ? Status(infer_error("its dimensions are known only by running"))
                                            : ctx.node.op->grad(ctx);
      zero = !built.ok();
      if (zero) result.missing.push_back(missing_at(graph, id, built.error().message));
    }
    for (std::size_t k = 0; zero && k < ctx.node.inputs.size(); ++k)
      if (ctx.wanted[k]) ctx.in_grads[k] = full_like(ctx, ctx.node.inputs[k], 0);
    for (std::size_t k = 0; k < ctx.node.inputs.size(); ++k) {
      const ValueId in = ctx.node.inputs[k];
      if (!carries(in) || ctx.in_grads[k] == kNone) continue;
      const Type& want = graph.values[in].type;
      const Type& got = graph.values[ctx.in_grads[k]].type;
      CHECK(want == got || zero || quantized(graph, in) || !is_static(want.shape) || !is_static(got.shape),
            (std::string("gradient rule of ") + ctx.node.op->name + " returned " + to_string(got) +
             " for input " + std::to_string(k) + " of type " + to_string(want))
                .c_str());
      const auto [it, fresh] = grads.try_emplace(in, ctx.in_grads[k]);
      if (!fresh) it->second = b.op("Add", {it->second, ctx.in_grads[k]});
    }
  }
  std::reverse(result.missing.begin(), result.missing.end());
  result.grads = std::move(grads);
  return result;
}

std::string text_of(const std::vector<MissingGradient>& missing) {
  std::map<std::string, std::vector<std::string>> by_op;
  for (const MissingGradient& m : missing)
    by_op[m.op_type].push_back(escaped(m.node) + (m.reason.empty() ? "" : ": " + m.reason));
  std::string text = std::to_string(missing.size()) + " node(s) have no gradient:";
  for (const auto& [op, nodes] : by_op) {
    text += " " + op + " (";
    for (std::size_t i = 0; i < nodes.size(); ++i) text += (i ? ", " : "") + nodes[i];
    text += ")";
  }
  return text;
}

Result<std::map<ValueId, ValueId>> gradients_of(const Backward& backward, const std::vector<ValueId>& wrt) {
  if (!backward.missing.empty()) return Error{Errc::bad_input, text_of(backward.missing)};
  std::map<ValueId, ValueId> result;
  for (ValueId id : wrt) {
    const auto it = backward.grads.find(id);
    result[id] = it == backward.grads.end() ? kNone : it->second;
  }
  return result;
}

}  // namespace

std::vector<bool> gradients_leave(const Graph& graph, const std::vector<ValueId>& values,
                                  const std::vector<ValueId>& wrt) {
  std::vector<bool> leave(values.size(), false);
  const auto order = topological_order(graph);
  if (!order) return leave;
  const Flow flow = find_flow(graph, *order, {}, wrt);
  for (std::size_t i = 0; i < values.size(); ++i) leave[i] = flow.depends[values[i]];
  return leave;
}

std::vector<bool> gradients_reach(const Graph& graph, const std::vector<ValueId>& losses,
                                  const std::vector<ValueId>& wrt) {
  std::vector<bool> reached(wrt.size(), false);
  const auto order = topological_order(graph);
  if (!order) return reached;
  const Flow flow = find_flow(graph, *order, losses, wrt);
  for (std::size_t i = 0; i < wrt.size(); ++i) reached[i] = flow.reaches[wrt[i]];
  return reached;
}

std::vector<MissingGradient> missing_gradients(const Graph& graph, const std::vector<ValueId>& losses,
                                               const std::vector<ValueId>& wrt) {
  const auto order = topological_order(graph);
  if (!order) return {};
  const Flow flow = find_flow(graph, *order, losses, wrt);
  const auto flows = [&](NodeId id) { return on_path(flow, graph.nodes[id]); };
  if (std::none_of(order->begin(), order->end(), flows)) return {};
  Graph scratch = graph;
  GraphBuilder b(scratch, {.origin = {{}, Phase::backward}});
  std::map<ValueId, ValueId> grads;
  for (const ValueId loss : losses) {
    const Value& v = scratch.values[loss];
    if (!shape_known(scratch, loss) || !is_float(v.type.dtype)) continue;
    const Type type = v.type;
    grads[loss] = b.op("Expand", {b.scalar(type.dtype, 1), b.i64s(type.shape)});
  }
  return differentiate(b, *order, flow, std::move(grads), true).missing;
}

Result<std::map<ValueId, ValueId>> add_gradients(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt,
                                                 ValueId seed) {
  if (loss == kNone || loss >= graph.values.size()) return Error{Errc::bad_input, "no loss to differentiate"};
  const Value& loss_value = graph.values[loss];
  if (!is_float(loss_value.type.dtype) || !is_static(loss_value.type.shape) ||
      element_count(loss_value.type.shape) != 1)
    return Error{Errc::bad_input, "loss '" + escaped(loss_value.name) + "' is " + to_string(loss_value.type) +
                                      "; a floating-point scalar is needed"};
  const std::vector<NodeId> order = TRY(topological_order(graph));
  const Flow flow = find_flow(graph, order, {loss}, wrt);
  BuildContext context{.origin = {{}, Phase::backward}, .rank = kBackwardRank};
  const NodeId producer = loss_value.producer;
  if (producer != kNone) context.origin.sources = graph.nodes[producer].origin.sources;
  GraphBuilder b(graph, std::move(context));
  const Type type = loss_value.type;
  if (seed == kNone) {
    seed = b.constant(Tensor::from_f64(type.dtype, type.shape, {1.0}), b.unique_name("loss/grad"));
  } else {
    const BuildScope names_of_loss(b, b.context().named("loss/"));
    seed = cast_to(b, seed, type.dtype);
    if (b.type(seed).shape != type.shape) seed = b.reshape(seed, type.shape);
  }
  return gradients_of(differentiate(b, order, flow, {{loss, seed}}, false), wrt);
}

Result<std::map<ValueId, ValueId>> add_gradients(Graph& graph, const std::vector<GivenGradient>& given,
                                                 const std::vector<ValueId>& wrt) {
  const std::vector<NodeId> order = TRY(topological_order(graph));
  std::vector<ValueId> outputs;
  for (const GivenGradient& g : given) outputs.push_back(g.output);
  const Flow flow = find_flow(graph, order, outputs, wrt);
  GraphBuilder b(graph,
                 {.origin = {{}, Phase::backward}, .rank = kBackwardRank, .name_prefix = "outputs/grad/"});
  std::map<ValueId, ValueId> gradients;
  for (const GivenGradient& g : given) {
    CHECK(graph.type(g.output) == graph.type(g.gradient), "a gradient has the type of its output");
    const auto [it, fresh] = gradients.try_emplace(g.output, g.gradient);
    if (!fresh) it->second = b.op("Add", {it->second, g.gradient});
  }
  return gradients_of(differentiate(b, order, flow, std::move(gradients), false), wrt);
}

}  // namespace gradloom
