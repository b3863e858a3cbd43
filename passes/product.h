// What the matmul fusions share: a MatMul or FusedMatMul node read into plain fields,
// and written back as FusedMatMul.
//   A' = transpose(A, perm_a), B' = transpose(B, perm_b)
//   P = activation(alpha A' B' + bias), Y = transpose(P, perm_y)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/rewriter.h"
#include "engine/ops/products/matrix_product.h"

namespace gradloom {

struct Product {
  ValueId a = kNone, b = kNone, bias = kNone;
  Perm perm_a, perm_b, perm_y;  // full permutations
  double alpha = 1;
  std::string activation = "none";
};

Perm identity_perm(std::size_t rank);
Perm composed(const Perm& first, const Perm& second);  // transpose(transpose(x, first), second)
Perm perm_of_transpose(const Graph& graph, const Node& node);

// Nothing unless the node is MatMul or FusedMatMul with operands of at least 2 dims, or Gemm that adds
// nothing or one value per column, without addend, with an activation of "none" or "relu".
std::optional<Product> read_product(const Graph& graph, NodeId id);
// Why what GPUs do in a product's kernel is not done here; empty: it is. `devices`: a pass's option, gpu or all.
std::string only_on_gpus(const std::string& devices, kernels::Target target);
Attrs layout_attrs(const Product& product);  // permutations and alpha
ValueId add_product(GraphBuilder& b, const Product& product);
// Sets the attribute unless it would say nothing.
void set_perm(Attrs& attrs, const char* name, const Perm& perm);

// `value` times a scalar constant, or over it, of the same type.
struct ConstantScaling {
  ValueId value = kNone;
  bool divides = false;
  double constant = 0;
};
// Nothing unless the node is Mul or Div by a scalar constant. kNone: nothing.
std::optional<ConstantScaling> scaling_by_constant(const Graph& graph, NodeId id);

// The same as one factor.
struct Scaling {
  ValueId value = kNone;
  double factor = 1;
};
// Nothing unless the node is such a scaling by a finite factor.
std::optional<Scaling> read_scaling(const Graph& graph, NodeId id);

// The only reader of `value`, when it is a node input; kNone otherwise.
NodeId single_reader(const Rewriter& rw, ValueId value);

}  // namespace gradloom
