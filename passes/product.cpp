#include "passes/product.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "engine/ir/op.h"
#include "passes/pattern.h"

namespace gradloom {

Perm identity_perm(std::size_t rank) {
  Perm perm(rank);
  std::iota(perm.begin(), perm.end(), std::int64_t{0});
  return perm;
}

Perm composed(const Perm& first, const Perm& second) {
  Perm perm;
  for (std::int64_t axis : second) perm.push_back(first[static_cast<std::size_t>(axis)]);
  return perm;
}

Perm perm_of_transpose(const Graph& graph, const Node& node) {
  Perm reversed = identity_perm(graph.type(node.inputs[0]).shape.size());
  std::reverse(reversed.begin(), reversed.end());
  return node.attrs.integers("perm", reversed);
}

std::optional<Product> read_product(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  if (!node.alive()) return std::nullopt;
  const std::string_view name = node.op->name;
  const bool gemm = name == "Gemm";
  if (name != "MatMul" && name != "FusedMatMul" && !gemm) return std::nullopt;
  Product p;
  p.a = node.inputs[0];
  p.b = node.inputs[1];
  const std::size_t rank_a = graph.type(p.a).shape.size(), rank_b = graph.type(p.b).shape.size();
  if (rank_a < 2 || rank_b < 2) return std::nullopt;
  p.bias = node.inputs.size() > 2 ? node.inputs[2] : kNone;
  if (node.inputs.size() > 3 && node.inputs[3] != kNone) return std::nullopt;  // it adds more
  p.alpha = node.attrs.real("alpha", 1);
  p.perm_y = identity_perm(std::max(rank_a, rank_b));
  if (gemm) {
    p.perm_a = node.attrs.integer("transA") != 0 ? Perm{1, 0} : Perm{0, 1};
    p.perm_b = node.attrs.integer("transB") != 0 ? Perm{1, 0} : Perm{0, 1};
    if (p.bias == kNone) return p;
    const Shape columns = {graph.type(node.outputs[0]).shape[1]};
    if (node.attrs.real("beta", 1) != 1 || graph.type(p.bias).shape != columns) return std::nullopt;
    return p;
  }
  p.perm_a = node.attrs.integers("perm_a", identity_perm(rank_a));
  p.perm_b = node.attrs.integers("perm_b", identity_perm(rank_b));
  p.perm_y = node.attrs.integers("perm_y", p.perm_y);
  p.activation = node.attrs.text("activation", "none");
  if (p.activation != "none" && p.activation != "relu") return std::nullopt;  // it may have a second result
  if (p.perm_a.empty()) p.perm_a = identity_perm(rank_a);
  if (p.perm_b.empty()) p.perm_b = identity_perm(rank_b);
  if (p.perm_y.empty()) p.perm_y = identity_perm(std::max(rank_a, rank_b));
  return p;
}

std::optional<ConstantScaling> scaling_by_constant(const Graph& graph, NodeId id) {
  if (id == kNone) return std::nullopt;
  const Node& node = graph.nodes[id];
  const bool divides = is_op(node, "Div");
  if ((!divides && !is_op(node, "Mul")) || !is_float(graph.type(node.outputs[0]).dtype)) return std::nullopt;
  for (const std::size_t at : {1u, 0u}) {
    ConstantScaling scaling{node.inputs[1 - at], divides};
    // The constant may have more dims than the value.
    if (graph.type(scaling.value) == graph.type(node.outputs[0]) &&
        scalar_constant(graph, node.inputs[at], &scaling.constant))
      return scaling;
    if (divides) break;
  }
  return std::nullopt;
}

std::optional<Scaling> read_scaling(const Graph& graph, NodeId id) {
  const auto scaling = scaling_by_constant(graph, id);
  if (!scaling) return std::nullopt;
  const double factor = scaling->divides ? 1 / scaling->constant : scaling->constant;
  if (!std::isfinite(factor)) return std::nullopt;
  return Scaling{scaling->value, factor};
}

void set_perm(Attrs& attrs, const char* name, const Perm& perm) {
  if (!is_identity(perm)) attrs.set(name, perm);
}

std::string only_on_gpus(const std::string& devices, kernels::Target target) {
  if (devices == "all" || target == kernels::Target::gpu) return "";
  return "for GPUs: here it would run after the product, as it does now (devices=all: all the same)";
}

Attrs layout_attrs(const Product& product) {
  Attrs attrs;
  set_perm(attrs, "perm_a", product.perm_a);
  set_perm(attrs, "perm_b", product.perm_b);
  set_perm(attrs, "perm_y", product.perm_y);
  if (product.alpha != 1) attrs.set("alpha", product.alpha);
  return attrs;
}

ValueId add_product(GraphBuilder& b, const Product& product) {
  Attrs attrs = layout_attrs(product);
  if (product.activation != "none") attrs.set("activation", product.activation);
  std::vector<ValueId> inputs = {product.a, product.b};
  if (product.bias != kNone) inputs.push_back(product.bias);
  return b.op("FusedMatMul", inputs, std::move(attrs));
}

NodeId single_reader(const Rewriter& rw, ValueId value) {
  return rw.use_count(value) == 1 && rw.uses(value).size() == 1 ? rw.uses(value)[0].node : kNone;
}

}  // namespace gradloom
