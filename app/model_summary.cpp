#include "app/model_summary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/autodiff/autodiff.h"
#include "engine/base/names.h"
#include "engine/ir/op.h"
#include "engine/plan/plan.h"

namespace gradloom {
namespace {

std::string scope_of(const Graph& graph, const Node& node) {
  return node.origin.sources.empty() ? "" : graph.sources[node.origin.sources[0]].scope;
}

Obstacle obstacle(const Graph& graph, const Node& node, std::string reason) {
  return {node.name, node.op->name, scope_of(graph, node), std::move(reason)};
}

// Is every bit of the exponent set in some element?
template <class Bits>
bool any_not_finite(const std::byte* piece, std::size_t bytes, Bits exponent) {
  const auto* bits = reinterpret_cast<const Bits*>(piece);
  bool found = false;
  for (std::size_t i = 0, n = bytes / sizeof(Bits); i < n; ++i) found |= (bits[i] & exponent) == exponent;
  return found;
}

bool any_not_finite(DType dtype, const std::byte* piece, std::size_t bytes) {
  switch (dtype) {
    case DType::f64: return any_not_finite<std::uint64_t>(piece, bytes, 0x7ff0000000000000u);
    case DType::f32: return any_not_finite<std::uint32_t>(piece, bytes, 0x7f800000u);
    case DType::bf16: return any_not_finite<std::uint16_t>(piece, bytes, 0x7f80u);
    case DType::f16: return any_not_finite<std::uint16_t>(piece, bytes, 0x7c00u);
    default: break;
  }
  if (!is_small_float(dtype)) return false;
  Tensor numbers(dtype, {static_cast<std::int64_t>(bytes)});
  std::memcpy(numbers.mutable_data(), piece, bytes);
  bool found = false;
  for (std::int64_t i = 0, n = numbers.count(); i < n; ++i) found |= !std::isfinite(numbers.at(i));
  return found;
}

}  // namespace

Result<bool> any_not_finite(const Tensor& tensor) {
  bool found = false;
  TRY(tensor.visit([&](const std::byte* piece, std::size_t, std::size_t bytes) -> Result<bool> {
    found = any_not_finite(tensor.dtype(), piece, bytes);
    return !found;
  }));
  return found;
}

namespace {

std::vector<std::string> weights_that_are_not_finite(const Graph& graph) {
  std::size_t budget = std::size_t{512} << 20;  // larger files are not read through just to be looked at
  std::vector<std::string> names;
  for (const ValueId id : graph.parameters) {
    const Value& v = graph.values[id];
    if (!v.data.defined() || v.data.bytes() > budget) continue;
    budget -= v.data.bytes();
    const Result<bool> found = any_not_finite(v.data);
    if (found.ok() && *found) names.push_back(v.name);  // of a file that changes there is nothing to say
  }
  return names;
}

void add_missing_kernels(const Graph& graph, const Node& node, ModelSummary& s) {
  for (const auto& [target, list] :
       {std::pair(kernels::Target::cpu, &s.no_cpu_kernel), {kernels::Target::gpu, &s.no_gpu_kernel}}) {
    const std::string why = missing_kernel(graph, node, target);
    if (!why.empty()) list->push_back(obstacle(graph, node, why == "no kernel" ? "" : why));
  }
}

}  // namespace

std::vector<Obstacle> obstacles_of(const std::vector<UnknownOp>& nodes) {
  std::vector<Obstacle> obstacles;
  for (const UnknownOp& u : nodes)
    obstacles.push_back({u.node, (u.domain.empty() ? "" : u.domain + ".") + u.op_type, u.scope, u.reason});
  return obstacles;
}

std::vector<ParameterRow> parameter_table(const ImportedModel& model, const std::vector<ValueId>& losses,
                                          const TrainSpec& spec) {
  if (spec.freeze.empty() && spec.groups.empty()) return parameter_table(model, model.graph, losses);
  Graph graph = model.graph;
  freeze_parameters(graph, spec);
  return parameter_table(model, graph, losses);
}

std::vector<ParameterRow> parameter_table(const ImportedModel& model, const Graph& graph,
                                          const std::vector<ValueId>& losses) {
  const std::vector<bool> reached = gradients_reach(graph, losses, graph.parameters);
  NameMap<std::string> untrained;  // parameters, and why
  for (std::size_t i = 0; i < graph.parameters.size(); ++i) {
    const Value& value = graph.value(graph.parameters[i]);
    if (value.frozen) {
      untrained.emplace(value.name, "frozen by name");
    } else if (!reached[i]) {
      untrained.emplace(value.name, "no gradient reaches it");
    }
  }
  std::vector<ParameterRow> rows;
  for (const InitializerVerdict& verdict : model.initializers) {
    rows.push_back({verdict.name, verdict.type, verdict.trained, verdict.why, verdict.unsure});
    const auto why = untrained.find(verdict.name);
    if (!verdict.trained || why == untrained.end()) continue;
    rows.back().trained = rows.back().unsure = false;
    rows.back().why = why->second;
  }
  return rows;
}

ModelSummary summarize(const ImportedModel& model, const std::vector<ValueId>& losses) {
  ModelSummary s;
  const Graph& graph = model.graph;
  std::map<std::string, OpCount> ops;
  std::set<ValueId> seen;  // parameters
  for (const Node& node : graph.nodes) {
    if (!node.alive()) continue;
    OpCount& count = ops[node.op->name];
    count.op = node.op->name;
    ++count.nodes;
    ModuleCount& module = s.modules[scope_of(graph, node)];
    ++module.nodes;
    for (const ValueId id : node.inputs) {
      const Value* v = id == kNone ? nullptr : &graph.values[id];
      if (v != nullptr && v->role == Role::parameter && seen.insert(id).second)
        module.parameters += element_count(v->type.shape);
    }
    if (node.op->infer == nullptr) continue;  // an operator that Gradloom lacks
    add_missing_kernels(graph, node, s);
    if (node.op->has(kView) || !shapes_known(graph, node)) continue;
    const Cost cost = node.op->cost(node_types(graph, node));
    count.flops += cost.flops;
    count.bytes += cost.bytes_read + cost.bytes_written;
    module.flops += cost.flops;
    s.flops += cost.flops;
    s.bytes += cost.bytes_read + cost.bytes_written;
  }
  for (auto& [name, count] : ops) s.ops.push_back(std::move(count));
  std::stable_sort(s.ops.begin(), s.ops.end(),
                   [](const OpCount& a, const OpCount& b) { return a.flops > b.flops; });
  for (ValueId p : graph.parameters) {
    if (!shape_known(graph, p)) continue;
    s.parameters += element_count(graph.values[p].type.shape);
    s.parameter_bytes += static_cast<std::int64_t>(byte_size(graph.values[p].type));
  }
  s.not_finite = weights_that_are_not_finite(graph);
  for (const NodeId id : nodes_sized_by_data(graph))
    s.sized_by_data.push_back(
        obstacle(graph, graph.nodes[id],
                 "only the data tells how large its output is, a plan needs to know it before"));
  for (MissingGradient& m : missing_gradients(graph, losses, graph.parameters))
    s.no_gradient.push_back(
        {std::move(m.node), std::move(m.op_type), std::move(m.scope), std::move(m.reason)});
  return s;
}

}  // namespace gradloom
