// The table of operator rows and what every row is used through: lookup, types, evaluation on host tensors.
#include <algorithm>
#include <cstring>
#include <map>

#include "engine/ops/custom/custom_ops.h"
#include "engine/ops/dims.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/preparation.h"
#include "engine/ops/elementwise/formulas.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

struct Registry {
  std::vector<const OpDef*> rows;
  std::multimap<std::pair<std::string, std::string>, const OpDef*> by_name;  // (domain, name)
};

const Registry& registry() {
  static const Registry table = [] {
    Registry r;
    for (const OpDef& row : elementwise_rows()) r.rows.push_back(&row);
#define OP(symbol) r.rows.push_back(&symbol##_op);
#include "engine/ops/ops.def"
#undef OP
    for (const OpDef* row : r.rows) r.by_name.insert({{row->domain, row->name}, row});
    return r;
  }();
  return table;
}

const OpDef* newest(const std::string& name, const std::string& domain) {
  const OpDef* best = nullptr;
  const auto [first, last] = registry().by_name.equal_range({domain, name});
  for (auto it = first; it != last; ++it)
    if (best == nullptr || it->second->since > best->since) best = it->second;
  return best;
}

}  // namespace

std::span<const OpDef* const> all_ops() { return registry().rows; }

const OpDef* find_op(const std::string& name, const std::string& domain, int opset) {
  const auto [first, last] = registry().by_name.equal_range({domain == "ai.onnx" ? "" : domain, name});
  for (auto it = first; it != last; ++it)
    if (it->second->since <= opset && opset <= it->second->until) return it->second;
  return find_custom_op(name, domain, opset);
}

const OpDef& op_by_name(const char* name) {
  const OpDef* row = newest(name, "gradloom");
  if (row == nullptr) row = newest(name, "");
  CHECK(row != nullptr, name);
  return *row;
}

const InputRole* OpDef::role(std::size_t input) const {
  const auto found =
      std::find_if(roles.begin(), roles.end(), [&](const InputRole& r) { return r.input == input; });
  return found == roles.end() ? nullptr : &*found;
}

const Tensor* InferContext::constant(std::size_t i) const {
  if (!has(i) || !is_constant(graph, inputs[i])) return nullptr;
  const Tensor& data = graph.values[inputs[i]].data;
  return data.defined() ? &data : nullptr;
}

NodeTypes node_types(const Graph& graph, const Node& node, kernels::Target target, bool dnn_library) {
  NodeTypes types;
  types.target = target;
  types.dnn_library = dnn_library;
  const DType fallback =
      node.inputs.empty() || node.inputs[0] == kNone ? DType::f32 : graph.type(node.inputs[0]).dtype;
  for (ValueId id : node.inputs) {
    const bool present = id != kNone;
    types.inputs.push_back(present ? graph.type(id) : Type{fallback, {}});
    types.input_present.push_back(present);
    const bool known = present && is_constant(graph, id) && graph.values[id].data.defined();
    types.constants.push_back(known ? &graph.values[id].data : nullptr);
  }
  for (ValueId id : node.outputs) {
    types.outputs.push_back(id != kNone ? graph.type(id) : Type{fallback, {}});
    types.output_present.push_back(id != kNone);
  }
  types.attrs = node.attrs;
  types.node_name = node.name;
  return types;
}

std::string missing_kernel(const Graph& graph, const Node& node, kernels::Target target) {
  if (node.op->has(kView)) return "";
  if (node.op->prepare(target) == nullptr) return "no kernel";
  if (!shapes_known(graph, node)) return "";
  const auto kernel = prepare_kernel(*node.op, node_types(graph, node, target));
  return kernel ? "" : kernel.error().message;
}

Cost default_cost(const NodeTypes& types) {
  Cost cost;
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    if (types.has(i)) cost.bytes_read += static_cast<double>(byte_size(types.inputs[i]));
  for (std::size_t i = 0; i < types.outputs.size(); ++i) {
    if (!types.wants(i)) continue;
    cost.bytes_written += static_cast<double>(byte_size(types.outputs[i]));
    cost.flops += static_cast<double>(element_count(types.outputs[i].shape));
  }
  return cost;
}

// ---- gradient rules ---------------------------------------------------------------------------------------

ValueId GradContext::require_out(std::size_t i) {
  if (i < node.outputs.size() && node.outputs[i] != kNone) return node.outputs[i];
  const ValueId id = b.add_output(node_id, i);
  node.outputs = b.graph().node(node_id).outputs;
  return id;
}

ValueId GradContext::reduce_to(ValueId g, ValueId like) {
  const Shape from = shape(g), to = shape(like);
  if (from == to) return g;
  CHECK(from.size() >= to.size(), "a gradient has at least the rank of its broadcast input");
  const std::size_t lead = from.size() - to.size();
  std::vector<std::int64_t> axes, leading;
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (d < lead) leading.push_back(static_cast<std::int64_t>(d));
    if (d < lead || (to[d - lead] == 1 && from[d] != 1)) axes.push_back(static_cast<std::int64_t>(d));
  }
  if (axes.empty()) return g;
  const bool only_leading = axes.size() == leading.size();
  const ValueId sum =
      b.op("ReduceSum", {g, b.i64s(axes)}, {{"keepdims", std::int64_t{only_leading ? 0 : 1}}});
  if (only_leading || leading.empty()) return sum;
  if (is_static(to)) return reshaped_like(*this, sum, like);
  return b.op("Squeeze", {sum, b.i64s(leading)});
}

// ---- evaluation -------------------------------------------------------------------------------------------

Result<std::vector<Tensor>> evaluate(const OpDef& op, const Attrs& attrs, const std::vector<Tensor>& inputs,
                                     int output_count, const std::string& node_name, std::uint64_t seed,
                                     std::uint64_t step) {
  Graph graph;
  Node node;
  node.op = &op;
  node.attrs = attrs;
  node.name = node_name.empty() ? op.name : node_name;
  std::vector<const void*> in;
  for (const Tensor& tensor : inputs) {
    in.push_back(tensor.defined() ? tensor.data() : nullptr);
    node.inputs.push_back(tensor.defined() ? static_cast<ValueId>(graph.values.size()) : kNone);
    if (!tensor.defined()) continue;
    Value v;
    v.type = tensor.type();
    v.has_type = true;
    v.role = Role::constant;
    v.data = tensor;
    graph.values.push_back(std::move(v));
  }
  InferContext ctx{graph, attrs, node.inputs, output_count,
                   std::vector<Type>(static_cast<std::size_t>(output_count))};
  if (Status s = op.infer(ctx); !s) return with_context(s.error(), op.name);
  for (const Type& type : ctx.outputs) {
    if (!is_static(type.shape))
      return infer_error(std::string(op.name) + ": the output shape depends on unknown contents");
    TRY(checked_element_count(type.shape, dtype_bytes(type.dtype)));
    Value v;
    v.type = type;
    v.has_type = true;
    node.outputs.push_back(static_cast<ValueId>(graph.values.size()));
    graph.values.push_back(std::move(v));
  }
  if (op.has(kView)) return std::vector<Tensor>{inputs[0].reshaped(ctx.outputs[0].shape)};
  if (op.cpu == nullptr) return no_kernel(std::string(op.name) + " has no CPU kernel");
  auto kernel = prepare_kernel(op, node_types(graph, node));
  if (!kernel) return with_context(kernel.error(), op.name);

  std::vector<Tensor> outputs;
  std::vector<void*> out;
  for (const Type& type : ctx.outputs) outputs.emplace_back(type.dtype, type.shape);
  for (Tensor& tensor : outputs) out.push_back(tensor.mutable_data());
  const Tensor workspace(DType::u8, {static_cast<std::int64_t>(kernel->workspace_bytes)});
  const kernels::RandomState random{seed, step};
  LaunchArgs args{in.data(), out.data(), const_cast<void*>(workspace.data()), &random,
                  kernels::cpu_launcher()};
  kernel->run(args);
  return outputs;
}

// ---- helpers of the rows ----------------------------------------------------------------------------------

bool is_of_either_domain(const OpDef& op) {
  return std::string_view(op.domain).empty() || std::string_view(op.domain) == "gradloom";
}

bool is_op(const Node& node, std::string_view name) {
  return node.alive() && name == node.op->name && is_of_either_domain(*node.op);
}

Error infer_error(const std::string& message) { return Error{Errc::bad_input, message}; }

Result<std::int64_t> normalized_axis(std::int64_t axis, std::size_t rank) {
  const auto r = static_cast<std::int64_t>(rank);
  if (axis < -r || axis >= r)
    return infer_error("axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank));
  return axis < 0 ? axis + r : axis;
}

Result<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1,
                       db = i < b.size() ? b[b.size() - 1 - i] : 1;
    std::int64_t& d = result[result.size() - 1 - i];
    if (da == db || db == 1) {
      d = da;
    } else if (da == 1) {
      d = db;
    } else if (da < 0 && db < 0) {
      d = derived_dim("broadcast " + std::to_string(std::min(da, db)) + "," +
                      std::to_string(std::max(da, db)));
    } else if (da < 0 || db < 0) {
      d = std::max(da, db);  // the symbolic one is 1 or equal
    } else {
      return infer_error("shapes " + to_string(a) + " and " + to_string(b) + " do not broadcast");
    }
  }
  return result;
}

}  // namespace gradloom
